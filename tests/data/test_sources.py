import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import av
import pytest
import torch
from PIL import Image

from tokenselect.data import VideoError, write_video
from tokenselect.data.sources import (
    NUM_SAMPLES,
    download_video,
    find_videos,
    open_sample,
    record_camera,
    record_stream,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("videos")
    frames = torch.randint(256, (6, 3, 16, 24), dtype=torch.uint8)
    for name in ("b.mp4", "a.mp4"):
        write_video(place / name, frames, fps=4)
    (place / "sub").mkdir()
    write_video(place / "sub" / "c.mp4", frames, fps=4)
    return place


def names(words):
    return [video.name.rsplit("/", 1)[-1] for video in find_videos(words)]


def test_folders_patterns_and_files_are_found_in_order(folder):
    assert names([str(folder)]) == ["a.mp4", "b.mp4", "c.mp4"]
    assert names([f"{folder}/*.mp4"]) == ["a.mp4", "b.mp4"]
    assert names([f"{folder}/b.mp4", f"{folder}/sub"]) == ["b.mp4", "c.mp4"]
    assert find_videos([f"{folder}/a.mp4"])[0].open().num_frames == 6


def test_a_folder_of_pictures_is_one_video(tmp_path):
    for number in range(3):
        Image.new("RGB", (8, 6), (number, 0, 0)).save(tmp_path / f"{number}.png")
    (video,) = find_videos([str(tmp_path)])
    assert video.open().num_frames == 3


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("nowhere.mp4", "nowhere.mp4 does not exist; a video is a file"),
        ("nowhere/*.mp4", "no file matches"),
        ("sample:8", "samples are numbered 0 to 7"),
    ],
)
def test_what_cannot_be_found_is_said(word, message):
    with pytest.raises((ValueError, OSError), match=message):
        find_videos([word])


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(VideoError, match="holds no videos"):
        find_videos([str(tmp_path)])


def test_samples_show_every_class():
    assert len({video.label for video in find_videos(["samples"])}) == NUM_SAMPLES
    assert [video.name for video in find_videos(["sample", "sample:3"])] == ["sample:0", "sample:3"]
    assert open_sample(0).frames.shape == (16, 3, 192, 192)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(folder):
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_video_is_read_from_an_address(address):
    told = []
    (video,) = find_videos([f"{address}/a.mp4"], tell=told.append)
    source = video.open()
    assert source.num_frames == 6 and source.read([5]).shape == (1, 3, 16, 24)
    assert told[-1].startswith("downloading")


def test_what_goes_wrong_on_the_network_is_one_line(address, tmp_path):
    with pytest.raises(VideoError, match="cannot be downloaded: HTTP Error 404"):
        find_videos([f"{address}/none.mp4"])[0].open()
    with pytest.raises(VideoError, match="cannot be downloaded"):
        find_videos(["http://127.0.0.1:9/x.mp4"])[0].open()
    with pytest.raises(VideoError, match="is larger than 0 MB"):
        download_video(f"{address}/a.mp4", tmp_path, tell=print, max_bytes=10)


def test_a_camera_that_is_not_there_is_one_line():
    with pytest.raises(VideoError, match="camera 99 cannot be opened"):
        record_camera(99, 1.0, tell=print)


def test_recording_stops_when_its_time_is_over(folder):
    with av.open(str(folder / "a.mp4")) as container:
        source = record_stream(container, 0.5, name="camera 0", tell=lambda _: None)
    assert source.num_frames == 3 and source.fps == pytest.approx(4)
