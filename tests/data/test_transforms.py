"""Geometry and colours of clips: one draw for all frames, the same again from the same seed."""

import pytest
import torch
from PIL import Image, ImageEnhance
from torch import Tensor

from tokenselect.data import (
    AUGMENTATIONS,
    EvalTransform,
    TrainTransform,
    augmentation,
    seeded_generator,
    transforms,
)
from tokenselect.data.augmentation import OPERATIONS, Operation
from tokenselect.data.transforms import draw_uniform


def noise(t: int = 3, h: int = 17, w: int = 22) -> Tensor:
    return torch.randint(10, 200, (t, 3, h, w), generator=torch.Generator().manual_seed(1)).byte()


def still(t: int = 4, h: int = 30, w: int = 40) -> Tensor:
    """Show one picture t times: what treats frames alike leaves them equal."""
    return noise(1, h, w).expand(t, -1, -1, -1)


def to_image(frame: Tensor) -> Image.Image:
    return Image.fromarray(frame.permute(1, 2, 0).contiguous().numpy())


def from_image(image: Image.Image) -> Tensor:
    return (
        torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        .view(image.height, image.width, 3)
        .permute(2, 0, 1)
    )


def change(frames: Tensor, operation: Operation, share: float, sign: int) -> Tensor:
    return augmentation.change_frames(frames, [(operation, share, sign)])


def test_solarize_add_brightens_the_dark_half():
    levels = Image.frombytes(
        "RGB", (5, 1), bytes(v for v in (0, 100, 127, 128, 255) for _ in "rgb")
    )
    changed = augmentation.solarize_add(levels, 50)
    assert list(changed.tobytes()[::3]) == [50, 150, 177, 128, 255]


def test_operations_of_no_strength_keep_the_picture():
    kept = [torch.equal(change(noise(), operation, 0.0, 1), noise()) for operation in OPERATIONS]
    assert kept.count(False) == 4  # autocontrast, equalize, invert, posterize to four bits


def test_operations_come_one_after_another():
    invert, posterize = OPERATIONS[2], OPERATIONS[3]
    both = augmentation.change_frames(noise(), [(invert, 0.0, 1), (posterize, 0.0, 1)])
    assert torch.equal(both, (255 - noise()) & 0xF0)


def test_a_shift_moves_by_pixels():
    frames = noise(2, 10, 20)
    moved = change(frames, OPERATIONS[-2], 1 / 9, 1)  # 0.45 / 9 · 20 = 1 pixel
    assert torch.equal(moved[..., :-1], frames[..., 1:])
    assert (moved[..., -1] == augmentation.FILL[0]).all()


def test_a_shear_leaves_the_middle_where_it_is():
    picture = torch.zeros(1, 3, 21, 21, dtype=torch.uint8)
    picture[..., 10, 10] = 255
    for operation in OPERATIONS[-4:-2]:
        assert (change(picture, operation, 1.0, 1)[..., 10, 10] == 255).all()


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_operations_treat_all_frames_alike(number):
    frames = change(still(), OPERATIONS[number], 0.7, -1)
    assert frames.shape == still().shape and frames.dtype == torch.uint8
    assert torch.equal(frames[0], frames[-1])


def test_half_of_the_operations_happen():
    changed = 0
    for seed in range(60):
        frames = augmentation.rand_augment(noise(), num_ops=1, generator=seeded_generator(seed))
        changed += not torch.equal(frames, noise())
    assert 18 <= changed <= 42


def test_jitter_is_the_three_changes_one_after_another():
    frames = noise().clamp(60, 120)  # no value leaves 0 … 255 on the way
    ours = augmentation.jitter_colors(frames, 0.3, generator=seeded_generator(3))
    generator = seeded_generator(3)
    changes = [ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color]
    pictures = [to_image(frame) for frame in frames]
    for number in torch.randperm(3, generator=generator).tolist():
        factor = draw_uniform(0.7, 1.3, generator=generator)
        pictures = [changes[number](picture).enhance(factor) for picture in pictures]
    expected = torch.stack([from_image(picture) for picture in pictures])
    assert (ours.int() - expected.int()).abs().max() <= 3  # three times cut to whole numbers
    assert not torch.equal(ours, frames)


