"""LLaVA-OneVision and LLaVA-NeXT-Video against forwards whose prompts are put together by hand."""

import copy

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.hosts import scramble, transformers
from tokenselect import (
    count_tokens,
    insert_selectors,
    load_model,
    record_kept,
    remove_selectors,
    shrink_inputs,
)

IMAGE, VIDEO, PAD = 90, 91, 0
PATCHES = 3 * 2 * 2  # 3 frames of 4×4 patches, pooled to 2×2
MARKS = {"onevision": 1, "next-video": 0}  # tokens at the end of a video
PLANS = [
    ("T3=2", {"method": "motion"}),
    ("S3=1x2", {"method": "motion", "tokenwise": True}),
    ("S3=1x2", {"method": "evs"}),
    ("T3=2-S3=1x2", {}),
    ("S3=1x2", {"method": "merge"}),
    ("S3=1x2", {"method": "attention", "tokenwise": True}),
]


@pytest.fixture(params=MARKS)
def host(request) -> str:
    return request.param


def llava(host: str = "onevision") -> nn.Module:
    library = transformers()
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3}
    vision |= {"num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    text = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": PAD}
    settings = {"text_config": {**text, "model_type": "qwen2"}, "image_grid_pinpoints": [[32, 32]]}
    torch.manual_seed(0)
    if host == "next-video":
        config = library.LlavaNextVideoConfig(
            vision_config={**vision, "model_type": "clip_vision_model"},
            image_token_index=IMAGE,
            video_token_index=VIDEO,
            **settings,
        )
        return scramble(library.LlavaNextVideoForConditionalGeneration(config))
    config = library.LlavaOnevisionConfig(
        vision_config={**vision, "vision_use_head": False, "model_type": "siglip_vision_model"},
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        **settings,
    )
    return scramble(library.LlavaOnevisionForConditionalGeneration(config))


def prompts(host: str = "onevision") -> dict[str, Tensor]:
    """Two prompts with a video each; the shorter one is padded on the left."""
    torch.manual_seed(1)
    video = torch.full((PATCHES + MARKS[host],), VIDEO)
    rows = [
        torch.cat([torch.randint(1, 80, (n,)), video, torch.tensor(last)])
        for n, last in ((2, [5, 6]), (4, [7, 8, 9]))
    ]
    length = max(map(len, rows))
    ids, mask = torch.full((2, length), PAD), torch.zeros(2, length, dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, -len(row) :], mask[index, -len(row) :] = row, 1
    videos = torch.randn(2, 3, 3, 32, 32)
    return {"input_ids": ids, "attention_mask": mask, "pixel_values_videos": videos}


def by_hand(model: nn.Module, inputs: dict[str, Tensor], kept: list[list[int]]) -> list[Tensor]:
    """Run each prompt on its own, with the kept tokens of its video between its words."""
    base, logits = model.model, []
    features = base.get_video_features(inputs["pixel_values_videos"]).pooler_output
    for row, (ids, mask) in enumerate(
        zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    ):
        parts, place = [], 0
        for token in ids[mask.bool()]:
            if token == VIDEO:
                if place in kept[row] or place == PATCHES:
                    parts.append(features[row, place])
                place += 1
            else:
                parts.append(base.get_input_embeddings()(token))
        hidden = base.language_model(inputs_embeds=torch.stack(parts)[None]).last_hidden_state
        logits.append(model.lm_head(hidden)[0])
    return logits


@torch.no_grad()
@pytest.mark.parametrize(("plan", "settings"), PLANS, ids=lambda value: str(value))
def test_the_prompt_is_the_one_put_together_by_hand(host, plan, settings):
    model, inputs = llava(host), prompts(host)
    insert_selectors(model, plan, **settings)
    with record_kept(model) as kept:
        shorter = shrink_inputs(model, inputs)
    counts = count_tokens(model, [(3, 4, 4)] * 2)
    assert counts == [one.indices.shape[1] + MARKS[host] for one in kept]
    assert (shorter["input_ids"] == VIDEO).sum(dim=1).tolist() == counts
    position_ids = (shorter["attention_mask"].cumsum(1) - 1).clamp(min=0)
    found = model(**shorter, position_ids=position_ids).logits
    if settings.get("method") == "merge":  # its tokens are means
        assert found.isfinite().all()
        return
    places = [one.indices[0].tolist() for one in kept]
    for row, expected in enumerate(by_hand(remove_selectors(model), inputs, places)):
        seen = shorter["attention_mask"][row].bool()
        torch.testing.assert_close(found[row][seen], expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_generate_goes_on_from_the_shorter_prompt(host):
    model, inputs = llava(host), prompts(host)
    insert_selectors(model, "T3=2", method="motion")
    shorter = shrink_inputs(model, inputs)
    words = model.generate(**shorter, max_new_tokens=3, do_sample=False)
    with record_kept(model) as kept:
        shrink_inputs(model, inputs)
    places, dense = [one.indices[0].tolist() for one in kept], remove_selectors(model)
    for step in range(3):
        logits = by_hand(dense, inputs, places)
        expected = torch.stack([row[-1].argmax() for row in logits])
        assert torch.equal(words[:, shorter["input_ids"].shape[1] + step], expected)
        grown = torch.cat([inputs["input_ids"], expected[:, None]], dim=1)
        ones = torch.ones(2, 1, dtype=torch.long)
        mask = torch.cat([inputs["attention_mask"], ones], dim=1)
        inputs = {**inputs, "input_ids": grown, "attention_mask": mask}


def test_training_shrinks_by_itself_and_gradients_reach_the_selector(host):
    model, inputs = insert_selectors(llava(host), "T3=2").train(), prompts(host)
    labels = inputs["input_ids"].masked_fill(inputs["input_ids"] == VIDEO, -100)
    model(**inputs, labels=labels).loss.backward()
    learned = model.token_selectors["T3"].scoring.parameters()
    assert max(p.grad.abs().max() for p in learned if p.grad is not None) > 0


@torch.no_grad()
def test_keeping_everything_removal_copies_and_files(host, tmp_path):
    model, inputs = llava(host), prompts(host)
    keys, dense = list(model.state_dict()), model(**inputs).logits
    insert_selectors(model, "T3_1.0")
    seen = inputs["attention_mask"].bool()
    torch.testing.assert_close(model(**inputs).logits[seen], dense[seen])
    remove_selectors(model)
    insert_selectors(model, "T3=2")
    found = model(**inputs).logits
    assert torch.equal(copy.deepcopy(model)(**inputs).logits, found)
    model.save_pretrained(tmp_path)
    assert torch.equal(load_model(tmp_path)(**inputs).logits, found)
    remove_selectors(model)
    assert list(model.state_dict()) == keys and "get_video_features" not in vars(model.model)
    assert torch.equal(model(**inputs).logits, dense)


def test_what_cannot_be_is_refused():
    model, inputs = llava(), prompts()
    with pytest.raises(ValueError, match="select after it"):
        insert_selectors(model, "T1=2")
    insert_selectors(model, "T3=2")
    with pytest.raises(ValueError, match=r"model.generate\(\*\*tokenselect.shrink_inputs"):
        model.generate(**inputs, max_new_tokens=1)
    inputs["input_ids"] = inputs["input_ids"].masked_fill(inputs["input_ids"] == VIDEO, 3)
    with pytest.raises(ValueError, match="each video token, 26 by their sizes, got 0"):
        shrink_inputs(model, inputs)
