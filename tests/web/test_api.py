"""The API from end to end: choices, uploads, jobs, and who may ask."""

import base64
import io

import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="the web tests need fastapi (pip install fastapi)")
from fastapi.testclient import TestClient

from tests.web.tiny import ORIGIN, finish, make_app, make_clip


@pytest.fixture(scope="module")
def app():
    return make_app()


@pytest.fixture(scope="module")
def client(app):
    with TestClient(app, base_url=ORIGIN) as client:
        yield client


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return make_clip(tmp_path_factory.mktemp("web") / "clip.mp4").read_bytes()


def upload(client, body, name="clip.mp4"):
    return client.post("/api/videos", params={"name": name}, content=body)


def files_of(app):
    return list(app.state.service.store.folder.iterdir())


def test_the_page_and_its_files_come_from_here_alone(client):
    page = client.get("/")
    assert page.status_code == 200 and "{{" not in page.text
    assert "http" not in page.text.replace("http-equiv", "")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for name in ("style.css", "script.js", "plan.js", "live.js", "report.css", "report.js"):
        assert f"/static/{name}" in page.text
        assert client.get(f"/static/{name}").status_code == 200
    assert client.get("/static/app.py").status_code == 404
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404


def test_the_choices_are_listed(client):
    info = client.get("/api/info").json()
    assert info["models"] == [{"key": "mvit_mini", "title": "the mini model"}]
    assert len(info["samples"]) == 8
    assert client.get(info["samples"][3]["picture"]).content[:2] == b"\xff\xd8"
    mini = client.get("/api/models/mvit_mini").json()
    assert (mini["plan"], mini["sites"]) == ("T0_0.6-S4_0.5", None)
    assert mini["blocks"] > 4 and len(mini["input"]) == 3


def test_a_plan_is_given_back_in_its_canonical_form(client):
    told = client.get("/api/models/mvit_mini/plan", params={"text": "S4_0.50-T0_0.6"}).json()
    assert told["plan"] == "T0_0.6-S4_0.5"
    assert [(site["kind"], site["block"], site["ratio"]) for site in told["sites"]] == [
        ("T", 0, 0.6),
        ("S", 4, 0.5),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("T0_1.5", "ratio of site T0 must be in (0, 1], got 1.5"),
        ("T0", "cannot read 'T0' in plan 'T0'; allowed: "),
        ("T99_0.5", "site T99_0.5 is before block 99, but the model has "),
    ],
)
def test_a_wrong_plan_is_refused_in_the_words_of_the_library(client, text, message):
    answer = client.get("/api/models/mvit_mini/plan", params={"text": text})
    assert answer.status_code == 422 and answer.json()["detail"].startswith(message)


@pytest.mark.slow
def test_an_upload_is_explained_and_deleted(app, client, clip):
    video = upload(client, clip, name="C:\\me\\cat.mp4").json()
    assert (video["name"], video["frames"], video["width"]) == ("cat.mp4", 16, 96)
    asked = {"video": video["video"], "model": "mvit_mini", "plan": "T0_0.5-S4_0.5", "repeats": 1}
    begun = client.post("/api/jobs", json=asked)
    assert begun.status_code == 202
    done = finish(client, begun.json()["job"])
    assert done["state"] == "done" and done["progress"] == 1
    dense, plan = done["result"]["plans"]
    assert (dense["plan"], plan["plan"]) == ("dense", "T0_0.5-S4_0.5")
    assert plan["gmacs"] < 0.7 * dense["gmacs"] and plan["milliseconds"] > 0
    assert sum(box is None for box in plan["sites"][0]["boxes"]) == 8
    assert done["result"]["clip"]["frames"][0].startswith("data:image/jpeg")
    bare = client.get(f"/api/jobs/{done['job']}", params={"pictures": False}).json()["result"]
    assert bare["clip"]["frames"] == [] and bare["plans"][1]["sites"][1]["heat"] is None
    report = client.get(f"/api/jobs/{done['job']}/report.html")
    assert report.text.startswith("<!doctype html>") and "cat.mp4" in report.text
    assert len(files_of(app)) == 1
    assert client.delete(f"/api/videos/{video['video']}").status_code == 204
    assert files_of(app) == []
    assert client.post("/api/jobs", json=asked).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 422, "a.mp4 is empty (0 bytes)"),
        (b"no video at all", 422, "a.mp4 cannot be read as a video: it is damaged"),
        (b"#EXTM3U\n#EXTINF:9,\nhttp://x.example/a.ts\n", 422, "a.mp4 cannot be read as a video"),
        (b"ffconcat version 1.0\nfile b.mp4\n", 422, "a.mp4 cannot be read as a video"),
        (bytes(2**20 + 1), 413, "a.mp4 is larger than 1 MB, the limit of this server"),
    ],
)
def test_a_file_that_is_not_taken_is_explained_and_deleted(app, client, body, status, message):
    before = files_of(app)
    answer = upload(client, body, name="a.mp4")
    assert answer.status_code == status and answer.json()["detail"].startswith(message)
    assert files_of(app) == before


