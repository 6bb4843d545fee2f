"""`tokenselect serve`: the local web page and its JSON API."""

import socket
import webbrowser
from contextlib import suppress
from dataclasses import asdict, replace

from rich.console import Console

from tokenselect.cli.options import TORCH, ModelOptions, RuntimeOptions, best_device
from tokenselect.extras import require


def serve(
    *,
    options: ModelOptions,
    engine: RuntimeOptions = TORCH,
    host: str = "127.0.0.1",
    port: int = 8060,
    max_mb: float = 200.0,
    max_seconds: float = 300.0,
    open: bool = False,
) -> None:
    """Open a local web page: drop in a video, change the plan, see what is kept and saved.

    It offers the model and the checkpoints that are given (several with commas between), then the
    package's own and those by name.

    Args:
        options: which models.
        engine: what answers and is timed; torch records what is kept.
        host: address to listen on; the default can be reached from this machine only, and 0.0.0.0
            from the whole network.
        port: port to listen on; 0 for any free one.
        max_mb: largest file to accept.
        max_seconds: longest video to accept.
        open: open the page in the browser.
    """
    for package in ("fastapi", "uvicorn"):
        require(package, extra="serve", purpose="the web page")
    import uvicorn

    from tokenselect.web.app import build_app
    from tokenselect.web.catalogue import Catalogue, list_offers
    from tokenselect.web.guard import LOOPBACK, Limits

    options = replace(options, device=options.device or best_device())
    offers = list_offers(**asdict(options))
    limits, is_local = Limits(max_mb=max_mb, max_seconds=max_seconds), host in LOOPBACK
    listener = listen(host, port)
    catalogue = Catalogue(offers, open_run=lambda model: engine.pick(model)(model))
    app = build_app(catalogue, limits=limits, names=LOOPBACK if is_local else None)
    address = address_of(listener, host)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"tokenselect serves {address} (Ctrl+C ends it)")
    if not is_local:
        console.print("[yellow]Note:[/] anyone who can reach this machine can use it")
    if open:
        webbrowser.open(address)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)
    with suppress(KeyboardInterrupt):  # how it is meant to end
        uvicorn.Server(config).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Open the port, so that a free one is known before anything starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, dualstack_ipv6=":" in host)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]
        raise OSError(
            f"cannot listen on {host} port {port}: {reason}; --port 0 takes a free one"
        ) from error


def address_of(listener: socket.socket, host: str) -> str:
    """Give the address to type into a browser on this machine."""
    port = listener.getsockname()[1]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)
    return f"http://{shown}:{port}/"
