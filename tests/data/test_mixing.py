"""Mixed batches: targets follow the pixels."""

import pytest
import torch

from tokenselect.data import mix_clips, seeded_generator, smooth_targets

LABELS = torch.tensor([0, 1, 2, 3])


def flat_clips() -> torch.Tensor:
    """Fill clip i with the value i, so that an average shows what is mixed."""
    return torch.arange(4.0).view(4, 1, 1, 1, 1).expand(4, 3, 2, 12, 10).clone()


def test_smoothing_spreads_a_tenth():
    targets = smooth_targets(torch.tensor([2]), num_classes=5, smoothing=0.1)
    assert torch.allclose(targets, torch.tensor([[0.02, 0.02, 0.92, 0.02, 0.02]]))


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_targets_are_the_shares_of_the_pixels(mixup, cutmix):
    for seed in range(20):
        video, targets = mix_clips(
            flat_clips(),
            LABELS,
            num_classes=4,
            generator=seeded_generator(seed),
            mixup=mixup,
            cutmix=cutmix,
            smoothing=0.0,
        )
        averages = video.mean(dim=(1, 2, 3, 4))
        assert torch.allclose(averages, targets @ torch.arange(4.0), atol=1e-5)
        assert torch.allclose(targets.sum(dim=1), torch.ones(4))


def test_mixup_blends_and_cutmix_cuts():
    blended, _ = mix_clips(
        flat_clips(), LABELS, num_classes=4, generator=seeded_generator(0), cutmix=0.0
    )
    cut, _ = mix_clips(
        flat_clips(), LABELS, num_classes=4, generator=seeded_generator(0), mixup=0.0
    )
    assert blended[0].unique().numel() == 1 and blended[0, 0, 0, 0, 0] not in (0.0, 3.0)
    assert cut[0].unique().tolist() == [0.0, 3.0]


def test_a_box_is_cut_from_all_frames():
    cut, _ = mix_clips(
        flat_clips(), LABELS, num_classes=4, generator=seeded_generator(0), mixup=0.0
    )
    assert torch.equal(cut[:, :, 0], cut[:, :, 1])


def test_nothing_is_mixed_where_both_are_off():
    video, targets = mix_clips(
        flat_clips(), LABELS, num_classes=4, generator=seeded_generator(0), mixup=0, cutmix=0
    )
    assert torch.equal(video, flat_clips())
    assert targets.argmax(dim=1).tolist() == [0, 1, 2, 3]


def test_both_kinds_happen():
    kinds = set()
    for seed in range(20):
        video, _ = mix_clips(flat_clips(), LABELS, num_classes=4, generator=seeded_generator(seed))
        kinds.add(video[0].unique().numel())
    assert kinds == {1, 2}
