"""A server that negotiates versions as Ironic does, for docs/usage.md: it stores nothing.

    python3 docs/tutorial/baremetal.py --port 6385 --oldest 1.1

It serves versions `--oldest` to 1.90. It needs nothing but Python, and is not part of the gateway.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VERSION = "X-OpenStack-Ironic-API-Version"
NEWEST = 90


class BareMetal(BaseHTTPRequestHandler):
    """One request after the other, on a connection that stays open."""

    protocol_version = "HTTP/1.1"
    oldest = 1

    def do_GET(self) -> None:
        """Answer any path, at the version that the request names."""
        asked = self.headers.get(VERSION, f"1.{self.oldest}")
        minor = NEWEST if asked == "latest" else int(asked.partition(".")[2])
        if not self.oldest <= minor <= NEWEST:
            self.answer(406, {"error": f"version {asked} is not supported"}, self.oldest)
        else:
            self.answer(200, {"id": "v1"} if self.path in ("/", "/v1") else {"nodes": []}, minor)

    def answer(self, status: int, document: object, minor: int) -> None:
        """Send JSON, the version that it has, and the range that this server serves."""
        body = json.dumps(document).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header(VERSION, f"1.{minor}")
        self.send_header("X-OpenStack-Ironic-API-Minimum-Version", f"1.{self.oldest}")
        self.send_header("X-OpenStack-Ironic-API-Maximum-Version", f"1.{NEWEST}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        """Say nothing: the gateway has an access log."""


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="a server that negotiates versions as Ironic does")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--oldest", default="1.1", help="serves versions from this one to 1.90")
    options = parser.parse_args()
    BareMetal.oldest = int(options.oldest.partition(".")[2])
    server = ThreadingHTTPServer(("127.0.0.1", options.port), BareMetal)
    print(f"versions {options.oldest} to 1.{NEWEST} on http://127.0.0.1:{options.port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
