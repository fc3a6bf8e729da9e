"""The state file of a gateway, and the observer whose facts go into it.

    requests  ->  PassiveObserver  ->  SnapshotHolder  ->  StateKeeper  ->  file

Both are closed when nothing changes the snapshot any more, the observer first: its last facts belong to the
last state. So they are made before all parts that change the snapshot. Writing begins later (`begin_saving`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.assembly.agreements import GatewayAgreement, LateParts
from gateway.assembly.plan import Plan
from gateway.controlplane.passive_observation import PassiveObserver
from gateway.controlplane.state.keeper import StateKeeper, report_no_state_file


@asynccontextmanager
async def state(
    plan: Plan, agreed: GatewayAgreement, late_parts: LateParts
) -> AsyncIterator[PassiveObserver]:
    """Makes the observer, and the state keeper of `late_parts`. In a take-over the other gateway writes the
    file, until `resume`."""
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
        yield observer


async def begin_saving(keeper: StateKeeper | None) -> None:
    """Write the first state to the state file, and from then on every later one.

    The first probes, which must not wait for a disk, are sent by now, and the agreement has made its records.
    No response is read yet: the steps that it causes are saved before workers take them.
    """
    if keeper is None:
        report_no_state_file()
    else:
        await keeper.start()
