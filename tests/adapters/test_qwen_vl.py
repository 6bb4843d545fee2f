"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL against forwards cut by hand."""

import copy
import io
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.language_hosts import (
    QWENS,
    VIDEO,
    Keep,
    Prompts,
    run_language_model,
    run_tower,
)
from tokenselect import (
    count_tokens,
    insert_selectors,
    record_kept,
    remove_selectors,
    shrink_inputs,
)

SIZES = torch.tensor([(3, 6, 4), (1, 4, 6), (2, 8, 10)])
PIXELS = (3 * 6 * 4 + 4 * 6 + 2 * 8 * 10, 96)
PLANS = [
    ("T0_0.6-S2_0.5", {}),
    ("S1_0.5-T3_0.5", {"tokenwise": True}),
    ("S2_0.4", {"method": "evs"}),
    ("T1_0.5-S4_0.5", {"method": "diversity"}),
    ("T0=2-S4=2x2", {}),
]


@pytest.fixture(params=QWENS)
def host(request) -> str:
    torch.manual_seed(0)
    return request.param


def watch_sites(model: nn.Module, tower: nn.Module) -> list[Keep]:
    """Note, per call of the tower, the masks of what each site left of each video."""
    calls: list[Keep] = []
    blocks = sorted({site.block for site in model.token_selectors.plan})

    def note(block, before, after):
        if block == blocks[0]:
            calls.append({})
            calls[-1]["whole"] = [grid.thw for grid in before]
        masks = []
        for grid, (t, h, w) in zip(after, calls[-1]["whole"], strict=True):
            mask = torch.zeros(t * h * w, dtype=torch.bool)
            mask[grid.positions[0]] = True
            masks.append(mask.unflatten(0, (t, h, w)))
        calls[-1][block] = masks

    for block, hook in zip(blocks, model.token_selectors.site_hooks, strict=True):
        hook.notes.append(partial(note, block))
    return calls


def prompts(*, is_left: bool = True, host: str = "") -> dict[str, Tensor]:
    """Two prompts: words, a video, words, an image; and two videos of other sizes."""
    batch = Prompts().add(3, (2, 6, 4), 4, (1, 4, 6), 2).add(2, (3, 4, 8), 1, (2, 4, 4), 5)
    return inputs_of(batch, host, is_left=is_left)


def inputs_of(batch: Prompts, host: str, *, is_left: bool = True) -> dict[str, Tensor]:
    """Write the prompts as the host's processor does: Qwen3-VL's has a time before each frame."""
    return batch.inputs(is_left=is_left, per_frame=host == "qwen3-vl")


@torch.no_grad()
@pytest.mark.parametrize(("plan", "settings"), PLANS, ids=[plan for plan, _ in PLANS])
def test_the_tower_is_the_one_cut_by_hand(host, plan, settings):
    tower, pixels = QWENS[host]().model.visual, torch.randn(PIXELS)
    insert_selectors(tower, plan, **{"method": "motion", **settings})
    calls = watch_sites(tower, tower)
    found = tower(pixels, grid_thw=SIZES)
    merged, deep, left = run_tower(remove_selectors(tower), pixels, SIZES, calls[0])
    assert 0 < left.sum() < 0.6 * len(left)
    torch.testing.assert_close(found.pooler_output, merged[left], rtol=0, atol=2e-5)
    for feature, by_hand in zip(getattr(found, "deepstack_features", []), deep, strict=True):
        torch.testing.assert_close(feature, by_hand[left], rtol=0, atol=2e-5)


