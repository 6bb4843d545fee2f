"""`tokenselect serve`: the local web page and its JSON API."""

import socket
import webbrowser
from contextlib import suppress

from rich.console import Console

from tokenselect.cli.options import TORCH, RuntimeOptions, best_device
from tokenselect.extras import require


def serve(
    *,
    engine: RuntimeOptions = TORCH,
    checkpoint: str | None = None,
    model: str | None = None,
    weights: str | None = None,
    class_names: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8060,
    max_mb: float = 200.0,
    max_seconds: float = 300.0,
    device: str | None = None,
    open: bool = False,
) -> None:
    """Show a web page on this machine: drop a video, move the plan, see what is kept and saved.

    Args:
        engine: what answers and is timed; torch records what is kept.
        checkpoint: run folder or .safetensors file of a trained model to offer; several with
            commas between.
        model: name of a model to offer with weights, for example mvit_b16.
        weights: of the named model: a file of any known layout, or public ones by name.
        class_names: file with the names of the classes, if the checkpoint does not know them.
        host: address to listen on; the default can be reached from this machine only, and 0.0.0.0
            from the whole network.
        port: to listen on; 0 for any that is free.
        max_mb: largest file that is taken.
        max_seconds: longest video that is taken.
        device: for example cpu or cuda; the accelerator if there is one and none is given.
        open: open the page in the browser.
    """
    for package in ("fastapi", "uvicorn"):
        require(package, extra="serve", purpose="the web page")
    import uvicorn

    from tokenselect.web.app import build_app
    from tokenselect.web.catalogue import Catalogue, list_offers
    from tokenselect.web.guard import LOOPBACK, Limits

    offers = list_offers(
        model=model,
        checkpoints=checkpoint.split(",") if checkpoint else None,
        weights=weights,
        class_names=class_names,
        device=device or best_device(),
    )
    limits = Limits(max_mb=max_mb, max_seconds=max_seconds)
    is_local = host in LOOPBACK
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
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(
            f"cannot listen on {host} port {port}: {error.strerror}; --port 0 takes a free one"
        ) from error
    listener.listen()
    return listener


def address_of(listener: socket.socket, host: str) -> str:
    """Give the address to type into a browser on this machine."""
    port = listener.getsockname()[1]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)
    return f"http://{shown}:{port}/"
