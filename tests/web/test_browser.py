"""The page in a real browser: upload, samples, sliders, errors, keyboard, narrow and dark."""

import threading
import time

import pytest
from PIL import Image

from tests.browser import NEEDS_BROWSER, open_browser, watch
from tests.web.tiny import make_clip
from tokenselect.cli.serve import address_of, listen

uvicorn = pytest.importorskip("uvicorn", reason="the web tests need uvicorn (pip install uvicorn)")
expect = pytest.importorskip(
    "playwright.sync_api", reason="the browser tests need playwright (pip install playwright)"
).expect
pytestmark = NEEDS_BROWSER
WAIT = 30_000  # milliseconds: a busy machine is no failure


@pytest.fixture(scope="module")
def app():
    from tests.web.tiny import make_app

    return make_app()


@pytest.fixture(scope="module")
def address(app):
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield address_of(listener, "127.0.0.1")
    server.should_exit = True
    thread.join(timeout=30)
    assert not app.state.service.store.folder.exists()


def write_camera(path):
    """Write pictures one after the other, as a fake camera plays them."""
    with path.open("wb") as file:
        for number in range(30):
            Image.new("RGB", (320, 240), (8 * number, 60, 120)).save(file, "JPEG")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    film = write_camera(tmp_path_factory.mktemp("camera") / "film.mjpeg")
    fake = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    with open_browser(*fake, f"--use-file-for-fake-video-capture={film}") as running:
        yield running


@pytest.fixture
def page(browser, address):
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.wrong = watch(page, (address, "data:"))
    page.goto(address)
    wait_for_plan(page, "T0_0.6-S4_0.5")
    yield page
    page.close()


def wait_for_plan(page, text):
    expect(page.locator("#text")).to_have_value(text, timeout=WAIT)


def wait_for_result(page, text):
    expect(page.locator("#status")).to_contain_text(f" under {text}", timeout=WAIT)


def wait_until(is_true):
    end = time.monotonic() + WAIT / 1000
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_upload_is_shown_and_deleted_with_the_page(app, page, tmp_path):
    page.set_input_files("#file", make_clip(tmp_path / "cat & dog.mp4"))
    wait_for_result(page, "T0_0.6-S4_0.5")
    assert page.inner_text("#name") == "cat & dog.mp4"
    assert page.locator("#strip .shot").count() == 8
    assert page.locator("#strip .dropped").count() == 3
    assert " of " in page.inner_text("#figures")  # GMACs and milliseconds against dense
    assert len(list(app.state.service.store.folder.iterdir())) == 1
    assert page.wrong == []
    page.goto("about:blank")
    wait_until(lambda: not list(app.state.service.store.folder.iterdir()))


def test_a_slider_runs_a_new_plan_beside_the_old_one(page):
    page.locator(".sample").nth(3).click()
    wait_for_result(page, "T0_0.6-S4_0.5")
    page.locator("#frames-kept").fill("0.25")
    wait_for_result(page, "T0_0.25-S4_0.5")
    assert page.locator("#strip .dropped").count() == 6
    assert page.locator("#table tbody tr").count() == 3  # dense and both plans
    page.locator("#frames-kept").fill("1")
    page.locator("#region-kept").fill("1")
    wait_for_result(page, "dense")
    assert page.input_value("#text") == "dense"
    assert page.wrong == []


def test_what_cannot_be_read_is_said_clearly(page, tmp_path):
    dropped = page.evaluate_handle(
        "() => { const held = new DataTransfer();"
        " held.items.add(new File(['no video'], 'notes.txt')); return held; }"
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": dropped})
    expect(page.locator("#wrong")).to_contain_text("notes.txt cannot be read as a video")
    large = tmp_path / "large.mp4"
    large.write_bytes(bytes(2**20 + 1))
    page.set_input_files("#file", large)
    expect(page.locator("#wrong")).to_have_text(
        "large.mp4 is larger than 1 MB, the limit of this server"
    )
    page.fill("#text", "T0_1.5")
    page.keyboard.press("Enter")
    expect(page.locator("#plan-wrong")).to_have_text("ratio of site T0 must be in (0, 1], got 1.5")


def test_keys_alone_are_enough(page):
    def focus_on(place):
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("place => document.activeElement.matches(place)", place):
                return
        raise AssertionError(f"Tab never reaches {place}")

    focus_on("#file")
    focus_on("[name=sample]")
    page.keyboard.press("ArrowRight")
    wait_for_result(page, "T0_0.6-S4_0.5")
    focus_on("#frames-kept")
    page.keyboard.press("ArrowLeft")
    wait_for_result(page, "T0_0.55-S4_0.5")
    focus_on("#text")
    page.keyboard.press("Control+A")
    page.keyboard.type("S5_0.3")
    page.keyboard.press("Enter")
    wait_for_result(page, "S5_0.3")
    assert page.input_value("#frames-kept") == "1"
    assert page.input_value("#region-block") == "5"


def test_choosing_again_before_the_server_answered_needs_no_second_place(app, page):
    go = threading.Event()
    app.state.service.queue.add(lambda tell: {"gone": go.wait(60)}, steps=1)  # one more may wait
    choose = "document.querySelectorAll('[name=sample]')[{}].click()"
    page.evaluate(f"{choose.format(0)}; setTimeout(() => {choose.format(1)}, 0)")  # first is sent
    expect(page.locator("#status")).to_have_text("waiting", timeout=WAIT)
    assert page.inner_text("#wrong") == ""
    go.set()
    wait_for_result(page, "T0_0.6-S4_0.5")


def test_it_fits_a_narrow_screen_and_follows_a_dark_system(browser, address):
    page = browser.new_page(viewport={"width": 360, "height": 700}, color_scheme="dark")
    page.goto(address)
    page.locator(".sample").nth(1).click()
    wait_for_result(page, "T0_0.6-S4_0.5")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(21, 23, 26)"
    page.close()


def test_a_camera_is_answered_while_it_runs(page):
    page.set_viewport_size({"width": 400, "height": 800})
    page.click("#tab-camera")
    assert page.is_hidden("#from-file") and page.is_disabled("#run")
    page.click("#camera")
    expect(page.locator("#live-figures")).to_contain_text("clips per second", timeout=WAIT)
    assert page.locator("#live-strip .screen").count() == 16
    assert 0 < page.locator("#live-strip .dropped").count() < 16
    assert page.locator("#live-strip .box").count() > 0
    told = page.inner_text("#live-figures")
    assert "of the multiply-adds" in told and "pictures skipped" in told
    wait_until(lambda: page.evaluate("live.clips") >= 3)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("#camera")
    assert page.evaluate("live.stream === null && !document.querySelector('video').srcObject")
    page.click("#tab-file")
    assert page.is_hidden("#live") and page.wrong == []
