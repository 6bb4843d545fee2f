import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest
import torch
from torch.utils.data import default_collate

from tests.weights.models import scramble
from tokenselect.checkpoints import info_of, load_model, save_model, weights_digest
from tokenselect.cli.main import main
from tokenselect.data import open_video, write_video
from tokenselect.data.sources import open_sample
from tokenselect.data.synthetic import CLASS_NAMES
from tokenselect.inference.bulk import (
    answer_batches,
    on_ray,
    on_this_machine,
    read_and_answer,
    read_batches,
)
from tokenselect.inference.predict import Reading, predict_video
from tokenselect.inference.rows import Row, classify_videos
from tokenselect.inference.rows import read_rows as read_file
from tokenselect.locking import InUseError, holding
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


def reading(model, *, clips: int = 1, crops: int = 1, **options) -> Reading:
    return Reading(info_of(model).clip_rule, clips, crops, **options)


def read_rows(path: Path) -> list[dict]:
    return parquet.read_table(path).to_pylist()


def test_every_video_gets_a_row_and_a_broken_one_its_error(checkpoint, clips, tmp_path):
    model = load_model(checkpoint)
    engine = partial(on_this_machine, model, reading=reading(model, clips=2), workers=0)
    summary = classify_videos(clips, tmp_path / "a.parquet", engine, settings=SETTINGS)
    rows = read_rows(tmp_path / "a.parquet")
    assert [row["video"] for row in rows] == clips
    assert (summary.total, summary.errors, summary.skipped) == (6, 1, 0)
    assert "001.mp4" in rows[1]["error"] and rows[1]["label"] is None
    whole = [row for row in rows if row["error"] is None]
    assert all(row["label"] in NAMES and sorted(row["labels"]) == sorted(NAMES) for row in whole)
    assert all(abs(sum(row["probabilities"]) - 1) < 1e-4 for row in whole)
    assert not (tmp_path / "a.parquet.part").exists()


def test_the_small_model_of_the_package_classifies_its_own_clips_only(tmp_path):
    model = load_model()
    film = torch.randint(0, 256, (40, 3, 32, 32), dtype=torch.uint8)
    write_video(tmp_path / "film.mp4", film, fps=10)  # three windows, one row
    write_video(tmp_path / "own.mp4", open_sample(3).frames, fps=8, options={"crf": "18"})
    videos = [str(tmp_path / name) for name in ("film.mp4", "own.mp4")]
    windows = Reading.of(model, 1, 1, 2.0)
    refused, answered = on_this_machine(model, videos, reading=windows, workers=0)
    assert "is not a synthetic action" in str(refused.error) and refused.label is None
    assert answered.label == CLASS_NAMES[3]


def test_workers_and_this_process_give_the_same_answers(checkpoint, clips):
    model = load_model(checkpoint)
    alone, helped = (
        {
            row.video: row
            for row in on_this_machine(
                model, clips, reading=reading(model, crops=3), workers=workers, batch=batch
            )
        }
        for workers, batch in ((0, 1), (2, 8))
    )
    assert alone.keys() == helped.keys() == set(clips)
    for video, row in alone.items():  # a batch may round otherwise
        assert row.probabilities == pytest.approx(helped[video].probabilities, abs=1e-5)
        assert (row.label, row.error) == (helped[video].label, helped[video].error)


@pytest.mark.parametrize(
    ("videos", "workers", "batch"), [(48, 2, 8), (8, 2, 2), (5, 2, 1), (3, 2, 8), (1, 0, 8)]
)
def test_every_worker_answers_twice_before_a_short_list_ends(
    monkeypatch, checkpoint, videos, workers, batch
):
    monkeypatch.setattr(
        "tokenselect.inference.bulk.read_and_answer", lambda jobs, read, answer, **how: answer
    )
    model = load_model(checkpoint)
    names = [str(number) for number in range(videos)]
    answer = on_this_machine(model, names, reading=reading(model), workers=workers, batch=8)
    assert answer.keywords["batch"] == batch


@pytest.mark.parametrize("is_torch", [True, False])
def test_a_labelled_set_is_answered_by_workers_as_by_this_process(checkpoint, is_torch):
    model, generator = load_model(checkpoint), torch.Generator().manual_seed(0)
    dataset = [(torch.randn(3, 4, 32, 32, generator=generator), label) for label in range(11)]
    read = partial(read_batches, dataset=dataset, collate=default_collate, batch=2)
    answer = partial(answer_batches, run=model, device=torch.device("cpu"))
    options = {"model": model, "is_torch": is_torch}
    alone, helped = (
        sorted(
            read_and_answer(range(6), read, answer, workers=workers, **options), key=itemgetter(0)
        )
        for workers in (0, 2)
    )
    assert [number for number, _, _ in helped] == list(range(6))
    for (_, scores, labels), (_, others, same) in zip(alone, helped, strict=True):
        assert torch.allclose(scores, others, atol=1e-6) and torch.equal(labels, same)


def test_a_long_video_gets_a_timeline_the_one_of_predict(checkpoint, tmp_path):
    model, path = load_model(checkpoint), tmp_path / "down" / "long.mp4"
    path.parent.mkdir()
    write_video(path, torch.randint(0, 256, (40, 3, 32, 32)).byte(), fps=10)
    (row,) = on_this_machine(model, [str(path)], reading=reading(model, window=2.0), workers=0)
    told = predict_video(model, open_video(path), window=2.0)
    assert [(w["start"], w["end"]) for w in row.timeline] == [(0, 2), (1, 3), (2, 4)]
    for window, moment in zip(row.timeline, told.moments, strict=True):
        number, probability = moment.top(1)[0]
        assert window["label"] == NAMES[number]
        assert window["probability"] == pytest.approx(probability, abs=1e-5)
    assert row.seconds == 4.0 and row.truth == "down"


