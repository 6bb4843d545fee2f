"""The data set: reproducible draws, views, and broken videos that are replaced and counted."""

import logging

import pytest
import torch
from torch.utils.data import DataLoader

from tests.data.numbered_frames import numbered_clip
from tokenselect.data import (
    NO_LABEL,
    EvalTransform,
    FramesInMemory,
    Sample,
    SegmentSampler,
    StrideSampler,
    TrainTransform,
    VideoDataset,
    VideoError,
    collate_clips,
    collate_views,
    write_video,
)


@pytest.fixture(scope="module", name="samples")
def written_samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    samples = []
    for number in range(4):
        path = folder / f"{number}.mp4"
        write_video(path, numbered_clip(10 + number), options={"preset": "ultrafast"})
        samples.append(Sample(str(path), number))
    return samples


def training_set(samples, **options) -> VideoDataset:
    return VideoDataset(
        samples,
        sampler=StrideSampler(4, 2),
        transform=TrainTransform(16),
        is_training=True,
        **options,
    )


def videos(dataset: VideoDataset, workers: int = 0) -> torch.Tensor:
    loader = DataLoader(dataset, batch_size=3, num_workers=workers, collate_fn=collate_clips)
    return torch.cat([batch.video for batch in loader])


def test_an_example_is_a_clip_and_its_label(samples):
    example = training_set(samples)[2]
    assert example.video.shape == (1, 3, 4, 16, 16) and example.label == 2


def test_draws_depend_on_seed_epoch_and_index_alone(samples):
    dataset = training_set(samples, seed=7)
    first = [dataset[index].video for index in (0, 1, 2)]
    again = [training_set(samples, seed=7)[index].video for index in (2, 1, 0)]
    for a, b in zip(first, reversed(again), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_workers_change_nothing_even_if_they_outlive_an_epoch(samples):
    dataset = training_set(samples)
    loader = DataLoader(
        dataset, batch_size=3, num_workers=2, collate_fn=collate_clips, persistent_workers=True
    )
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        loaded = torch.cat([batch.video for batch in loader])
        assert torch.equal(loaded, videos(dataset))


def test_an_epoch_draws_anew(samples):
    dataset = training_set(samples)
    before = dataset[0].video
    dataset.set_epoch(1)
    assert not torch.equal(dataset[0].video, before)


def test_repeats_differ_and_become_clips(samples):
    dataset = training_set(samples, repeats=2)
    video = dataset[1].video
    assert video.shape[0] == 2 and not torch.equal(video[0], video[1])
    batch = collate_clips([dataset[1], dataset[3]])
    assert batch.video.shape[0] == 4 and batch.labels.tolist() == [1, 1, 3, 3]


def test_views_of_a_test_video_stay_together(samples):
    dataset = VideoDataset(
        samples,
        sampler=SegmentSampler(4, num_clips=2),
        transform=EvalTransform(16, short_side=24, crops=3),
    )
    batch = collate_views([dataset[0], dataset[1]])
    assert batch.video.shape == (2, 6, 3, 4, 16, 16)
    dataset.set_epoch(5)
    assert torch.equal(dataset[0].video, batch.video[0])


def test_a_broken_video_is_replaced_logged_and_counted(samples, tmp_path, caplog):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"")
    dataset = training_set([Sample(str(broken), 9), *samples])
    with caplog.at_level(logging.WARNING):
        example = dataset[0]
    assert example.label in {0, 1, 2, 3}
    assert "broken.mp4 is empty (0 bytes); using another video instead" in caplog.text
    assert dataset.failures == {str(broken): 1}
    assert torch.equal(dataset[0].video, example.video)


def test_an_evaluation_can_leave_out_what_was_replaced(samples, tmp_path):
    dataset = VideoDataset(
        [Sample(str(tmp_path / "gone.mp4"), 1), *samples],
        sampler=SegmentSampler(4),
        transform=EvalTransform(16),
    )
    assert dataset[0].label == NO_LABEL and dataset[1].label == 0


@pytest.mark.slow
def test_failures_in_workers_reach_the_run(samples, tmp_path):
    gone = str(tmp_path / "gone.mp4")
    dataset = training_set([*samples, Sample(gone, 0)])
    assert len(videos(dataset, workers=2)) == 5
    assert dataset.failures == {gone: 1}


def test_a_set_of_broken_videos_gives_up(tmp_path):
    dataset = training_set([Sample(str(tmp_path / f"{number}.mp4"), 0) for number in range(30)])
    with pytest.raises(VideoError, match="10 others drawn in its place cannot be read"):
        dataset[0]


def test_an_unlabelled_video_has_no_label(samples):
    assert training_set([samples[0]._replace(label=None)])[0].label == NO_LABEL


def test_an_empty_set_is_refused():
    with pytest.raises(ValueError, match="at least one video"):
        training_set([])


def test_a_part_of_a_video_is_sampled_as_if_it_were_the_whole(caplog):
    read = []

    class Spy(FramesInMemory):
        def __init__(self):
            super().__init__(numbered_clip(13, 16, 16), fps=5, name="a.mp4")

        def stream(self, numbers):
            read.extend(numbers)
            return super().stream(numbers)

    part = [Sample("a.mp4", 0, span=(5, 11))]
    settings = {"transform": EvalTransform(16), "open_source": lambda path: Spy()}
    VideoDataset(part, sampler=SegmentSampler(3), **settings)[0]
    assert read == [5 + frame for frame in SegmentSampler(3)(6)[0]]
    with pytest.raises(VideoError):
        VideoDataset([Sample("a.mp4", 0, (5, 14))], sampler=SegmentSampler(3), **settings)[0]
    assert "has 13 frames, but its part ends at 14" in caplog.text
