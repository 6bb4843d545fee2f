"""Broken files: each raises a `VideoError` that names the file and what is wrong."""

import pickle
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from tests.data.numbered_frames import numbered_clip, read_numbers
from tokenselect.data import FrameFolder, VideoError, VideoReader, open_video, write_video


def noisy_clip() -> torch.Tensor:
    """Noise compresses badly, so that most bytes of the file are pictures."""
    return torch.randint(0, 80, (20, 3, 48, 64), generator=torch.Generator().manual_seed(0)).byte()


def read_all(path: Path) -> torch.Tensor:
    with VideoReader(path) as reader:
        return reader.read(range(reader.num_frames))


def cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def put_index_first(path: Path) -> None:
    """Rewrite an mp4 with its index at the start, so that it opens when its end is cut off."""
    target = path.with_suffix(".moved.mp4")
    with (
        av.open(str(path)) as source,
        av.open(str(target), "w", options={"movflags": "faststart"}) as copy,
    ):
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                copy.mux(packet)
    target.replace(path)


def write_audio(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), "fltp", "mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def test_a_missing_file(tmp_path):
    with pytest.raises(VideoError, match=r"gone\.mp4 does not exist"):
        open_video(tmp_path / "gone.mp4")


def test_an_empty_file(tmp_path):
    (tmp_path / "empty.mp4").touch()
    with pytest.raises(VideoError, match=r"empty\.mp4 is empty"):
        open_video(tmp_path / "empty.mp4")


def test_a_file_that_is_no_video(tmp_path):
    (tmp_path / "page.mp4").write_text("<html>404 not found</html>\n" * 40)
    with pytest.raises(VideoError, match=r"page\.mp4 cannot be decoded: Invalid data"):
        open_video(tmp_path / "page.mp4")


def test_sound_without_pictures(tmp_path):
    write_audio(tmp_path / "song.m4a")
    with pytest.raises(VideoError, match="has no video stream"):
        open_video(tmp_path / "song.m4a")


@pytest.mark.parametrize("ending", ["mkv", "avi", "flv"])
def test_a_header_without_frames(tmp_path, ending):
    path = tmp_path / f"clip.{ending}"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        container.start_encoding()
    with pytest.raises(VideoError, match="has no frames"):
        open_video(path)


@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi"])
def test_a_truncated_file(tmp_path, ending):
    path = tmp_path / f"clip.{ending}"
    write_video(path, noisy_clip(), codec="mpeg4" if ending == "avi" else "libx264")
    cut(path, 0.6)
    with pytest.raises(VideoError, match=r"truncated|cannot be decoded"):
        read_all(path)


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_truncated_file_whose_index_comes_first(tmp_path, share):
    path = tmp_path / "clip.mp4"
    write_video(path, noisy_clip())
    put_index_first(path)
    cut(path, share)
    with pytest.raises(VideoError, match="truncated"):
        read_all(path)


@pytest.mark.parametrize("ending", ["mp4", "mkv"])
def test_a_damaged_middle(tmp_path, ending):
    path = tmp_path / f"clip.{ending}"
    write_video(path, noisy_clip())
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 2000] = bytes(2000)
    path.write_bytes(content)
    with pytest.raises(VideoError, match=r"damaged|cannot be decoded|truncated"):
        read_all(path)


def test_metadata_that_is_not_utf8_does_no_harm(tmp_path):
    path = tmp_path / "clip.avi"
    write_video(path, numbered_clip(9), codec="mpeg4")
    content = path.read_bytes()
    place = content.index(b"Lavf")  # the name of the program that wrote the file
    path.write_bytes(content[:place] + b"\xd3\xfc" + content[place + 2 :])
    with pytest.raises(UnicodeDecodeError):
        av.open(str(path))
    assert read_numbers(read_all(path)) == list(range(9))


def test_an_empty_folder(tmp_path):
    with pytest.raises(VideoError, match="has no pictures"):
        open_video(tmp_path)


def test_a_broken_picture_in_a_folder(tmp_path):
    (tmp_path / "img_1.jpg").write_bytes(b"not a picture")
    with pytest.raises(VideoError, match=r"broken picture, img_1\.jpg"):
        FrameFolder(tmp_path).read([0])


def test_the_error_survives_the_way_from_a_worker():
    error = pickle.loads(pickle.dumps(VideoError("a.mp4", "is empty")))
    assert (str(error), error.path, error.reason) == ("a.mp4 is empty", "a.mp4", "is empty")
