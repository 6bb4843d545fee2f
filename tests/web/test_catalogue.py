import pytest

from tokenselect.plan import SelectionPlan
from tokenselect.web.catalogue import Catalogue, list_offers
from tokenselect.web.errors import Missing


def test_a_plan_asked_for_again_is_the_same_model():
    catalogue = Catalogue(list_offers())
    plan = SelectionPlan.parse("T0_0.5")
    first = catalogue.with_plan("mvit_mini", plan, method="motion")
    assert catalogue.with_plan("mvit_mini", plan, method="motion") is first
    other = catalogue.with_plan("mvit_mini", plan, method="uniform")
    assert other is not first
    assert next(other.model.parameters()) is next(first.model.parameters())


def test_only_what_was_offered_can_be_opened(tmp_path):
    with pytest.raises(Missing, match="no model '/etc/passwd'; there are small, "):
        Catalogue(list_offers()).open("/etc/passwd")
    with pytest.raises(FileNotFoundError, match=r"gone\.safetensors does not exist"):
        list_offers(checkpoints=[str(tmp_path / "gone.safetensors")])


def test_what_was_asked_for_comes_first(tmp_path):
    path = tmp_path / "mine.safetensors"
    path.touch()
    offers = list_offers(checkpoints=[str(path)], model="mvit_b16", weights="kinetics400")
    assert [offer.title for offer in offers.values()][:3] == [
        "mine.safetensors",
        "mvit_b16, kinetics400",
        "small model of the package",
    ]
