"""How every answer of the admin listener looks: JSON or text that nobody keeps, errors as one sentence.

Knows no endpoint.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from aiohttp import web

from gateway.admin.guard import Handler

_log = logging.getLogger("skewgate.admin")


@web.middleware
async def rendered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as one JSON object; nothing is sniffed, nothing is kept."""
    try:
        response = await handler(request)
    except web.HTTPException as refusal:
        text = (
            refusal.text
            if refusal.text and not refusal.text.startswith(f"{refusal.status}:")
            else refusal.reason
        )
        kept = {
            name: value for name, value in refusal.headers.items() if name in {"Allow", "WWW-Authenticate"}
        }
        response = json_answer({"error": text}, status=refusal.status, headers=kept)
    except (ConnectionError, web.RequestPayloadError):  # its sender left, or framed it wrongly
        response = json_answer({"error": "the body did not arrive whole"}, status=400)
    except Exception:  # noqa: BLE001 - logged; the listener outlives a bug of one answer
        _log.exception("a request of the admin listener failed by a bug of the gateway")
        response = json_answer({"error": "this failed by a bug of the gateway, see its log"}, status=500)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Server"] = "skewgate"
    return response


def json_answer(
    document: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """`document` as JSON that nobody keeps."""
    body = json.dumps(document).encode("ascii") + b"\n"
    return web.Response(
        status=status,
        body=body,
        content_type="application/json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def text_answer(text: str, *, status: int = 200) -> web.Response:
    """Plain text that nobody keeps."""
    return web.Response(status=status, text=text, headers={"Cache-Control": "no-store"})
