"""A weather server. Its arguments are a port and the newest version; 0: from before versions existed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, NEWEST = int(sys.argv[1]), int(sys.argv[2])


class Weather(BaseHTTPRequestHandler):
    """Answers every request with the weather."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        requested = self.headers.get("X-Weather-Version", "1")
        if NEWEST == 0:
            self.respond(404 if self.path == "/versions" else 200, "rain\n", {})
        elif self.path == "/versions":
            document = json.dumps({"oldest": 1, "newest": NEWEST})
            self.respond(200, document, {"Content-Type": "application/json"})
        elif not requested.isdecimal():
            self.respond(400, "weather: not a version\n", {})
        elif not 1 <= int(requested) <= NEWEST:
            text = f"weather: not between 1 and {NEWEST}\n"
            self.respond(406, text, {"X-Weather-Range": f"1-{NEWEST}"})
        else:
            versions = {"X-Weather-Version": requested, "X-Weather-Range": f"1-{NEWEST}"}
            self.respond(200, f"rain, says {PORT}\n", versions)

    def respond(self, status: int, text: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())


ThreadingHTTPServer(("127.0.0.1", PORT), Weather).serve_forever()
