"""Who may ask: pages of this very server, by a name that is its own."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    # The browser itself refuses whatever would come from elsewhere or go there.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses names that are not the server's own, and requests that other sites send.

    A foreign site can point its own name at 127.0.0.1 (DNS rebinding): its requests then carry
    that name as their Host. It can also send a form here without reading the answer: such a
    request carries the site as its Origin.

    Args:
        app: what is guarded.
        names: allowed in Host, without port; None for any.
    """

    def __init__(self, app: ASGIApp, *, names: Collection[str] | None = LOOPBACK) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self.find_fault(Headers(scope=scope))
        if refusal is None:
            await self.app(scope, receive, send_guarded)
        else:
            answer = JSONResponse({"detail": refusal}, status_code=403)
            await answer(scope, receive, send_guarded)

    def find_fault(self, headers: Headers) -> str | None:
        """Say why a request is refused, or None."""
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if self.names is not None and name not in self.names:
            return f"this server answers to {', '.join(self.names)} only, not to {name!r}"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return f"requests from {origin} are refused"
        return None
