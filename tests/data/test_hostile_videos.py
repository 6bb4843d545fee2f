"""Files that ask for too much, change on the way or have odd names: bounded, read, or named."""

import os
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.numbered_frames import numbered_clip, read_numbers
from tokenselect.data import (
    EvalTransform,
    FrameFolder,
    FramesInMemory,
    Sample,
    SegmentSampler,
    TrainTransform,
    VideoDataset,
    VideoError,
    VideoReader,
    frame_source,
    open_video,
    write_video,
)
from tokenselect.data.frame_folder import find_under, list_pictures, walk_videos


def write_empty(path: Path, height: int, width: int, *, num_frames: int = 2) -> None:
    """Write black frames; they take next to nothing on disk."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        for _ in range(num_frames):
            frame = av.VideoFrame(width, height, "yuv420p")
            for plane in frame.planes:
                plane.update(bytes(plane.buffer_size))
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def write_pictures(folder: Path, *sizes: tuple[int, int]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, (height, width) in enumerate(sizes):
        Image.new("1", (width, height)).save(folder / f"{number}.png")
    return folder


@pytest.fixture(name="limits")
def low_limits(monkeypatch):
    monkeypatch.setattr(frame_source, "MAX_FRAME_PIXELS", 100 * 100)
    monkeypatch.setattr(frame_source, "MAX_CLIP_PIXELS", 5 * 100 * 100)


@pytest.mark.slow
def test_a_frame_above_8k_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    write_empty(tmp_path / "huge.mp4", 6300, 6300, num_frames=1)
    monkeypatch.setattr(VideoReader, "_frames", None)
    with pytest.raises(VideoError, match=r"huge.mp4 has frames of 6300 × 6300 = 39,690,000 pixels"):
        open_video(tmp_path / "huge.mp4")


def test_a_ribbon_is_refused(tmp_path):
    write_empty(tmp_path / "ribbon.mp4", 2, 16000)
    with pytest.raises(VideoError, match=r"ribbon.mp4 has frames of 16000 × 2 .* at most 32 times"):
        open_video(tmp_path / "ribbon.mp4")


def test_a_picture_above_the_limit_is_named(tmp_path, limits):
    folder = write_pictures(tmp_path / "frames", (90, 90), (120, 100))
    with pytest.raises(
        VideoError, match=r"1.png has frames of 100 × 120 = 12,000 pixels; .* 10,000"
    ):
        FrameFolder(folder).read([0, 1])


def test_a_clip_above_the_limit_is_refused_unless_it_is_shrunk(tmp_path, limits):
    write_video(tmp_path / "clip.mp4", numbered_clip(9, 96, 96))
    reader = open_video(tmp_path / "clip.mp4")
    with pytest.raises(VideoError, match=r"needs 55,296 pixels for 6 frames; the limit is 50,000"):
        reader.read(range(6))
    (half,) = reader.read_clips([range(9)], lambda h, w: [lambda frames: frames[..., ::2, ::2]])
    assert half.shape == (9, 3, 48, 48)
    assert torch.equal(half[:5], reader.read(range(5))[..., ::2, ::2])


@pytest.mark.parametrize(
    "transform", [EvalTransform(32), TrainTransform(32)], ids=["eval", "train"]
)
def test_a_data_set_shrinks_frame_by_frame(tmp_path, limits, transform):
    write_video(tmp_path / "clip.mp4", numbered_clip(9, 96, 96))
    dataset = VideoDataset(
        [Sample(str(tmp_path / "clip.mp4"), 0)], sampler=SegmentSampler(8), transform=transform
    )
    assert dataset[0].video.shape == (1, 3, 8, 32, 32)


BOMB = """
import resource, sys
from tokenselect.data import VideoError, open_video
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    source = open_video(sys.argv[1])
    source.read(range(source.num_frames))
except VideoError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)  # kB on Linux
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")
def test_pictures_of_12000_squared_cost_no_memory(tmp_path):
    folder = write_pictures(tmp_path / "bomb", (12000, 12000))
    for number in range(1, 16):
        os.link(folder / "0.png", folder / f"{number}.png")
    ended = subprocess.run(
        [sys.executable, "-c", BOMB, str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    told, kilobytes = ended.stdout.splitlines()
    assert told.startswith(str(folder)) and "12000 × 12000" in told
    assert int(kilobytes) < 50_000


def test_what_pillow_takes_for_a_bomb_is_named(tmp_path):
    folder = write_pictures(tmp_path / "frames", (20, 20))
    content = bytearray((folder / "0.png").read_bytes())
    content[16:24] = (1 << 20).to_bytes(4) * 2  # width and height
    (folder / "0.png").write_bytes(content)
    with pytest.raises(VideoError, match=r"has a broken picture, 0.png"):
        FrameFolder(folder).read([0])


@pytest.mark.parametrize("cut", [30, 60, 100])
def test_a_picture_cut_short_is_named(tmp_path, cut):
    folder = tmp_path / "frames"
    folder.mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)).save(
        folder / "1.png"
    )
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:cut])
    with pytest.raises(VideoError, match=r"has a broken picture, 1.png"):
        FrameFolder(folder).verify()


def test_pictures_of_two_sizes_are_named(tmp_path):
    folder = write_pictures(tmp_path / "frames", (9, 8), (9, 8), (8, 9))
    with pytest.raises(VideoError, match=r"0.png is 8 × 9, 2.png is 9 × 8"):
        FrameFolder(folder).verify()


