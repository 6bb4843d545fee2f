import base64
import io
import json
import re

import pytest
from PIL import Image

from tests.visualization.stories import make_explanation
from tokenselect.visualization.report import build_page, story_of, write_report

NASTY = "</script><img src=x onerror=alert(1)>.mp4"


@pytest.fixture(scope="module")
def story():
    return story_of(make_explanation(notes=["random weights"]))


def test_the_story_is_plain_json(story):
    assert json.loads(json.dumps(story, allow_nan=False)) == story
    assert [plan["plan"] for plan in story["plans"]] == ["dense", "T0=2-S1=2x3"]
    assert story["plans"][1]["top"][0] == {"label": "b", "probability": pytest.approx(0.6)}


def test_boxes_are_shares_of_the_whole_picture(story):
    _, regions = story["plans"][1]["sites"]
    assert regions["boxes"][0] == pytest.approx([22 / 60, 12 / 40, 46 / 60, 28 / 40], abs=1e-4)
    assert regions["boxes"][2] is None
    assert story["clip"]["view"] == pytest.approx([6 / 60, 4 / 40, 54 / 60, 36 / 40])


def test_scores_of_frames_that_were_gone_are_missing(story):
    frames, regions = story["plans"][1]["sites"]
    assert frames["scores"] == pytest.approx([0.9, 0.1, 0.5])
    assert regions["scores"][1] is None


def test_heat_is_one_pixel_a_cell_and_clear_where_nothing_was_scored(story):
    _, regions = story["plans"][1]["sites"]
    data = base64.b64decode(regions["heat"].split(",")[1])
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.size == (3 * 6, 4) and picture.mode == "RGBA"
        assert picture.getpixel((0, 0))[3] == 255 and picture.getpixel((8, 0))[3] == 0


def test_layers_add_up_to_the_plan(story):
    for plan in story["plans"]:
        assert sum(layer["gmacs"] for layer in plan["layers"]) == pytest.approx(plan["gmacs"])


def test_the_page_stands_alone(story, tmp_path):
    page = build_page(story)
    assert "{{" not in page
    addresses = re.findall(r"(?:src|href)\s*=\s*[\"']([^\"']+)", page)
    assert all(address.startswith("data:") for address in addresses)
    assert "http://" not in page and "https://" not in page
    write_report(tmp_path / "r.html", make_explanation())
    assert (tmp_path / "r.html").stat().st_size > 10_000


def test_a_name_cannot_break_out_of_the_page():
    page = build_page(story_of(make_explanation(name=NASTY)))
    assert "<img src=x" not in page and page.count("</script>") == 2
    text = re.search(r'application/json">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(text)["clip"]["name"] == NASTY
