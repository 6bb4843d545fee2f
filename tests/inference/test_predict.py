import subprocess
import sys
from functools import partial

import pytest
import torch

from tests.weights.models import scramble
from tokenselect.checkpoints import ModelInfo, info_of, load_model
from tokenselect.data import VideoReader, write_video
from tokenselect.data.clips import ClipRule
from tokenselect.data.sources import FoundVideo, FramesInMemory, find_videos
from tokenselect.inference.predict import (
    Moment,
    Timeline,
    answer_video,
    lean_rule,
    predict_video,
    split_windows,
)
from tokenselect.models import create_model

RULE = ClipRule(4, (6, 8), stride=2)


class Brightness(torch.nn.Module):
    """Two classes: dark and bright, by the average pixel of the clip."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(50.0))
        self.shapes = []
        self.info = ModelInfo("brightness", {0: "dark", 1: "bright"}, RULE)

    def forward(self, clips):
        self.shapes.append(tuple(clips.shape))
        light = self.scale * clips.mean(dim=(1, 2, 3, 4))
        return torch.stack([-light, light], dim=1)


def video_of(levels, *, fps=2.0):
    frames = torch.tensor(levels, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 12, 16)
    return FramesInMemory(frames.contiguous(), fps=fps, name="made")


def test_a_short_video_is_one_window():
    assert split_windows(video_of([0] * 29), seconds=10) == [(0, 29)]
    assert split_windows(video_of([0] * 100), seconds=0) == [(0, 100)]


def test_windows_of_a_long_video_overlap_and_end_with_it():
    windows = split_windows(video_of([0] * 50), seconds=10)
    assert windows == [(0, 20), (10, 30), (20, 40), (30, 50)]
    assert split_windows(video_of([0] * 47), seconds=10)[-1] == (27, 47)
    assert split_windows(video_of([0] * 60), seconds=10, step=10) == [(0, 20), (20, 40), (40, 60)]


def test_a_window_of_a_slow_video_holds_a_frame():
    assert split_windows(video_of([0] * 3, fps=0.01), seconds=10) == [(0, 1), (1, 2), (2, 3)]


def test_wrong_windows_are_refused():
    with pytest.raises(ValueError, match="a step > 0, got 5 and 0"):
        split_windows(video_of([0]), seconds=5, step=0)


def test_the_time_line_finds_when_the_picture_turns_bright():
    source = video_of([0] * 40 + [255] * 40)
    timeline = predict_video(Brightness(), source, window=5.0)
    dark, bright = timeline.stretches()
    assert dark.top(1)[0][0] == 0 and bright.top(1)[0][0] == 1
    assert dark.start == 0 and bright.end == pytest.approx(40)
    assert dark.end == bright.start == pytest.approx(20, abs=2.5)


def test_views_are_averaged_after_the_softmax():
    model = Brightness()
    source = video_of(list(range(0, 250, 5)))
    timeline = predict_video(model, source, clips=3, crops=2, window=0, clips_at_once=4)
    assert model.shapes == [(4, 3, 4, 6, 8), (2, 3, 4, 6, 8)]
    assert timeline.whole.probabilities.sum() == pytest.approx(1)


def test_stretches_join_windows_that_agree():
    a, b = torch.tensor([0.9, 0.1]), torch.tensor([0.2, 0.8])
    moments = [Moment(0, 4, a), Moment(2, 6, a), Moment(4, 8, b), Moment(6, 10, a)]
    found = Timeline(moments, 10.0).stretches()
    assert [(s.start, s.end, s.top(1)[0][0]) for s in found] == [(0, 5, 0), (5, 7, 1), (7, 10, 0)]


def test_one_broken_video_does_not_stop_the_others(tmp_path):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    videos = find_videos([str(broken), "sample:1"])
    first, second = (answer_video(video, partial(predict_video, load_model())) for video in videos)
    assert first.timeline is None and "broken.mp4 cannot be decoded" in first.error
    assert second.timeline is not None and second.video.label == "right-up"


def test_a_sample_is_given_to_the_model_as_it_was_made():
    (video,) = find_videos(["sample:2"])
    assert isinstance(video, FoundVideo)
    source = video.open()
    rule = load_model().info.clip_rule
    assert rule.sample(0, source.num_frames) == [list(range(16))]


@pytest.mark.parametrize(("name", "decoded"), [("mvit_mini", 6), ("video_swin_mini", 4)])
def test_frames_that_a_plan_drops_for_sure_are_not_decoded(name, decoded, tmp_path, monkeypatch):
    write_video(tmp_path / "clip.mp4", torch.randint(0, 256, (33, 3, 40, 48)).byte())
    options = {"num_classes": 5, "frames": 8, "size": 32}
    model = scramble(create_model(name, plan="T0_0.5-S1_0.5", method="uniform", **options)).eval()
    made, to_picture = [], VideoReader._to_picture
    monkeypatch.setattr(
        VideoReader, "_to_picture", lambda *given: made.append(1) or to_picture(*given)
    )
    answers = []
    for rule in (info_of(model).clip_rule, lean_rule(model)):
        made.clear()
        with VideoReader(tmp_path / "clip.mp4") as source, torch.inference_mode():
            answers.append(model(rule.normalize(rule.read_crops(source))))
    assert len(made) == decoded
    assert torch.equal(*answers)


@pytest.mark.parametrize("plan", ["T0_0.5", "T1_0.5", "S0_0.5"])
def test_frames_are_left_out_only_where_their_places_decide_before_block_0(plan):
    method = "motion" if plan == "T0_0.5" else "uniform"
    model = create_model("mvit_mini", plan=plan, method=method, num_classes=5)
    assert lean_rule(model) == info_of(model).clip_rule


PEAK = """
import re, sys, torch
from pathlib import Path
import tokenselect.data.packets as packets
from tokenselect.data import open_video
from tokenselect.inference.predict import predict_video
from tokenselect.models import create_model
packets.HELD_BYTES = 2**16
torch.set_num_threads(1)
model = create_model("mvit_mini", num_classes=3, frames=4, size=32).eval()
for path in sys.argv[1:]:
    predict_video(model, open_video(path), window=4.0)
    print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_length_of_a_video(tmp_path):
    frames = torch.randint(0, 256, (12, 3, 240, 320)).byte()
    paths = [tmp_path / f"{seconds}.mp4" for seconds in (6, 60)]
    for path, times in zip(paths, (5, 50), strict=True):
        write_video(path, frames.repeat(times, 1, 1, 1), fps=10, options={"preset": "ultrafast"})
    assert paths[1].stat().st_size > 2**23  # far more than may be held
    command = [sys.executable, "-c", PEAK, *map(str, paths)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(told[1]) - int(told[0]) < 8192  # kilobytes
