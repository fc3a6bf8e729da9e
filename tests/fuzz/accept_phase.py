"""What comes before HTTP: the PROXY header, and the first bytes on listeners with it, with TLS, with both."""

from __future__ import annotations

import tempfile
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from gateway.dataplane.edge.accept_phase import ListenerFilter
from gateway.dataplane.edge.proxy_protocol import MAX_BINARY, MAX_TEXT, ProxyHeader, read_proxy_header
from gateway.errors import FramingError
from gateway.settings.sections.listen import Listen
from gateway.tls.server import ServerCertificates
from tests.dataplane.listener_tls import tls_listener
from tests.fuzz.exchanges import Received, Server, read_responses, sent_requests
from tests.fuzz.memory import Configured, Gateway, MemoryTransport, configured, run_with_gateway

_PEER: Final = "127.0.0.1"
_TEXT: Final = b"PROXY "


def _read(data: bytes) -> ProxyHeader | str | None:
    """The header, why it is refused, or None: it is not complete."""
    try:
        return read_proxy_header(data)
    except FramingError as error:
        return error.reason


def proxy_header(data: bytes) -> None:
    found = _read(data)
    if isinstance(found, str):
        assert _read(data + b"\r\n") == found, "refused, and then not"
        return
    if found is None:
        assert len(data) < (MAX_TEXT if data.startswith(_TEXT) else MAX_BINARY)
        return
    assert found.size <= len(data)
    for size in {*range(min(found.size, 64)), found.size - 1}:
        assert _read(data[:size]) is None, "a part of it is no header"
    again = _read(data[: found.size])
    assert isinstance(again, ProxyHeader)
    assert (again.size, again.address, again.tls) == (found.size, found.address, found.tls)
    if found.address:
        assert str(ip_address(found.address)) == found.address
    if data.startswith(_TEXT):
        assert found.size <= MAX_TEXT
        words = data[: found.size - 2].decode("latin-1").split(" ")
        assert not found.tls
        if words[1] == "UNKNOWN":
            assert not found.address
        else:
            assert len(words) == 6
            source = ip_address(words[2])
            mapped = getattr(source, "ipv4_mapped", None)
            assert ip_address(found.address) == (mapped or source)
    else:
        assert data[12] in (0x20, 0x21)
        assert found.size == 16 + int.from_bytes(data[14:16], "big") <= MAX_BINARY
        assert bool(found.address) == (data[12] == 0x21 and data[13] in (0x11, 0x21))


# --- listeners ----------------------------------------------------------------------------------------------

_CONFIGURATION: Final = f"""
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
access_log: {{format: off}}
trusted_proxies: [{_PEER}]
services:
  ironic: {{dialect: ironic, backends: [{{name: a, url: 'http://127.0.0.1:9', versions: 1.1-1.90}}]}}
"""


@cache
def _configured() -> Configured:
    return configured(_CONFIGURATION)


@cache
def _certificates() -> ServerCertificates:
    with tempfile.TemporaryDirectory() as folder:
        certificates = tls_listener(Path(folder)).certificates
    assert certificates is not None
    return certificates


def listener(data: bytes) -> None:
    """The same bytes on each kind of listener, in one piece and in pieces."""

    async def script(gateway: Gateway) -> None:
        for proxy_protocol, certificates in ((True, None), (False, _certificates()), (True, _certificates())):
            for size in (len(data), len(data) % 13 + 1):
                received.clear()
                gateway.records.clear()
                gateway.loop.serve = lambda transport: Server(transport, received, "ironic").begin()
                listen = Listen(_PEER, 0, proxy_protocol=proxy_protocol)
                listener = ListenerFilter(gateway.worker, listen, certificates)
                client = MemoryTransport(gateway.loop, listener.connect(), _PEER)
                await gateway.deliver(client, data, size)
                if certificates is None:
                    _is_from(client, data, received)
                else:
                    _is_no_http(client, received)
                    ended = client.closing or client.wrote_eof
                    assert ended or proxy_protocol or data[:1] in (b"", b"\x16"), "it waits for more"
                await gateway.lose_all()

    received: list[Received] = []
    run_with_gateway(_configured(), script)


def _is_from(client: MemoryTransport, data: bytes, received: list[Received]) -> None:
    """Nothing is served without a header, and then from the client that it names."""
    header = _read(data)
    if not isinstance(header, ProxyHeader):
        assert not client.written
        assert not received
        assert client.closing or header is None
        return
    sent = sent_requests(data[header.size :])
    read_responses(client.written, [each.head.method for each in sent])
    assert len(received) <= len(sent)
    for each in received:
        addresses = [value.decode() for name, value in each.headers if name == b"x-forwarded-for"]
        assert ", ".join(addresses).split(", ")[-1] == (header.address or _PEER)


def _is_no_http(client: MemoryTransport, received: list[Received]) -> None:
    """Without a handshake nothing is forwarded. All that is written is TLS, or the answer to plain HTTP."""
    assert not received
    written = client.written
    if written.startswith(b"HTTP"):
        ((response, _),) = read_responses(written, ["GET"])
        assert response.status_code == 400
        assert (b"connection", b"close") in response.headers
    while not written.startswith(b"HTTP") and written:
        assert written[0] in (0x14, 0x15, 0x16, 0x17)
        assert written[1] == 3
        written = written[5 + int.from_bytes(written[3:5], "big") :]