@pytest.mark.parametrize("names", ["ab", "ba"])
@pytest.mark.parametrize(
    ("ending", "codec", "pixels"),
    [("h264", "libx264", "yuv420p"), ("mpg", "mpeg2video", "yuv420p"),
     ("mjpeg", "mjpeg", "yuvj420p")],
)  # fmt: skip
def test_frames_keep_the_first_size_when_it_changes(tmp_path, names, ending, codec, pixels):
    sizes = {"a": (48, 64), "b": (96, 128)}
    joined = b""
    for name in names:
        path = tmp_path / f"{name}.{ending}"
        write_video(path, numbered_clip(5, *sizes[name]), codec=codec, pixel_format=pixels)
        joined += path.read_bytes()
    (tmp_path / f"joined.{ending}").write_bytes(joined)
    reader = open_video(tmp_path / f"joined.{ending}")
    frames = reader.read(range(reader.num_frames))
    assert frames.shape[2:] == reader.size == sizes[names[0]]


@pytest.mark.slow
def test_a_stream_that_grows_beyond_the_limit_is_refused(tmp_path):
    write_video(tmp_path / "a.h264", numbered_clip(5))
    write_empty(tmp_path / "b.h264", 6300, 6300, num_frames=1)
    joined = (tmp_path / "a.h264").read_bytes() + (tmp_path / "b.h264").read_bytes()
    (tmp_path / "joined.h264").write_bytes(joined)
    with pytest.raises(VideoError, match=r"joined.h264 (cannot be decoded|is damaged)"):
        open_video(tmp_path / "joined.h264").read([5])


@pytest.mark.parametrize(
    "stated", [b"xx:00:00", b"00 00 00", b"-1:00:00", b"nan:0:00", b"1e999:00"]
)
def test_a_damaged_duration_is_left_aside(tmp_path, stated):
    path = tmp_path / "clip.mkv"
    write_video(path, numbered_clip(5))
    content = path.read_bytes()
    place = content.index(b"00:00:00", content.index(b"DURATION"))
    path.write_bytes(content[:place] + stated + content[place + len(stated) :])
    assert read_numbers(open_video(path).read([4])) == [4]


@pytest.mark.parametrize(
    ("ending", "codec", "name"),
    [("avi", "mpeg4", b"FMP4"), ("mp4", "libx264", b"avc1"), ("mkv", "libx264", b"/ISO/AVC")],
)
def test_an_unknown_codec_is_named(tmp_path, ending, codec, name):
    path = tmp_path / f"clip.{ending}"
    write_video(path, numbered_clip(5), codec=codec)
    path.write_bytes(path.read_bytes().replace(name, name[:-3] + b"XQZ"))
    with pytest.raises(
        VideoError, match=rf"clip.{ending} has a video stream that no decoder knows"
    ):
        open_video(path)


@pytest.mark.parametrize("ending", ["mp4", "mkv", "ts"])
def test_a_frame_every_100_seconds(tmp_path, ending):
    path = tmp_path / f"clip.{ending}"
    write_video(path, numbered_clip(4), times=[0, 100, 200, 300])
    reader = open_video(path)
    assert reader.fps == pytest.approx(0.01) and read_numbers(reader.read([3, 1])) == [3, 1]


@pytest.mark.parametrize("fps", [0, -1, 1e-9])
def test_a_rate_that_cannot_be_written_is_refused(tmp_path, fps):
    with pytest.raises(ValueError, match="fps must be at least 1/1001"):
        write_video(tmp_path / "clip.mp4", numbered_clip(4), fps=fps)


def test_a_video_of_one_frame_has_a_rate(tmp_path):
    write_video(tmp_path / "clip.mp4", numbered_clip(1), fps=25)
    assert open_video(tmp_path / "clip.mp4").fps == pytest.approx(25)
    assert FramesInMemory(numbered_clip(1), fps=5, name="one").fps == 5


NAMES = ["12:30.mp4", "a\u2028b.mp4", os.fsdecode(b"caf\xe9.mp4"), "%d.mp4", "-x.mp4", "http:x.mp4"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_file_is_read_whatever_its_name(tmp_path, monkeypatch, name):
    write_video(tmp_path / "plain.mp4", numbered_clip(5))
    os.rename(tmp_path / "plain.mp4", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tokenselect.data.packets.HELD_BYTES", 0)  # so that it is opened twice
    assert read_numbers(open_video(name).read([4, 2])) == [4, 2]
    assert walk_videos(".") == [os.path.join(".", name)]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_an_error_can_be_printed_whatever_the_name(name):
    told = str(VideoError(name, "is empty"))
    assert len(told.splitlines()) == 1 and told.encode().endswith(b" is empty")


def test_a_dangling_link_is_named(tmp_path):
    (tmp_path / "gone.mp4").symlink_to(tmp_path / "nowhere.mp4")
    with pytest.raises(VideoError, match=r"gone.mp4 is a broken link"):
        open_video(tmp_path / "gone.mp4")


def test_pictures_are_sorted_whatever_their_numerals(tmp_path):
    for name in ("²5.png", "10.png", "9.png", "٣.png", "x.png"):
        (tmp_path / name).touch()
    assert [file.name for file in list_pictures(tmp_path)][-2:] == ["9.png", "10.png"]


def test_a_walk_enters_a_loop_of_links_once(tmp_path):
    for name in "abc":
        (tmp_path / name).mkdir()
        for other in "xyz":
            (tmp_path / name / other).symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a" / "clip.mp4").touch()
    assert walk_videos(tmp_path) == [str(tmp_path / "a" / "clip.mp4")]
    assert any(find_under(tmp_path))
