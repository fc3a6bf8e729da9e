"""Takes the bodies of uploads, in place of an API server that stores them.

It answers with the length and checksum of each, and must keep nothing of it. Usage: PORT.
"""

import json
import sys
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PART = 1 << 18


class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        left = length = int(self.headers["Content-Length"])
        checksum = 0
        while left:
            part = self.rfile.read1(min(left, PART))
            if not part:
                return
            checksum = zlib.crc32(part, checksum)
            left -= len(part)
        answer = json.dumps({"length": length, "checksum": checksum}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing: the standard handler would write a line for each request."""


if __name__ == "__main__":
    Sink.rbufsize = PART
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Sink).serve_forever()
