"""What outlives this process: the state file, and facts that wait to get into it.

    requests  ->  PassiveObserver  ->  SnapshotHolder  ->  StateKeeper  ->  file

Both are closed when nothing changes the snapshot any more, the observer first: what still waits in it is a
part of the last state. Therefore they are made before whatever changes the snapshot, but writing begins later
(`begin_saving`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple, final

from gateway.assembly.agreements import Agreed
from gateway.assembly.late_parts import LateParts
from gateway.assembly.plan import Plan
from gateway.controlplane.passive_observation import PassiveObserver
from gateway.controlplane.state.keeper import StateKeeper, report_no_state_file


@final
class State(NamedTuple):
    """Keeper and observer."""

    keeper: StateKeeper | None
    """None: no `state` is configured."""
    observer: PassiveObserver


@asynccontextmanager
async def state(plan: Plan, agreed: Agreed, late_parts: LateParts) -> AsyncIterator[State]:
    """Makes both. During a take-over the other gateway writes the file: this one is silent until `resume`."""
    known = plan.known
    async with AsyncExitStack() as stack:
        if known.state_file is not None:
            late_parts.keeper = StateKeeper(
                known.state_file,
                known.snapshot_holder,
                records=agreed.agreement.to_save,
                registrations=agreed.registrations,
                paused=plan.handover.taken is not None,
            )
            stack.push_async_callback(late_parts.keeper.close)
        observer = PassiveObserver(known.snapshot_holder, plan.metrics)
        stack.callback(observer.close)
        yield State(late_parts.keeper, observer)


async def begin_saving(keeper: StateKeeper | None) -> None:
    """Write the first state, and from here on each that follows.

    To be called after the first probes, which are sent before anything that waits for a disk; after the
    agreement has begun, which gives views what has to be in the file; and before a response of a backend is
    read, because the steps that it causes are saved before workers take them.
    """
    if keeper is None:
        report_no_state_file()
    else:
        await keeper.start()
