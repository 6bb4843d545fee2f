"""The model in the package: trained, small, and right about the samples."""

import pytest

from tokenselect.checkpoints.model import EMBEDDED, open_model
from tokenselect.data.sources import NUM_SAMPLES, open_sample, sample_label
from tokenselect.inference.predict import predict_video


def test_it_is_small():
    assert EMBEDDED.stat().st_size < 4 * 2**20


@pytest.fixture(scope="module")
def loaded():
    return open_model()


def test_it_is_trained_with_its_selectors(loaded):
    assert str(loaded.plan) == "T0_0.5-S4_0.5" and loaded.trained and loaded.notes == []


def test_it_is_right_about_the_samples(loaded):
    right = 0
    for number in range(NUM_SAMPLES):
        moment = predict_video(loaded.model, open_sample(number), rule=loaded.rule).moments[0]
        right += loaded.class_names[int(moment.probabilities.argmax())] == sample_label(number)
    assert right >= 7