def test_the_size_is_checked_while_reading_too(app, client):
    before = files_of(app)
    answer = client.post("/api/videos", content=(bytes(2**18) for _ in range(5)))  # no length
    assert answer.status_code == 413
    assert files_of(app) == before


def test_half_a_video_and_a_long_one_are_refused(client, clip, tmp_path):
    cut = upload(client, clip[: len(clip) // 2])
    assert cut.status_code == 422 and cut.json()["detail"].startswith("clip.mp4 c")
    long = upload(client, make_clip(tmp_path / "long.mp4", fps=2).read_bytes())
    assert long.status_code == 422
    assert long.json()["detail"] == ("clip.mp4 is 8.0 seconds long, the limit of this server is 5")


def test_only_so_many_uploads_are_held(app, client, clip):
    keys = [upload(client, clip).json()["video"] for _ in range(3)]
    assert client.delete(f"/api/videos/{keys[0]}").status_code == 404
    assert [client.delete(f"/api/videos/{key}").status_code for key in keys[1:]] == [204, 204]
    assert files_of(app) == []


@pytest.mark.parametrize("video", ["/etc/passwd", "../clip.mp4", "sample:99", "0", "http://a/b"])
def test_a_client_cannot_name_files_of_the_machine(client, video):
    assert client.post("/api/jobs", json={"video": video}).status_code == 404


@pytest.mark.parametrize(
    "asked",
    [
        {"video": "sample:0", "checkpoint": "/tmp/x"},
        {"video": "sample:0", "model": "/tmp/x.safetensors"},
        {"video": "sample:0", "plan": "T0_7"},
        {"video": "sample:0", "repeats": 1000},
        {},
    ],
)
def test_a_wrong_job_is_refused_with_a_sentence(client, asked):
    answer = client.post("/api/jobs", json=asked)
    assert answer.status_code == 422 and isinstance(answer.json()["detail"], str)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:8060"}, 200),
        ({"Host": "[::1]:8060"}, 200),
        ({"Host": "rebound.example:8060"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_other_names_and_other_sites_are_refused(client, headers, status):
    assert client.get("/api/info", headers=headers).status_code == status


def test_everything_is_deleted_at_the_end(clip):
    app = make_app()
    with TestClient(app, base_url=ORIGIN) as client:
        assert upload(client, clip).status_code == 201
        assert len(files_of(app)) == 1
    assert not app.state.service.store.folder.exists()


def test_the_schema_covers_all_routes(client):
    schema = client.get("/api/schema").json()
    assert set(schema["paths"]) == {
        "/api/info",
        "/api/models/{key}",
        "/api/models/{key}/plan",
        "/api/samples/{number}.jpg",
        "/api/videos",
        "/api/videos/{video}",
        "/api/jobs",
        "/api/live",
        "/api/jobs/{job}",
        "/api/jobs/{job}/report.html",
    }
    assert {"JobRequest", "JobEntry", "Story", "Message"} <= set(schema["components"]["schemas"])


def pictures(count, *, size=(80, 64)):
    """Encode frames as a browser does."""
    addresses = []
    for number in range(count):
        buffer = io.BytesIO()
        Image.new("RGB", size, (10 * number, 0, 0)).save(buffer, "JPEG")
        addresses.append("data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode())
    return addresses


def make_bomb() -> str:
    """Write a small JPEG whose header says 65,500 × 65,500 pixels."""
    head, _, data = pictures(1)[0].partition(",")
    content = base64.b64decode(data)
    place = content.index(b"\xff\xc0") + 5
    side = (65_500).to_bytes(2, "big")
    changed = content[:place] + side + side + content[place + 4 :]
    return f"{head},{base64.b64encode(changed).decode()}"


def test_a_cameras_last_seconds_are_answered(client):
    asked = {"frames": pictures(20), "fps": 12, "plan": "T0_0.5", "method": "uniform"}
    told = client.post("/api/live", json=asked).json()
    assert told["plan"] == "T0_0.5" and len(told["top"]) == 3 and 0 < told["saved"] < 1
    assert len(told["frames"]) == len(told["kept"]) == 16 and max(told["frames"]) <= 19
    assert sum(box is not None for box in told["kept"]) == 8


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (["data:image/jpeg;base64,AAAA"], "frame 0 is no JPEG"),
        (["nothing"], "frame 0 is no JPEG"),
        ([*pictures(1), *pictures(1, size=(64, 64))], "one size"),
        (pictures(1, size=(2000, 1000)), "more than 2²⁰ pixels"),
        (pictures(1) * 97, "at most 96"),
        (pictures(1, size=(16000, 2)), "at most 32 times"),
        ([make_bomb()], "decompression bomb"),
    ],
)
def test_pictures_of_no_camera_are_refused(client, frames, message):
    answer = client.post("/api/live", json={"frames": frames, "fps": 12})
    assert answer.status_code == 422 and message in answer.json()["detail"]
