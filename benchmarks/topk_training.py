"""Does a truer gradient find the right frames sooner? Recall against steps on synthetic actions.

For every gradient of the smoothed Top-K and every seed, selectors are inserted into one trained
dense model and fine-tuned with it. The truth of the informative frames is known, so recall needs
only the embedding and the scorer.

    tokenselect train recipes/synthetic_mvit_dense.yaml
    python -m benchmarks.topk_training --seeds 3
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.progress import track
from torch import Tensor, nn

from tokenselect import create_model, record_selections, set_sigma
from tokenselect.data.synthetic import CLASS_NAMES, SyntheticActions
from tokenselect.measure.recall import frame_recall, tokenize_truth
from tokenselect.plan import SELECTORS

RESULTS = Path(__file__).parent / "results"
METHODS = ("stts-exact", "stts-sampled", "stts-diagonal")
BATCH, TOKEN_FRAMES = 16, 8


def main() -> None:
    """Train all cells that are not done yet, then print and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", default="T0=3")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--dense", default="runs/synthetic_mvit_dense", help="run to start from")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--test-clips", type=int, default=400)
    parser.add_argument("--every", type=int, default=20, help="steps between recalls")
    parser.add_argument("--work", type=Path, default=Path("runs/topk_training"))
    parser.add_argument("--out", type=Path, default=RESULTS / "topk_training.json")
    settings = parser.parse_args()
    settings.work.mkdir(parents=True, exist_ok=True)
    dense = build_model(settings.dense, plan=None, method="stts")
    cells = []
    for seed in range(settings.seeds):
        for method in METHODS:
            path = settings.work / f"{method}-{seed}.json"
            if not path.exists():
                path.write_text(json.dumps(train_cell(method, seed, settings)))
            cells.append(json.loads(path.read_text()))
    report = {
        "command": "python -m benchmarks.topk_training",
        "plan": settings.plan,
        "steps": settings.steps,
        "dense_top1": accuracy(dense, settings.test_clips),
        "cells": cells,
    }
    settings.out.write_text(json.dumps(report, indent=1))
    print_table(report)
    plot(report, settings.out.with_suffix(".png"))


def build_model(dense: str, *, plan: str | None, method: str) -> nn.Module:
    """Build MViT mini from the weights of a dense run."""
    return create_model(
        "mvit_mini",
        plan=plan,
        method=method,
        scorer="paper",
        num_classes=len(CLASS_NAMES),
        weights=dense,
    )


def batches(seed: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Draw `steps` batches of clips that no other seed sees."""
    clips = SyntheticActions(steps * BATCH, seed=1000 + seed)
    loader = torch.utils.data.DataLoader(clips, batch_size=BATCH, shuffle=False)
    yield from loader


def train_cell(method: str, seed: int, settings: argparse.Namespace) -> dict[str, object]:
    """Fine-tune the dense model with selectors; note recall as it goes and accuracy at the end."""
    torch.manual_seed(seed)
    model = build_model(settings.dense, plan=settings.plan, method=method)
    selectors = list(model.token_selectors.parameters())
    backbone = [p for n, p in model.named_parameters() if not n.startswith(SELECTORS)]
    groups = [{"params": selectors, "lr": 2e-2}, {"params": backbone, "lr": 2e-4}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.05)
    recalls = [[0, recall(model)]]
    done = enumerate(batches(seed, settings.steps), start=1)
    for index, (clips, labels) in track(done, f"{method} {seed}", total=settings.steps):
        set_sigma(model, 0.1 * (1 - (index - 1) / settings.steps))
        step(model, optimizer, clips, labels)
        if index % settings.every == 0:
            recalls.append([index, recall(model)])
    top1 = accuracy(model, settings.test_clips)
    return {"method": method, "seed": seed, "recall": recalls, "top1": top1}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, clips: Tensor, labels: Tensor) -> None:
    """Take one optimizer step."""
    loss = F.cross_entropy(model.train()(clips), labels)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


@torch.no_grad()
def recall(model: nn.Module, num_clips: int = 128) -> float:
    """Give the share of the informative frames that the first site keeps."""
    clips = SyntheticActions(num_clips, seed=5, split="val")
    truths = [clips.truth(index) for index in range(num_clips)]
    truth = tokenize_truth(
        torch.stack([t.frames for t in truths]),
        torch.stack([t.boxes for t in truths]),
        size=clips.size,
    )
    videos = torch.stack([clips[index][0] for index in range(num_clips)])
    with record_selections(model.eval()) as selections:
        model.token_selectors["T0"](model.embed(videos))
    return frame_recall(selections["T0"].indices, truth).mean().item()


@torch.inference_mode()
def accuracy(model: nn.Module, num_clips: int) -> float:
    """Give top-1 on test clips."""
    clips = SyntheticActions(num_clips, seed=6, split="test")
    loader = torch.utils.data.DataLoader(clips, batch_size=50)
    right = sum((model.eval()(c).argmax(1) == y).sum().item() for c, y in loader)
    return right / num_clips


def print_table(report: dict) -> None:
    """Print recall at the end and accuracy, mean and standard deviation over the seeds."""
    print(f"dense top-1 {report['dense_top1']:.3f}, plan {report['plan']}")
    for method in METHODS:
        cells = [cell for cell in report["cells"] if cell["method"] == method]
        ends = torch.tensor([cell["recall"][-1][1] for cell in cells])
        top1 = torch.tensor([cell["top1"] for cell in cells])
        print(
            f"{method:14} recall {ends.mean():.3f} ± {ends.std():.3f}   "
            f"top-1 {top1.mean():.3f} ± {top1.std():.3f}   ({len(cells)} seeds)"
        )


def plot(report: dict, path: Path) -> None:
    """Draw recall against steps: a thin line a seed, a thick one for their mean."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for method, colour in zip(METHODS, ("tab:blue", "tab:orange", "tab:green"), strict=True):
        runs = [cell["recall"] for cell in report["cells"] if cell["method"] == method]
        steps = [point[0] for point in runs[0]]
        curves = torch.tensor([[point[1] for point in run] for run in runs])
        for curve in curves:
            axes.plot(steps, curve, color=colour, alpha=0.3, linewidth=0.8)
        axes.plot(steps, curves.mean(0), color=colour, linewidth=2, label=method)
    keep = int(report["plan"].removeprefix("T0="))
    axes.axhline(keep / TOKEN_FRAMES, color="grey", linestyle=":", label="chance")
    axes.set(xlabel="steps", ylabel="recall of informative frames", title=f"plan {report['plan']}")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
