import math

import pytest
import torch

from tokenselect.measure.accuracy import AccuracyCounter


def counted(scores: torch.Tensor, labels: list[int]) -> AccuracyCounter:
    counter = AccuracyCounter(scores.shape[1])
    counter.add(scores, torch.tensor(labels))
    return counter


def test_top1_and_top5_are_shares_of_all_videos():
    scores = torch.eye(7)[[0, 1, 2, 3]] + torch.arange(7) * 1e-3
    accuracy = counted(scores, [0, 1, 6, 0]).result()
    assert accuracy.top1 == 0.5
    assert accuracy.top5 == 0.75  # class 6 is second; class 0 is last
    assert accuracy.num_videos == 4


def test_confusion_has_labels_in_rows():
    accuracy = counted(torch.eye(3)[[1, 1, 2]], [0, 1, 2]).result()
    assert accuracy.confusion.tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1]]


def test_a_class_without_videos_has_no_accuracy_and_does_not_count():
    accuracy = counted(torch.eye(3)[[0, 1]], [0, 0]).result()
    assert accuracy.per_class[0] == 0.5
    assert all(math.isnan(share) for share in accuracy.per_class[1:])
    assert accuracy.mean_class == 0.5


def test_batches_add_up():
    torch.manual_seed(0)
    scores, labels = torch.randn(11, 6), torch.randint(6, (11,))
    whole, parts = AccuracyCounter(6), AccuracyCounter(6)
    whole.add(scores, labels)
    for part in (slice(0, 4), slice(4, 11)):
        parts.add(scores[part], labels[part])
    assert torch.equal(whole.counts, parts.counts)


def test_videos_without_a_label_are_left_out():
    assert counted(torch.eye(3)[[0, 1]], [-1, 1]).result().num_videos == 1


def test_nothing_counted_is_an_error():
    with pytest.raises(ValueError, match="no labelled video"):
        AccuracyCounter(3).result()
