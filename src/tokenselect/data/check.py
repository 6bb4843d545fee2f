"""Checking a data set before training: every video is read, in parallel, and judged."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tokenselect.data.errors import VideoError
from tokenselect.data.frame_folder import list_pictures
from tokenselect.data.labels import Sample
from tokenselect.data.video import open_video

KINDS = ("missing", "broken", "too short", "duplicate", "unlabelled")


class Problem(NamedTuple):
    """One thing that is wrong with one video; `kind` is one of `KINDS`."""

    path: str
    kind: str
    detail: str


@dataclass(frozen=True)
class Reading:
    """What reading one video gave; `fingerprint` is empty where it could not be read."""

    sample: Sample
    problems: tuple[Problem, ...]
    fingerprint: str = ""
    num_frames: int = 0
    fps: float = 0.0
    size: tuple[int, int] = (0, 0)


def read_samples(
    samples: Sequence[Sample],
    *,
    min_frames: int,
    decodes_all: bool = True,
    workers: int | None = None,
    on_done: Callable[[], None] = lambda: None,
) -> list[Reading]:
    """Read all videos in as many threads as there are cores, in the order of `samples`.

    Args:
        min_frames: a video with fewer is too short.
        decodes_all: decode every frame; else the list of frames and the first one, which finds
            most trouble in a fraction of the time.
        on_done: called after each video, for a progress bar.
    """

    def read(sample: Sample) -> Reading:
        reading = read_sample(sample, min_frames=min_frames, decodes_all=decodes_all)
        on_done()
        return reading

    # Decoding runs outside Python's lock, so that threads are enough.
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        return list(pool.map(read, samples))


def read_sample(sample: Sample, *, min_frames: int, decodes_all: bool) -> Reading:
    """Read one video and say what is wrong with it alone."""
    problem = partial(Problem, sample.path)
    unlabelled = [] if sample.label is not None else [problem("unlabelled", "has no label")]
    if not os.path.exists(sample.path):
        return Reading(sample, (problem("missing", "does not exist"), *unlabelled))
    try:
        source = open_video(sample.path, threads=1)
        try:
            size = source.size
            if decodes_all:
                source.verify()
        finally:
            source.close()
    except VideoError as error:
        return Reading(sample, (problem("broken", error.reason), *unlabelled))
    short = []
    if source.num_frames < min_frames:
        detail = f"has {source.num_frames} frames, fewer than {min_frames}"
        short = [problem("too short", detail)]
    return Reading(
        sample,
        (*short, *unlabelled),
        fingerprint=fingerprint(sample.path),
        num_frames=source.num_frames,
        fps=source.fps,
        size=size,
    )


def fingerprint(path: str) -> str:
    """Return a hash of the content of a file, or of all pictures of a folder."""
    files = list_pictures(path) if os.path.isdir(path) else [Path(path)]
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def find_duplicates(readings: Iterable[Reading]) -> list[Problem]:
    """Name every video whose content came before, and say so if the labels disagree."""
    first: dict[str, Sample] = {}
    problems = []
    for reading in readings:
        if not reading.fingerprint:
            continue
        sample = reading.sample
        before = first.setdefault(reading.fingerprint, sample)
        if before is not sample:
            same = "is listed twice" if before.path == sample.path else f"equals {before.path}"
            other = "" if before.label == sample.label else ", with another label"
            problems.append(Problem(sample.path, "duplicate", same + other))
    return problems


def find_unlisted(videos: Iterable[str], samples: Iterable[Sample]) -> list[Problem]:
    """Name the videos that no annotation mentions."""
    listed = {os.path.abspath(sample.path) for sample in samples}
    return [
        Problem(path, "unlabelled", "is in no class folder")
        for path in videos
        if os.path.abspath(path) not in listed
    ]


def count_kinds(problems: Iterable[Problem]) -> dict[str, int]:
    """Count the problems of each kind, those that do not occur too."""
    counts = Counter(problem.kind for problem in problems)
    return {kind: counts[kind] for kind in KINDS}
