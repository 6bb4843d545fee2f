"""Cut the mouths or the faces out of the GRID corpus and write the tables that its recipes read.

    python -m benchmarks.grid_clips ROOT OUT
    python -m benchmarks.grid_clips ROOT FACES --faces

ROOT holds `clips/*.mp4`, the lower face of a speaker at 160×120 and 25 frames a second, and
`clips.tsv`: path, part (train, val, test), and for each of the six words of a sentence its class,
its first frame and the one it ends at (verb, verb_start, verb_end, colour, …). The corpus is that
of Cooke et al. 2006, whose word alignments give the times. OUT takes

- `clips/`: 64×64 pixels around the mouth, all 75 frames; with `--faces`, 112×112
  pixels with the lips anywhere in them, where the recording ends its edge repeated;
- `whole.tsv`: whole sentences, a column for each word;
- `cut_WORD.tsv`: windows of 39 frames cut at random times around a word, four of each training
  sentence and one of each other;
- `trimmed_WORD.tsv`: sentences trimmed to the 15 frames around a word;
- `words_front.tsv` and `words_back.tsv`: the first four and the last four words of the sentences,
  trimmed likewise, to pretrain on (`benchmarks.grid_dense`).
"""

import argparse
import csv
import random
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor

from tokenselect.data import open_video, write_video

WORDS = ("verb", "colour", "preposition", "letter", "digit", "adverb")
ASKED = ("verb", "colour", "digit", "adverb")  # those with enough sentences a class
START = {"verb": "front", "colour": "front", "digit": "back", "adverb": "front"}
LISTS = {  # data of a recipe → the table of it
    "grid": "whole.tsv",
    "grid_cut": "cut_{word}.tsv",
    "grid_trimmed": "trimmed_{word}.tsv",
    "grid_faces": "trimmed_{word}.tsv",
    "grid_faces_cut": "cut_{word}.tsv",
}
MOUTH = (31, 26, 64, 64)  # top, left, height, width
LIPS = (50, 36, 36, 54)  # of all sentences
FACE = 112
FRAMES = 75
WINDOW = 39
TRIMMED = 15
WINDOWS = {"train": 4, "val": 1, "test": 1}
Row = dict[str, object]
Box = tuple[int, int, int, int]


def main() -> None:
    """Write clips and tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, help="folder of the corpus")
    parser.add_argument("out", type=Path, help="folder for clips and tables")
    parser.add_argument("--faces", action="store_true", help="cut faces in place of mouths")
    settings = parser.parse_args()
    with (settings.root / "clips.tsv").open(newline="", encoding="utf-8") as file:
        sentences = list(csv.DictReader(file, delimiter="\t"))
    (settings.out / "clips").mkdir(parents=True, exist_ok=True)
    for sentence in track(sentences, "faces" if settings.faces else "mouths"):
        path = sentence["path"]
        box = draw_face(random.Random(path)) if settings.faces else MOUTH
        cut_out(settings.root / path, settings.out / path, box)
    write_table(settings.out / "whole.tsv", [whole_row(sentence) for sentence in sentences])
    for word in ASKED:
        draw = random.Random(word)
        cut = [row for sentence in sentences for row in window_rows(sentence, word, draw)]
        write_table(settings.out / f"cut_{word}.tsv", cut)
        trimmed = [trimmed_row(sentence, word) for sentence in sentences]
        write_table(settings.out / f"trimmed_{word}.tsv", trimmed)
    for name, chosen in (("front", WORDS[:4]), ("back", WORDS[-4:])):
        words = [named_row(sentence, word) for sentence in sentences for word in chosen]
        write_table(settings.out / f"words_{name}.tsv", words)


def draw_face(draw: random.Random) -> Box:
    """Draw a box around the lips, wherever in it they fall; it may leave the picture."""
    top, left, height, width = LIPS
    above, before = draw.randint(0, FACE - height), draw.randint(0, FACE - width)
    return top - above, left - before, FACE, FACE


def cut_out(source: Path, target: Path, box: Box) -> None:
    """Write a box of every picture, whose edge goes on outside; a clip that is there stays."""
    if target.exists():
        return
    video = open_video(source)
    frames = video.read(list(range(video.num_frames)))
    video.close()
    if len(frames) != FRAMES:
        raise ValueError(f"{source} must have {FRAMES} frames, got {len(frames)}")
    unfinished = target.with_name(f".{target.name}")
    write_video(unfinished, crop_past_edges(frames, box), fps=25, options={"crf": "12", "g": "15"})
    unfinished.replace(target)


def crop_past_edges(frames: Tensor, box: Box) -> Tensor:
    """Crop a box; where it leaves the picture, the nearest pixel of the edge is repeated."""
    top, left, height, width = box
    rows = torch.arange(top, top + height).clamp(0, frames.shape[-2] - 1)
    columns = torch.arange(left, left + width).clamp(0, frames.shape[-1] - 1)
    return frames[..., rows[:, None], columns]  # (time, channels, height, width)


def whole_row(sentence: dict[str, str]) -> Row:
    """Give a sentence: its words, and when each is spoken."""
    row: Row = {"path": sentence["path"], "part": sentence["part"]}
    for word in WORDS:
        first, last = word_frames(sentence, word)
        row |= {word: sentence[word], f"{word}_start": first, f"{word}_stop": last}
    return row


def window_rows(sentence: dict[str, str], word: str, draw: random.Random) -> list[Row]:
    """Cut windows that hold a word, wherever in them it falls."""
    first, last = word_frames(sentence, word)
    earliest = min(max(0, last - WINDOW), FRAMES - WINDOW)
    latest = max(earliest, min(first, FRAMES - WINDOW))
    starts = [draw.randint(earliest, latest) for _ in range(WINDOWS[sentence["part"]])]
    return [
        {
            "path": sentence["path"],
            "part": sentence["part"],
            word: sentence[word],
            "start": start,
            "stop": start + WINDOW,
            f"{word}_start": first,
            f"{word}_stop": last,
        }
        for start in starts
    ]


def trimmed_row(sentence: dict[str, str], word: str) -> Row:
    """Trim a sentence to one of its words."""
    first, last = word_frames(sentence, word)
    start = min(max(0, (first + last - TRIMMED) // 2), FRAMES - TRIMMED)
    row: Row = {"path": sentence["path"], "part": sentence["part"], word: sentence[word]}
    return row | {"start": start, "stop": start + TRIMMED}


def named_row(sentence: dict[str, str], word: str) -> Row:
    """Trim a sentence to one of its words; its class is named, as the words are of many kinds."""
    row = trimmed_row(sentence, word)
    label = f"{word} {row.pop(word)}"
    return {"path": row.pop("path"), "part": row.pop("part"), "word": label, **row}


def word_frames(sentence: dict[str, str], word: str) -> tuple[int, int]:
    """Give the first frame of a word and the one after its last."""
    first = int(float(sentence[f"{word}_start"]))
    return first, max(first + 1, round(float(sentence[f"{word}_end"])))


def write_table(path: Path, rows: list[Row]) -> None:
    """Write rows with a header, columns by tabs."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
