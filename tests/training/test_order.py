import pytest
import torch
from torch.utils.data import default_collate

from tests.training.tiny import NoisyClips, tiny_trainer
from tokenselect.training import learner
from tokenselect.training.data import ClipSet, EpochOrder, build_loader
from tokenselect.training.distributed import Processes


def batches(order: EpochOrder) -> list[list[int]]:
    return list(order)


def test_every_video_comes_once_an_epoch():
    order = EpochOrder(24, batch_size=6, seed=1)
    assert sorted(index for batch in batches(order) for index in batch) == list(range(24))


def test_epochs_differ_and_seeds_differ_but_the_same_pair_repeats():
    order = EpochOrder(24, batch_size=6, seed=1)
    first = batches(order)
    order.epoch = 1
    assert batches(order) != first
    assert batches(EpochOrder(24, batch_size=6, seed=2)) != first
    assert batches(EpochOrder(24, batch_size=6, seed=1)) == first


def test_processes_and_parts_share_the_same_global_batches():
    whole = batches(EpochOrder(26, batch_size=12, seed=5))
    shares = [
        batches(EpochOrder(26, batch_size=12, seed=5, rank=rank, processes=2, parts=3))
        for rank in (0, 1)
    ]
    for number, batch in enumerate(whole):
        joined = [
            i for share in shares for part in share[3 * number : 3 * number + 3] for i in part
        ]
        assert joined == batch


def test_an_epoch_can_start_at_any_batch():
    order = EpochOrder(24, batch_size=4, seed=3, parts=2)
    everything = batches(order)
    order.first_batch = 4
    assert batches(order) == everything[8:]
    assert len(order) == 4


def test_loading_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    clips = ClipSet(NoisyClips(), default_collate, "abcd")
    list(build_loader(clips, EpochOrder(8, batch_size=4, seed=7), workers=0))
    assert torch.equal(torch.rand(3), expected)


def test_steps_and_ranks_are_seeded_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(learner, "train_step", lambda *_, **__: torch.rand(()).item())
    takers = [tiny_trainer(tmp_path, processes=Processes(rank=rank)).learner for rank in range(2)]
    assert takers[1].learn([], 2) == takers[1].learn([], 2)
    assert len({taker.learn([], step) for step in range(20) for taker in takers}) == 40


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match=r"multiple of .* × schedule\.accumulation = 2 × 3"):
        EpochOrder(24, batch_size=8, seed=0, processes=2, parts=3)


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="number of training clips = 3, got 4"):
        EpochOrder(3, batch_size=4, seed=0)


def test_weights_make_rare_clips_as_likely_as_frequent_ones():
    labels = torch.tensor([0] * 90 + [1] * 10)
    weights = 1 / labels.bincount()[labels]
    order = EpochOrder(100, batch_size=20, seed=1, weights=weights)
    drawn = torch.tensor([i for epoch in range(20) for i in _epoch(order, epoch)])
    assert abs(float(labels[drawn].float().mean()) - 0.5) < 0.05
    assert _epoch(order, 3) == _epoch(order, 3) != _epoch(order, 4)


def _epoch(order: EpochOrder, epoch: int) -> list[int]:
    order.epoch = epoch
    return [index for batch in order for index in batch]
