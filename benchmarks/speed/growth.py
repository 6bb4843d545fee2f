"""How time grows with frames, size and batch, with plots."""

from pathlib import Path

import torch

from benchmarks.speed.timing import Row, build, make_clips, medians, speed_up, time_forwards
from tokenselect.measure.cost import count_macs

PLANS = ("dense", "T0_0.6-S4_0.9")
SHAPES = {  # what grows: (batch, frames, size)
    "frames": [(1, 8, 224), (1, 16, 224), (1, 32, 224)],
    "size": [(1, 16, 112), (1, 16, 224), (1, 16, 320)],
    "batch": [(1, 16, 224), (2, 16, 224), (4, 16, 224), (8, 16, 224)],
}


def measure_growth(repeats: int, device: torch.device) -> list[Row]:
    """Time MViT-B16, dense and selected, over frames, sizes and batches."""
    found: dict[tuple[int, int, int], Row] = {}
    for shapes in SHAPES.values():
        for shape in shapes:
            if shape not in found:
                found[shape] = measure_shape(*shape, repeats, device)
    return [{"grows": axis} | found[shape] for axis, shapes in SHAPES.items() for shape in shapes]


def measure_shape(batch: int, frames: int, size: int, repeats: int, device: torch.device) -> Row:
    """Time one shape of clips."""
    models = {plan: build("mvit_b16", plan, device, frames=frames, size=size) for plan in PLANS}
    video = make_clips(models["dense"], batch, device)
    rounds = time_forwards(models, video, repeats)
    seconds = medians(rounds)
    row: Row = {"batch": batch, "frames": frames, "size": size}
    for plan, model in models.items():
        gmacs = batch * count_macs(model, 1, *video.shape[1:]).gmacs
        row |= {f"GMACs {plan}": gmacs, f"seconds {plan}": seconds[plan]}
    ratio = speed_up(rounds, "dense", PLANS[1])
    return row | {
        "speed-up": ratio,
        "realised": ratio * row[f"GMACs {PLANS[1]}"] / row["GMACs dense"],
    }


def plot_growth(rows: list[Row], path: Path) -> None:
    """Draw seconds over what grows, one panel each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    panels = figure.subplots(1, len(SHAPES))
    for panel, axis in zip(panels, SHAPES, strict=True):
        mine = [row for row in rows if row["grows"] == axis]
        for plan, color in zip(PLANS, ("#777777", "#1f77b4"), strict=True):
            places = [row[axis] for row in mine]
            panel.plot(
                places, [row[f"seconds {plan}"] for row in mine], "o-", color=color, label=plan
            )
        panel.set(xlabel=axis, xticks=[row[axis] for row in mine], ylim=(0, None))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("seconds a batch, MViT-B16")
    panels[0].legend()
    figure.savefig(path, dpi=120)
