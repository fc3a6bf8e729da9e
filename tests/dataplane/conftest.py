"""Every test gets its own testbed: backends, a gateway and clients. Nothing of them may be left at the end.
Every exchange must go through its stages as the table in `dataplane.exchange.stages` says.

Event loops differ where sockets are reset, filled or closed. In CI those tests run on the loop of asyncio
and, if uvloop is installed, on uvloop as well. At a desk one loop suffices: the one that a gateway takes by
itself. `CI=1 ./test FILE` runs both there.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final

import hypothesis
import pytest

from tests.dataplane.matcher_in_c import HAS_COMPILER
from tests.dataplane.stage_check import CheckedStage, CheckedState, State, checked_backends, checked_clients
from tests.kit.workers import Testbed

collect_ignore = [] if HAS_COMPILER else ["test_layout_matcher.py"]

LOOPS_DIFFER: Final = frozenset(
    {
        "test_bursts",
        "test_cleanup",
        "test_desync",
        "test_exchange",
        "test_flow_control",
        "test_hostile_backends",
        "test_interim",
        "test_pauses",
        "test_pipelining",
        "test_refusals_linger",
        "test_resends",
        "test_retries",
        "test_reuse",
        "test_slow_backends",
        "test_slow_clients",
        "test_slow_readers",
        "test_timeouts",
        "test_tls_backends",
        "test_tls_faults",
        "test_tls_listeners",
        "test_tls_relayed",
        "test_tls_transport",
        "test_listeners",
        "test_tunnels",
        "test_tunnels_over_tls",
        "test_websockets",
    }
)

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """The loops on which a test runs. `tests/conftest.py` tells a desk by the profile of hypothesis."""
    asyncio_only: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if item.path.stem not in LOOPS_DIFFER or find_spec("uvloop") is None:
        return asyncio_only
    uvloop_only: dict[str, LoopFactory] = {"uvloop": importlib.import_module("uvloop").new_event_loop}
    is_desk = hypothesis.settings.get_current_profile_name() == "desk"
    return uvloop_only if is_desk else asyncio_only | uvloop_only


def _checked(make: Callable[[], CheckedState[State]]) -> Any:
    """A fixture: while a test runs, everything goes from state to state as the page says."""

    @pytest.fixture(autouse=True)
    def checked(monkeypatch: pytest.MonkeyPatch) -> CheckedState[State]:
        state = make()
        state.install(monkeypatch)
        return state

    return checked


stages = _checked(CheckedStage)
backend_phases = _checked(checked_backends)
client_phases = _checked(checked_clients)


@pytest.fixture
async def testbed() -> AsyncIterator[Testbed]:
    testbed = Testbed()
    yield testbed
    await testbed.close()
