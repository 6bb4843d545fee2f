"""`tokenselect init my_videos/`: look at a folder of videos and write a recipe for it."""

import csv
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from statistics import median

from tokenselect.cli.terminal import telling
from tokenselect.data import Sample, SampleList, VideoError, annotations, open_video
from tokenselect.data.annotations import read_annotations
from tokenselect.data.frame_source import escape_unprintable
from tokenselect.data.split import PART_WORDS, UNDIVIDED, find_parts, propose_split
from tokenselect.locking import write_whole, writing

LOOKED_AT = 20  # videos that are opened to see how long they are
LONG = 10.0  # seconds; of a longer video a clip shows a stretch, not the whole
TEMPLATE = "assets/folder_recipe.yaml"  # in the package
DIVISIONS = {  # how a split was made
    "group": "; each group of clips (person, recording) is in one part only",
    "class": "; each class is split at random",
}


@dataclass(frozen=True)
class SplitProposal:
    """What a recipe says of the data."""

    root: Path  # folder of the videos
    parts: dict[str, SampleList]  # the videos of train, val and test
    # annotations of the parts that are there already; without them a list is written
    sources: dict[str, Path] = field(default_factory=dict)
    divided_by: str | None = None  # "group" or "class", if the split is ours


def init(dataset: str, out: str | None = None, epochs: int = 30, force: bool = False) -> None:
    """Look at a folder of videos and write a recipe for it.

    A folder of class folders, or one that lacks a part, is divided into videos to train, validate
    and test on; the list of them is written beside the recipe, to be changed by hand.

    Args:
        dataset: folder of class folders, or of train/val/test folders of them, or of annotation
            files; an annotation file.
        out: the recipe; NAME.yaml in this folder if not given.
        epochs: passes over the training videos.
        force: replace files that exist.
    """
    with telling(f"looking at {dataset}"):
        proposal = look_at(Path(dataset))
    path = Path(out or f"{Path(dataset).resolve().stem or 'videos'}.yaml")
    lists = None if proposal.sources else path.with_suffix(".csv")
    for file in filter(None, (path, lists)):
        if file.exists() and not force:
            raise FileExistsError(f"{file} already exists: give --force, or another --out")
    if lists is not None:
        with writing(lists) as unfinished:
            write_split(proposal, unfinished)
    with telling("opening some videos"):
        text = write_text(proposal, path, lists, epochs=epochs)
    write_whole(path, text)
    print(f"wrote {path}" + (f" and {lists}, the list of the split" if lists else ""))
    print("\n".join(line[2:] for line in text.split("\n#\n# This")[0].split("\n")))


def look_at(dataset: Path) -> SplitProposal:
    """Find the parts of a data set; those that are missing are taken from the training videos."""
    if escape_unprintable(str(dataset)) != str(dataset):
        raise ValueError(
            f"{escape_unprintable(str(dataset))}: rename the folder: a recipe is plain text"
        )
    found = find_parts(dataset)
    root = dataset if dataset.is_dir() else dataset.parent
    first = "train" if "train" in found else UNDIVIDED
    if first not in found:
        raise ValueError(f"{dataset} has {', '.join(found)}, but no videos to train on")
    base = None if found[first].is_dir() else root
    parts = read_split(found[first]) if first == UNDIVIDED else {}
    parts = parts or {"train": read_annotations(found[first], root=base)}
    if "train" not in parts:
        raise ValueError(f"{found[first]} lists {', '.join(parts)}, but no videos to train on")
    names = parts["train"].class_names
    for part in [part for part in found if part != first]:
        base = None if found[part].is_dir() else root
        parts[part] = read_annotations(found[part], root=base, class_names=names)
    labelled = [sample for sample in parts["train"].samples if sample.label is not None]
    if not labelled:
        raise ValueError(
            f"{dataset} holds no labelled videos: put each class into its own folder, or list them "
            "in a file with the columns path,label"
        )
    listed = [sample.path for sample in parts["train"].samples]
    if not any(map(os.path.exists, listed)):
        raise FileNotFoundError(
            f"none of the {len(listed)} videos that {found[first]} lists to train on is there, the "
            f"first would be {listed[0]}: move the list into the folder of the videos"
        )
    missing = [part for part in PART_WORDS if part not in parts]
    if not missing:
        return SplitProposal(root, parts, found if first == "train" else {})
    chosen, divided_by = propose_split(labelled, parts=missing)
    for part in ("train", *missing):
        own = [s for s, other in zip(labelled, chosen, strict=True) if other == part]
        parts[part] = SampleList(own, names)
    return SplitProposal(root, {part: parts[part] for part in PART_WORDS}, divided_by=divided_by)


