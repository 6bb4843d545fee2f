import json
import time

import av
import numpy as np
import pytest
import torch

from tokenselect.checkpoints import load_model, with_plan
from tokenselect.checkpoints.files import EMBEDDED
from tokenselect.cli.main import main
from tokenselect.data import VideoError, write_video
from tokenselect.data.clips import ClipRule
from tokenselect.data.sources import FPS, open_sample
from tokenselect.inference.live import Stream, Watcher, shrink_frame, span_of, watch


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "clip.mp4"
    write_video(path, open_sample(3).frames, fps=FPS, options={"crf": "12"})
    return path


@pytest.fixture(scope="module")
def model():
    return load_model(plan="T0_0.5-S4_0.5")


def test_a_file_is_played_in_its_own_time_and_answered(clip, model):
    start = time.monotonic()
    with Stream(str(clip)) as stream:
        looks = list(watch(Watcher(model), stream))
    assert time.monotonic() - start >= (16 - 1) / FPS
    assert stream.arrived == 16 and looks
    last = looks[-1]
    assert 0 < last.saved < 1
    told = last.to_dict(top=2)
    assert len(told["top"]) == 2 and len(told["frames"]) == len(told["kept"]) == 16
    assert 0 < sum(box is not None for box in told["kept"]) < 16


def test_the_newest_frames_are_looked_at(model):
    frames = torch.cat([torch.zeros(100, 3, 192, 192, dtype=torch.uint8), open_sample(3).frames])
    watcher = Watcher(with_plan(model, "T0_0.5"))
    look = watcher.look(frames, fps=FPS, name="camera")
    assert look.first == len(frames) - span_of(watcher.rule, FPS) > 0
    assert look.to_dict(top=1)["frames"][0] >= look.first
    assert look.explanation.clip.frames.shape[0] == 16


def test_frames_that_gave_way_before_anyone_looked_are_counted(clip):
    with Stream(str(clip)) as stream:
        stream._thread.join(timeout=30)
        frames = stream.take(span=6)
        assert frames.shape[0] == 6 and (stream.arrived, stream.skipped) == (16, 10)
        assert stream.take(span=6) is None


def test_a_clip_spans_its_own_stride_or_some_seconds(model):
    rule = Watcher(model).rule
    assert span_of(ClipRule(8, rule.size, stride=4), 30) == 29
    assert span_of(ClipRule(8, rule.size, stride=None), 10) == 30


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(VideoError, match="camera 99"):
        Stream("99")
    with pytest.raises(VideoError, match=r"gone\.mp4"):
        Stream(str(tmp_path / "gone.mp4"))


def test_a_file_without_pictures_is_named(tmp_path):
    path = tmp_path / "a.mp4"
    write_video(path, open_sample(3).frames, fps=10)
    before, kind, after = path.read_bytes().partition(b"mdat")
    path.write_bytes(before + kind + bytes(len(after) // 2) + after[len(after) // 2 :])
    with Stream(str(path)) as stream, pytest.raises(VideoError, match="gives no pictures"):
        stream.take(span=4)


def test_frames_keep_the_first_size_when_it_changes():
    shrunk: list[torch.Tensor] = []
    for size in ((32, 40), (48, 24), (32, 40)):
        frame = av.VideoFrame.from_ndarray(np.zeros((*size, 3), np.uint8), format="rgb24")
        shrunk.append(shrink_frame(frame, like=shrunk))
    assert torch.stack(shrunk).shape == (3, 3, 32, 40)


def test_a_ribbon_is_refused():
    with pytest.raises(VideoError, match="at most 32 times the other"):
        shrink_frame(av.VideoFrame.from_ndarray(np.zeros((2, 200, 3), np.uint8), format="rgb24"))


def test_the_command_prints_each_answer_and_ends_with_the_file(clip, capsys):
    words = ["live", str(clip), "--checkpoint", str(EMBEDDED), "--plan", "T0_0.5"]
    main([*words, "--json"])
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told and {"top", "kept", "saved", "skipped", "plan"} <= set(told[0])
    main([*words, "--duration", "0"])
    line, summary = capsys.readouterr().out.splitlines()
    assert "clips/s" in line and "frames skipped" in line and "■" in line
    assert summary.startswith("1 clips in ") and "of the multiply-adds" in summary
