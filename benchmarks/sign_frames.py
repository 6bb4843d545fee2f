"""What a dense model makes of a few frames of a stream of signs, chosen by someone who knows.

    python -m benchmarks.sign_frames ROOT > benchmarks/results/sign_frames.txt

ROOT is the folder that `benchmarks.sign_streams` wrote; the dense model is that of
`recipes/streams_mvit_dense.yaml`, its weights as they are. Frames are token frames of the test
streams: evenly spaced over the stream, evenly spaced over the sign, or side by side in its middle.
"""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from tokenselect import insert_selectors, load_model, set_plan
from tokenselect.measure.headroom import Chosen
from tokenselect.selectors.scoring import middles
from tokenselect.training.build import recipe_of
from tokenselect.training.data import ClipSet, build_test_set

KEEP = (3, 6)
TOKEN_FRAMES = 18


def main() -> None:
    """Test all choices, and print a row for each number of frames."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--dense", default="runs/streams_mvit_dense/last")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(settings.dense).eval()
    data = replace(recipe_of(model).data, root=str(settings.root))
    clips = build_test_set(data, "test", class_names=model.info.class_names)
    signs = read_signs(settings.root, clips)
    insert_selectors(model, f"T0={KEEP[0]}", method="uniform")
    print("| frames | even over the stream | even over the sign | side by side in the sign |")
    print("| --- | --- | --- | --- |")
    for keep in KEEP:
        set_plan(model, f"T0={keep}")
        ways = zip(*(choose(first, last, keep) for first, last in signs), strict=True)
        shares = [measure(model, clips, torch.tensor(choices)) for choices in ways]
        print(f"| {keep} of {TOKEN_FRAMES} | " + " | ".join(f"{x:.1%}" for x in shares) + " |")


def read_signs(root: Path, clips: ClipSet) -> list[tuple[int, int]]:
    """Give the first token frame of the sign in each clip, and the one behind its last."""
    with (root / "streams.tsv").open(newline="", encoding="utf-8") as file:
        rows = {Path(row["path"]).name: row for row in csv.DictReader(file, delimiter="\t")}
    signs = []
    for sample in clips.dataset.samples:  # type: ignore[attr-defined]
        row = {key: int(rows[Path(sample.path).name][key]) for key in ("start", "stop")}
        places = (int(rows[Path(sample.path).name][key]) for key in ("sign_start", "sign_stop"))
        scale = TOKEN_FRAMES / (row["stop"] - row["start"])
        first, last = (round((place - row["start"]) * scale) for place in places)
        signs.append((first, max(last, first + 1)))
    return signs


def choose(first: int, last: int, keep: int) -> tuple[list[int], list[int], list[int]]:
    """Give three choices of frames for a sign; a sign of too few frames takes in neighbours."""
    lacking = max(0, keep - (last - first))
    first = min(max(0, first - (lacking + 1) // 2), TOKEN_FRAMES - max(keep, last - first))
    last = max(last, first + keep)
    start = (first + last - keep) // 2
    spread = [first + place for place in middles(last - first, keep)]
    return middles(TOKEN_FRAMES, keep), spread, list(range(start, start + keep))


@torch.inference_mode()
def measure(model: nn.Module, clips: ClipSet, choices: Sequence[Sequence[int]]) -> float:
    """Give top-1 with the frames that were chosen for each clip."""
    selector, right, done = model.token_selectors["T0"], 0, 0  # type: ignore[union-attr, index]
    for videos, labels in clips.batches(20, workers=0):
        selector.scoring = Chosen(choices[done : done + len(labels)])
        logits = model(videos.flatten(0, videos.ndim - 5))
        right += int((logits.argmax(dim=1) == labels).sum())
        done += len(labels)
    return right / done


if __name__ == "__main__":
    main()
