import pytest
import torch

from tests.contracts import hosts
from tests.contracts.cuts import Cut, run_vjepa2, run_vjepa2_layer
from tokenselect import insert_selectors, record_selections, remove_selectors

CLIPS = {
    hosts.videomae: (2, 10, 3, 48, 32),
    hosts.vivit: (2, 10, 3, 48, 32),
    hosts.timesformer: (2, 5, 3, 32, 32),
    hosts.vjepa2: (2, 10, 3, 32, 32),
}
FAMILIES = pytest.mark.parametrize("build", CLIPS, ids=lambda build: build.__name__)


@torch.no_grad()
@FAMILIES
def test_the_bare_model_selects_as_it_does_inside_the_classifier(build):
    torch.manual_seed(1)
    video = torch.randn(CLIPS[build])
    classifier, bare = build(), build(is_classifier=False)
    base = classifier.base_model
    insert_selectors(classifier, "T0_0.6-S1_0.5", method="motion")
    missing = bare.load_state_dict(base.state_dict(), strict=False).missing_keys
    assert not [key for key in missing if "pooler" not in key]
    insert_selectors(bare, "T0_0.6-S1_0.5", method="motion")
    found = bare(video, **({"skip_predictor": True} if build is hosts.vjepa2 else {}))
    seen = []
    base.register_forward_hook(lambda _, given, output: seen.append(output.last_hidden_state))
    classifier(video)
    torch.testing.assert_close(found.last_hidden_state, seen[0])


@torch.no_grad()
@pytest.mark.parametrize("build", [hosts.videomae, hosts.vivit])
def test_patches_selected_one_by_one_are_those_picked_by_hand(build):
    torch.manual_seed(1)
    model, video = build(), torch.randn(CLIPS[build])
    insert_selectors(model, "S1_0.5", method="motion", tokenwise=True)
    with record_selections(model) as selections:
        found = model(video).logits
    rows = (selections["S1"].indices + torch.arange(5)[:, None] * 24).flatten(1)  # 6×4 a frame
    base = remove_selectors(model).base_model
    is_vivit = build is hosts.vivit
    if is_vivit:
        rows = torch.cat([torch.zeros(2, 1, dtype=torch.long), rows + 1], dim=1)
    tokens = base.embeddings(video, *(() if is_vivit else (None,)))
    first, *others = base.layers if is_vivit else base.encoder.layer
    tokens = torch.stack([clip[kept] for clip, kept in zip(first(tokens), rows, strict=True)])
    for layer in others:
        tokens = layer(tokens)
    clip = base.layernorm(tokens)[:, 0] if is_vivit else model.fc_norm(tokens.mean(1))
    torch.testing.assert_close(found, model.classifier(clip))


@torch.no_grad()
def test_patches_that_vjepa2_selects_one_by_one_keep_their_places():
    torch.manual_seed(1)
    model, video = hosts.vjepa2(), torch.randn(1, 10, 3, 32, 32)
    insert_selectors(model, "S1_0.5", method="motion", tokenwise=True)
    with record_selections(model) as selections:
        found = model(video).logits
    rows = (selections["S1"].indices + torch.arange(5)[:, None] * 16).flatten()  # 4×4 a frame
    is_seen = torch.zeros(80, dtype=torch.bool)
    is_seen[rows] = True
    encoder = remove_selectors(model).vjepa2.encoder
    first, *others = encoder.layer
    tokens = run_vjepa2_layer(first, encoder.embeddings(video), torch.ones_like(is_seen))
    for layer in others:
        tokens = run_vjepa2_layer(layer, tokens, is_seen)
    by_hand = model.classifier(model.pooler(encoder.layernorm(tokens)[:, rows]))
    torch.testing.assert_close(found, by_hand)


@torch.no_grad()
def test_class_attention_of_vivit_is_the_one_its_layer_reports():
    torch.manual_seed(1)
    model, video = hosts.vivit(), torch.randn(CLIPS[hosts.vivit])
    model.set_attn_implementation("eager")
    attentions = model(video, output_attentions=True).attentions  # (b, heads, 121, 121) a layer
    insert_selectors(model, "T2=2", method="attention")
    with record_selections(model) as selections:
        model(video)
    shares = attentions[1].mean(1)[:, 0, 1:].reshape(2, 5, 24)
    torch.testing.assert_close(selections["T2"].scores, shares.mean(-1))


