import pytest
import torch
from torch import nn

from tests.contracts.hosts import mvit_v1
from tokenselect import create_model
from tokenselect.adapters import Adapter, Arguments, find_adapter, supported_models
from tokenselect.adapters.lookup import FAMILIES
from tokenselect.adapters.multiscale import TorchvisionMViTAdapter


@pytest.mark.parametrize(
    "name",
    [
        "tokenselect.MViT",
        "torchvision.models.video.mvit_v2_s",
        "torchvision.models.video.swin3d_t",
        "transformers.VideoMAEModel",
        "transformers.TimesformerForVideoClassification",
        "pytorchvideo.models.create_multiscale_vision_transformers",
        "slowfast.models.MViT",
    ],
)
def test_models_are_listed_by_the_names_people_know(name):
    assert name in supported_models()


def test_models_of_other_libraries_are_listed_with_versions():
    known = supported_models()
    assert known["transformers.Qwen2_5_VLForConditionalGeneration"] == "transformers 5.22"
    assert [name for name, versions in known.items() if not versions] == [
        "tokenselect.MViT",
        "tokenselect.VideoSwin",
    ]


def test_an_unknown_model_is_refused_with_the_list_and_the_way_out():
    with pytest.raises(TypeError, match=r"no adapter for torch.*Linear; supported: ") as caught:
        find_adapter(nn.Linear(2, 2))
    assert all(name in str(caught.value) for name in supported_models())
    assert "docs/adapters.md" in str(caught.value)


def test_a_class_that_derives_from_a_supported_one_is_supported():
    own = create_model("mvit_mini")
    derived = type("MyMViT", (type(own),), {})
    own.__class__ = derived
    assert isinstance(find_adapter(own), Adapter)


def test_classes_of_the_same_name_are_told_apart():
    assert isinstance(find_adapter(mvit_v1()), TorchvisionMViTAdapter)
    assert not isinstance(find_adapter(create_model("mvit_mini")), TorchvisionMViTAdapter)


def test_no_two_families_claim_one_class():
    paths = [f"{family.module}.{name}" for family in FAMILIES for name in family.classes]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize(
    "positional", [(torch.ones(2), "mask"), (torch.ones(2),), ()], ids=["both", "one", "none"]
)
def test_arguments_are_found_and_changed_where_they_were_given(positional):
    names = ("tokens", "mask")[len(positional) :]
    arguments = Arguments(positional, dict.fromkeys(names, 1))
    changed = arguments.put(0, "tokens", "new").put(1, "mask", "old")
    assert (changed.get(0, "tokens"), changed.get(1, "mask")) == ("new", "old")
    assert len(changed.positional) == len(positional) and set(changed.named) == set(names)
    assert arguments.get(2, "missing") is None
