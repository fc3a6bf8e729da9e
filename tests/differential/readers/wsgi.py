"""WSGI environments as two servers build them: wsgiref, and the server of Werkzeug.

Both are the servers' own code, fed with captured bytes in place of a socket. wsgiref keeps names with `_`, as
most WSGI servers did for long; Werkzeug drops them.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final, final
from wsgiref.simple_server import WSGIRequestHandler

from werkzeug.serving import WSGIRequestHandler as WerkzeugRequestHandler

from tests.differential.readers.view import Unreadable

Environ = dict[str, Any]
_CLIENT: Final = ("127.0.0.1", 1)


@final
class _Server:
    """What request handlers look up in their server."""

    ssl_context = None
    multithread = multiprocess = False
    server_address = ("127.0.0.1", 80)
    base_environ: Final[Environ] = {
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SCRIPT_NAME": "",
        "wsgi.url_scheme": "http",
    }


def _read_head(handler: Any, raw: bytes) -> None:
    """Let the handler read the request line and the headers."""
    handler.rfile, handler.wfile = BytesIO(raw), BytesIO()
    handler.client_address, handler.server, handler.connection = _CLIENT, _Server, None
    handler.raw_requestline = handler.rfile.readline(65537)
    if not handler.parse_request():
        raise Unreadable(handler.wfile.getvalue().decode("latin-1"))


@final
class _WsgirefHandler(WSGIRequestHandler):
    def __init__(self) -> None:  # the base class would serve a socket at once
        pass

    def log_message(self, *_: object) -> None:
        pass


@final
class _WerkzeugHandler(WerkzeugRequestHandler):
    def __init__(self) -> None:
        pass

    def log(self, *_: object) -> None:
        pass


def wsgiref_environ(raw: bytes) -> Environ:
    """The environment that wsgiref builds from a request."""
    handler = _WsgirefHandler()
    _read_head(handler, raw)
    environ: Environ = {**handler.get_environ(), "wsgi.input": handler.rfile}
    if handler.headers.get("content-type") is None:
        del environ["CONTENT_TYPE"]  # wsgiref makes up `text/plain`; no other server does
    return environ


def werkzeug_environ(raw: bytes) -> Environ:
    """The environment that Werkzeug's server builds from a request."""
    handler = _WerkzeugHandler()
    _read_head(handler, raw)
    return handler.make_environ()


def key_of(name: str) -> str:
    """The key of a header in a WSGI environment."""
    key = name.upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"
