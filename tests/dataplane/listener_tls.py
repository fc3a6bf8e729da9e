"""Listeners with TLS for tests of the data plane: one CA for all, certificates as files, clients that trust
it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from gateway.settings.sections.listen import Listen
from gateway.tls.server import ServerCertificates
from gateway.tls.values import CertificateFiles, ServerTls
from tests.dataplane.tls_end import TlsEnd
from tests.kit.certificates import Leaf, authority, client_context
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE
from tests.kit.workers import Gateway, Listener


@cache
def local_leaf() -> Leaf:
    """The certificate for loopback. Made once: keys take time."""
    return authority().server()


@cache
def client_leaf() -> Leaf:
    """The certificate of a client."""
    return authority().client("alice")


def files_of(leaf: Leaf, folder: Path, name: str = "tls") -> CertificateFiles:
    certificate, key = leaf.write(folder, name)
    return CertificateFiles(str(certificate), str(key))


def tls_listener(
    folder: Path,
    *,
    client_ca: bool = False,
    required: bool = True,
    forward: bool = False,
    client: Leaf | None = None,
    proxy_protocol: bool = False,
    path: str = "",
) -> Listener:
    """A listener with the certificate for loopback. `client`: what `Gateway.client` shows."""
    tls = ServerTls(
        (files_of(local_leaf(), folder),),
        str(authority().write(folder)) if client_ca else None,
        client="required" if required else "optional",
        forward_client_cert=forward,
    )
    listen = Listen("" if path else LOOPBACK, 0, path, proxy_protocol=proxy_protocol, tls=tls)
    shown = None if client is None else client.write(folder, "client")
    return Listener(listen, ServerCertificates(tls), client_context(authority(), shown))


@asynccontextmanager
async def raw_client(gateway: Gateway) -> AsyncIterator[TlsEnd]:
    """One that is connected, for as long as tests wait."""
    context = gateway.listener.client_tls
    assert context is not None
    with socket.socket() as sock:
        client = TlsEnd(sock, context)
        async with asyncio.timeout(PATIENCE):
            await asyncio.get_running_loop().sock_connect(sock, gateway.address)
            await client.handshake()
            yield client
