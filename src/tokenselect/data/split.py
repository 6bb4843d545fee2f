"""The parts of a data set, to train, validate and test on: found in a folder, or proposed."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenselect.data.frame_folder import find_under
from tokenselect.data.frame_source import PathOrStr
from tokenselect.data.labels import Sample

PART_WORDS = {
    "train": ("train", "training", "trainlist"),
    "val": ("val", "valid", "validation", "vallist", "dev"),
    "test": ("test", "testing", "testlist"),
}
UNDIVIDED = "all"  # of a data set without parts
LIST_SUFFIXES = {".csv", ".json", ".tsv", ".txt"}
HELD_OUT = 0.15  # share of the clips that each part beside `train` takes
TRIES = 200  # divisions of the groups, of which the best is taken

# v_Archery_g07_c02 (UCF101), signer03, subject_12, Actor-1: clips of one person or one recording.
GROUP = re.compile(
    r"_(g[0-9]+)_c[0-9]+"
    r"|(?<![a-z])((?:signer|subject|person|actor|speaker|participant|user|group)[ _-]?[0-9]+)",
    re.IGNORECASE,
)


def find_parts(root: PathOrStr) -> dict[str, Path]:
    """Tell the parts of a data set from the names in its folder.

    Args:
        root: folder with part folders (`train/`, `val/`, `test/`, each of class folders), with
            annotation files (`train.csv`, `testlist01.txt`), with class folders, or with videos and
            one file that lists them; or a file.

    Returns:
        The folder or file of each part that is there, in the order train, val, test. A data set
        without parts has one entry, `UNDIVIDED`: the root itself, or the list in it.
    """
    root = Path(root)
    if not root.exists():
        raise FileNotFoundError(f"{root} does not exist")
    if root.is_file():
        return {UNDIVIDED: root}
    folders = [folder for folder in list_folders(root) if any(find_under(folder))]
    if folders and all(part_of(folder.name) and _has_classes(folder) for folder in folders):
        return _first_of_each(folders)
    files = sorted(file for file in root.iterdir() if file.suffix.lower() in LIST_SUFFIXES)
    is_listed = len(files) == 1 and not folders
    return _first_of_each(files) or {UNDIVIDED: files[0] if is_listed else root}


def part_of(name: str) -> str | None:
    """Return the part that a folder or file is named after: "valid.csv" is "val"."""
    words = set(re.split(r"[^a-z]+", Path(name).stem.lower()))
    is_file = Path(name).suffix.lower() in LIST_SUFFIXES
    for part, known in PART_WORDS.items():
        if words & set(known) if is_file else name.lower() in known:
            return part
    return None


def describe_parts(names: Iterable[str]) -> str:
    """Say which parts there are: "the parts train, val and test"."""
    *others, last = sorted(names, key=lambda name: list(PART_WORDS).index(part_of(name) or "test"))
    return f"the parts {', '.join(others)} and {last}" if others else f"the part {last}"


def list_folders(path: Path) -> list[Path]:
    """List the folders in a folder, without hidden ones."""
    return sorted(f for f in path.iterdir() if f.is_dir() and not f.name.startswith("."))


def _has_classes(folder: Path) -> bool:
    return any(any(find_under(inner)) for inner in list_folders(folder))


def _first_of_each(paths: Sequence[Path]) -> dict[str, Path]:
    found = {part: [p for p in paths if part_of(p.name) == part] for part in PART_WORDS}
    return {part: paths[0] for part, paths in found.items() if paths}


def propose_split(
    samples: Sequence[Sample], *, parts: Sequence[str] = ("val", "test"), seed: int = 0
) -> tuple[list[str], str]:
    """Divide videos into "train" and `parts`, by group where their names show one.

    Clips of one group (a person, a recording) stay together, so that no part is tested on what
    another has seen. Otherwise each class is divided by itself. Returns the part of each video, and
    how they were divided: "group" or "class".
    """
    names = [sample.path for sample in samples]
    groups = find_groups(samples)
    units = groups or names
    labels: dict[str, set[int | None]] = defaultdict(set)
    for unit, sample in zip(units, samples, strict=True):
        labels[unit].add(sample.label)
    draw = random.Random(seed)
    if any(len(classes) > 1 for classes in labels.values()):
        part_of_unit = _divide_groups(samples, units, parts, draw)
    else:
        part_of_unit = {}
        for label in sorted({s.label for s in samples}, key=str):
            own = sorted(unit for unit in labels if label in labels[unit])
            part_of_unit |= _divide(own, parts, draw)
    return [part_of_unit[unit] for unit in units], "group" if groups else "class"


def find_groups(samples: Sequence[Sample]) -> list[str] | None:
    """Return the group of each video; None if not all names show one, or a class has one only."""
    found = [GROUP.search(sample.path) for sample in samples]
    if not found or not all(found):
        return None
    groups = [(match[1] or match[2]).lower() for match in found if match]
    of_class: dict[int | None, set[str]] = defaultdict(set)
    for group, sample in zip(groups, samples, strict=True):
        of_class[sample.label].add(group)
    return groups if all(len(own) > 1 for own in of_class.values()) else None


def _divide(units: Sequence[str], parts: Sequence[str], draw: random.Random) -> dict[str, str]:
    """Give each of `parts` its share of the units of a class; train keeps at least one."""
    left = draw.sample(list(units), len(units))
    count = max(1, round(HELD_OUT * len(units)))
    divided = {}
    for part in reversed(parts):  # with too few for all, test comes first
        for _ in range(min(count, len(left) - 1)):
            divided[left.pop()] = part
    return divided | dict.fromkeys(left, "train")


def _divide_groups(
    samples: Sequence[Sample], units: Sequence[str], parts: Sequence[str], draw: random.Random
) -> dict[str, str]:
    """Divide groups that span classes: of many tries, take the one that lacks fewest classes."""
    counts: dict[str, Counter[int | None]] = defaultdict(Counter)
    for unit, sample in zip(units, samples, strict=True):
        counts[unit][sample.label] += 1
    classes, wanted = {sample.label for sample in samples}, HELD_OUT * len(samples)

    def deal() -> tuple[float, dict[str, str]]:
        """Deal the groups at random; also count the classes that a part lacks, train's first."""
        left, divided = draw.sample(sorted(counts), len(counts)), {}
        cost = 0.0
        for part in reversed(parts):
            dealt: Counter[int | None] = Counter()
            while dealt.total() < wanted and len(left) > 1:
                divided[left[-1]] = part
                dealt += counts[left.pop()]
            cost += 1e3 * len(classes - dealt.keys()) + abs(dealt.total() - wanted) / len(samples)
        kept = {label for unit in left for label in counts[unit]}
        return cost + 1e6 * len(classes - kept), divided | dict.fromkeys(left, "train")

    return min((deal() for _ in range(TRIES)), key=lambda dealt: dealt[0])[1]
