"""Clients over TLS that close one side or do not read: the same tests as without TLS, through a relay.

The TLS of asyncio and of uvloop cannot do either (`test_tls_clients.LEFT_OUT`), so these clients have none: a
relay has it for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.dataplane import test_flow_control as flow_control
from tests.dataplane import test_pipelining as pipelining
from tests.dataplane.listener_tls import tls_listener
from tests.dataplane.tls_relay import TlsRelay
from tests.kit.workers import Testbed

PARTS = ("half_clos", "fin", "unread", "does_not_read", "not_read_cost")
for module in (flow_control, pipelining):
    names = [name for name in vars(module) if name.startswith("test_")]
    globals().update({name: getattr(module, name) for name in names if any(part in name for part in PARTS)})


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[Testbed]:
    testbed = Testbed()
    listener = tls_listener(tmp_path)
    assert listener.client_tls is not None
    relay = TlsRelay(listener.client_tls)
    testbed.listener = replace(listener, relay=relay.connect)
    yield testbed
    try:
        await testbed.close()
    finally:
        await asyncio.to_thread(relay.close)
