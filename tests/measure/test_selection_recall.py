import pytest
import torch

from tokenselect.data.synthetic import SyntheticActions
from tokenselect.measure.recall import TokenTruth, frame_recall, region_coverage, tokenize_truth


def truth_of(frames: list[int], box: list[float], num_frames: int = 5) -> TokenTruth:
    is_informative = torch.zeros(1, num_frames, dtype=torch.bool)
    is_informative[0, frames] = True
    return TokenTruth(is_informative, is_informative[..., None] * torch.tensor(box))


def test_a_token_frame_is_informative_if_one_of_its_frames_is():
    frames = torch.tensor([[0, 0, 0, 1, 1, 0]]).bool()
    boxes = frames[..., None] * torch.tensor([2.0, 3.0, 8.0, 9.0])
    truth = tokenize_truth(frames, boxes, size=(12, 16))
    assert truth.frames.tolist() == [[False, True, True]]


def test_a_token_box_holds_the_boxes_of_its_informative_frames():
    frames = torch.tensor([[True, True, True, False]])
    boxes = torch.tensor([[[2, 3, 8, 9], [4, 1, 12, 6], [2, 3, 8, 9], [0, 0, 0, 0]]]).float()
    truth = tokenize_truth(frames, boxes, size=(12, 16))
    torch.testing.assert_close(truth.boxes[0, 0], torch.tensor([2 / 16, 1 / 12, 12 / 16, 9 / 12]))
    torch.testing.assert_close(truth.boxes[0, 1], torch.tensor([2 / 16, 3 / 12, 8 / 16, 9 / 12]))


def test_recall_is_the_share_of_informative_frames_kept():
    truth = truth_of([1, 2, 4], [0, 0, 1, 1])
    assert frame_recall(torch.tensor([[0, 2, 4]]), truth).item() == pytest.approx(2 / 3)


def test_coverage_is_the_share_of_the_box_inside_the_region():
    truth = truth_of([1], [0.25, 0.0, 0.75, 0.5])
    corners = torch.zeros(1, 5, 2)
    corners[0, 1] = torch.tensor([0, 2])  # row, column: the right half of a 4 × 4 grid
    coverage = region_coverage(corners, truth, region=(4, 2), grid=(4, 4))
    assert coverage.item() == pytest.approx(0.5)


def test_coverage_follows_the_kept_frames():
    truth = truth_of([3], [0.5, 0.5, 1.0, 1.0])
    kept, corners = torch.tensor([[1, 3]]), torch.tensor([[[0, 0], [2, 2]]])
    coverage = region_coverage(corners, truth, region=(2, 2), grid=(4, 4), kept=kept)
    assert coverage.item() == 1.0


def test_coverage_without_an_informative_frame_is_unknown():
    truth = truth_of([3], [0.5, 0.5, 1.0, 1.0])
    coverage = region_coverage(
        torch.zeros(1, 1, 2), truth, region=(2, 2), grid=(4, 4), kept=torch.tensor([[0]])
    )
    assert coverage.isnan().all()


def test_keeping_everything_recalls_everything():
    clips = SyntheticActions(4, frames=16, size=(40, 48))
    truths = [clips.truth(index) for index in range(4)]
    truth = tokenize_truth(
        torch.stack([t.frames for t in truths]),
        torch.stack([t.boxes for t in truths]),
        size=(40, 48),
    )
    kept = torch.arange(8).expand(4, -1)
    assert (frame_recall(kept, truth) == 1).all()
    coverage = region_coverage(torch.zeros(4, 8, 2), truth, region=(10, 12), grid=(10, 12))
    torch.testing.assert_close(coverage, torch.ones(4))
