import pytest

from tokenselect import create_model
from tokenselect.checkpoints import plan_of, save_model
from tokenselect.plan import SelectionPlan
from tokenselect.web.catalogue import Catalogue, list_offers, own_choice
from tokenselect.web.guard import Missing
from tokenselect.weights import public_weights


def test_a_plan_asked_for_again_is_the_same_model():
    catalogue = Catalogue(list_offers())
    plan = SelectionPlan.parse("T0_0.5")
    first = catalogue.with_plan("mvit_mini", plan, method="motion")
    assert catalogue.with_plan("mvit_mini", plan, method="motion") is first
    other = catalogue.with_plan("mvit_mini", plan, method="uniform")
    assert other is not first
    assert next(other.parameters()) is next(first.parameters())


def test_a_checkpoint_offers_its_own_sites_and_a_dense_one_a_method_without_training(tmp_path):
    for name, plan in {"mine": "T0_0.5-S4_0.5", "dense": None}.items():
        model = create_model("mvit_mini", plan=plan, num_classes=3, frames=8, size=32)
        save_model(model, tmp_path / name, class_names=["a", "b", "c"])
    paths = [str(tmp_path / "mine"), str(tmp_path / "dense")]
    catalogue = Catalogue(list_offers(checkpoint=",".join(paths)))
    mine, dense = (catalogue.open(key) for key in list(catalogue.offers)[:2])
    assert own_choice(mine) == (["S4", "T0"], str(plan_of(mine)), None)
    sites, text, method = own_choice(dense)
    assert (sites, method) == (None, "motion")
    plan = SelectionPlan.parse(text)
    assert plan_of(catalogue.with_plan("checkpoint-2", plan, method="motion")) == plan


def test_only_what_was_offered_can_be_opened(tmp_path):
    with pytest.raises(Missing, match="no model '/etc/passwd'; there are small, "):
        Catalogue(list_offers()).open("/etc/passwd")
    with pytest.raises(FileNotFoundError, match=r"gone\.safetensors does not exist"):
        list_offers(checkpoint=str(tmp_path / "gone.safetensors"))


def test_what_was_asked_for_comes_first(tmp_path):
    path = tmp_path / "mine.safetensors"
    path.touch()
    offers = list_offers(checkpoint=str(path), model="mvit_b16", weights="kinetics400")
    assert [offer.title for offer in offers.values()][:3] == [
        "mine.safetensors",
        "mvit_b16, kinetics400",
        "small model of the package (eight synthetic actions)",
    ]
    assert offers["video_swin_t"].title.startswith("video_swin_t, Kinetics-400")
    assert offers["mvit_mini"].title == "mvit_mini, random weights"


def test_a_download_is_announced_with_its_size(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    title = list_offers()["video_swin_t"].title
    assert title == "video_swin_t, Kinetics-400, a download of 122 MB from torchvision"
    path = public_weights("video_swin_t")["kinetics400"].path
    path.parent.mkdir(parents=True)
    path.touch()
    assert list_offers()["video_swin_t"].title == "video_swin_t, Kinetics-400"