def test_csv_and_jsonl_hold_what_parquet_holds_and_say_what_made_them(checkpoint, clips, tmp_path):
    model = load_model(checkpoint)
    odd = tmp_path / "clips" / 'a\u2028b,"c.mp4'
    Path(clips[0]).rename(odd)
    videos = [str(odd), *clips[1:]]
    engine = partial(on_this_machine, model, reading=reading(model, window=0.2), workers=0)
    outs = [tmp_path / f"rows{suffix}" for suffix in (".parquet", ".csv", ".jsonl")]
    for out in outs:
        classify_videos(videos, out, engine, settings=SETTINGS)
    first, *others = ({row.video: row for row in read_file(out, SETTINGS)} for out in outs)
    assert list(first) == videos and all(rows == first for rows in others)
    for out in outs:
        with pytest.raises(ValueError, match="holds rows made with plan"):
            classify_videos(videos, out, engine, settings={**SETTINGS, "plan": "dense"})


def test_the_digest_of_weights_changes_with_any_of_them():
    model = create_model("mvit_mini", plan="T0_0.5", scorer="taught", num_classes=3)
    before = weights_digest(model)
    assert any(value.ndim == 0 for value in model.state_dict().values())
    for tensor in model.state_dict().values():
        kept = tensor.clone()
        tensor.view(-1)[-1] += 1
        assert weights_digest(model) != before
        tensor.copy_(kept)
    assert weights_digest(model) == before


def test_rows_of_other_weights_at_the_same_path_are_not_mixed_in(clips, tmp_path, capsys):
    options = ["--checkpoint", str(tmp_path / "model"), "--out", str(tmp_path / "rows.jsonl")]

    def classify(seed: int) -> None:
        torch.manual_seed(seed)
        model = create_model("mvit_mini", num_classes=3, frames=4, size=32)
        save_model(model, tmp_path / "model", class_names=NAMES)
        main(["classify", clips[0], *options, "--workers", "0"])

    classify(0)
    with pytest.raises(SystemExit):
        classify(1)
    assert "rows.jsonl holds rows made with weights" in capsys.readouterr().err


def test_names_that_are_not_utf_8_are_done_once(checkpoint, clips, tmp_path):
    model, asked = load_model(checkpoint), []
    odd = os.fsdecode(os.fsencode(str(tmp_path)) + b"/clips/\xff.mp4")
    os.rename(clips[0], odd)

    def engine(videos):
        asked.extend(videos)
        return on_this_machine(model, videos, reading=reading(model), workers=0)

    for _ in range(2):
        summary = classify_videos([odd], tmp_path / "a.parquet", engine, settings=SETTINGS)
    assert asked == [odd] and (summary.total, summary.errors, summary.skipped) == (1, 0, 1)


def test_a_file_that_another_process_writes_is_refused_with_who_it_is(tmp_path):
    out = tmp_path / "a.csv"
    script = (
        "import sys, time; from pathlib import Path; from tokenselect.locking import holding\n"
        "with holding(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(out)], stdout=subprocess.PIPE, env=environment
    )
    try:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InUseError, match=f"a.csv is being written by process {other.pid} on"):
            classify_videos(["a"], out, answer_until(9, []), settings=SETTINGS)
    finally:
        other.kill()
        other.wait()
    with holding(out):  # the lock ends with its process
        pass


def answer_until(limit: int, asked: list[str]):
    """An engine that is killed after `limit` rows."""

    def engine(videos):
        asked.extend(videos)
        for number, video in enumerate(videos):
            if number == limit:
                raise KeyboardInterrupt
            yield Row(video, "up", 1.0, labels=("up",), probabilities=(1.0,))

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
    with pytest.raises(ValueError, match=r"results go to \.parquet, \.csv, \.jsonl, got 'a\.xlsx'"):
        classify_videos(["a"], tmp_path / "a.xlsx", answer_until(0, []), settings=SETTINGS)


def test_the_command_takes_patterns_folders_and_lists(checkpoint, clips, tmp_path, capsys):
    (tmp_path / "some.txt").write_text("\n".join(clips[2:4]) + "\n")
    words = [str(tmp_path / "clips" / "00[0-2].mp4"), str(tmp_path / "some.txt")]
    options = ["--out", str(tmp_path / "a.jsonl"), "--checkpoint", str(checkpoint)]
    with pytest.raises(SystemExit) as ended:
        main(["classify", *words, *options, "--workers", "0"])
    assert ended.value.code == 1  # some could not be read
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["video"] for row in rows] == clips[:4]
    assert "4 videos, 1 of them unreadable" in capsys.readouterr().out
    with pytest.raises(SystemExit):
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
    assert second.returncode == 1  # one of them is broken
    rows = read_rows(out)
    assert Counter(row["video"] for row in rows) == Counter(videos)
    assert [row["video"] for row in rows if row["error"] is not None] == [videos[1]]
    assert f"{done} earlier" in told


@pytest.mark.slow
def test_a_local_ray_of_two_workers_gives_the_same_rows(checkpoint, clips, monkeypatch):
    pytest.importorskip("ray.data")
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))  # for workers of a checkout not installed
    model = load_model(checkpoint)
    alone = list(on_this_machine(model, clips, reading=reading(model), workers=0, batch=1))
    alone.sort(key=lambda row: row.video)
    on_two = on_ray(model, clips, reading=reading(model), workers=2, address="local", batch=1)
    assert sorted(on_two, key=lambda row: row.video) == alone
