"""Pixels of real models: both backbones, frames that are not square, plans of several steps."""

from itertools import pairwise

import pytest
import torch

from tests.contracts.models import THIRD_PARTY
from tokenselect import create_model, insert_selectors, record_selections
from tokenselect.inference.explain import block_strides, patch_stride, record_clip
from tokenselect.insertion import watch_grids
from tokenselect.visualization.tracing import to_pixels, trace_sites

MULTI_STEP = "T0_0.9-S0_0.9-T4_0.7-S4_0.7"


def record(name, *, plan, video, method="random", seed=0):
    torch.manual_seed(seed)
    frames, *size = video
    model = create_model(
        name, plan=plan, num_classes=3, frames=frames, size=tuple(size), method=method
    ).eval()
    clip = torch.randn(1, 3, *video)
    return model, clip, record_clip(model, clip)


def trace(model, recording, video):
    strides = block_strides(model)
    stride = patch_stride(model, video=video, thw=recording.thw)
    traces = trace_sites(recording.selections, thw=recording.thw, strides=strides)
    return {
        label: to_pixels(after.is_kept, stride=stride, video=video)
        for label, (_, after) in traces.items()
    }


def test_strides_are_those_of_the_blocks():
    with torch.device("meta"):
        mvit = create_model("mvit_b16", num_classes=2)
        swin = create_model("video_swin_t", num_classes=2)
    assert [i for i, s in enumerate(block_strides(swin)) if s == (1, 2, 2)] == [1, 3, 9]
    assert [i for i, s in enumerate(block_strides(mvit)) if s == (1, 2, 2)] == [1, 3, 14]
    for model in (mvit, swin):
        assert patch_stride(model, video=(5, 7, 9), thw=(3, 2, 3)) == (2, 4, 4)


@pytest.mark.parametrize("name", ["mvit_mini", "video_swin_mini"])
@pytest.mark.parametrize("video", [(13, 70, 101), (16, 52, 36)])
def test_what_is_kept_shrinks_from_site_to_site(name, video):
    model, _, recording = record(name, plan=MULTI_STEP, video=video)
    kept = trace(model, recording, video)
    assert list(kept) == ["T0", "S0", "T4", "S4"]
    masks = [pixels.mask for pixels in kept.values()]
    assert masks[0].shape == video
    for earlier, later in pairwise(masks):
        assert not (later & ~earlier).any() and later.sum() < earlier.sum()
    assert all(pixels.are_full.all() for pixels in kept.values())


@pytest.mark.parametrize("name", ["mvit_mini", "video_swin_mini"])
def test_pixels_of_dropped_frames_cannot_change_the_answer(name):
    """Video Swin's patches see no pixel but their own: what is dropped at block 0 is out."""
    video = (12, 40, 56)
    model, clip, recording = record(name, plan="T0_0.5", video=video, method="uniform")
    kept = trace(model, recording, video)["T0"]
    changed = clip.clone()
    far = ~kept.frames
    if name == "mvit_mini":  # its patches also see the frame before: blend only what is not near
        far &= ~torch.cat([kept.frames[1:], kept.frames[:1]])
    changed[:, :, far] = torch.randn_like(changed[:, :, far])
    assert far.any()
    assert torch.equal(record_clip(model, changed).logits, recording.logits)


def test_pixels_outside_the_kept_region_cannot_change_the_answer_of_video_swin():
    video = (8, 45, 58)
    model, clip, recording = record(
        "video_swin_mini", plan="T0_0.5-S0_0.4", video=video, method="uniform"
    )
    kept = trace(model, recording, video)["S0"]
    changed = torch.where(kept.mask, clip, torch.randn_like(clip))
    assert torch.equal(record_clip(model, changed).logits, recording.logits)
    inside = clip + kept.mask
    assert not torch.equal(record_clip(model, inside).logits, recording.logits)


def test_pixels_beyond_the_reach_of_kept_patches_cannot_change_the_answer_of_mvit():
    video = (8, 45, 58)
    model, clip, recording = record(
        "mvit_mini", plan="T0_0.5-S0_0.4", video=video, method="uniform"
    )
    kept = trace(model, recording, video)["S0"]
    t, h, w = (side // 2 for side in model.patch.kernel_size)  # a patch begins so much earlier
    back = torch.nn.functional.pad(kept.mask.float()[None, None], (0, w, 0, h, 0, t))
    reach = torch.nn.functional.max_pool3d(back, (t + 1, h + 1, w + 1), 1)[0, 0].bool()
    changed = torch.where(reach, clip, torch.randn_like(clip))
    assert reach.sum() < reach.numel() and torch.equal(
        record_clip(model, changed).logits, recording.logits
    )


def test_scores_of_patches_explain_the_region_that_was_kept():
    _, _, recording = record("mvit_mini", plan="S4_0.5", video=(8, 48, 64), method="motion")
    scores, selection = recording.maps["S4"], recording.selections["S4"]
    assert tuple(scores.shape) == selection.thw_before
    _, rows, columns = selection.thw_after
    for frame, (row, column) in enumerate(selection.corners[0].tolist()):
        average = scores[frame, row : row + rows, column : column + columns].mean()
        assert average == pytest.approx(float(selection.scores[0, frame].max()), rel=1e-5)


def test_anchors_that_were_scored_whole_are_spread_over_their_patches():
    _, _, recording = record("mvit_mini", plan="S4_0.5", video=(8, 48, 64), method="random")
    scores, selection = recording.maps["S4"], recording.selections["S4"]
    assert tuple(scores.shape) == selection.thw_before
    assert scores[0, 0, 0] == pytest.approx(float(selection.scores[0, 0, 0]))
    assert not scores.isnan().any()


def test_a_dense_model_is_recorded_too():
    model, clip, recording = record("mvit_mini", plan=None, video=(8, 48, 64))
    assert recording.selections == {} and recording.grids[0] == recording.thw == (4, 12, 16)
    assert len(recording.grids) == len(model.blocks)
    torch.testing.assert_close(recording.logits, model(clip)[0])
    assert all(len(block._forward_pre_hooks) == 0 for block in model.blocks)


@torch.no_grad()
@pytest.mark.parametrize("case", THIRD_PARTY, ids=lambda case: case.name)
def test_sites_of_other_libraries_models_are_traced_too(case):
    model, video = case.build(), case.video()
    insert_selectors(model, "T0=3-S1_0.7-T2=2", method="uniform")
    with watch_grids(model) as grids, record_selections(model) as selections:
        model(video)
    traces = trace_sites(selections, thw=grids[0], strides=block_strides(model))
    left = [int(after.is_kept.sum()) for _, after in traces.values()]
    assert left == sorted(left, reverse=True) and left[-1] > 0
