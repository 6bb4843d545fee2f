"""Hostile requests to the web server."""

import json
import random
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.faults.isolation import Case
from benchmarks.faults.mutations import HOSTILE
from benchmarks.faults.videos import Bench, make_client

PATHS = (
    "/", "/api/info", "/api/models/mvit_mini", "/api/models/mvit_mini/plan", "/api/samples/0.jpg",
    "/api/videos", "/api/videos/x", "/api/jobs", "/api/jobs/x", "/api/jobs/x/report.html",
    "/static/style.css", "/api/schema",
)  # fmt: skip
TEXTS = (
    "x", "", "sample:0", "sample:99999999", "../../etc/passwd", "%00", "\u2028", "9" * 600,
    "T0_0.5", "T0_nan", "{{}}", "[", "'; --", "\\..\\..", "é",
)  # fmt: skip
HOSTS = (
    "localhost",
    "[",
    "[::1",
    "evil.example",
    "",
    "localhost:99999999",
    "127.0.0.1:8000",
    "é.example",
)
JOB = {"video": "sample:0", "model": "mvit_mini", "plan": "T0_0.5", "start": 0.0, "repeats": 0}
METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")


def request_cases(bench: Bench, numbers: range, *, seed: int) -> Iterator[Case]:
    """Send drawn requests: none may end in a 5xx, and an error is told as JSON with a detail."""

    def send(draw: random.Random) -> None:
        if bench.client is None:
            bench.client = make_client()
        method, path, sent = draw_request(draw)
        answer = bench.client.request(method, path, **sent)
        if answer.status_code >= 500:
            raise RuntimeError(f"{method} {path} {sent}: status {answer.status_code}")
        if answer.status_code >= 400 and method != "HEAD" and not answer.json().get("detail"):
            raise RuntimeError(f"{method} {path} {sent}: {answer.text[:200]}")
        if answer.status_code == 202:
            follow(bench.client, answer.json()["job"])

    for number in numbers:
        draw = random.Random(f"{seed} request {number}")
        yield Case("API", f"request {number}", lambda draw=draw: send(draw), ())


def draw_request(draw: random.Random) -> tuple[str, str, dict[str, Any]]:
    """Draw a method, a path, and what goes with them."""
    sent: dict[str, Any] = {"headers": {}}
    if draw.random() < 0.4:  # a job with one hostile value
        body = JOB | {
            draw.choice([*JOB, "method", "seconds", "more"]): draw.choice((*HOSTILE, *TEXTS))
        }
        sent["content"] = json.dumps(body).encode("utf-8", "surrogatepass")
        sent["headers"]["Content-Type"] = "application/json"
        return "POST", "/api/jobs", sent
    path = draw.choice(PATHS)
    if draw.random() < 0.3:
        path += "/" + draw.choice(TEXTS[:6])
    if draw.random() < 0.5:
        names = ("text", "method", "name", "pictures")
        sent["params"] = {draw.choice(names): draw.choice(TEXTS) for _ in range(2)}
    if draw.random() < 0.3:
        header = draw.choice(("Host", "Origin", "Content-Length", "Content-Type", "Referer"))
        prefix = "http://" if header in ("Origin", "Referer") else ""
        value = (
            draw.choice(("-1", "x", "1e9")) if header.startswith("Content") else draw.choice(HOSTS)
        )
        sent["headers"][header] = (prefix + value).encode()
    method = draw.choice(METHODS)
    if method in ("POST", "PUT", "PATCH"):
        sent["content"] = draw.choice((b"", b"{", b"null", b"[" * 20_000, b"\xff\xfe", bytes(3000)))
    return method, path, sent


def follow(client: Any, job: str) -> None:
    """Wait for a job to end; one that fails must say why."""
    end = time.monotonic() + 50
    while time.monotonic() < end:
        told = client.get(f"/api/jobs/{job}").json()
        if told["state"] == "failed" and not told["error"]:
            raise RuntimeError(f"job {job} failed without a word")
        if told["state"] not in ("waiting", "running"):
            return
        time.sleep(0.01)
    raise TimeoutError(f"job {job} does not end")
