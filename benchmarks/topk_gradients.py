"""How far the gradients of the smoothed Top-K point from the true one, and how noisy they are.

Claim: the exact operator gives the gradient itself; 500 samples give a noisy one, and the diagonal
of the Jacobian, which the paper's released code takes, one that no number of samples makes true.

    PYTHONPATH=src python -m benchmarks.topk_gradients

Scores are uniform in [0, 1] (as after min-max rescaling), σ = 0.1, the upstream gradient is normal;
every number is a mean over draws of both. The truth is the exact operator in float64, which the
tests hold against enumeration, finite differences and 4·10⁵ samples.
"""

import argparse
import json
import os
import platform
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from tokenselect.ops import perturbed_topk

RESULTS = Path(__file__).parent / "results"
SIGMA, NUM_SAMPLES = 0.1, 500
SIZES = [(8, 5), (16, 10), (4, 1), (9, 1), (81, 1)]
KINDS: dict[str, dict] = {
    "full": {"method": "sampled"},
    "control variate": {"method": "sampled", "control_variate": True},
    "antithetic": {"method": "sampled", "antithetic": True},
    "diagonal": {"method": "diagonal"},
}
COUNTS = [20, 100, 500, 2500]


def gradient(scores: Tensor, upstream: Tensor, **options: object) -> Tensor:
    """Give d(upstream · Y)/d(scores): (b, l) from scores (b, l) and upstream (b, k, l)."""
    leaf = scores.detach().requires_grad_()
    indicator = perturbed_topk(leaf, upstream.shape[1], SIGMA, **options)
    return torch.autograd.grad(indicator, leaf, upstream)[0]


def true_diagonal(scores: Tensor, upstream: Tensor) -> Tensor:
    """Give what the diagonal-only gradient tends to with ever more samples: (b, l)."""
    columns = torch.eye(scores.shape[-1], dtype=scores.dtype)[:, None, None]  # (l, 1, 1, l)
    each = [gradient(scores, upstream * column).mul(column[0]) for column in columns]
    return torch.stack(each).sum(dim=0)


def compare(estimate: Tensor, truth: Tensor) -> dict[str, float]:
    """Give the mean cosine and the mean squared error relative to the truth's square."""
    error = (estimate - truth).square().sum(dim=-1) / truth.square().sum(dim=-1)
    cosine = cosine_similarity(estimate.double(), truth.double(), dim=-1)
    return {"cosine": float(cosine.mean()), "error": float(error.median())}


def measure_size(num_candidates: int, k: int, num_draws: int) -> dict:
    """Measure all kinds of gradient for one size."""
    scores = torch.rand(num_draws, num_candidates, dtype=torch.float64)
    upstream = torch.randn(num_draws, k, num_candidates, dtype=torch.float64)
    truth = gradient(scores, upstream)
    row: dict = {"size": (num_candidates, k)}
    for kind, options in KINDS.items():
        row[kind] = {
            count: compare(gradient(scores, upstream, num_samples=count, **options), truth)
            for count in COUNTS
        }
    row["diagonal, n → ∞"] = compare(true_diagonal(scores, upstream), truth)
    row["exact, float32"] = compare(gradient(scores.float(), upstream.float()), truth)
    smooth = perturbed_topk(scores, k, SIGMA)
    sampled = perturbed_topk(scores, k, SIGMA, method="sampled", num_samples=NUM_SAMPLES)
    computed = perturbed_topk(scores.float(), k, SIGMA)
    row["indicator"] = {
        "sampled": float((sampled - smooth).abs().amax(dim=(1, 2)).mean()),
        "exact, float32": float((computed - smooth).abs().amax(dim=(1, 2)).mean()),
    }
    return row


def describe(report: dict) -> str:
    """Lay the report out as text: cosine and, in brackets, relative squared error."""
    kinds = [*KINDS, "diagonal, n → ∞", "exact, float32"]
    lines = [report["command"], report["machine"], ""]
    lines.append("cosine to the true gradient (median squared error / squared length), n = 500")
    lines.append(f"{'l, k':>7}" + "".join(f"{kind:>20}" for kind in kinds))
    for row in report["sizes"]:
        cells = [row[kind][NUM_SAMPLES] if kind in KINDS else row[kind] for kind in kinds]
        found = [f"{cell['cosine']:.3f} ({cell['error']:.1e})" for cell in cells]
        lines.append(
            f"{row['size'][0]:>4}, {row['size'][1]}".ljust(7) + "".join(f"{c:>20}" for c in found)
        )
    lines += ["", "largest error of the indicator: 500 samples, exact in float32"]
    for row in report["sizes"]:
        found = row["indicator"]
        lines.append(f"{row['size']!s:>9} {found['sampled']:.1e} {found['exact, float32']:.1e}")
    return "\n".join(lines) + "\n"


def plot(report: dict, path: Path) -> None:
    """Draw cosine against the number of samples, one panel a size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(SIZES), figsize=(13, 3), sharey=True)
    for panel, row in zip(panels, report["sizes"], strict=True):
        for kind, marker in zip(KINDS, "osv^", strict=True):
            cosines = [row[kind][count]["cosine"] for count in COUNTS]
            panel.plot(COUNTS, cosines, marker=marker, markersize=4, label=kind)
        panel.axhline(row["exact, float32"]["cosine"], color="black", label="exact")
        panel.set(title=f"{row['size'][1]} of {row['size'][0]}", xscale="log", xlabel="samples")
        panel.grid(alpha=0.3)
    panels[0].set(ylabel="cosine to the true gradient", ylim=(0, 1.05))
    panels[-1].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, print, plot and save under benchmarks/results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    report = {
        "command": f"PYTHONPATH=src python -m benchmarks.topk_gradients --draws {arguments.draws}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
        "sizes": [measure_size(*size, arguments.draws) for size in SIZES],
    }
    print(describe(report))
    plot(report, RESULTS / "topk_gradients.png")
    (RESULTS / "topk_gradients.txt").write_text(describe(report))
    (RESULTS / "topk_gradients.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
