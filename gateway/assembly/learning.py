"""The parts that change the snapshot without a request: timer, probes, discovery.

They begin when every port is bound and the agreement has begun. The first probes are sent before the start
waits for the disk or for worker processes, which take longer than the backends' responses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic

from gateway.assembly.plan import Plan
from gateway.controlplane.prober import Prober
from gateway.controlplane.snapshot_holder import StabilizationTimer
from gateway.settings.own_addresses import own_addresses
from gateway.tls.client import ClientContexts


@asynccontextmanager
async def learning(plan: Plan, client_contexts: ClientContexts) -> AsyncIterator[Prober]:
    """Runs timer, prober and discovery, also during a drain, because requests under way need them."""
    holder, services = plan.known.snapshot_holder, plan.known.services
    timer = StabilizationTimer(holder, monotonic)
    prober = Prober(
        holder,
        plan.metrics,
        services,
        resolve=plan.resolver.resolve,
        # The data plane dates passive observations by the same clock: facts are compared by age.
        clock=monotonic,
        client_contexts=client_contexts,
    )
    async with AsyncExitStack() as stack:
        timer.start()
        stack.callback(timer.close)
        stack.push_async_callback(prober.close)
        await prober.start()
        # Closed before the prober, which it tells of backends that come.
        stack.push_async_callback(plan.discovery.close)
        plan.discovery.connect(
            holder,
            resolver=plan.resolver,
            prober=prober,
            own=own_addresses(plan.settings.listen, plan.settings.admin),
        )
        plan.discovery.retarget(services)
        yield prober
