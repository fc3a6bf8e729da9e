"""A proxy as a developer usually writes it with aiohttp: a server, a ClientSession, a choice by version
field.

It must stay usual: only techniques from the manual of aiohttp. Usage: PORT OLD NEW; a backend is HOST:PORT.
"""

import itertools
import sys

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web

from bench.peers.event_loop import new_event_loop

VERSION = "X-OpenStack-Ironic-API-Version"
HOP_BY_HOP = ("Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade")


class Proxy:
    def __init__(self, old: str, new: str) -> None:
        self.new = new
        self.both = itertools.cycle([old, new])
        self.session: ClientSession

    async def start(self, _app: web.Application) -> None:
        connector = TCPConnector(limit=0, keepalive_timeout=300)
        self.session = ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=60),
        )

    async def stop(self, _app: web.Application) -> None:
        await self.session.close()

    def choose(self, version: str) -> str:
        """Either backend up to 1.58, only the new one above."""
        minor = int(version.partition(".")[2])
        return next(self.both) if minor <= 58 else self.new

    async def handle(self, request: web.Request) -> web.Response:
        headers = request.headers.copy()
        for name in HOP_BY_HOP:
            headers.popall(name, None)
        headers["X-Forwarded-For"] = request.remote or ""
        headers["X-Forwarded-Proto"] = request.scheme
        headers["X-Forwarded-Host"] = request.host
        url = self.choose(request.headers.get(VERSION, "1.1")) + request.raw_path
        body = await request.read() if request.can_read_body else None
        async with self.session.request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as response:
            response_headers = response.headers.copy()
            for name in HOP_BY_HOP:
                response_headers.popall(name, None)
            return web.Response(status=response.status, headers=response_headers, body=await response.read())


def main(port: int, old: str, new: str) -> None:
    proxy = Proxy(f"http://{old}", f"http://{new}")
    app = web.Application()
    app.on_startup.append(proxy.start)
    app.on_cleanup.append(proxy.stop)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    # The keepalive_timeout of all peers: no client connection is closed during a run.
    web.run_app(
        app,
        host="127.0.0.1",
        port=port,
        access_log=None,
        print=None,
        keepalive_timeout=300,
        backlog=1024,
        loop=new_event_loop(),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
