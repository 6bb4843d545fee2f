"""Which frames make a clip: within the video, at the right distances, over all of it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenselect.data import SegmentSampler, StrideSampler, parse_views, seeded_generator

COUNT = st.integers(1, 300)


def test_a_training_clip_of_mvit_spans_61_frames():
    (clip,) = StrideSampler(16, 4)(300, generator=seeded_generator(0))
    assert [b - a for a, b in pairwise(clip)] == [4] * 15


def test_training_clips_start_everywhere():
    sampler, generator = StrideSampler(4, 2), seeded_generator(0)
    starts = {sampler(10, generator=generator)[0][0] for _ in range(100)}
    assert starts == {0, 1, 2, 3}


def test_test_clips_reach_both_ends():
    clips = StrideSampler(16, 4, num_clips=5)(300)
    assert [clip[0] for clip in clips] == [0, 60, 120, 179, 239]
    assert clips[-1][-1] == 299


def test_a_single_test_clip_is_in_the_middle():
    assert StrideSampler(3, 2)(11) == [[3, 5, 7]]


def test_a_short_video_is_spread_over_the_clip():
    assert StrideSampler(5, 4)(3) == [[0, 0, 1, 2, 2]]


def test_one_frame_of_each_segment():
    sampler, generator = SegmentSampler(4), seeded_generator(0)
    for _ in range(20):
        (clip,) = sampler(20, generator=generator)
        assert [frame // 5 for frame in clip] == [0, 1, 2, 3]


def test_without_a_generator_the_middle_of_each_segment():
    assert SegmentSampler(4)(20) == [[2, 7, 12, 17]]


def test_several_segment_clips_interleave():
    assert SegmentSampler(2, num_clips=2)(8) == [[1, 5], [3, 7]]


@given(
    num_frames=COUNT, clip_frames=st.integers(1, 40), clips=st.integers(1, 5), draws=st.booleans()
)
@pytest.mark.parametrize(
    "build",
    [lambda t, n: StrideSampler(t, 3, num_clips=n), lambda t, n: SegmentSampler(t, num_clips=n)],
)
def test_clips_are_rising_frames_of_the_video(build, num_frames, clip_frames, clips, draws):
    generator = seeded_generator(num_frames) if draws else None
    sampled = build(clip_frames, clips)(num_frames, generator=generator)
    assert [len(clip) for clip in sampled] == [clip_frames] * clips
    for clip in sampled:
        assert clip == sorted(clip) and clip[0] >= 0 and clip[-1] < num_frames


def test_the_same_seed_gives_the_same_clip():
    sampler = StrideSampler(8, 2)
    assert sampler(90, generator=seeded_generator(3, 1)) == sampler(
        90, generator=seeded_generator(3, 1)
    )


@pytest.mark.parametrize(("text", "views"), [("5x1", (5, 1)), ("4×3", (4, 3)), ("1X3", (1, 3))])
def test_views_are_clips_times_crops(text, views):
    assert parse_views(text) == views


@pytest.mark.parametrize("text", ["5", "0x1", "ax3", "1x2x3"])
def test_other_views_are_refused(text):
    with pytest.raises(ValueError, match="views must be like"):
        parse_views(text)


def test_counts_must_be_positive():
    with pytest.raises(ValueError, match="stride must be at least 1, got 0"):
        StrideSampler(16, 0)
