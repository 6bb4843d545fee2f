import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenselect.ops import hard_topk, one_hot_topk


def slow_topk(scores: list[float], k: int) -> list[int]:
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return sorted(order[:k])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-2, 2), min_size=1, max_size=9), st.data())
def test_of_equal_scores_the_earlier_is_kept(scores: list[int], data: st.DataObject):
    k = data.draw(st.integers(1, len(scores)))
    kept = hard_topk(torch.tensor(scores, dtype=torch.float32), k)
    assert kept.tolist() == slow_topk([float(s) for s in scores], k)


def test_ties_are_broken_alike_among_many_candidates():
    assert hard_topk(torch.zeros(3, 1568), 784).tolist() == [list(range(784))] * 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_leading_dimensions_and_dtypes_are_kept(dtype: torch.dtype):
    scores = torch.randn(2, 3, 7).to(dtype)
    kept = hard_topk(scores, 4)
    assert kept.shape == (2, 3, 4) and kept.dtype == torch.int64
    assert kept[1, 2].tolist() == slow_topk(scores[1, 2].tolist(), 4)


@pytest.mark.parametrize("k", [0, 6, -1])
def test_a_k_out_of_range_is_named(k: int):
    with pytest.raises(ValueError, match=rf"k must be in 1..5 .*, got {k}"):
        hard_topk(torch.randn(2, 5), k)


def test_nan_scores_are_refused():
    with pytest.raises(ValueError, match="scores must not be NaN, got 2"):
        hard_topk(torch.tensor([0.0, float("nan"), 1.0, float("nan")]), 2)


def test_infinite_scores_have_an_order():
    assert hard_topk(torch.tensor([-torch.inf, 2.0, torch.inf, 1.0]), 3).tolist() == [1, 2, 3]


def test_the_indicator_is_the_one_hot_of_the_indices():
    scores = torch.randn(2, 5)
    one_hot = torch.nn.functional.one_hot(hard_topk(scores, 3), 5)
    assert torch.equal(one_hot_topk(scores, 3), one_hot.float())


def test_shapes_pass_on_the_meta_device():
    assert hard_topk(torch.empty(2, 5, device="meta"), 3).shape == (2, 3)


class KeepThree(torch.nn.Module):
    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return hard_topk(scores, 3)


def test_an_exported_graph_keeps_the_same():
    scores = torch.randn(2, 7)
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(KeepThree(), (scores,), dynamic_shapes=({0: batch},))
    other = torch.zeros(5, 7)
    assert torch.equal(exported.module()(other), hard_topk(other, 3))


@pytest.mark.slow
def test_an_onnx_graph_keeps_the_same():
    onnx_reference = pytest.importorskip("onnx.reference")
    pytest.importorskip("onnxscript")
    scores = torch.tensor([[0.0, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0], [3, 1, 2, 2, 2, 9, 3]])
    program = torch.onnx.export(KeepThree().eval(), (scores,), dynamo=True, verbose=False)
    assert program is not None
    run = onnx_reference.ReferenceEvaluator(program.model_proto).run
    assert run(None, {"scores": scores.numpy()})[0].tolist() == hard_topk(scores, 3).tolist()
