"""The report in a real browser; skipped where there is none."""

import pytest

from tests.browser import NEEDS_BROWSER, open_browser, watch
from tests.visualization.stories import make_explanation
from tokenselect.visualization.report import write_report

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def browser():
    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "r.html"
    write_report(path, make_explanation(notes=["made by hand"]))
    return path.as_uri()


@pytest.fixture
def page(browser, address):
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.wrong = watch(page, ("file:", "data:"))
    page.goto(address)
    yield page
    page.close()


def test_it_draws_everything_and_asks_for_nothing(page):
    assert page.wrong == []
    assert page.locator("#strip .shot").count() == 3
    assert page.locator("#strip .dropped").count() == 1
    assert page.locator("#sites article").count() == 2
    assert page.locator("#layers tbody tr").count() == 5
    assert page.inner_text("#notes") == "made by hand"


def test_the_box_is_where_it_should_be(page):
    frame = page.locator("#strip .screen").first.bounding_box()
    box = page.locator("#strip .box").first.bounding_box()
    assert (box["x"] - frame["x"]) / frame["width"] == pytest.approx(22 / 60, abs=0.01)
    assert box["width"] / frame["width"] == pytest.approx(24 / 60, abs=0.01)
    assert (box["y"] - frame["y"]) / frame["height"] == pytest.approx(12 / 40, abs=0.01)


def test_keys_move_frames_and_plans(page):
    assert page.inner_text("#time").startswith("0.00 s")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#time").startswith("0.20 s")
    page.keyboard.press("ArrowUp")
    assert page.inner_text("#plan-text") == "dense"
    assert page.locator("#strip .dropped").count() == 0
    page.keyboard.press(" ")
    assert page.inner_text("#play") == "Pause"


def test_the_slider_and_the_table_choose_a_plan(page):
    page.locator("#plan").fill("0")
    assert page.inner_text("#plan-text") == "dense"
    page.locator("#table button").last.click()
    assert page.inner_text("#plan-text") == "T0=2-S1=2x3"


def test_scores_and_single_sites_can_be_shown(page):
    page.check("#heat")
    assert page.locator("#strip .sprite.heat").count() == 2
    page.uncheck("#heat")
    page.select_option("#stage", "0")
    assert page.locator("#strip .dropped").count() == 1


def test_it_fits_a_narrow_screen_and_follows_a_dark_system(browser, address):
    page = browser.new_page(viewport={"width": 360, "height": 700}, color_scheme="dark")
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(21, 23, 26)"
    page.close()