def read_split(path: Path) -> dict[str, SampleList]:
    """Read the parts of a table that has a column for them; of another list, nothing."""
    layout = None if path.is_dir() else annotations.guess_layout(path)
    column = layout and annotations.find_column(
        annotations.first_row(path), annotations.SPLIT_WORDS
    )
    if not layout or not column:
        return {}
    values = {row[column] for row in annotations.read_csv_rows(path, needed={column})}
    spelled = {
        part: {value for value in values if value.strip().lower() in words}
        for part, words in PART_WORDS.items()
    }
    if not any(spelled.values()):  # the column says something else
        return {}
    if unknown := sorted(values.difference(*spelled.values())):
        raise ValueError(f"{path}: {column} must say train, val or test, got {unknown[0][:80]!r}")
    return {
        part: read_annotations(path, table=replace(layout, where={column: ",".join(own)}))
        for part, own in spelled.items()
        if own
    }


def write_split(proposal: SplitProposal, path: Path) -> None:
    """Write the videos as a table: path, class, part, and the frames of a part of a video."""
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file, lineterminator="\n")
        columns = ["path", "label", "part", "start", "stop"]
        writer.writerow(columns if has_spans(proposal) else columns[:3])
        for part, found in proposal.parts.items():
            for sample in found.samples:
                if sample.label is not None:
                    name = os.path.relpath(sample.path, proposal.root)
                    label = found.class_names[sample.label]
                    writer.writerow([name, label, part, *(sample.span or ())])


def has_spans(proposal: SplitProposal) -> bool:
    """Tell whether the samples are parts of videos."""
    return any(sample.span for found in proposal.parts.values() for sample in found.samples)


def write_text(proposal: SplitProposal, path: Path, lists: Path | None, *, epochs: int) -> str:
    """Write the recipe."""
    name, train, test = path.stem, proposal.parts["train"], proposal.parts["test"]
    example = (test.samples or train.samples)[0].path
    total = sum(len(found) for found in proposal.parts.values())
    counts = ", ".join(f"{len(found)} {part}" for part, found in proposal.parts.items())
    how = DIVISIONS.get(proposal.divided_by or "", "")
    template = (resources.files("tokenselect") / TEMPLATE).read_text(encoding="utf-8")
    return template.format(
        summary=f"{total} videos of {train.num_classes} classes: {counts}{how}.",
        file=shlex.quote(str(path)),
        taught=shlex.quote(f"runs/{name}_T0_0.5"),
        run=shlex.quote(f"runs/{name}"),
        example=shlex.quote(escape_unprintable(example)),
        name=json.dumps(name, ensure_ascii=False),
        root=json.dumps(str(proposal.root), ensure_ascii=False),
        parts=write_parts(proposal, lists),
        stride=choose_stride(train.samples),
        epochs=epochs,
        warmup=min(3, epochs / 10),
        batch_size=min(8, len(train)),
    )


def write_parts(proposal: SplitProposal, lists: Path | None) -> str:
    """Write where the videos of each part are listed."""
    if lists is None:
        where = dict.fromkeys(PART_WORDS, "")
        places = {part: path.relative_to(proposal.root) for part, path in proposal.sources.items()}
        lines = []
    else:
        place = os.path.relpath(os.path.realpath(lists), os.path.realpath(proposal.root))
        where = {part: f", where: {{part: {part}}}" for part in PART_WORDS}
        places = dict.fromkeys(PART_WORDS, Path(place))
        spans = ", start: start, stop: stop" if has_spans(proposal) else ""
        lines = [f"  table: {{path: path, label: label{spans}}}"]
    for part in PART_WORDS:
        listed = json.dumps(str(places[part]), ensure_ascii=False)
        lines.append(f"  {part}: {{annotations: {listed}{where[part]}}}")
    return "\n".join(lines)


def choose_stride(samples: Sequence[Sample]) -> str:
    """Let a clip show the whole of a short video, and a stretch of a long one."""
    seconds = []
    for sample in samples[:: max(1, len(samples) // LOOKED_AT)][:LOOKED_AT]:
        try:
            with open_video(sample.path) as source:
                start, stop = sample.span or (0, source.num_frames)
                seconds.append((stop - start) / source.fps)
        except VideoError:  # `data check` lists them
            continue
    if seconds and median(seconds) > LONG:
        return "4  # every fourth frame: these videos are long, and a clip covers part of one"
    return "null  # one frame from each of 16 equal parts: a clip covers the whole video"
