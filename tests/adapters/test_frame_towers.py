"""Towers that encode frames on their own: what is theirs alone."""

import pytest
import torch
from torch import nn

from tests.contracts import frame_hosts
from tests.contracts.hosts import scramble, transformers
from tokenselect import (
    insert_selectors,
    load_model,
    record_kept,
    record_selections,
    remove_selectors,
)


@torch.no_grad()
@pytest.mark.parametrize("build", [frame_hosts.clip, frame_hosts.siglip, frame_hosts.timm_vit])
def test_without_a_number_of_frames_the_batch_is_one_clip_of_any_length(build):
    model = build()
    getattr(model, "config", model).num_frames = None
    insert_selectors(model, "T0_0.5-S1=3x2", method="motion")
    for frames in (4, 10):
        with record_selections(model) as selections:
            output = model(torch.randn(frames, 3, 32, 32))
        assert selections["S1"].thw_after == (frames // 2, 3, 2)
        pooled = output if isinstance(output, torch.Tensor) else output.pooler_output
        assert len(pooled) == frames // 2


@torch.no_grad()
def test_single_tokens_of_each_frame_are_those_picked_by_hand():
    torch.manual_seed(0)
    model, video = frame_hosts.clip(), torch.randn(10, 3, 32, 32)
    insert_selectors(model, "S1_0.4", method="novelty", tokenwise=True)
    with record_kept(model) as kept:
        found = model(video).last_hidden_state
    remove_selectors(model)
    first, *others = model.encoder.layers
    tokens = first(model.pre_layrnorm(model.embeddings(video)), None)
    rows = kept[0].indices.unflatten(1, (5, -1)) % 16 + 1  # behind the class token
    rows = torch.cat([torch.zeros_like(rows[..., :1]), rows], dim=2).flatten(0, 1)
    tokens = tokens.gather(1, rows[..., None].expand(-1, -1, 16))
    for layer in others:
        tokens = layer(tokens, None)
    torch.testing.assert_close(found, tokens)


@torch.no_grad()
def test_class_attention_of_clip_is_the_one_its_layer_reports():
    torch.manual_seed(0)
    model, video = frame_hosts.clip(), torch.randn(10, 3, 32, 32)
    model.set_attn_implementation("eager")
    attentions = model(video, output_attentions=True).attentions  # (frames, heads, 17, 17)
    insert_selectors(model, "S2=2x2", method="attention", tokenwise=True)
    with record_selections(model) as selections:
        model(video)
    shares = attentions[1].mean(1)[:, 0, 1:].unflatten(0, (2, 5))
    torch.testing.assert_close(selections["S2"].scores, shares)


def test_half_a_clip_is_refused():
    model = insert_selectors(frame_hosts.clip(), "T0_0.5")
    with pytest.raises(ValueError, match=r"whole clips of num_frames=5.*got 7 frames"):
        model(torch.randn(7, 3, 32, 32))


def whole_x_clip() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Build X-CLIP with its text tower, three prompts and two clips."""
    library = transformers()
    text = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    text |= {"num_attention_heads": 2, "vocab_size": 50, "max_position_embeddings": 9}
    vision = {**frame_hosts.TOWER, "num_frames": 5, "drop_path_rate": 0.0}
    vision |= {"mit_hidden_size": 16, "mit_intermediate_size": 24, "mit_num_attention_heads": 2}
    config = library.XCLIPConfig(
        text_config=text, vision_config=vision, projection_dim=16, prompt_num_attention_heads=2
    )
    torch.manual_seed(0)
    model = scramble(library.XCLIPModel(config))
    words = torch.randint(1, 49, (3, 6))
    return model, {"input_ids": words, "pixel_values": torch.randn(2, 5, 3, 32, 32)}


@torch.no_grad()
def test_the_whole_of_x_clip_is_the_one_whose_regions_are_cut_by_hand():
    model, inputs = whole_x_clip()
    insert_selectors(model, "S1_0.5", method="uniform")
    with record_kept(model) as kept:
        found = model(**inputs).logits_per_video
    (rows,) = kept[0].indices.unique(dim=0)  # the same in all ten frames
    tower = remove_selectors(model).vision_model
    tokens = tower.pre_layernorm(tower.embeddings(inputs["pixel_values"].flatten(0, 1)))
    for index, layer in enumerate(tower.encoder.layers):
        if index == 1:
            tokens = torch.cat([tokens[:, :1], tokens[:, 1:][:, rows]], dim=1)
        tokens = layer(tokens, None)
    pooled = tower.post_layernorm(tokens[:, 0])
    tower.register_forward_hook(
        lambda tower, given, output: type(output)(last_hidden_state=tokens, pooler_output=pooled)
    )
    torch.testing.assert_close(found, model(**inputs).logits_per_video)


def test_the_whole_of_x_clip_is_trained_saved_and_cleaned(tmp_path):
    model, inputs = whole_x_clip()
    dense = model(**inputs).logits_per_video
    with pytest.raises(ValueError, match=r"T0_0\.5 selects frames, but the model has only one"):
        insert_selectors(model, "T0_0.5")
    insert_selectors(model, "S1_0.5").train()
    model(**inputs).logits_per_video.square().sum().backward()
    learned = model.token_selectors["S1"].scoring.parameters()
    assert max(p.grad.abs().max() for p in learned if p.grad is not None) > 0
    found = model.eval()(**inputs).logits_per_video
    model.save_pretrained(tmp_path)
    assert torch.equal(load_model(tmp_path)(**inputs).logits_per_video, found)
    assert torch.equal(remove_selectors(model)(**inputs).logits_per_video, dense)


@torch.no_grad()
@pytest.mark.slow
def test_the_whole_of_x_clip_compiles_without_graph_breaks():
    model, inputs = whole_x_clip()
    insert_selectors(model, "S1_0.5")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found = compiled(**inputs).logits_per_video
    torch.testing.assert_close(found, model(**inputs).logits_per_video)
