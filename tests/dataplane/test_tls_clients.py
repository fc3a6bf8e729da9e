"""Clients over TLS that are slow, leave or send what nobody asked for: the same tests as without TLS.

Every test here comes from the module of its subject; only the listener differs. What is special about TLS is
in `test_tls_listeners`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dataplane import test_chunked as chunked
from tests.dataplane import test_exchange as exchange
from tests.dataplane import test_flow_control as flow_control
from tests.dataplane import test_pipelining as pipelining
from tests.dataplane import test_slow_clients as slow_clients
from tests.dataplane.listener_tls import tls_listener
from tests.kit.workers import Testbed

LEFT_OUT = (
    "half_clos",  # asyncio's own TLS, which these clients have, cannot close one side: `test_tls_relayed`
    "fin",
    "newcomer",  # it learns in the handshake that there is no room
    "make_room",
    "half_heads",
    "unread",  # nor can it hold back what has come: `test_tls_relayed`
    "does_not_read",
    "does_not_count",  # it waits for bytes that TLS has still to decrypt
)
for module in (chunked, exchange, flow_control, pipelining, slow_clients):
    names = [name for name in vars(module) if name.startswith("test_")]
    globals().update(
        {name: getattr(module, name) for name in names if not any(part in name for part in LEFT_OUT)}
    )


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[Testbed]:
    testbed = Testbed()
    testbed.listener = tls_listener(tmp_path)
    yield testbed
    await testbed.close()
