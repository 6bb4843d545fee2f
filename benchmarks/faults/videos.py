"""Damaged videos through everything that reads one: predict, classify, train, cache, check, web."""

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.faults.isolation import Case, LostWorkError, WrongFigureError, run_command
from benchmarks.faults.mutations import MUTATIONS, mutate, write_seeds
from tokenselect.checkpoints import load_model, save_model
from tokenselect.data import (
    ClipCache,
    Sample,
    StrideSampler,
    TrainTransform,
    VideoDataset,
    VideoError,
    open_video,
)
from tokenselect.data.check import read_facts
from tokenselect.inference.predict import predict_video
from tokenselect.models import create_model

NAMES = ["up", "down", "left"]
TOGETHER = 25  # files of one run of a command
MOST = 64  # frames that the cache is compared on
STATUSES = (201, 408, 413, 422, 429)  # that an upload may end with


def make_model(folder: Path) -> Path:
    """Write a model that answers in milliseconds."""
    torch.manual_seed(0)
    model = create_model("mvit_mini", plan="T0=1", num_classes=3, frames=4, size=32)
    return save_model(model, folder, class_names=NAMES)


@dataclass
class Bench:
    """What the paths share: whole videos, a model, and a server for each process.

    Attributes:
        folder: for all files.
        seeds: whole videos.
        checkpoint: of the model.
        model: loaded.
        client: of the web server, once there is one.
        answers: highest probability that `predict` gave for each video.
    """

    folder: Path
    seeds: list[Path] = field(default_factory=list)
    checkpoint: Path = Path()
    model: nn.Module = field(default_factory=nn.Identity)
    client: Any = None
    answers: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seeds = write_seeds(self.folder / "seeds")
        self.checkpoint = make_model(self.folder / "model")
        self.model = load_model(self.checkpoint)

    def damage(self, number: int, *, seed: int) -> tuple[str, Path]:
        """Write damaged video `number` of a run; return how it was made, and where it is."""
        draw = random.Random(f"{seed} {number}")
        base, other = (draw.choice(self.seeds) for _ in range(2))
        target = self.folder / "damaged" / f"{number // TOGETHER:05d}" / f"{number:06d}-{base.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        if base.is_dir():
            shutil.copytree(base, target)
            pictures = sorted(target.iterdir())
            file = draw.choice(pictures)
            other = draw.choice(pictures)
        else:
            file = target
        content = (base if file == target else file).read_bytes()
        other_content = other.read_bytes() if other.is_file() else content
        how, damaged = mutate(content, other_content, draw)
        file.write_bytes(damaged)
        return f"file {number} ({base.name}, {how})", target

    def predict(self, path: Path) -> None:
        """Classify one video."""
        with open_video(path) as source:
            found = predict_video(self.model, source).whole.probabilities
        if not bool(found.isfinite().all()) or abs(float(found.sum()) - 1) > 1e-3:
            raise WrongFigureError(f"probabilities {found.tolist()}")
        self.answers[str(path)] = float(found.max())

    def train(self, path: Path) -> None:
        """Draw a training clip of a video; another one takes its place where it is broken."""
        samples = [Sample(str(path), 0), Sample(str(self.folder / "seeds" / "bmp"), 1)]
        clips = VideoDataset(
            samples, sampler=StrideSampler(4, 2), transform=TrainTransform(32), is_training=True
        )
        video, label = clips[0]
        if not bool(video.isfinite().all()) or label != len(clips.failures):
            raise WrongFigureError(f"label {label} with {len(clips.failures)} broken videos")

    def cache(self, path: Path) -> None:
        """Read a video through a cache twice: the same frames."""
        cache = ClipCache(self.folder / "cache", short_side=24)
        pieces = []
        for _ in range(2):
            with cache.open(str(path)) as source:
                pieces.append(source.read(range(min(source.num_frames, MOST))))
        cache.file_of(str(path)).unlink(missing_ok=True)
        if not torch.equal(*pieces):
            raise WrongFigureError("the cache gives other frames when it is read again")

    def check(self, path: Path) -> None:
        """Check a video as `tokenselect data check` does."""
        facts = read_facts(str(path), decodes_all=True)
        if facts.trouble is not None:
            raise VideoError(path, facts.trouble.detail)

    def upload(self, path: Path) -> None:
        """Send a video to the server."""
        if self.client is None:
            self.client = make_client()
        sent = self.client.post(
            "/api/videos", params={"name": path.name}, content=path.read_bytes()
        )
        told = sent.json()
        if sent.status_code not in STATUSES:
            raise RuntimeError(f"status {sent.status_code}: {told}")
        if sent.status_code != 201:
            raise VideoError(path, told["detail"])
        self.client.delete(f"/api/videos/{told['video']}")

    def classify_folder(self, folder: Path) -> None:
        """Run `tokenselect classify` on a folder: a row for every video, named by it."""
        videos = {str(path) for path in folder.iterdir()}
        out = self.folder / f"{folder.name}.jsonl"
        words = ["classify", str(folder), "--out", str(out), "--checkpoint", str(self.checkpoint)]
        run_command([*words, "--workers", "0"])
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        if len(rows) != len(videos) or videos != {row["video"] for row in rows}:
            raise LostWorkError(f"{len(rows)} rows for {len(videos)} videos")
        for row in rows:
            expected = self.answers.pop(row["video"], None)
            if row["error"] is not None and row["video"] not in row["error"]:
                raise ValueError(f"an error without its video: {row}")
            if expected is not None and abs((row["probability"] or 0) - expected) > 1e-4:
                raise WrongFigureError(f"{row}, and predict says {expected}")


def make_client() -> Any:
    """Start a server with one small model in this process."""
    from fastapi.testclient import TestClient

    from tests.web.tiny import ORIGIN, make_app

    client = TestClient(make_app(), base_url=ORIGIN, raise_server_exceptions=False)
    return client.__enter__()  # one event loop for all requests, which ends with the process


def video_cases(bench: Bench, numbers: range, *, seed: int) -> Iterator[Case]:
    """Make damaged videos, and give each to every path; each folder of them to `classify`."""
    paths = {
        "predict": bench.predict,
        "train": bench.train,
        "cache": bench.cache,
        "data check": bench.check,
        "web": bench.upload,
    }
    for number in numbers:
        name, path = bench.damage(number, seed=seed)
        for part, call in paths.items():
            if part == "web" and path.is_dir():
                continue
            yield Case(part, name, lambda call=call, path=path: call(path), (str(path), path.name))
        if number % TOGETHER == TOGETHER - 1 or number == numbers[-1]:
            folder = path.parent
            call = lambda folder=folder: bench.classify_folder(folder)  # noqa: E731
            yield Case("classify", f"files of {folder.name}", call, (str(folder),))


def describe_videos(bench: Bench) -> str:
    """Say what is damaged, and how."""
    kinds = ", ".join(path.name for path in bench.seeds)
    return f"{len(bench.seeds)} kinds of videos ({kinds}), damaged by {', '.join(MUTATIONS)}"