def test_resizing_is_that_of_pillow():
    frames = noise(2, 40, 60)
    pillow = to_image(frames[0]).resize((23, 17), Image.Resampling.BILINEAR)
    assert (
        transforms.resize(frames, (17, 23))[0].int() - from_image(pillow).int()
    ).abs().max() <= 1


def test_crops_keep_to_scale_ratio_and_picture():
    generator = seeded_generator(0)
    for _ in range(200):
        top, left, h, w = augmentation.draw_resized_box(
            100, 150, scale=(0.1, 0.8), ratio=(0.75, 4 / 3), generator=generator
        )
        assert 0 <= top <= 100 - h and 0 <= left <= 150 - w
        assert 0.09 <= h * w / 15000 <= 0.81 and 0.73 <= w / h <= 1.36


def test_a_crop_that_cannot_fit_is_the_largest_that_does():
    box = augmentation.draw_resized_box(
        10, 100, scale=(1.0, 1.0), ratio=(0.75, 4 / 3), generator=seeded_generator(0)
    )
    assert box == (0, 43, 10, 13)


def test_normalised_values():
    video = transforms.normalize(noise(), mean=(0.4, 0.5, 0.6), std=(0.1, 0.2, 0.3))
    assert video.shape == (3, 3, 17, 22) and video.is_contiguous()
    expected = (noise()[1, 2] / 255 - 0.6) / 0.3
    assert torch.allclose(video[2, 1], expected, atol=1e-5)


def test_one_box_is_erased_in_all_frames():
    video = augmentation.erase_cube(
        torch.zeros(3, 5, 20, 30), probability=1.0, generator=seeded_generator(4)
    )
    changed = (video != 0).all(dim=0)  # (t, h, w)
    assert changed.any() and torch.equal(changed[0], changed[4])
    rows, columns = changed[0].any(dim=1).sum(), changed[0].any(dim=0).sum()
    assert changed[0].sum() == rows * columns


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentations_give_model_input_and_repeat_themselves(name):
    transform = AUGMENTATIONS[name](size=16)
    first = transform(noise(4, 30, 40), generator=seeded_generator(5))
    assert first.shape == (1, 3, 4, 16, 16) and first.dtype == torch.float32
    assert torch.equal(first, transform(noise(4, 30, 40), generator=seeded_generator(5)))
    assert not torch.equal(first, transform(noise(4, 30, 40), generator=seeded_generator(6)))


def test_frames_of_a_still_video_stay_equal():
    transform = TrainTransform(16, jitter=0.4, rand_augment_ops=4)
    for seed in range(10):
        video = transform(still(), generator=seeded_generator(seed))[0]  # (3, t, h, w)
        assert torch.equal(video[:, 0], video[:, 3])


def test_nothing_is_mirrored_where_sides_matter():
    left = torch.zeros(1, 3, 20, 20, dtype=torch.uint8)
    left[..., :10] = 255
    transform = TrainTransform(20, flip=0.0, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    for seed in range(10):
        video = transform(left, generator=seeded_generator(seed))
        assert video[..., 0].mean() > video[..., -1].mean()


def test_the_test_transform_gives_crops():
    views = EvalTransform(16, short_side=20, crops=3)(noise(4, 30, 60))
    assert views.shape == (3, 3, 4, 16, 16)
    with pytest.raises(ValueError, match="short_side must be at least size 16, got 8"):
        EvalTransform(16, short_side=8)


@pytest.mark.parametrize("transform", [TrainTransform, EvalTransform])
def test_a_centred_clip_differs_from_the_other_by_its_average_frame(transform):
    frames = torch.randint(0, 256, (5, 3, 24, 30), dtype=torch.uint8)
    plain, centred = (
        transform(16, center=center)(frames, generator=torch.Generator().manual_seed(3))
        for center in (None, "clip")
    )
    torch.testing.assert_close(centred, plain - plain.mean(dim=2, keepdim=True))


def test_another_center_is_refused():
    with pytest.raises(ValueError, match="center must be 'clip' or None, got 'video'"):
        EvalTransform(16, center="video")(torch.zeros(2, 3, 16, 16, dtype=torch.uint8))
