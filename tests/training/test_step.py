import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.training.tiny import NoisyClips, TinyBackbone
from tokenselect.training.optimizer import build_optimizer, set_lr
from tokenselect.training.step import NonFiniteError, Precision, train_step

CPU = torch.device("cpu")


def batch(size: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    clips, labels = zip(*(NoisyClips()[index] for index in range(size)), strict=True)
    return torch.stack(clips), torch.tensor(labels)


def step_with(parts, *, precision: str = "fp32", clip_norm: float | None = 1.0):
    torch.manual_seed(0)
    model = TinyBackbone()
    optimizer = build_optimizer(model, backbone_factor=1.0)
    set_lr(optimizer, 1e-3)
    report = train_step(
        model, parts, optimizer, precision=Precision(precision, CPU), clip_norm=clip_norm
    )
    return model, report


def test_parts_add_up_to_the_whole_batch():
    clips, labels = batch()
    whole, report = step_with([(clips, labels)])
    cut, cut_report = step_with(
        list(zip(clips.split([1, 2, 3]), labels.split([1, 2, 3]), strict=True))
    )
    assert cut_report.loss == pytest.approx(report.loss, abs=1e-6)
    assert cut_report.accuracy == report.accuracy
    for ours, theirs in zip(cut.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=1e-5)


def test_a_step_lowers_the_loss_of_its_batch():
    clips, labels = batch()
    model, report = step_with([(clips, labels)])
    assert cross_entropy(model(clips), labels).item() < report.loss


@pytest.mark.filterwarnings("ignore:TF32")
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_takes_nearly_the_same_step(precision):
    clips, labels = batch()
    _, report = step_with([(clips, labels)])
    with torch.backends.mkldnn.flags(enabled=False):  # some machines promise AMX, then refuse it
        model, rough = step_with([(clips, labels)], precision=precision)
    assert rough.loss == pytest.approx(report.loss, rel=0.05)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert rough.gradient_norm == pytest.approx(report.gradient_norm, rel=0.1)


def test_the_gradient_is_clipped_to_the_norm():
    model, report = step_with([batch()], clip_norm=1e-3)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    assert report.gradient_norm > 1e-3
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)


def test_a_loss_that_is_not_finite_stops_before_the_weights_change():
    clips, labels = batch()
    torch.manual_seed(0)
    model = TinyBackbone()
    before = [parameter.clone() for parameter in model.parameters()]
    optimizer = build_optimizer(model)
    set_lr(optimizer, 1e-3)
    with pytest.raises(NonFiniteError, match="loss is nan"):
        train_step(
            model, [(clips * float("nan"), labels)], optimizer, precision=Precision("fp32", CPU)
        )
    assert all(map(torch.equal, model.parameters(), before))


def test_a_gradient_that_is_not_finite_stops_before_the_weights_change():
    model = TinyBackbone()
    before = [parameter.clone() for parameter in model.parameters()]
    optimizer = build_optimizer(model)
    set_lr(optimizer, 1e-3)
    model.classifier.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(NonFiniteError, match="gradient's norm is"):
        train_step(model, [batch()], optimizer, precision=Precision("fp32", CPU))
    assert all(map(torch.equal, model.parameters(), before))


def test_soft_targets_of_one_class_equal_labels():
    clips, labels = batch(1)[0].repeat(4, 1, 1, 1, 1), torch.arange(4)
    one_hot = torch.nn.functional.one_hot(labels, 4).float()
    soft, hard = (step_with([(clips, targets)])[1] for targets in (one_hot, labels))
    assert soft.loss == pytest.approx(hard.loss, abs=1e-6)
    assert soft.accuracy == hard.accuracy == 0.25


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="precision must be one of fp32, bf16, fp16"):
        Precision("fp8", CPU)
