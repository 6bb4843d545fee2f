"""Checking a data set before training: every video is read, in parallel, and the parts compared."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tokenselect.data.cache import cached_bytes
from tokenselect.data.frame_folder import list_pictures
from tokenselect.data.frame_source import VideoError
from tokenselect.data.labels import Sample, SampleList, fold, shorten
from tokenselect.data.video import open_video

PROBLEM_KINDS = (
    "missing", "broken", "too short", "duplicate", "in two parts", "unlabelled", "unknown class",
)  # fmt: skip


class Problem(NamedTuple):
    """One thing that is wrong with one video; `kind` is one of `PROBLEM_KINDS`."""

    path: str
    kind: str
    detail: str


class VideoFacts(NamedTuple):
    """What reading one file gave; `trouble` says why it could not be read."""

    content_hash: str = ""
    num_frames: int = 0
    fps: float = 0.0
    size: tuple[int, int] = (0, 0)
    trouble: Problem | None = None


@dataclass(frozen=True)
class CheckedVideo:
    """One sample of a part of a data set, what reading it gave, what is wrong with it alone."""

    sample: Sample
    part: str
    class_name: str | None
    facts: VideoFacts
    problems: tuple[Problem, ...] = ()


def check_videos(
    parts: Mapping[str, SampleList],
    *,
    min_frames: int,
    decodes_all: bool = True,
    workers: int | None = None,
    on_done: Callable[[], object] = lambda: None,
) -> list[CheckedVideo]:
    """Read all videos in `workers` threads, or one per core; samples keep the order of `parts`.

    Without `decodes_all`, the list of frames and the first one are read, which finds most trouble
    in a fraction of the time.
    """

    def read(path: str) -> VideoFacts:
        facts = read_facts(path, decodes_all=decodes_all)
        on_done()
        return facts

    paths = list(dict.fromkeys(s.path for found in parts.values() for s in found.samples))
    # Decoding runs outside Python's lock, so that threads are enough.
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        facts_of = dict(zip(paths, pool.map(read, paths), strict=True))
    return [
        judge(sample, part, found.class_names, facts_of[sample.path], min_frames=min_frames)
        for part, found in parts.items()
        for sample in found.samples
    ]


def read_facts(path: str, *, decodes_all: bool) -> VideoFacts:
    """Read one file."""
    if not os.path.exists(path):
        return VideoFacts(trouble=Problem(path, "missing", "does not exist"))
    try:
        with open_video(path, threads=1) as source:
            size = source.size
            if decodes_all:
                source.verify()
        return VideoFacts(hash_content(path), source.num_frames, source.fps, size)
    except (VideoError, OSError) as error:
        reason = error.reason if isinstance(error, VideoError) else str(error)
        return VideoFacts(trouble=Problem(path, "broken", reason))


def judge(
    sample: Sample, part: str, class_names: list[str], facts: VideoFacts, *, min_frames: int
) -> CheckedVideo:
    """Say what is wrong with one sample alone."""
    problems = []
    start, stop = sample.span or (0, facts.num_frames)
    if facts.trouble is not None:
        problems.append(facts.trouble)
    elif stop > facts.num_frames or stop - start < min_frames:
        detail = f"has {stop - start} frames, fewer than {min_frames}"
        if stop > facts.num_frames:
            detail = f"has {facts.num_frames} frames, but its part ends at {stop}"
        problems.append(Problem(sample.path, "too short", detail))
    if sample.label is None:
        problems.append(Problem(sample.path, "unlabelled", "has no label"))
    name = None if sample.label is None else class_names[sample.label]
    return CheckedVideo(sample, part, name, facts, tuple(problems))


def hash_content(path: str) -> str:
    """Return a hash of the content of a file, or of all pictures of a folder."""
    files = list_pictures(path) if os.path.isdir(path) else [Path(path)]
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def find_duplicates(videos: Iterable[CheckedVideo]) -> list[Problem]:
    """Name every video whose content came before, and say so if part or class differ."""
    first: dict[tuple[str, object], CheckedVideo] = {}
    problems = []
    for video in videos:
        before = first.setdefault((video.facts.content_hash, video.sample.span), video)
        if before is video or not video.facts.content_hash:
            continue
        path, other = video.sample.path, before.sample.path
        detail = "is listed twice" if path == other else f"equals {other}"
        kind = "duplicate"
        if before.part != video.part:
            kind, detail = "in two parts", f"{detail}, in {before.part} and in {video.part}"
        if before.class_name != video.class_name:
            detail += ", with another label"
        problems.append(Problem(path, kind, detail))
    return problems


def find_unlisted(videos: Iterable[str], listed: Iterable[str]) -> list[Problem]:
    """Name the videos that no annotation mentions."""
    known = {os.path.abspath(path) for path in listed}
    return [
        Problem(path, "unlabelled", "is in no class folder")
        for path in videos
        if os.path.abspath(path) not in known
    ]


def count_classes(found: SampleList) -> dict[str, int]:
    """Count the videos of each class, those without any too."""
    counts = Counter(sample.label for sample in found.samples)
    return {name: counts[label] for label, name in enumerate(found.class_names)}


def find_unknown_classes(parts: Mapping[str, SampleList]) -> list[Problem]:
    """Name the classes that only other parts than train have: no model can learn them."""
    if "train" not in parts:
        return []
    known = {fold(name) for name, count in count_classes(parts["train"]).items() if count}
    return [
        Problem(name, "unknown class", f"{count} in {part}, none in train")
        for part, found in parts.items()
        for name, count in count_classes(found).items()
        if count and fold(name) not in known
    ]


def note_classes(parts: Mapping[str, SampleList]) -> list[str]:
    """Say what may be meant, but makes figures weak: parts without a class, classes of one clip."""
    notes = []
    every = {name: None for found in parts.values() for name in found.class_names}
    for part, found in parts.items():
        counts = {fold(name): count for name, count in count_classes(found).items()}
        lacking = [name for name in every if not counts.get(fold(name))]
        if lacking and (part != "train" or len(parts) == 1):
            notes.append(f"{part} has no clip of {shorten(lacking)}")
        single = [name for name in every if counts.get(fold(name)) == 1]
        if single:
            notes.append(f"{part} has a single clip of {shorten(single)}")
    return notes


def describe_set(
    parts: Mapping[str, SampleList], videos: Sequence[CheckedVideo], *, short_side: int | None
) -> dict[str, Any]:
    """Describe what was listed and read by figures; `short_side` is that of a cache."""
    read = {video.sample.path: video.facts for video in videos if video.facts.num_frames}
    good = list(read.values())
    frames = sorted(facts.num_frames for facts in good)
    sizes = Counter(f"{facts.size[1]}×{facts.size[0]}" for facts in good)
    in_cache = [cached_bytes(one.num_frames, one.size, short_side=short_side) for one in good]
    return {
        "videos": len(videos),
        "classes": len({fold(name) for found in parts.values() for name in found.class_names}),
        "parts": {
            part: {"videos": len(found), "classes": count_classes(found)}
            for part, found in parts.items()
        },
        "frames": {"min": frames[0], "median": median(frames), "max": frames[-1]} if good else {},
        "fps": sorted({round(facts.fps, 2) for facts in good}),
        "sizes": dict(sizes.most_common()),
        "cache_bytes": sum(in_cache),
    }


def count_kinds(problems: Iterable[Problem]) -> dict[str, int]:
    """Count the problems of each kind, those that do not occur too."""
    counts = Counter(problem.kind for problem in problems)
    return {kind: counts[kind] for kind in PROBLEM_KINDS}
