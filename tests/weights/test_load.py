import re

import pytest
import torch

from tests.weights import upstream_names
from tests.weights.models import assert_same_logits, clips, scramble, small_mvit, small_swin
from tokenselect.backbones.video_swin.weights import guess_window, resize_biases
from tokenselect.insertion import insert_selectors
from tokenselect.models import create_model
from tokenselect.weights import MismatchError, load_weights


@pytest.mark.parametrize(
    ("size", "state_of"),
    [((48, 64), lambda model: model.state_dict()), ((48, 48), upstream_names.slowfast)],
)
def test_positions_resized_at_loading_are_those_interpolated_while_running(size, state_of):
    trained = scramble(small_mvit(frames=10, size=size))
    larger = small_mvit(frames=14, size=(64, 80))
    loaded = load_weights(larger, state_of(trained))
    assert loaded.resized == ["positions.space", "positions.time"]
    with torch.no_grad():
        video = clips(larger)
        torch.testing.assert_close(larger(video), trained(video), rtol=0, atol=1e-5)


def test_a_flat_table_of_an_unknown_oblong_is_refused():
    state = upstream_names.slowfast(small_mvit(size=(48, 64)))
    with pytest.raises(MismatchError, match="192 entries, which is no square"):
        load_weights(small_mvit(size=(64, 80)), state)


def test_biases_of_another_window_keep_offset_zero_and_straight_lines():
    t, h, w = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in (5, 3, 3)), indexing="ij")
    table = torch.stack([t + 2 * h - w, t * 0 + 1], dim=-1).flatten(0, 2)
    resized = resize_biases({"a.bias_table": table}, window=(5, 4, 4))["a.bias_table"]
    t, h, w = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in (9, 7, 7)), indexing="ij")
    expected = torch.stack([t + 2 * h - w, t * 0 + 1], dim=-1).flatten(0, 2)
    torch.testing.assert_close(resized, expected)


@pytest.mark.parametrize(
    ("window", "like"), [((8, 7, 7), (16, 7, 7)), ((8, 12, 12), (8, 7, 7)), ((3, 5, 4), (9, 5, 4))]
)
def test_the_window_of_a_table_is_found_from_its_length(window, like):
    t, h, w = (2 * side - 1 for side in window)
    assert guess_window(t * h * w, like=like) == window


def test_weights_of_a_shorter_window_are_loaded_into_a_longer_one():
    trained, longer = scramble(small_swin()), small_swin(window=(8, 3, 3))
    loaded = load_weights(longer, upstream_names.mmaction(trained))
    assert len(loaded.resized) == 7
    assert longer(clips(longer)).isfinite().all()


def test_another_number_of_classes_drops_the_head_with_a_notice(caplog):
    trained, ours = scramble(small_mvit()), small_mvit(num_classes=5)
    before = ours.classifier.weight.clone()
    loaded = load_weights(ours, upstream_names.slowfast(trained))
    assert loaded.initial == ["classifier.bias", "classifier.weight"]
    assert "classifier" in caplog.text
    assert torch.equal(ours.classifier.weight, before)
    assert torch.equal(ours.norm.weight, trained.norm.weight)


def test_dense_weights_serve_a_model_with_selectors_and_say_so(caplog):
    trained, ours = scramble(small_mvit()), small_mvit("T0=3-S1=5x5")
    loaded = load_weights(ours, upstream_names.slowfast(trained))
    assert all(name.startswith("token_selectors.") for name in loaded.initial)
    assert "selectors S1, T0 start untrained" in caplog.text


def test_selectors_of_the_same_site_are_loaded_and_others_left():
    trained, ours = scramble(small_mvit("T0=3-S1=5x5")), small_mvit("T0=4-S2=5x5")
    loaded = load_weights(ours, trained.state_dict())
    assert {name.split(".")[1] for name in loaded.initial} == {"S2"}
    assert {name.split(".")[1] for name in loaded.unused} == {"S1"}
    network = ours.token_selectors["T0"].scoring.network
    expected = trained.token_selectors["T0"].scoring.network
    assert torch.equal(network.embed[1].weight, expected.embed[1].weight)


def test_a_mismatch_lists_what_fits_and_what_does_not():
    trained = scramble(small_mvit())
    state = upstream_names.slowfast(trained)
    del state["blocks.1.norm1.weight"]
    state["blocks.2.mlp.fc1.bias"] = torch.zeros(9)
    state["blocks.0.attn.rel_pos_t"] = torch.zeros(3)
    with pytest.raises(MismatchError) as caught:
        load_weights(small_mvit(), state)
    message = str(caught.value)
    total = len(trained.state_dict())
    assert f"the state dict (SlowFast MViT) does not fit the model: of its {total}" in message
    assert f"{total - 2} fit" in message
    assert "of another shape: blocks.2.mlp.expand.bias (9, the model's is 64)" in message
    assert "missing: blocks.1.norm_attention.weight" in message
    assert "unknown to the model: blocks.0.attention.rel_pos_t" in message


def test_released_selectors_in_a_model_with_the_papers_scorer_are_refused_with_a_hint():
    trained = scramble(small_mvit("T0=3"))
    ours = insert_selectors(small_mvit(), "T0=3", scorer="paper")
    with pytest.raises(MismatchError, match='build with scorer="released"'):
        load_weights(ours, upstream_names.slowfast(trained) | upstream_names.scorers(trained))


def test_weights_of_the_other_backbone_are_refused_by_name():
    state = upstream_names.mmaction(small_swin())
    with pytest.raises(MismatchError, match=r"mmaction2 Video Swin .* the model is a MViT"):
        load_weights(small_mvit(), state)


def test_unknown_names_are_refused_with_those_known():
    with pytest.raises(MismatchError, match=re.escape("(a, b, …)")) as caught:
        load_weights(small_mvit(), {"a": torch.zeros(1), "b": torch.zeros(1)})
    assert "SlowFast MViT" in str(caught.value)


def test_a_failed_loading_leaves_the_model_as_it_was():
    ours = small_mvit()
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    state = upstream_names.slowfast(scramble(small_mvit()))
    state.pop("norm.weight")
    with pytest.raises(MismatchError):
        load_weights(ours, state)
    assert all(torch.equal(value, before[name]) for name, value in ours.state_dict().items())


def test_create_model_takes_a_state_dict_and_a_file(tmp_path):
    trained = scramble(create_model("mvit_mini", num_classes=5, frames=4, size=32))
    state = upstream_names.slowfast(trained)
    torch.save({"model_state": state}, tmp_path / "weights")
    for weights in (state, tmp_path / "weights", str(tmp_path / "weights")):
        ours = create_model("mvit_mini", num_classes=5, frames=4, size=32, weights=weights)
        assert_same_logits(ours.eval(), trained)


def test_create_model_refuses_unknown_weights_and_lists_the_public_ones():
    message = r"'kinetics' are neither .* video_swin_t are kinetics400"
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        create_model("video_swin_t", weights="kinetics")
