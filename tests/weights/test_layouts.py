"""Every layout of weights gives the logits of the model it was made from."""

import pytest
import torch

from benchmarks.torchvision_import import import_torchvision
from tests.weights import upstream_names
from tests.weights.models import assert_same_logits, clips, scramble, small_mvit, small_swin
from tokenselect.backbones.video_swin import VideoSwin
from tokenselect.models import create_model
from tokenselect.weights import load_weights


@pytest.mark.parametrize(
    ("title", "state_of"),
    [
        ("tokenselect MViT", lambda model: model.state_dict()),
        ("SlowFast MViT", upstream_names.slowfast),
        ("SlowFast MViT", lambda model: upstream_names.slowfast(model, is_fused=False)),
        ("PyTorchVideo MViT", upstream_names.pytorchvideo),
        ("PyTorchVideo MViT", lambda model: upstream_names.pytorchvideo(model, is_fused=True)),
    ],
)
def test_mvit_gives_the_same_logits_from_every_layout(title, state_of):
    theirs, ours = scramble(small_mvit()), small_mvit()
    loaded = load_weights(ours, state_of(theirs))
    assert (loaded.layout, loaded.initial, loaded.unused) == (title, [], [])
    assert_same_logits(ours, theirs)


@pytest.mark.parametrize(
    ("title", "state_of"),
    [
        ("tokenselect Video Swin", lambda model: model.state_dict()),
        ("mmaction2 Video Swin", upstream_names.mmaction),
        ("mmaction2 Video Swin", lambda model: upstream_names.mmaction(model, norm="norm3")),
    ],
)
def test_video_swin_gives_the_same_logits_from_every_layout(title, state_of):
    theirs, ours = scramble(small_swin()), small_swin()
    loaded = load_weights(ours, state_of(theirs))
    assert (loaded.layout, loaded.initial, loaded.unused) == (title, [], [])
    assert_same_logits(ours, theirs)


def test_a_backbone_without_classifier_leaves_only_the_classifier_as_it_was():
    theirs, ours = scramble(small_swin()), small_swin()
    loaded = load_weights(ours, upstream_names.video_swin(theirs))
    assert loaded.layout == "Video-Swin-Transformer"
    assert loaded.initial == ["classifier.bias", "classifier.weight"]
    theirs.classifier.load_state_dict(ours.classifier.state_dict())
    assert_same_logits(ours, theirs)


def test_torchvision_swin_is_recognised_and_gives_its_logits():
    swin = import_torchvision("torchvision.models.video.swin_transformer")
    theirs = scramble(
        swin.SwinTransformer3d(
            patch_size=[2, 4, 4],
            embed_dim=8,
            depths=[2, 3, 2],
            num_heads=[1, 2, 4],
            window_size=[4, 3, 3],
            num_classes=7,
        )
    )
    ours = small_swin()
    assert load_weights(ours, theirs.state_dict()).layout == "torchvision Swin3D"
    assert_same_logits(ours, theirs)


def test_torchvision_mvit_is_recognised_and_fits_in_every_name_and_shape():
    reference = import_torchvision("torchvision.models.video.mvit")
    with torch.device("meta"):
        theirs, ours = reference.mvit_v1_b(), create_model("mvit_b16")
    loaded = load_weights(ours, theirs.state_dict())
    assert (loaded.layout, loaded.resized) == ("torchvision MViT", [])
    assert (loaded.initial, loaded.unused) == ([], [])


@pytest.mark.parametrize("is_torchvision", [True, False])
def test_a_still_clip_has_the_features_of_the_image_in_the_image_model(is_torchvision):
    swin = import_torchvision("torchvision.models.swin_transformer")
    theirs = swin.SwinTransformer(
        patch_size=[4, 4],
        embed_dim=8,
        depths=[2, 2, 2],
        num_heads=[1, 2, 4],
        window_size=[3, 3],
        num_classes=32,
    )
    scramble(theirs).head = torch.nn.Identity()
    ours = VideoSwin(
        num_classes=32, frames=10, size=(48, 48), channels=8, depths=(2, 2, 2),
        num_heads=(1, 2, 4), window=(4, 3, 3),
    ).eval()  # fmt: skip
    state = theirs.state_dict()
    load_weights(ours, state if is_torchvision else timm_names(state))
    ours.classifier = torch.nn.Identity()
    image = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        expected = theirs(image)
        features = ours(image[:, :, None].expand(-1, -1, 10, -1, -1))
    assert expected.std() > 0.1
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-4)


def timm_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Name an image Swin as timm and its authors do; in new timm files, stages begin by merging."""
    names = [("features.0.0.", "patch_embed.proj."), ("features.0.2.", "patch_embed.norm.")]
    for stage in range(3):
        names.append((f"features.{2 * stage}.reduction.", f"layers.{stage}.downsample.reduction."))
        names.append((f"features.{2 * stage}.norm.", f"layers.{stage}.downsample.norm."))
        names.append((f"features.{2 * stage + 1}.", f"layers.{stage}.blocks."))
    names += [(".mlp.0.", ".mlp.fc1."), (".mlp.3.", ".mlp.fc2.")]
    renamed = {"head.fc.weight": torch.zeros(1000, 32), "head.fc.bias": torch.zeros(1000)}
    for name, value in state.items():
        for theirs, other in names:
            name = name.replace(theirs, other)
        renamed[name] = value
    return renamed


@pytest.mark.parametrize("build", [small_mvit, small_swin])
def test_released_checkpoints_bring_their_selectors(build):
    plan = "T0=3-S1=5x5-T2=2" if build is small_mvit else "T0=5-S2=4x4"
    theirs, ours = scramble(build(plan)), build(plan)
    if build is small_mvit:
        state = upstream_names.slowfast(theirs) | upstream_names.scorers(theirs)
    else:
        prefixed = {f"backbone.{n}": v for n, v in upstream_names.scorers(theirs).items()}
        state = upstream_names.mmaction(theirs) | prefixed
    loaded = load_weights(ours, state)
    assert (loaded.initial, loaded.unused) == ([], [])
    assert_same_logits(ours, theirs)


def test_released_checkpoint_of_full_size_fits_in_every_name_and_shape():
    with torch.device("meta"):
        theirs = create_model("mvit_b16", plan="T0=5-S4=13x13", scorer="released")
        ours = create_model("mvit_b16", plan="T0=5-S4=13x13", scorer="released")
        state = upstream_names.slowfast(theirs) | upstream_names.scorers(theirs)
    assert state["pos_embed_spatial"].shape == (1, 3136, 96)
    assert state["time_score_predictor.0.score_network.in_conv.1.weight"].shape == (192, 192)
    assert state["space_score_predictor.0.score_network.out_conv.4.weight"].shape == (1, 96)
    loaded = load_weights(ours, state)
    assert (loaded.initial, loaded.unused, loaded.resized) == ([], [], [])


def test_a_dense_model_takes_a_released_checkpoint_without_its_selectors(caplog):
    theirs, ours = scramble(small_mvit("T0=3-S1=5x5")), small_mvit()
    state = upstream_names.slowfast(theirs) | upstream_names.scorers(theirs)
    loaded = load_weights(ours, state)
    assert len(loaded.unused) == 20
    assert "time_score_predictor.0" in caplog.text and "the model has no such sites" in caplog.text
    assert ours(clips(ours)).isfinite().all()
