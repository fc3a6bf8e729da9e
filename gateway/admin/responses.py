"""Responses of the admin listener: JSON or text that is not cached, errors as one sentence.

No endpoint is known here. No response names the software that made it, and none to a bad request repeats
anything of it (threats R-B7).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, TypeAlias

from aiohttp import hdrs, web

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

SENTENCES: Final = {
    400: "the request is malformed",
    408: "the request did not arrive in time",
    413: "the request body is too large",
    417: "the only valid expectation is 100-continue",
    431: "the head of the request is too large",
    500: "internal error of the gateway: see its log",
    503: "too many connections to the admin listener",
}
"""Fixed error messages by status. Others have the name of their status, or a sentence of their endpoint."""

PASSED_ON: Final = ("Allow", "Retry-After", "WWW-Authenticate")
"""Header fields of a refusal that are copied into the response."""

_COMMON: Final = {"X-Content-Type-Options": "nosniff"}
_NOT_CACHED: Final = {"Cache-Control": "no-store"}


async def finish_head(_: web.Request, response: web.StreamResponse) -> None:
    """Handler of `on_response_prepare`: adds common header fields, and removes aiohttp's `Server`."""
    response.headers.update(_COMMON)
    response.headers.pop(hdrs.SERVER, None)


@web.middleware
async def render_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware that makes every refusal a JSON object. `connection` handles bugs."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        headers = {name: value for name, value in refusal.headers.items() if name in PASSED_ON}
        return json_response({"error": sentence_of(refusal)}, status=refusal.status, headers=headers)


def sentence_of(refusal: web.HTTPException) -> str:
    """Returns the message of a refusal: the sentence of its endpoint, or the name of its status."""
    if isinstance(refusal, web.HTTPRequestEntityTooLarge):
        return SENTENCES[refusal.status]
    is_default_text = not refusal.text or refusal.text.startswith(f"{refusal.status}:")
    return refusal.reason if is_default_text else str(refusal.text)


def error_bytes(status: int, sentence: str) -> bytes:
    """Makes a whole error response to bytes that are no valid request; empty `sentence`: the fixed one."""
    body = _encode({"error": sentence or SENTENCES[status]})
    fields = {
        **_NOT_CACHED,
        "Content-Type": "application/json",
        **_COMMON,
        "Content-Length": str(len(body)),
        "Date": formatdate(usegmt=True),
        "Connection": "close",
    }
    lines = (f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{k}: {v}" for k, v in fields.items()))
    return "\r\n".join((*lines, "", "")).encode("ascii") + body


def json_response(
    document: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Makes a response with `document` as JSON that is not cached."""
    return web.Response(
        status=status,
        body=_encode(document),
        content_type="application/json",
        headers={**_NOT_CACHED, **(headers or {})},
    )


def text_response(text: str, *, status: int = 200) -> web.StreamResponse:
    """Makes a response with plain text that is not cached."""
    return web.Response(status=status, text=text, headers=_NOT_CACHED)


def _encode(document: object) -> bytes:
    return json.dumps(document).encode("ascii") + b"\n"
