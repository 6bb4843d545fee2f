"""Imports that 0.1 documented and that moved say where to; its commands take what they took."""

import importlib
import re

import pytest

from tokenselect.cli.main import COMMANDS
from tokenselect.cli.options import build_parser

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


OPTIONS = {
    "predict": "videos model checkpoint weights plan method class_names "
    "views window step seconds top repeats device json",
    "visualize": "video out model checkpoint weights plan "
    "method class_names start seconds width repeats device",
    "data check": "dataset root annotation_format class_names table min_frames workers quick json",
    "evaluate": "checkpoint dataset views plan method root where batch_size workers device output",
    "compare": "dataset model plans methods variants cells seeds recipe "
    "dense epochs out workers threads views train_free share_dense repeats",
    "calibrate": "model checkpoint target_ms target_gmacs results "
    "sites count repeats size device json",
    "profile": "model plan frames size views repeats json",
    "classify": "videos out model checkpoint weights plan "
    "method class_names views workers ray device",
    "export": "checkpoint format out weights plan method videos tolerance repeats json",
    "serve": "checkpoint model weights class_names host port max_mb max_seconds device open",
}


@pytest.mark.parametrize("command", OPTIONS)
def test_a_command_still_takes_every_option_of_0_1(command):
    parser = build_parser(COMMANDS[command].load(), prog=command)
    assert {action.dest for action in parser._actions} >= set(OPTIONS[command].split())
