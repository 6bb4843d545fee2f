"""Do the kept frames show the word? What the cells of a GRID table keep, beside the alignments.

    python -m benchmarks.tables thirds --data grid_cut --word verb --root ROOT
    python -m benchmarks.word_frames T0_0.33 --data grid_cut --word verb --root ROOT

No model was told when a word is spoken. A token frame shows it if one of its two pictures was taken
while it was. Prints, for each method, the share of kept frames that do, and that of the clips of
which at least one does; mean of the seeds. `--write` adds it to `results/word_frames.txt`.
"""

import argparse
import csv
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.grid_clips import ASKED, FRAMES
from benchmarks.swap_choice import load_cell
from benchmarks.tables import choose_recipe, name_data
from tokenselect import record_selections
from tokenselect.training.data import ClipSet, build_test_set, single_views
from tokenselect.training.recipe import DataRecipe

RESULTS = Path(__file__).parent / "results" / "word_frames.txt"
METHODS = {"learned": "stts-exact", "uniform": "uniform", "static": "static", "random": "random"}
TUBE = 2  # pictures of a token frame


def main() -> None:
    """Look at the test clips with every method and seed; print a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", help="with a site T0")
    parser.add_argument("--data", default="grid_cut", choices=["grid", "grid_cut"])
    settings = read_options(parser)
    data = choose_recipe(settings).data
    clips = build_test_set(data, "test")
    shows = find_word(clips, data, Path(settings.root), settings.word)
    runs = settings.work / f"{name_data(settings)}_mvit" / "runs"
    asked = f"{settings.plan} --data {settings.data} --word {settings.word} --root ROOT"
    text = f"python -m benchmarks.word_frames {asked}\n"
    text += f"all      {shows.float().mean():4.0%} of the frames show the word\n"
    for name, method in METHODS.items():
        each = torch.stack(
            [
                look(load_cell(runs, settings.plan, method, seed), clips, shows)
                for seed in range(settings.seeds)
            ]
        )
        frames, words = each.mean(dim=0).tolist()
        text += f"{name:8} {frames:4.0%} of the kept frames, {words:4.0%} of the words\n"
    report(text, RESULTS if settings.write else None)


def read_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Add and read what tells the cells of a GRID table of MViT, and where they are."""
    parser.add_argument("--word", default="adverb", choices=ASKED)
    parser.add_argument("--root", required=True, help="folder that grid_clips wrote")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/tables"))
    parser.add_argument("--write", action="store_true")
    parser.set_defaults(model="mvit")
    return parser.parse_args()


def report(text: str, path: Path | None) -> None:
    """Print what was found, and add it to a file."""
    print(text)
    if path is not None:
        with path.open("a") as file:
            file.write(text + "\n")


def find_word(clips: ClipSet, data: DataRecipe, root: Path, word: str) -> Tensor:
    """Tell which token frames of each clip show the word: (clips, t)."""
    with (root / str(data.test.annotations)).open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["part"] == "test"]
    shows = []
    for row, sample in zip(rows, clips.dataset.samples, strict=True):  # type: ignore[attr-defined]
        assert Path(sample.path).name == Path(row["path"]).name
        first, stop = sample.span or (0, FRAMES)
        (seen,) = clips.dataset.sampler(stop - first)  # type: ignore[attr-defined]
        taken = first + torch.tensor(seen).view(-1, TUBE)
        said = (taken >= int(row[f"{word}_start"])) & (taken < int(row[f"{word}_stop"]))
        shows.append(said.any(dim=1))
    return torch.stack(shows)


@torch.inference_mode()
def look(model: torch.nn.Module, clips: ClipSet, shows: Tensor) -> Tensor:
    """Give the share of kept frames that show the word, and of clips that have one."""
    model.eval()
    kept = []
    for batch, _ in single_views(clips.batches(20)):
        with record_selections(model) as selections:
            model(batch)
        kept.append(selections["T0"].indices)
    found = shows.gather(1, torch.cat(kept)).float()  # (clips, k)
    return torch.stack([found.mean(), found.amax(dim=1).mean()])


if __name__ == "__main__":
    main()
