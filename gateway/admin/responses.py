"""The form of every response of the admin listener: JSON or text that is not cached, errors as one sentence.

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
async def render_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The middleware that makes every error a JSON object, and forbids caches and content sniffing."""
    try:
        response = await handler(request)
    except web.HTTPException as refusal:
        is_default_text = not refusal.text or refusal.text.startswith(f"{refusal.status}:")
        text = refusal.reason if is_default_text else refusal.text
        headers = {
            name: value for name, value in refusal.headers.items() if name in {"Allow", "WWW-Authenticate"}
        }
        response = json_response({"error": text}, status=refusal.status, headers=headers)
    except (ConnectionError, web.RequestPayloadError):  # the client left, or its body is malformed
        response = json_response({"error": "the request body is incomplete or malformed"}, status=400)
    except Exception:  # noqa: BLE001 - logged; a bug in one handler must not end the listener
        _log.exception("a request to the admin listener failed because of a bug in the gateway")
        response = json_response({"error": "internal error of the gateway, see its log"}, status=500)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Server"] = "skewgate"
    return response


def json_response(
    document: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """`document` as JSON that is not cached."""
    body = json.dumps(document).encode("ascii") + b"\n"
    return web.Response(
        status=status,
        body=body,
        content_type="application/json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def text_response(text: str, *, status: int = 200) -> web.Response:
    """Plain text that is not cached."""
    return web.Response(status=status, text=text, headers={"Cache-Control": "no-store"})
