"""Put signs of LSA64 into longer clips of the same signer, at times that nobody tells.

    python -m benchmarks.sign_streams ROOT OUT

ROOT is the folder of LSA64 with `clips.tsv` (path, label, sign, signer). A stream is three clips of
one signer in random order: a sign of LSA-20 (labels 23, 25, …, 61), which is the answer, and two
other signs, which are not answers anywhere. Of it a window of 144 frames is shown that holds the
whole of the answer. OUT takes `streams/*.mp4`, 128×96, and `streams.tsv`: path, label, sign,
signer, the window (start, stop) and the answer's frames (sign_start, sign_stop). Signers 1 to 7,
to train on, get two streams for each clip, signer 8, to validate on, four, the others one.
"""

import argparse
import csv
import random
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor

from tokenselect.data import open_video, write_video
from tokenselect.data.annotations import matches
from tokenselect.data.transforms import resize

ANSWERS = "23-61:2"
TRAINED, VALIDATED = "1-7", "8"
VAL_STREAMS = 4  # of each clip: what is chosen by them should not be chosen by chance
WINDOW = 144
SIZE = (96, 128)  # height, width
Clip = dict[str, str]


def main() -> None:
    """Write streams and their table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, help="folder of LSA64")
    parser.add_argument("out", type=Path, help="folder for the streams")
    settings = parser.parse_args()
    with (settings.root / "clips.tsv").open(newline="", encoding="utf-8") as file:
        clips = list(csv.DictReader(file, delimiter="\t"))
    (settings.out / "streams").mkdir(parents=True, exist_ok=True)
    planned = plan_streams(clips, random.Random(0))
    rows = [
        write_stream(settings.root, settings.out, number, parts, answer, random.Random(number))
        for number, (parts, answer) in enumerate(track(planned, "streams"))
    ]
    with (settings.out / "streams.tsv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)


def plan_streams(clips: list[Clip], draw: random.Random) -> list[tuple[list[Clip], int]]:
    """Draw the clips of each stream, and which of them is the answer.

    All streams for training and testing and one for each validated clip come first.
    """
    streams = []
    answers = [clip for clip in clips if matches(clip["label"], ANSWERS)]
    validated = [clip for clip in answers if matches(clip["signer"], VALIDATED)]
    for clip in [*answers, *validated * (VAL_STREAMS - 1)]:
        others = [
            other
            for other in clips
            if other["signer"] == clip["signer"] and not matches(other["label"], ANSWERS)
        ]
        for _ in range(2 if matches(clip["signer"], TRAINED) else 1):
            parts = draw.sample(others, 2)
            answer = draw.randrange(3)
            parts.insert(answer, clip)
            streams.append((parts, answer))
    return streams


def write_stream(
    root: Path, out: Path, number: int, parts: list[Clip], answer: int, draw: random.Random
) -> dict[str, object]:
    """Write one stream, unless it is there, and give its row."""
    pieces = [read_frames(root / part["path"]) for part in parts]
    lengths = [len(piece) for piece in pieces]
    first = sum(lengths[:answer])
    start, stop = draw_window(first, first + lengths[answer], sum(lengths), draw)
    path = Path("streams") / f"{number:04}.mp4"
    if not (out / path).exists():
        unfinished = out / path.with_name(f".{path.name}")
        write_video(unfinished, torch.cat(pieces), fps=30, options={"crf": "18", "g": "30"})
        unfinished.replace(out / path)
    known = {name: parts[answer][name] for name in ("label", "sign", "signer")}
    ends = {"sign_start": first, "sign_stop": first + lengths[answer]}
    return {"path": str(path), **known, "start": start, "stop": stop, **ends}


def read_frames(path: Path) -> Tensor:
    """Read all frames of a clip at the streams' size."""
    video = open_video(path)
    frames = video.read(list(range(video.num_frames)))
    video.close()
    return resize(frames, SIZE)


def draw_window(first: int, last: int, length: int, draw: random.Random) -> tuple[int, int]:
    """Draw a window of a stream that holds the frames from `first` to `last`."""
    size = min(length, max(WINDOW, last - first))
    earliest, latest = max(0, last - size), min(first, length - size)
    start = draw.randint(earliest, latest)
    return start, start + size


if __name__ == "__main__":
    main()
