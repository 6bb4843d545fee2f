import numpy as np
import pytest
import torch

from tokenselect.data.synthetic import (
    CLASS_NAMES,
    DIRECTIONS,
    RED_CLASSES,
    SyntheticActions,
    looks_synthetic,
)


def mark_of(clips: SyntheticActions, index: int) -> torch.Tensor:
    """Say how much each pixel has of the target's colour alone: (t, h, w)."""
    video = clips.video(index).float()
    channel = 0 if CLASS_NAMES[clips[index][1]] in RED_CLASSES else 1
    others = [other for other in range(3) if other != channel]
    return video[:, channel] - video[:, others].amax(dim=1)


@pytest.fixture(scope="module")
def clips() -> SyntheticActions:
    return SyntheticActions(40, frames=13, size=(40, 52), seed=3)


def test_a_clip_has_the_asked_shape_and_a_known_label(clips):
    clip, label = clips[5]
    assert clip.shape == (3, 13, 40, 52) and clip.dtype == torch.float32
    assert 0 <= label < len(CLASS_NAMES) == 8


def test_a_clip_depends_on_seed_split_and_index_alone(clips):
    again = SyntheticActions(400, frames=13, size=(40, 52), seed=3)
    assert torch.equal(clips[7][0], again[7][0])
    for other in (
        SyntheticActions(40, frames=13, size=(40, 52), seed=4),
        SyntheticActions(40, frames=13, size=(40, 52), seed=3, split="val"),
    ):
        assert not torch.equal(clips[7][0], other[7][0])


def test_epochs_bring_new_clips_in_training_only(clips):
    fresh = SyntheticActions(40, frames=13, size=(40, 52), seed=3, is_training=True)
    first, still = fresh[7][0], clips[7][0]
    assert torch.equal(first, still)
    for dataset in (fresh, clips):
        dataset.set_epoch(1)
    assert not torch.equal(fresh[7][0], first)
    assert torch.equal(clips[7][0], still)


def test_reading_another_clip_first_changes_nothing(clips):
    first = clips[1][0]
    clips[2]
    assert torch.equal(first, clips[1][0])


def test_classes_are_equally_common(clips):
    assert np.bincount([clips[i][1] for i in range(40)]).tolist() == [5] * 8


def test_the_mark_shows_in_the_true_frames_and_nowhere_else(clips):
    for index in range(16):
        is_marked = (mark_of(clips, index) > 120).flatten(1).sum(dim=1) > 4
        assert torch.equal(is_marked, clips.truth(index).frames)


def test_the_true_box_holds_the_mark(clips):
    for index in range(16):
        truth, mark = clips.truth(index), mark_of(clips, index)
        for frame in truth.frames.nonzero().flatten():
            x0, y0, x1, y1 = truth.boxes[frame].int().tolist()
            inside = mark[frame, y0:y1, x0:x1]
            assert inside.max() == mark[frame].max()
            assert (inside > 100).sum() == (mark[frame] > 100).sum()


def test_boxes_outside_the_burst_are_zero(clips):
    truth = clips.truth(0)
    assert truth.boxes[~truth.frames].abs().sum() == 0
    assert (truth.boxes[truth.frames, 2:] > truth.boxes[truth.frames, :2]).all()


def test_the_target_walks_as_its_class_says(clips):
    for index in range(16):
        truth = clips.truth(index)
        centres = (truth.boxes[:, :2] + truth.boxes[:, 2:])[truth.frames] / 2
        first, second = (
            torch.tensor(DIRECTIONS[name]) for name in CLASS_NAMES[index % 8].split("-")
        )
        walked = centres[-1] - centres[0]
        assert (walked.sign() == first + second).all()
        assert ((centres[1] - centres[0]).sign() == first).all()
        assert ((centres[-1] - centres[-2]).sign() == second).all()


def test_a_burst_touches_three_or_four_of_eight_token_frames():
    clips = SyntheticActions(30)
    for index in range(30):
        assert clips.truth(index).frames.view(8, 2).any(dim=1).sum() in (3, 4)


def test_a_colour_leaves_the_way_of_each_stroke_open():
    for names in (RED_CLASSES, [name for name in CLASS_NAMES if name not in RED_CLASSES]):
        strokes = [name.split("-") for name in names]
        assert len(names) == 4 and len({first for first, _ in strokes}) == 2
        assert all(sum(first == way for first, _ in strokes) == 2 for way, _ in strokes)


def test_bursts_and_regions_are_spread_over_the_clip():
    clips = SyntheticActions(400)
    truths = [clips.truth(index) for index in range(400)]
    often = torch.stack([truth.frames for truth in truths]).float().mean(dim=0)  # (t,)
    assert often.min() > 0.03 and often.max() < 0.6
    centres = torch.stack([truth.boxes[truth.frames].mean(dim=0) for truth in truths])
    assert (centres.std(dim=0) > 8).all()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"num_clips": 0}, "num_clips"), ({"frames": 3}, "frames"), ({"size": 16}, "sides")],
)
def test_impossible_sizes_are_refused(arguments, word):
    with pytest.raises(ValueError, match=word):
        SyntheticActions(**arguments)


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="split must be one of"):
        SyntheticActions(split="dev")  # type: ignore[arg-type]


def test_a_clip_beyond_the_end_is_refused(clips):
    with pytest.raises(IndexError):
        clips[40]


def test_synthetic_clips_are_told_from_films(clips):
    assert all(looks_synthetic(clips.video(index)) for index in range(40))
    film = torch.randint(256, (13, 3, 40, 52), dtype=torch.uint8)
    assert not looks_synthetic(film)
    assert not looks_synthetic(film[:, :1].expand(-1, 3, -1, -1))  # a grey one
    always_lit = clips.video(0).clone()
    always_lit[:, 0, :4, :4] = 255
    assert not looks_synthetic(always_lit)
