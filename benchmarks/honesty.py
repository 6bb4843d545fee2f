"""How often the small model of the package answers what it should refuse, and refuses its own.

    python -m benchmarks.honesty LSA64 GESTURES5 GRID

Each folder is searched for videos. None of them, and none of the seeds here, was looked at when the
limits of `looks_synthetic` were set. Prints a table and writes benchmarks/results/honesty.txt.
"""

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor

from tokenselect import load_model
from tokenselect.checkpoints import info_of
from tokenselect.data import open_video, write_video
from tokenselect.data.frame_folder import walk_videos
from tokenselect.data.synthetic import SyntheticActions, looks_synthetic

RESULTS = Path(__file__).parent / "results" / "honesty.txt"
SEEDS = range(101, 111)


def main() -> None:
    """Count both mistakes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--clips", type=int, default=200, help="of each seed")
    settings = parser.parse_args()
    lines = ["python -m benchmarks.honesty LSA64 GESTURES5 GRID", ""]
    lines += [f"{'synthetic, refused though they should be answered':58} clips  refused"]
    for name, clips in synthetic_sets(settings.clips).items():
        answers = [looks_synthetic(clip) for clip in clips]
        lines.append(f"{name:58} {len(answers):5}  {answers.count(False):7}")
    lines += ["", f"{'real, answered though they should be refused':58} clips  answered"]
    for folder in settings.folders:
        for name, is_grey in ((folder.name, False), (f"{folder.name}, made grey", True)):
            answers = [looks_synthetic(clip) for clip in read_clips(folder, is_grey=is_grey)]
            lines.append(f"{name:58} {len(answers):5}  {answers.count(True):8}")
    print("\n".join(lines))
    RESULTS.write_text("\n".join(lines) + "\n")


def synthetic_sets(count: int) -> dict[str, Iterable[Tensor]]:
    """Draw clips of new seeds as they are, of other shapes, and as files of H.264."""
    drawn = {seed: SyntheticActions(count, seed=seed, frames=16, size=96) for seed in SEEDS}
    small = SyntheticActions(count, seed=111, frames=8, size=48)
    crowded = SyntheticActions(count, seed=112, frames=32, size=(96, 128), movers=5)
    sets: dict[str, Iterable[Tensor]] = {
        "16 × 96 × 96, seeds 101 to 110": (
            clips.video(i) for clips in drawn.values() for i in range(count)
        ),
        "8 × 48 × 48, seed 111": (small.video(i) for i in range(count)),
        "32 × 96 × 128, five movers, seed 112": (crowded.video(i) for i in range(count)),
    }
    for quality in (18, 23, 28, 35):
        sets[f"16 × 96 × 96 through H.264 at crf {quality}, seed 101"] = through_file(
            drawn[101], quality
        )
    return sets


def through_file(clips: SyntheticActions, quality: int) -> Iterator[Tensor]:
    """Write clips as a user would save them, and read them again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        for index in range(min(100, len(clips))):
            write_video(path, clips.video(index), fps=8, options={"crf": str(quality)})
            with open_video(path) as source:
                yield source.read(list(range(source.num_frames)))


def read_clips(folder: Path, *, is_grey: bool) -> Iterator[Tensor]:
    """Read each video as the model of the package would."""
    rule = info_of(load_model()).clip_rule
    for path in track(walk_videos(folder), description=folder.name):
        with open_video(path) as source:
            clip = rule.read_crops(source)[0]
            yield (
                clip.float().mean(dim=1, keepdim=True).to(torch.uint8).expand_as(clip)
                if (is_grey)
                else clip
            )


if __name__ == "__main__":
    main()
