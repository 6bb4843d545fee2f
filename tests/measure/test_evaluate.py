import torch
from torch import nn

from tokenselect.measure.accuracy import count_answers, score_views


class Brightness(nn.Module):
    """Class 1 if a clip is bright, else class 0; the margin is its mean."""

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        mean = video.mean(dim=(1, 2, 3, 4))
        return torch.stack([-mean, mean], dim=1)


def test_views_are_averaged_after_the_softmax():
    video = torch.randn(2, 3, 3, 5, 7, 6)
    model = Brightness()
    slow = torch.stack([model(video[:, view]).softmax(dim=1) for view in range(3)]).mean(dim=0)
    torch.testing.assert_close(score_views(model, video), slow)


def test_views_in_parts_equal_views_together():
    video = torch.randn(2, 5, 3, 4, 7, 6)
    whole = score_views(Brightness(), video)
    torch.testing.assert_close(score_views(Brightness(), video, views_at_once=3), whole)


def test_one_view_needs_no_axis():
    video = torch.randn(2, 3, 5, 7, 6)
    torch.testing.assert_close(
        score_views(Brightness(), video), score_views(Brightness(), video[:, None])
    )


def test_answers_are_counted_over_batches_and_the_mode_is_given_back():
    model = Brightness().train()
    bright, dark = torch.ones(2, 3, 2, 4, 4), -torch.ones(1, 3, 2, 4, 4)
    batches = [(bright, torch.tensor([1, 0])), (dark, torch.tensor([0]))]
    counter, seconds = count_answers(model, batches, num_classes=2)
    assert counter.result().top1 == 2 / 3
    assert model.training and seconds > 0
