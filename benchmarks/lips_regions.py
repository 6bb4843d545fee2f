"""Do the kept regions show the lips, and would others serve better? Cells of a table of GRID faces.

    python -m benchmarks.tables lips --data grid_faces --word verb --root FACES
    python -m benchmarks.lips_regions --word verb --root FACES

No model was told where the lips are. Prints the share of their box, which holds those of all
sentences, that the kept region shows, and top-1 %: of learned selection, then of the same weights
with the anchor nearest the middle of the lips and with the one in the middle of the picture, then
of the other methods. Mean of the seeds. `--write` adds it to `results/lips_regions.txt`.
"""

import argparse
import random
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from benchmarks.grid_clips import FACE, LIPS, draw_face
from benchmarks.swap_choice import load_cell
from benchmarks.tables import choose_recipe, name_data
from benchmarks.word_frames import read_options, report
from tokenselect import record_selections
from tokenselect.insertion import selectors_of
from tokenselect.measure.headroom import Chosen
from tokenselect.ops.anchors import anchor_corners, default_stride
from tokenselect.selectors.selector import Selector
from tokenselect.training.data import ClipSet, build_test_set, single_views

RESULTS = Path(__file__).parent / "results" / "lips_regions.txt"
PLAN, SIDE, GRID = "S0_0.16", 8, 20  # tokens of a region and of a frame, down and across
BATCH = 20


def main() -> None:
    """Look at the test clips with every method and seed; print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.set_defaults(data="grid_faces")
    settings = read_options(parser)
    clips = build_test_set(choose_recipe(settings).data, "test")
    lips = find_lips([Path(sample.path).name for sample in clips.dataset.samples])  # type: ignore[attr-defined]
    middle = torch.tensor([GRID, GRID]).expand(len(lips), 2) / 2
    runs = settings.work / f"{name_data(settings)}_mvit" / "runs"
    text = f"python -m benchmarks.lips_regions --word {settings.word} --root FACES\n"
    for name, method, wanted in (
        ("learned", "stts-exact", None),
        ("learned, at the lips", "stts-exact", lips.mean(dim=1)),
        ("learned, in the middle", "stts-exact", middle),
        ("uniform", "uniform", None),
        ("static", "static", None),
        ("random", "random", None),
    ):
        cells = [load_cell(runs, PLAN, method, seed) for seed in range(settings.seeds)]
        each = torch.stack([look(cell.eval(), clips, lips, wanted) for cell in cells])
        shown, right = each.mean(dim=0).tolist()
        text += f"{name:22} {shown:4.0%} of the lips, top-1 {100 * right:.1f} %\n"
    report(text, RESULTS if settings.write else None)


def find_lips(names: list[str]) -> Tensor:
    """Give the box of the lips in each clip, in tokens: (clips, 2 corners, 2)."""
    top, left, height, width = LIPS
    boxes = []
    for name in names:
        row, column, *_ = draw_face(random.Random(f"clips/{name}"))
        first, last = (top - row, left - column), (top - row + height, left - column + width)
        boxes.append((first, last))
    return torch.tensor(boxes) * GRID / FACE


@torch.inference_mode()
def look(model: nn.Module, clips: ClipSet, lips: Tensor, wanted: Tensor | None) -> Tensor:
    """Give the share of the lips that is shown, and that of right answers.

    `wanted`, (clips, 2), moves every clip's region as near to that middle as an anchor is.
    """
    torch.manual_seed(0)  # of random regions
    shown, right = [], []
    batches = zip(single_views(clips.batches(BATCH)), lips.split(BATCH), strict=True)
    for number, ((batch, labels), box) in enumerate(batches):
        if wanted is not None:
            hold(model, wanted.split(BATCH)[number])
        with record_selections(model) as selections:
            right.append(model(batch).argmax(dim=1) == labels)
        corners = selections["S0"].corners
        assert corners is not None
        shown.append(cover(corners, box[:, None]).mean(dim=1))
    return torch.stack([torch.cat(shown).mean(), torch.cat(right).float().mean()])


def hold(model: nn.Module, wanted: Tensor) -> None:
    """Keep the anchor nearest to a middle, in every frame of a clip; `wanted`: (b, 2)."""
    selectors = selectors_of(model)
    assert selectors is not None
    selector = cast(Selector, selectors["S0"])
    side, hw = (SIDE, SIDE), (GRID, GRID)
    stride = selector.stride or default_stride(hw, side, selector.parts)
    middles = torch.tensor(anchor_corners(hw, side, stride)) + SIDE / 2  # (g, 2)
    selector.scoring = Chosen(torch.cdist(wanted.float(), middles).argmin(dim=1)[:, None])


def cover(corners: Tensor, box: Tensor) -> Tensor:
    """Give the share of a box (…, 2 corners, 2) that a region at `corners` (…, 2) shows: (…)."""
    first, last = torch.maximum(corners, box[..., 0, :]), box[..., 1, :]
    inside = (torch.minimum(corners + SIDE, last) - first).clamp_min(0)
    return inside.prod(dim=-1) / (last - box[..., 0, :]).prod(dim=-1)


if __name__ == "__main__":
    main()
