import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.weights.models import scramble
from tokenselect.checkpoints import load_model, save_model
from tokenselect.cli.main import main
from tokenselect.data import write_video
from tokenselect.inference.bulk import Row, classify_videos
from tokenselect.inference.engines import on_ray, on_this_machine
from tokenselect.models import create_model

parquet = pytest.importorskip("pyarrow.parquet")

SOURCES = Path(__file__).parents[2] / "src"
NAMES = ["up", "down", "left"]
SETTINGS = {"model": "mvit_mini", "plan": "T0=1"}


def write_clips(folder: Path, count: int) -> list[str]:
    """Write clips as small as can be; the second is broken."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    paths = [folder / f"{number:03d}.mp4" for number in range(count)]
    for path in paths:
        frames = torch.randint(0, 256, (5, 3, 32, 32), generator=generator).byte()
        write_video(path, frames, fps=10)
    paths[1].write_bytes(b"no video")
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    model = scramble(create_model("mvit_mini", plan="T0=1", num_classes=3, frames=4, size=32))
    return save_model(model, tmp_path_factory.mktemp("model"), class_names=NAMES)


@pytest.fixture
def clips(tmp_path) -> list[str]:
    return write_clips(tmp_path / "clips", 6)


def read_rows(path: Path) -> list[dict]:
    return parquet.read_table(path).to_pylist()


def test_every_video_gets_a_row_and_a_broken_one_its_error(checkpoint, clips, tmp_path):
    model = load_model(checkpoint)
    engine = partial(on_this_machine, model, clips=2, crops=1, workers=0)
    summary = classify_videos(clips, tmp_path / "a.parquet", engine, settings=SETTINGS)
    rows = read_rows(tmp_path / "a.parquet")
    assert [row["video"] for row in rows] == clips
    assert (summary.total, summary.errors, summary.skipped) == (6, 1, 0)
    assert "001.mp4" in rows[1]["error"] and rows[1]["label"] is None
    whole = [row for row in rows if row["error"] is None]
    assert all(row["label"] in NAMES and sorted(row["labels"]) == sorted(NAMES) for row in whole)
    assert all(abs(sum(row["probabilities"]) - 1) < 1e-4 for row in whole)
    assert not (tmp_path / "a.parquet.part").exists()


def test_workers_and_this_process_give_the_same_answers(checkpoint, clips):
    model = load_model(checkpoint)
    alone, helped = (
        list(on_this_machine(model, clips, clips=1, crops=3, workers=workers)) for workers in (0, 2)
    )
    assert alone == helped


def answer_until(limit: int, asked: list[str]):
    """An engine that is killed after `limit` rows."""

    def engine(videos):
        asked.extend(videos)
        for number, video in enumerate(videos):
            if number == limit:
                raise KeyboardInterrupt
            yield Row(video, "up", 1.0, ("up",), (1.0,))

    return engine


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_what_is_done_is_skipped_by_the_next_run_and_by_later_ones(suffix, tmp_path):
    out = tmp_path / f"rows{suffix}"
    videos = [f"{number}.mp4" for number in range(5)]
    with pytest.raises(KeyboardInterrupt):
        classify_videos(videos, out, answer_until(2, []), settings=SETTINGS)
    assert not out.exists()
    part = out.with_name(f"{out.name}.part")
    part.write_text(part.read_text() + '{"video": "2.mp4", "lab')  # cut off by the kill
    asked: list[str] = []
    summary = classify_videos([*videos, "0.mp4"], out, answer_until(9, asked), settings=SETTINGS)
    assert asked == ["2.mp4", "3.mp4", "4.mp4"]
    assert (summary.total, summary.skipped) == (5, 2)
    asked.clear()
    summary = classify_videos([*videos, "5.mp4"], out, answer_until(9, asked), settings=SETTINGS)
    assert asked == ["5.mp4"]
    assert (summary.total, summary.skipped) == (6, 5)


def test_rows_of_another_plan_are_not_mixed_in(tmp_path):
    out, other = tmp_path / "a.parquet", {**SETTINGS, "plan": "dense"}
    with pytest.raises(KeyboardInterrupt):
        classify_videos(["a", "b"], out, answer_until(1, []), settings=SETTINGS)
    with pytest.raises(ValueError, match=r"a\.parquet\.part holds rows made with plan T0=1"):
        classify_videos(["a", "b"], out, answer_until(9, []), settings=other)
    classify_videos(["a", "b"], out, answer_until(9, []), settings=SETTINGS)
    with pytest.raises(ValueError, match=r"a\.parquet holds rows made with plan T0=1"):
        classify_videos(["a", "b"], out, answer_until(9, []), settings=other)


def test_another_kind_of_file_is_refused_before_any_work(tmp_path):
    with pytest.raises(ValueError, match=r"results go to \.parquet or \.jsonl, got 'a\.xlsx'"):
        classify_videos(["a"], tmp_path / "a.xlsx", answer_until(0, []), settings=SETTINGS)


def test_the_command_takes_patterns_folders_and_lists(checkpoint, clips, tmp_path, capsys):
    (tmp_path / "some.txt").write_text("\n".join(clips[2:4]) + "\n")
    words = [str(tmp_path / "clips" / "00[0-2].mp4"), str(tmp_path / "some.txt")]
    options = ["--out", str(tmp_path / "a.jsonl"), "--checkpoint", str(checkpoint)]
    main(["classify", *words, *options, "--workers", "0"])
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["video"] for row in rows] == clips[:4]
    assert "4 videos, 1 of them unreadable" in capsys.readouterr().out
    main(["classify", str(tmp_path / "clips"), *options, "--workers", "0"])
    assert "6 videos, 1 of them unreadable; 2 now" in capsys.readouterr().out


def start_command(folder: Path, out: Path, checkpoint: Path) -> subprocess.Popen:
    arguments = [str(folder), "--out", str(out), "--checkpoint", str(checkpoint), "--device", "cpu"]
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "tokenselect", "classify", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.slow
def test_200_clips_killed_half_way_are_finished_with_no_row_lost_or_doubled(checkpoint, tmp_path):
    videos = write_clips(tmp_path / "clips", 200)
    out, part = tmp_path / "a.parquet", tmp_path / "a.parquet.part"
    first = start_command(tmp_path / "clips", out, checkpoint)
    while first.poll() is None and (not part.exists() or part.read_bytes().count(b"\n") < 60):
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = part.read_bytes().count(b"\n") - 1
    assert 0 < done < 200 and not out.exists()
    second = start_command(tmp_path / "clips", out, checkpoint)
    told, _ = second.communicate(timeout=250)
    assert second.returncode == 0
    rows = read_rows(out)
    assert Counter(row["video"] for row in rows) == Counter(videos)
    assert [row["video"] for row in rows if row["error"] is not None] == [videos[1]]
    assert f"{done} before" in told


@pytest.mark.slow
def test_a_local_ray_of_two_workers_gives_the_same_rows(checkpoint, clips, monkeypatch):
    pytest.importorskip("ray.data")
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))  # for workers of a checkout not installed
    model = load_model(checkpoint)
    alone = list(on_this_machine(model, clips, clips=1, crops=1, workers=0))
    on_two = on_ray(model, clips, clips=1, crops=1, workers=2, address="local")
    assert sorted(on_two, key=lambda row: row.video) == alone