@torch.no_grad()
def test_keeping_everything_is_the_untouched_model(host):
    model, inputs = QWENS[host](), prompts(host=host)
    dense = model(**inputs).logits
    insert_selectors(model, "T0_1-S2_1-S4_1")
    seen = inputs["attention_mask"].bool()
    torch.testing.assert_close(model(**inputs).logits[seen], dense[seen], rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("is_left", [True, False])
def test_the_language_model_is_the_one_with_dropped_tokens_masked(host, is_left):
    model, inputs = QWENS[host](), prompts(is_left=is_left, host=host)
    insert_selectors(model, "T0_0.5-S2_0.5-S4_0.5", method="motion", tokenwise=True)
    calls = watch_sites(model, model.model.visual)
    shorter = shrink_inputs(model, inputs)
    found = model(**shorter).logits
    keep = dict(zip(("image", "video"), calls, strict=True))
    by_hand, left, _ = run_language_model(remove_selectors(model), inputs, keep)
    seen = shorter["attention_mask"].bool()
    assert seen.sum(1).tolist() == left.sum(1).tolist()
    torch.testing.assert_close(found[seen], by_hand[left], rtol=0, atol=5e-5)
    assert torch.equal(shorter["input_ids"][seen], inputs["input_ids"][left])


@torch.no_grad()
def test_generate_says_what_greedy_steps_by_hand_say(host):
    model, inputs = QWENS[host](), prompts(host=host)
    insert_selectors(model, "T0_0.5-S3_0.5", method="motion")
    calls = watch_sites(model, model.model.visual)
    shorter = shrink_inputs(model, inputs)
    length = shorter["input_ids"].shape[1]
    settings = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    found = model.generate(**shorter, **settings)[:, length:]
    keep = dict(zip(("image", "video"), calls, strict=True))
    _, _, words = run_language_model(remove_selectors(model), inputs, keep, steps=4)
    assert found.tolist() == torch.stack(words, dim=1).tolist()


@torch.no_grad()
def test_the_cache_goes_on_where_the_shorter_prompt_ends(host):
    model, inputs = QWENS[host](), inputs_of(Prompts().add(3, (4, 6, 4), 4), host)
    insert_selectors(model, "T0_0.5-S4_0.5", method="motion")
    calls = watch_sites(model, model.model.visual)
    shorter = shrink_inputs(model, inputs)
    first = model(**shorter, use_cache=True)
    assert first.past_key_values.get_seq_length() == shorter["input_ids"].shape[1]
    word = first.logits[:, -1:].argmax(-1)
    second = model(word, past_key_values=first.past_key_values)
    by_hand, _, _ = run_language_model(
        remove_selectors(model), inputs, {"video": calls[0]}, steps=1
    )
    torch.testing.assert_close(second.logits[:, -1], by_hand[:, -1], rtol=0, atol=5e-5)


@torch.no_grad()
def test_beams_share_the_shorter_prompt(host):
    model, inputs = QWENS[host](), inputs_of(Prompts().add(3, (4, 6, 4), 4), host)
    insert_selectors(model, "T0_0.5", method="uniform")
    settings = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    one = model.generate(**shrink_inputs(model, inputs), **settings)
    two = model.generate(**shrink_inputs(model, inputs), **settings, num_beams=2)
    assert two.shape == one.shape


def test_gradients_of_the_answer_reach_the_selectors(host):
    model, inputs = QWENS[host](), prompts(host=host)
    insert_selectors(model, "T0_0.5-S2_0.5-S4_0.5", scorer="paper", tokenwise=True).train()
    model(**inputs, labels=inputs["input_ids"]).loss.backward()
    for site in ("T0", "S2", "S4"):
        assert model.token_selectors[site].scoring.network.local.weight.grad.abs().max() > 0


def test_checkpointed_blocks_find_the_context_of_their_forward(host):
    model, inputs = QWENS[host](), prompts(host=host)
    insert_selectors(model, "T0_0.5-S2_0.5", method="motion").train()
    weight = model.model.visual.patch_embed.proj.weight
    plain = torch.autograd.grad(model(**inputs).logits.square().mean(), weight)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    again = torch.autograd.grad(model(**inputs).logits.square().mean(), weight)
    torch.testing.assert_close(again, plain)


@torch.no_grad()
def test_copies_and_files_run_and_removal_leaves_nothing(host):
    model, inputs = QWENS[host](), prompts(host=host)
    keys, dense = list(model.state_dict()), model(**inputs).logits
    insert_selectors(model, "T0_0.5-S2_0.5-S4_0.5")
    found = model(**inputs).logits
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for twin in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(twin(**inputs).logits, found)
    remove_selectors(model)
    assert list(model.state_dict()) == keys
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    assert torch.equal(model(**inputs).logits, dense)


@torch.no_grad()
def test_counts_are_known_before_anything_is_encoded(host):
    model = insert_selectors(QWENS[host](), "T0=2-S2_0.5-S4_0.5", method="motion")
    with record_kept(model) as kept:
        inputs = inputs_of(Prompts().add((3, 6, 4), 1, (5, 8, 10), 2), host)
        shorter = shrink_inputs(model, inputs)
    counts = count_tokens(model, [(3, 6, 4), (5, 8, 10)])
    assert counts == [one.indices.shape[1] for one in kept] == [2, 2 * 6]
    assert int((shorter["input_ids"] == VIDEO).sum()) == sum(counts)


@torch.no_grad()
def test_tokens_like_a_word_of_the_prompt_are_kept(host):
    model, inputs = QWENS[host](), inputs_of(Prompts().add(3, (3, 6, 4), 4), host)
    merged = model.model.visual(inputs["pixel_values_videos"], inputs["video_grid_thw"])
    wanted = torch.tensor([2, 3, 5, 11, 13, 17])
    insert_selectors(model, "S4=1x2", method="text")
    with record_kept(model) as kept:
        shrink_inputs(model, inputs, prompt=[merged.pooler_output[wanted]])
    assert kept[0].indices[0].tolist() == wanted.tolist()


@torch.no_grad()
def test_tokens_that_the_words_attend_to_are_kept(host):
    model, inputs = QWENS[host](), inputs_of(Prompts().add(3, (3, 6, 4), 4), host)
    base, ids = model.model, inputs["input_ids"][0]
    tokens = base.visual(inputs["pixel_values_videos"], inputs["video_grid_thw"]).pooler_output
    layer, words = base.language_model.layers[0], base.get_input_embeddings()(ids[ids != VIDEO])
    queries, keys = (layer.input_layernorm(x) for x in (words, tokens))
    queries, keys = layer.self_attn.q_proj(queries), layer.self_attn.k_proj(keys)
    total = torch.zeros(len(tokens))
    for head in range(4):  # two share a head of the keys
        q, k = queries[:, head * 8 :][:, :8], keys[:, head // 2 * 8 :][:, :8]
        if host == "qwen3-vl":
            q, k = layer.self_attn.q_norm(q), layer.self_attn.k_norm(k)
        total += (q @ k.T / 8**0.5).softmax(dim=-1).sum(dim=0)
    insert_selectors(model, "S4=1x2", method="attention", tokenwise=True)
    with record_kept(model) as kept:
        shrink_inputs(model, inputs)
    best = total.unflatten(0, (3, 6)).topk(2).indices.sort().values + 6 * torch.arange(3)[:, None]
    assert kept[0].indices[0].tolist() == best.flatten().tolist()


def test_inputs_that_were_not_shrunk_are_refused(host):
    model, inputs = QWENS[host](), inputs_of(Prompts().add(3, (3, 6, 4), 4), host)
    insert_selectors(model, "T0_0.5")
    with pytest.raises(ValueError, match=r"model.generate\(\*\*tokenselect.shrink_inputs"):
        model.generate(**inputs, max_new_tokens=1)
    inputs["input_ids"] = inputs["input_ids"][:, :-8]
    inputs["attention_mask"] = inputs["mm_token_type_ids"] = None
    with pytest.raises(ValueError, match=r"a placeholder for each video token, 18 by .*, got 15"):
        shrink_inputs(model, inputs)


def test_a_tower_has_no_inputs_to_shrink():
    tower = insert_selectors(QWENS["qwen2-vl"]().model.visual, "T0_0.5")
    with pytest.raises(TypeError, match="insert the selectors into the whole model"):
        shrink_inputs(tower, {})
    with pytest.raises(ValueError, match="call insert_selectors"):
        shrink_inputs(QWENS["qwen2-vl"](), {})
