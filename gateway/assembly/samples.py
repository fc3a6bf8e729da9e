"""Timed samples of the counters, and the change log.

The change log begins with what is offered when the agreement has given views their documents, before anything
is learned.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from time import monotonic
from typing import NamedTuple, final

from gateway.assembly.agreements import Agreed
from gateway.assembly.plan import Plan
from gateway.controlplane.change_log import ChangeLog
from gateway.telemetry.recent import Rates, RecentRequests


@final
class Samples(NamedTuple):
    """Samples of what was counted."""

    recent: RecentRequests
    rates: Rates


@asynccontextmanager
async def sampling(plan: Plan, agreed: Agreed) -> AsyncIterator[Samples]:
    """Logs what is in force, and from here on what changes."""
    holder, metrics, replication = plan.known.snapshot_holder, plan.metrics, agreed.replication
    recent = RecentRequests(metrics.served, monotonic)
    rates = Rates(metrics.request_counts, monotonic)
    change_log = ChangeLog(
        monotonic,
        recent.last_hour,
        None if replication is None else lambda service: replication.report().why_held(service),
    )
    with ExitStack() as stack:
        for sampler in (recent, rates):
            sampler.start()
            stack.callback(sampler.close)
        change_log.start(holder.current)
        stack.callback(change_log.close)
        stack.callback(holder.subscribe(change_log.log_changes))
        yield Samples(recent, rates)
