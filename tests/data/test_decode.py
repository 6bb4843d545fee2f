"""Reading frames by number: the right ones, from every container, each once."""

import pytest
import torch
from torch.utils.data import DataLoader

import tokenselect.data.packets as packets_module
from tests.data.numbered_frames import numbered_clip, read_numbers
from tokenselect.data import FrameFolder, VideoReader, open_video, write_video

B_FRAMES = {"g": "12", "bf": "3", "preset": "veryfast"}
OPEN_GROUPS = {"g": "12", "bf": "3", "x264-params": "open-gop=1:b-pyramid=2"}
KINDS = {
    "mp4 with B-frames": ("mp4", "libx264", B_FRAMES),
    "mp4 without B-frames": ("mp4", "libx264", {"bf": "0"}),
    "mkv": ("mkv", "libx264", B_FRAMES),
    "mkv with open groups": ("mkv", "libx264", OPEN_GROUPS),
    "ts, whose times do not start at 0": ("ts", "libx264", B_FRAMES),
    "avi, whose B-frames have no times": ("avi", "libx264", B_FRAMES),
    "avi as in UCF101": ("avi", "mpeg4", {"bf": "2", "g": "12"}),
    "webm": ("webm", "libvpx-vp9", {"g": "12", "deadline": "realtime", "cpu-used": "8"}),
    "a raw stream": ("h264", "libx264", B_FRAMES),
}
ASKED = [37, 3, 20, 20, 0, 38, 41]


@pytest.fixture(params=KINDS, name="video")
def numbered_video(request, tmp_path):
    ending, codec, options = KINDS[request.param]
    path = tmp_path / f"clip.{ending}"
    write_video(path, numbered_clip(42), codec=codec, options=options)
    return path


def test_frames_come_in_the_order_asked(video):
    assert read_numbers(VideoReader(video).read(ASKED)) == ASKED


def test_every_frame_is_there_once(video):
    reader = VideoReader(video)
    assert read_numbers(reader.read(range(reader.num_frames))) == list(range(42))


def test_single_frames_equal_those_of_a_full_read(video):
    reader = VideoReader(video)
    frames = reader.read(range(reader.num_frames))
    for index in (0, 11, 13, 41):
        assert torch.equal(reader.read([index])[0], frames[index])


def test_frames_of_a_file_too_large_to_hold_are_the_same(video, monkeypatch):
    expected = VideoReader(video).read([5, 30])
    monkeypatch.setattr(packets_module, "HELD_BYTES", 0)
    assert torch.equal(VideoReader(video).read([5, 30]), expected)


@pytest.mark.parametrize("ending", ["mp4", "mkv", "ts"])
def test_a_variable_rate_keeps_its_times(tmp_path, ending):
    times = [0.0, 0.1, 0.15, 0.6, 0.62, 1.0, 1.5]
    path = tmp_path / f"clip.{ending}"
    write_video(path, numbered_clip(7), times=times, options=B_FRAMES)
    reader = VideoReader(path)
    assert reader.times == pytest.approx(times, abs=1e-3)
    assert reader.fps == pytest.approx(6 / 1.5, rel=1e-2)
    assert read_numbers(reader.read([5, 3, 1])) == [5, 3, 1]


@pytest.mark.parametrize("rotation", [0, 90, 180, -90])
def test_rotation_is_that_of_a_player(tmp_path, rotation):
    frames = numbered_clip(4)
    frames[:, 0, :20] = 255
    path = tmp_path / "clip.mp4"
    write_video(path, frames, rotation=rotation, options={"crf": "5"})
    reader = VideoReader(path)
    shown = torch.rot90(frames, rotation // 90, dims=(2, 3)).float()
    assert reader.size == tuple(shown.shape[2:])
    assert (reader.read(range(4)).float() - shown).abs().mean() < 12


def test_an_odd_size_is_padded_to_even(tmp_path):
    write_video(tmp_path / "clip.mp4", numbered_clip(3)[:, :, :47, :63])
    assert VideoReader(tmp_path / "clip.mp4").size == (48, 64)


def test_size_rate_and_layout(tmp_path):
    write_video(tmp_path / "clip.mp4", numbered_clip(5), fps=25)
    with VideoReader(tmp_path / "clip.mp4") as reader:
        frames = reader.read([0, 1])
    assert reader.fps == pytest.approx(25)
    assert frames.shape == (2, 3, 48, 64) and frames.dtype == torch.uint8
    assert frames.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("index", [-1, 5])
def test_a_frame_outside_the_video_is_refused(tmp_path, index):
    write_video(tmp_path / "clip.mp4", numbered_clip(5))
    with pytest.raises(IndexError, match="which has 5"):
        VideoReader(tmp_path / "clip.mp4").read([index])


def test_a_folder_of_pictures_reads_like_a_file(tmp_path):
    from PIL import Image

    for number, frame in enumerate(numbered_clip(12)):
        Image.fromarray(frame.permute(1, 2, 0).numpy()).save(tmp_path / f"img_{number}.png")
    folder = open_video(tmp_path)
    assert isinstance(folder, FrameFolder)
    assert (folder.num_frames, folder.size) == (12, (48, 64))
    assert read_numbers(folder.read([10, 2, 11])) == [10, 2, 11]
    assert folder.times[3] == pytest.approx(0.1)


@pytest.mark.parametrize("shape", [(3, 48, 64), (5, 1, 48, 64)])
def test_only_rgb_clips_are_written(tmp_path, shape):
    with pytest.raises(ValueError, match="frames must be"):
        write_video(tmp_path / "clip.mp4", torch.zeros(shape, dtype=torch.uint8))


def decoder_threads(paths):
    """Open each path and give the threads that its decoder got."""
    return [VideoReader(path)._stream.codec_context.thread_count for path in paths]


def test_the_decoder_takes_torchs_threads_and_one_in_a_worker(tmp_path, monkeypatch):
    write_video(tmp_path / "clip.mp4", numbered_clip(5))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert decoder_threads([tmp_path / "clip.mp4"]) == [3]
    monkeypatch.undo()
    loader = DataLoader([tmp_path / "clip.mp4"], num_workers=1, collate_fn=decoder_threads)
    assert list(loader) == [[1]]
