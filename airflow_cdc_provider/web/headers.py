"""What every answer of the page says to the browser."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
"""Scripts and styles are files of ours, none stands in the page; Airflow alone may frame it."""
_ALWAYS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


class SafeHeaders:
    """Middleware that adds security headers to every answer, errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to its answer."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add(message)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _add(message: MutableMapping[str, Any]) -> None:
    """Add the security headers that the answer does not have."""
    headers = list(message.get("headers", ()))
    known = {name.lower() for name, _ in headers}
    fresh = ((name.encode(), text.encode()) for name, text in _ALWAYS.items())
    message["headers"] = [*headers, *((name, text) for name, text in fresh if name not in known)]
