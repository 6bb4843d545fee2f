"""Decoded clips on disk: the same frames, written once, bounded, safe to lose."""

import errno
import logging
import os
import shutil
import weakref

import pytest
import torch

from tests.data.numbered_frames import numbered_clip, read_numbers
from tokenselect.data import ClipCache, VideoError, VideoReader, open_video, write_video
from tokenselect.data import cache as cache_module


@pytest.fixture(name="video")
def written_video(tmp_path):
    path = str(tmp_path / "clip.mp4")
    write_video(path, numbered_clip(70), fps=25, options={"preset": "ultrafast"})
    return path


@pytest.fixture(name="cache")
def empty_cache(tmp_path):
    return ClipCache(tmp_path / "cache")


def test_cached_frames_are_those_of_the_video(video, cache):
    cached = cache.open(video)
    assert torch.equal(cached.read([65, 3, 3]), VideoReader(video).read([65, 3, 3]))
    assert (cached.num_frames, cached.size) == (70, (48, 64))
    assert cached.fps == pytest.approx(25) and cached.times[50] == pytest.approx(2.0)


def test_a_second_opening_does_not_decode(video, cache, monkeypatch):
    cache.open(video)
    monkeypatch.setattr(cache_module, "open_video", None)
    assert read_numbers(cache.open(video).read([7])) == [7]


def test_frames_are_kept_at_the_short_side(video, tmp_path):
    cached = ClipCache(tmp_path / "cache", short_side=36).open(video)
    assert cached.size == (36, 48) and read_numbers(cached.read([69])) == [69]


def test_a_changed_video_is_decoded_anew(video, cache):
    cache.open(video)
    before = cache.file_of(video)
    write_video(video, numbered_clip(9))
    assert cache.open(video).num_frames == 9 and cache.file_of(video) != before


def test_other_settings_have_other_files(video, tmp_path):
    large, small = ClipCache(tmp_path, short_side=40), ClipCache(tmp_path, short_side=24)
    assert large.file_of(video) != small.file_of(video)


def test_a_deleted_folder_is_made_again(video, cache):
    cache.open(video)
    shutil.rmtree(cache.folder)
    assert read_numbers(cache.open(video).read([7])) == [7]


def test_a_full_cache_says_so_once_and_decodes(video, tmp_path, caplog):
    cache = ClipCache(tmp_path / "cache", max_bytes=1000)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            source = cache.open(video)
            assert isinstance(source, VideoReader) and read_numbers(source.read([7])) == [7]
    assert caplog.text.count("is full") == 1 and "Raise max_bytes" in caplog.text
    assert cache.num_bytes == 0


def test_the_folder_is_not_counted_for_every_video(tmp_path, monkeypatch):
    counted = []
    size = ClipCache.num_bytes.fget
    monkeypatch.setattr(ClipCache, "num_bytes", property(lambda c: counted.append(1) or size(c)))
    cache = ClipCache(tmp_path / "cache")
    for number in range(4):
        path = str(tmp_path / f"{number}.mp4")
        write_video(path, numbered_clip(3), fps=25, options={"preset": "ultrafast"})
        cache.open(path)
    assert len(counted) == 1 and len(os.listdir(cache.folder)) == 4


def test_a_cache_that_fills_up_takes_what_still_fits(tmp_path):
    cache = ClipCache(tmp_path / "cache", max_bytes=70_000)
    for number in range(4):  # 27 kB each
        path = str(tmp_path / f"{number}.mp4")
        write_video(path, numbered_clip(3), fps=25, options={"preset": "ultrafast"})
        cache.open(path)
    assert len(os.listdir(cache.folder)) == 2 and cache.num_bytes <= 70_000


def test_a_full_disk_leaves_nothing_and_says_so_once(video, tmp_path, cache, monkeypatch, caplog):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    other = str(tmp_path / "other.mp4")
    write_video(other, numbered_clip(9))
    for path in (video, other, video):
        source = cache.open(path)
        assert isinstance(source, VideoReader) and read_numbers(source.read([7])) == [7]
    assert caplog.text.count("cannot be written (No space left on device)") == 1
    assert os.listdir(cache.folder) == []


def test_a_folder_that_cannot_be_made_is_done_without(video, tmp_path, caplog):
    (tmp_path / "taken").write_text("a file")
    source = ClipCache(tmp_path / "taken").open(video)
    assert read_numbers(source.read([7])) == [7] and "cannot be written" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:-9],
        lambda content: b"",
        lambda content: b"not an array" + content,
        lambda content: content.replace(b"'|u1'", b"'|i1'"),
        lambda content: content.replace(b"(70, 48, 64, 3)", b"(71, 48, 64, 3)"),
    ],
    ids=["half", "without its end", "empty", "no array", "another type", "more frames"],
)
def test_a_damaged_file_is_written_again(video, cache, caplog, damage):
    whole = cache.open(video).read([69])
    file = cache.file_of(video)
    content = file.read_bytes()
    assert damage(content) != content
    file.write_bytes(damage(content))
    assert torch.equal(cache.open(video).read([69]), whole)
    assert file.read_bytes() == content and caplog.text.count("is damaged") == 1


def test_one_warning_tells_of_many_damaged_files(video, tmp_path, cache, caplog):
    for number in range(3):
        path = tmp_path / f"{number}.mp4"
        write_video(path, numbered_clip(9))
        cache.open(str(path))
        cache.file_of(str(path)).write_bytes(b"")
        cache.open(str(path))
    assert caplog.text.count("is damaged") == 1


def test_writing_holds_one_frame_at_a_time(video, cache, monkeypatch):
    held = []

    def stream(self, numbers):
        for number, frame in decode(self, numbers):
            held.append(weakref.ref(frame))
            assert sum(reference() is not None for reference in held) <= 2  # and the last one
            yield number, frame

    decode = VideoReader.stream
    monkeypatch.setattr(VideoReader, "stream", stream)
    assert cache.open(video).num_frames == 70 and len(held) > 70


def test_a_missing_video_is_a_video_error(tmp_path, cache):
    with pytest.raises(VideoError, match="does not exist"):
        cache.open(str(tmp_path / "gone.mp4"))


def test_a_frame_outside_is_refused(video, cache):
    with pytest.raises(IndexError, match="which has 70"):
        cache.open(video).read([70])


def test_folders_of_pictures_are_cached_too(tmp_path, cache):
    from PIL import Image

    (tmp_path / "frames").mkdir()
    for number, frame in enumerate(numbered_clip(3)):
        picture = Image.fromarray(frame.permute(1, 2, 0).numpy())
        picture.save(tmp_path / "frames" / f"{number}.png")
    path = str(tmp_path / "frames")
    assert torch.equal(cache.open(path).read([2, 0]), open_video(path).read([2, 0]))
