"""Imports that 0.1 documented and that moved say where to."""

import importlib
import re

import pytest

MOVED = {
    "tokenselect.bulk": ["classify_videos", "on_this_machine", "on_ray"],
    "tokenselect.evaluation": ["count_answers", "score_views", "frame_recall"],
    "tokenselect.prediction.explain": ["explain_video"],
    "tokenselect.prediction.loading": ["open_model"],
    "tokenselect.prediction.preprocessor": ["Preprocessor"],
    "tokenselect.prediction.sources": ["find_videos"],
    "tokenselect.pretrained.hub": ["PretrainedModel"],
    "tokenselect.profiling": ["count_macs", "measure_latency"],
    "tokenselect.visualization.film_strip": ["draw_film_strip"],
}


@pytest.mark.parametrize("module", MOVED)
def test_an_import_of_0_1_says_where_its_names_are_now(module):
    with pytest.raises(ImportError, match=r"^tokenselect\.\S+ moved: ") as raised:
        importlib.import_module(module)
    assert all(name in str(raised.value) for name in MOVED[module])


def test_the_places_they_name_exist():
    for module in MOVED:
        with pytest.raises(ImportError) as raised:
            importlib.import_module(module)
        text = str(raised.value).partition("moved: ")[2]
        for name, place in re.findall(r"(\w+) (?:is |are )?in (tokenselect[\w.]*\w)", text):
            assert hasattr(importlib.import_module(place), name), (module, name, place)
