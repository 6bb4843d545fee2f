"""The model in the package: trained, small, and right about the samples."""

import pytest

from tokenselect.checkpoints import load_model, plan_of
from tokenselect.checkpoints.files import EMBEDDED
from tokenselect.data.sources import NUM_SAMPLES, open_sample
from tokenselect.data.synthetic import CLASS_NAMES
from tokenselect.inference.predict import predict_video


def test_it_is_small():
    assert EMBEDDED.stat().st_size < 4 * 2**20


@pytest.fixture(scope="module")
def model():
    return load_model()


def test_it_is_trained_with_its_selectors(model):
    assert str(plan_of(model)) == "T0_0.5-S4_0.5"
    assert model.info.trained and not model.info.notes


def test_it_is_right_about_the_samples(model):
    right = 0
    for number in range(NUM_SAMPLES):
        moment = predict_video(model, open_sample(number)).moments[0]
        right += model.info.id2label[int(moment.probabilities.argmax())] == CLASS_NAMES[number]
    assert right >= 7
