"""The parts that start first and end last: history, hand-over, service manager, names.

history           what is logged from here on, for the timeline
handover          gateways before and after this one: they learn that this one has ended
service manager   systemd, if there is one
names             the addresses of backends with names, looked up from here on
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.assembly.plan import Plan
from gateway.telemetry.history import History


@asynccontextmanager
async def surroundings(plan: Plan) -> AsyncIterator[History]:
    """Begins with the history, so that all others may log, and with the lookups of names, which take long."""
    history = History()
    async with AsyncExitStack() as stack:
        history.start()
        stack.callback(history.close)
        # After every other part: for the gateway that has taken over, the closed line is the end of this one.
        # Then it moves what both have served by.
        stack.push_async_callback(plan.handover.close)
        stack.callback(plan.service_manager.close)
        # After the data plane: a request that finishes in the drain may need another connection.
        stack.push_async_callback(plan.resolver.close)
        plan.resolver.retarget(plan.known.services)
        yield history