def test_videomae_that_classifies_the_first_patch_is_refused():
    with pytest.raises(ValueError, match="only use_mean_pooling=True"):
        insert_selectors(hosts.videomae(use_mean_pooling=False), "T0_0.5")
    bare = hosts.videomae(is_classifier=False, use_mean_pooling=False)
    insert_selectors(bare, "T0_0.5")


def test_timesformer_without_time_is_refused():
    with pytest.raises(ValueError, match="'divided_space_time' and 'joint_space_time'"):
        insert_selectors(hosts.timesformer(attention_type="space_only"), "T0_0.5")


def test_timesformer_layers_share_the_models_configuration_when_nothing_is_dropped():
    model = insert_selectors(hosts.timesformer(), "T1_0.5")
    first, *others = model.timesformer.encoder.layer
    assert first.config is model.config
    assert [layer.config.num_frames for layer in others] == [2, 2]
    assert model.config.num_frames == 5


@pytest.mark.parametrize("frames", [3, 8])
def test_timesformer_at_another_frame_count_is_refused(frames):
    model = insert_selectors(hosts.timesformer(), "T1=3")
    with pytest.raises(ValueError, match=rf"clips of 5 frames \(config.num_frames\), got {frames}"):
        model(torch.randn(2, frames, 3, 32, 32))


def test_vivit_with_a_mask_is_refused():
    model = insert_selectors(hosts.vivit(is_classifier=False), "T0_0.5")
    video = torch.randn(CLIPS[hosts.vivit])
    with pytest.raises(ValueError, match="takes no attention_mask"):
        model(video, attention_mask=torch.ones(2, 121))


@pytest.mark.parametrize(
    "settings", [{}, {"skip_predictor": True, "context_mask": [torch.arange(4).expand(2, -1)]}]
)
def test_vjepa2_refuses_what_counts_on_all_tokens(settings):
    model = insert_selectors(hosts.vjepa2(is_classifier=False), "T0_0.5")
    with pytest.raises(ValueError, match=r"skip_predictor=True\) without masks"):
        model(torch.randn(CLIPS[hosts.vjepa2]), **settings)


def test_vjepa2_refuses_another_frame_size():
    model = insert_selectors(hosts.vjepa2(), "T0_0.5")
    with pytest.raises(ValueError, match=r"frames of 32×32 pixels .*, got 64×64"):
        model(torch.randn(1, 10, 3, 64, 64))


@torch.no_grad()
def test_vjepa2_takes_clips_of_any_length():
    model, video = hosts.vjepa2(), torch.randn(2, 10, 3, 32, 32)
    insert_selectors(model, "T0_0.5-S1=3x2", method="uniform")
    for frames in (4, 16):
        with record_selections(model) as selections:
            model(video[:, :1].expand(-1, frames, -1, -1, -1))
        assert selections["S1"].thw_after == (frames // 4, 3, 2)


def test_vjepa2_checkpointed_forwards_may_overlap():
    """Layers run again in the backward pass must find the places of their own forward."""
    torch.manual_seed(1)
    model = hosts.vjepa2().train()
    insert_selectors(model, "T0=3-T1=2", method="novelty")
    videos = torch.randn(2, 2, 10, 3, 32, 32)
    parameters = [p for n, p in model.named_parameters() if "encoder" in n]
    plain = torch.autograd.grad(sum(model(v).logits.square().sum() for v in videos), parameters)
    model.gradient_checkpointing_enable()
    again = torch.autograd.grad(sum(model(v).logits.square().sum() for v in videos), parameters)
    for one, two in zip(plain, again, strict=True):
        torch.testing.assert_close(one, two)


@torch.no_grad()
def test_vjepa2_places_survive_a_soft_selection():
    """With next to no noise, training blends frames to what evaluation picks, in their places."""
    torch.manual_seed(2)
    model, video = hosts.vjepa2(), torch.randn(1, 10, 3, 32, 32)
    insert_selectors(model, "T0=2", sigma=1e-4).train()
    with record_selections(model) as selections:
        found = model(video).logits
    kept = tuple(selections["T0"].indices[0].tolist())
    assert kept != (0, 1)
    by_hand = run_vjepa2(remove_selectors(model), video, {0: Cut(frames=kept)})
    torch.testing.assert_close(found, by_hand, rtol=0, atol=1e-4)
