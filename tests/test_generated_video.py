import torch

from benchmarks.generated_video import NUM_CLASSES, GeneratedVideo


def test_clips_depend_on_their_seed_alone():
    first, again, other = (GeneratedVideo(frames=5, size=24, seed=s).draw(6) for s in (3, 3, 4))
    assert first[0].shape == (6, 3, 5, 24, 24) and first[0].isfinite().all()
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])
    assert first[1].min() >= 0 and first[1].max() < NUM_CLASSES


def test_a_class_and_its_reverse_end_where_the_other_begins():
    video = GeneratedVideo(frames=40, size=24)
    video.uniform = lambda low, high, *shape: torch.full(shape, (low + high) / 2)
    forth, back = video.draw_signals(torch.tensor([20, 21]))  # one motion, and it backwards
    torch.testing.assert_close(forth[0], back[-1])
    torch.testing.assert_close(forth[-1], back[0])
    assert not torch.allclose(forth[0], forth[-1], atol=0.1)


def test_a_mirrored_class_moves_on_the_other_side():
    bodies = []
    for label in (8, 10):  # of one motion, the second mirrored
        video = GeneratedVideo(frames=4, size=24, seed=1)
        video.uniform = lambda low, high, *shape: torch.full(shape, (low + high) / 2)
        bodies.append(video.draw_body(torch.tensor([label])).ends)
    torch.testing.assert_close(bodies[0][..., 0], -bodies[1][..., 0])
    torch.testing.assert_close(bodies[0][..., 1], bodies[1][..., 1])
