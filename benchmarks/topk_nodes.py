"""How many nodes the exact Top-K's integral needs: evenly spaced against Gauss-Legendre.

Claim: evenly spaced nodes need about half as many, and the spacing that `threshold_nodes` takes is
exact to float32 for scores near and far, equal ones among them.

    PYTHONPATH=src python -m benchmarks.topk_nodes

Float64 throughout, so that only the quadrature errs; the truth has 401 nodes over ±8 deviations.
"""

import math
import os
import platform
from pathlib import Path

import numpy
import torch
from torch import Tensor

from tokenselect.ops.threshold import threshold_nodes

RESULTS = Path(__file__).parent / "results"
SIZES = [(8, 3), (16, 6), (9, 1), (81, 1), (32, 16)]
NUM_ROWS = 20


def smooth_topk(scores: Tensor, k: int, nodes: Tensor, weights: Tensor) -> Tensor:
    """Walk over the candidates, plainly: (b, l) in units of the noise to (b, k, l)."""
    threshold = scores.topk(k).values[:, -1:]
    above = (scores - threshold).T.unsqueeze(-1) - nodes  # (l, b, q)
    chance = torch.special.ndtr(above)
    owner = torch.exp(-0.5 * above**2) / math.sqrt(2 * math.pi)
    prefixes, suffixes = walk(chance, owner, k), walk(chance.flip(0), owner.flip(0), k)
    columns = []
    for p, phi, (without, met), (after, met_after) in zip(
        chance, owner, prefixes, reversed(suffixes), strict=True
    ):
        after, met_after = after[:-1].flip(0), met_after[:-1].flip(0)
        paths = without[:-1] * (p * met_after + phi * after) + met[:-1] * p * after
        columns.append((paths * weights).sum(dim=-1).T)
    return torch.stack(columns, dim=-1)


def walk(chance: Tensor, owner: Tensor, k: int) -> list[tuple[Tensor, Tensor]]:
    """List the weights by count, owner not met and met, before every candidate."""
    without = torch.zeros(k + 1, *chance.shape[1:], dtype=chance.dtype)
    without[0] = 1
    met = torch.zeros_like(without)
    states = []
    for p, phi in zip(chance, owner, strict=True):
        states.append((without, met))
        shifted, met_shifted = without.roll(1, 0), met.roll(1, 0)
        shifted[0] = met_shifted[0] = 0
        met = torch.lerp(met, met_shifted, p) + phi * shifted
        without = torch.lerp(without, shifted, p)
    return states


def even_rule(number: int, reach: float) -> tuple[Tensor, Tensor]:
    """Space `number` nodes evenly over ± reach."""
    nodes = torch.linspace(-reach, reach, number, dtype=torch.float64)
    return nodes, torch.full_like(nodes, 2 * reach / (number - 1))


def gauss_legendre(number: int, reach: float) -> tuple[Tensor, Tensor]:
    """Give the rule that is exact for polynomials of degree 2 · number - 1."""
    nodes, weights = numpy.polynomial.legendre.leggauss(number)
    return torch.tensor(nodes) * reach, torch.tensor(weights) * reach


def worst_error(num_candidates: int, k: int, number: int, rule: str) -> float:
    """Give the largest error over scores that are equal, within σ, at 10 σ and at 100 σ."""
    torch.manual_seed(0)
    shape = (NUM_ROWS, num_candidates)
    spread = torch.randn(shape, dtype=torch.float64)
    errors = []
    for scores in (0 * spread, spread, 10 * spread.abs(), 100 * spread):
        truth = smooth_topk(scores, k, *even_rule(401, 8.0))
        nodes = even_rule(number, 5.5) if rule == "even" else gauss_legendre(number, 6.0)
        errors.append(float((smooth_topk(scores, k, *nodes) - truth).abs().max()))
    return max(errors)


def main() -> None:
    """Print and save the table."""
    torch.set_num_threads(1)
    numbers = [12, 16, 24, 32, 48]
    lines = ["PYTHONPATH=src python -m benchmarks.topk_nodes"]
    lines.append(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}")
    lines += ["", "largest error of the indicator by number of nodes", ""]
    lines.append(f"{'l, k':>7} {'nodes':>15}" + "".join(f"{n:>9}" for n in numbers) + "   taken")
    for num_candidates, k in SIZES:
        taken = threshold_nodes(torch.empty(num_candidates), k)[0].numel()
        for rule in ("even", "Gauss-Legendre"):
            errors = [worst_error(num_candidates, k, number, rule) for number in numbers]
            line = f"{num_candidates:>4}, {k}".ljust(7) + f" {rule:>15}"
            line += "".join(f"{error:>9.0e}" for error in errors)
            if rule == "even":
                line += f"   {taken}: {worst_error(num_candidates, k, taken, rule):.0e}"
            lines.append(line)
    text = "\n".join(lines) + "\n"
    print(text)
    (RESULTS / "topk_nodes.txt").write_text(text)


if __name__ == "__main__":
    main()
