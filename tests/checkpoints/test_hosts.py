"""Models of other libraries on the disk and back, with plan, settings and selectors."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.checkpoints.test_saved import small_model
from tests.contracts import hosts
from tests.contracts.language_hosts import QWENS, Prompts
from tests.contracts.models import THIRD_PARTY, Case, logits_of
from tokenselect import (
    insert_selectors,
    load_model,
    load_selectors,
    load_weights,
    plan_of,
    push_to_hub,
    remove_selectors,
    save_model,
    save_pretrained,
    set_plan,
)

PLAN = "T0=3-S1=3x2"
TRANSFORMERS = ("videomae", "vivit", "timesformer", "vjepa2", "clip", "siglip", "x-clip")
OTHERS = (
    *("torchvision-mvit-v2", "torchvision-swin3d", "timm-vit", "pytorchvideo-mvit", "hiera"),
    *("videomae-v2", "internvideo2"),
    *("slowfast-stand-in", "slowfast-mvit-v1", "slowfast-mvit-v2"),
)
BY_NAME = {case.name: case for case in THIRD_PARTY}


def inserted(case: Case) -> nn.Module:
    plan = PLAN if "swin" not in case.name else "T0=3"
    model = insert_selectors(case.build(), plan, method="stts-sampled", stride=(1, 2))
    return hosts.scramble(model)


@pytest.fixture(params=TRANSFORMERS)
def case(request) -> Case:
    torch.manual_seed(0)
    return BY_NAME[request.param]


@torch.no_grad()
def test_save_pretrained_keeps_selectors_and_load_model_brings_them_back(case, tmp_path):
    model, video = inserted(case), case.video()
    model.save_pretrained(tmp_path)
    found = load_model(tmp_path)
    assert type(found) is type(model) and not found.training
    assert str(plan_of(found)) == PLAN
    assert found.token_selectors.settings == model.token_selectors.settings
    assert torch.equal(logits_of(found(video)), logits_of(model(video)))


@torch.no_grad()
def test_a_model_that_transformers_loaded_gets_its_selectors(case, tmp_path):
    model, video = inserted(case), case.video()
    assert save_model(model, tmp_path) == tmp_path / "model.safetensors"
    found = type(model).from_pretrained(tmp_path).eval()
    assert not hasattr(found, "token_selectors")
    load_selectors(found, tmp_path)
    assert torch.equal(logits_of(found(video)), logits_of(model(video)))


@torch.no_grad()
def test_weights_of_a_file_are_loaded_by_the_names_that_transformers_gave_them(case, tmp_path):
    model, video = inserted(case), case.video()
    model.save_pretrained(tmp_path)
    other = insert_selectors(case.build(), PLAN, method="stts-sampled", stride=(1, 2))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert load_weights(other, tmp_path).initial == []
    assert torch.equal(logits_of(other(video)), logits_of(model(video)))


@torch.no_grad()
@pytest.mark.parametrize("name", QWENS)
def test_a_video_language_model_comes_back(name, tmp_path):
    torch.manual_seed(0)
    model = hosts.scramble(insert_selectors(QWENS[name](), "T0=2-S4_0.5"))
    inputs = Prompts().add(3, (3, 6, 4), 4).inputs(per_frame=name == "qwen3-vl")
    model.save_pretrained(tmp_path)
    assert torch.equal(load_model(tmp_path)(**inputs).logits, model(**inputs).logits)


@torch.no_grad()
@pytest.mark.parametrize("name", OTHERS)
def test_a_model_of_another_library_comes_back_into_a_dense_one(name, tmp_path):
    torch.manual_seed(0)
    case = BY_NAME[name]
    model, video = inserted(case), case.video()
    save_model(model, tmp_path / "a.safetensors", metadata={"step": 7})
    found = load_model(tmp_path / "a.safetensors", host=case.build())
    assert plan_of(found) == plan_of(model)
    assert torch.equal(logits_of(found(video)), logits_of(model(video)))
    with pytest.raises(ValueError, match=r"holds a .*: build the same dense model .* host="):
        load_model(tmp_path / "a.safetensors")


@torch.no_grad()
def test_shards_are_read(tmp_path):
    model, video = inserted(BY_NAME["videomae"]), BY_NAME["videomae"].video()
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    assert not (tmp_path / "model.safetensors").exists()
    assert torch.equal(load_model(tmp_path)(video).logits, model(video).logits)


def test_the_plan_in_the_configuration_follows_the_model(tmp_path):
    model = inserted(BY_NAME["videomae"])
    assert model.config.token_selectors["plan"] == PLAN
    set_plan(model, "T0=2")
    assert save_pretrained(model, tmp_path) == tmp_path
    kept = json.loads((tmp_path / "config.json").read_text())["token_selectors"]
    assert kept["plan"] == "T0=2-S1_1" and kept["stride"] == [1, 2]
    remove_selectors(model).save_pretrained(tmp_path)
    assert "token_selectors" not in json.loads((tmp_path / "config.json").read_text())
    with pytest.raises(ValueError, match="saved without selectors"):
        load_selectors(model, tmp_path)
    assert plan_of(load_model(tmp_path)).sites == ()


def test_a_plan_in_place_of_the_saved_one(tmp_path):
    inserted(BY_NAME["videomae"]).save_pretrained(tmp_path)
    assert str(plan_of(load_model(tmp_path, plan="T0=2"))) == "T0=2"
    assert plan_of(load_model(tmp_path, plan="dense")).sites == ()
    with pytest.raises(ValueError, match="selects at T2, where the weights have no trained"):
        load_model(tmp_path, plan="T2=2")
    with pytest.raises(ValueError, match="class_names and size are for models of create_model"):
        load_model(tmp_path, size=64)


def test_transformers_writes_folders_only(tmp_path):
    with pytest.raises(ValueError, match=r"to a folder.*a\.safetensors"):
        save_model(inserted(BY_NAME["videomae"]), tmp_path / "a.safetensors")


def test_a_file_of_ours_beside_a_configuration_is_still_ours(tmp_path):
    inserted(BY_NAME["videomae"]).save_pretrained(tmp_path)
    save_model(small_model(), tmp_path / "own.safetensors")
    assert load_model(tmp_path / "own.safetensors").settings["name"] == "mvit_mini"


@pytest.mark.parametrize("name", ["videomae", "vivit"])
def test_a_resumed_trainer_goes_on_with_all_tensors_and_the_selectors(name, tmp_path):
    """transformers alone would leave those tensors at random that it renames in its files."""
    library = hosts.transformers()
    case = BY_NAME[name]
    data = [{"pixel_values": clip, "labels": i % 7} for i, clip in enumerate(case.video())]

    def trainer(model: nn.Module, steps: int):
        arguments = library.TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=steps,
            save_steps=2,
            learning_rate=1e-2,
            per_device_train_batch_size=2,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        return library.Trainer(model, arguments, train_dataset=data)

    trained = inserted(case)
    trainer(trained, 2).train()
    resumed = insert_selectors(case.build(), PLAN, method="stts-sampled", stride=(1, 2))
    trainer(resumed, 2).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for (key, one), two in zip(
        trained.state_dict().items(), resumed.state_dict().values(), strict=True
    ):
        assert torch.equal(one, two), key
    found = load_model(tmp_path / "checkpoint-2")
    video = case.video()
    assert torch.equal(found(video).logits, trained.eval()(video).logits)


@pytest.mark.parametrize("text", ["{", "3", '["a"]'])
def test_a_damaged_configuration_is_named(text, tmp_path):
    inserted(BY_NAME["videomae"]).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json is not a model configuration"):
        load_model(tmp_path)


@torch.no_grad()
def test_a_pushed_model_of_transformers_is_loaded_by_its_name(hub):
    case = BY_NAME["vivit"]
    model, video = inserted(case), case.video()
    push_to_hub(model, "someone/clips")
    found = load_model("someone/clips")
    assert str(plan_of(found)) == PLAN
    assert torch.equal(found(video).logits, model(video).logits)


def spoil(tensors: dict[str, torch.Tensor]) -> None:
    name = next(name for name in tensors if "layer.0" in name)
    tensors[name] = torch.full_like(tensors[name], float("nan"))


def lose(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["classifier.bias"]


@pytest.mark.parametrize(
    ("change", "told"), [(spoil, "holds NaN"), (lose, "weights are missing, such as classifier")]
)
def test_a_host_with_spoiled_or_missing_weights_is_refused_by_name(tmp_path, change, told):
    file = save_model(inserted(BY_NAME["videomae"]), tmp_path)
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"{tmp_path} .*{told}"):
        load_model(tmp_path)


def test_selectors_beside_spoiled_weights_are_refused_by_name(tmp_path):
    case = BY_NAME["videomae"]
    file = save_model(inserted(case), tmp_path)
    tensors = load_file(file)
    spoil(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    model = case.build()
    with pytest.raises(ValueError, match=f"{tmp_path} .*holds NaN"):
        load_selectors(model, tmp_path)
    assert not hasattr(model, "token_selectors")


def test_a_truncated_file_of_a_host_is_refused_by_name(tmp_path):
    file = save_model(inserted(BY_NAME["videomae"]), tmp_path)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError, match=f"{tmp_path} cannot be loaded"):
        load_model(tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path} cannot be loaded"):
        load_selectors(BY_NAME["videomae"].build(), tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"architectures": None}, {"architectures": ["os"]}, {"token_selectors": {"method": "stts"}}],
)
def test_a_configuration_that_names_no_model_is_refused_by_name(tmp_path, change):
    save_model(inserted(BY_NAME["videomae"]), tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    with pytest.raises(ValueError, match=f"{tmp_path} cannot be loaded"):
        load_model(tmp_path)
