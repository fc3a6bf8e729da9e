"""The API of the tutorial: orders, with a version that is a whole number in the header `API-Version`.

    python3 docs/tutorial/orders.py --port 7001 --newest 3

It serves versions 1 to `--newest`. Version 4 shows the currency apart from the amount, as APIs change. It
needs nothing but Python, and is not part of the gateway.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ORDERS = [{"id": 1, "amount": "12.50", "currency": "EUR"}, {"id": 2, "amount": "8.00", "currency": "USD"}]


class Orders(BaseHTTPRequestHandler):
    """One request after the other, on a connection that stays open."""

    protocol_version = "HTTP/1.1"
    newest = 3

    def do_GET(self) -> None:
        """Answer `/versions` and `/orders`."""
        asked = self.headers.get("API-Version", "1")
        if self.path == "/versions":
            self.answer(200, {"oldest": 1, "newest": self.newest})
        elif not asked.isdigit() or not 1 <= int(asked) <= self.newest:
            self.answer(400, {"error": f"this server serves versions 1 to {self.newest}"})
        elif self.path == "/orders":
            self.answer(200, [order_in(int(asked), order) for order in ORDERS], served=asked)
        else:
            self.answer(404, {"error": "there are only orders"}, served=asked)

    def answer(self, status: int, document: object, served: str = "") -> None:
        """Send JSON, and the version that it has."""
        body = json.dumps(document).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if served:
            self.send_header("API-Version", served)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        """Say nothing: the gateway has an access log."""


def order_in(version: int, order: dict[str, object]) -> dict[str, object]:
    """An order as this version shows it."""
    if version >= 4:
        return order
    return {"id": order["id"], "amount": f"{order['amount']} {order['currency']}"}


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="the API of the tutorial")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--newest", type=int, required=True, help="serves versions 1 to this one")
    options = parser.parse_args()
    Orders.newest = options.newest
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Orders)
    print(f"orders, versions 1 to {options.newest}, on http://127.0.0.1:{options.port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
