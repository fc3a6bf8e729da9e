"""The start and the end of a whole gateway: each part is entered here, and left in reverse order.

    outermost        history, hand-over, service manager, names
    listening        every port is bound before any backend is asked
    open_logs        logs of the data plane
    state            the state file, and what waits to get into it
    agreeing         what is offered is agreed on
    data_plane       what serves requests, and the record of usage around it
    follow_snapshot  series follow the snapshot
    sampling         change log, rates
    learning         probes, discovery: from here on backends are asked
    admin_listeners  operators see and command all of the above
    watching         files and signals reload it
    driving          the engine beside it
    in_service       ready; on the way out the drain

A part is entered where it has to be left: it outlives all parts below. If it must *start* later than that, a
line below starts it, with the reason. A start that fails or is cancelled leaves the parts that it has
entered, in reverse, and then nothing runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import final

from gateway.assembly.admin import AdminListeners, admin_listeners
from gateway.assembly.agreements import LateParts, agreeing, begin_to_agree, make_agreement
from gateway.assembly.data_planes import data_plane, driving, make_engine
from gateway.assembly.learning import Signals, learning, make_reloader, watching
from gateway.assembly.listeners import listening, read_certificates
from gateway.assembly.parts import Parts
from gateway.assembly.plan import Plan
from gateway.assembly.serving import accept_clients, in_service
from gateway.assembly.state import begin_saving, state
from gateway.assembly.telemetry import follow_snapshot, open_logs, sampling
from gateway.controlplane.certificate_watch import CertificateWatch
from gateway.telemetry.history import History


@final
@dataclass(frozen=True, slots=True)
class Running:
    """A gateway that serves: its parts, its admin listeners, its actions for signals."""

    parts: Parts
    admin: AdminListeners
    signals: Signals


@asynccontextmanager
async def running(plan: Plan, late_parts: LateParts) -> AsyncIterator[Running]:
    """Starts a whole gateway, and drains and closes it on the way out. Raises `StartupError`."""
    async with AsyncExitStack() as up:
        enter = up.enter_async_context
        history = await enter(_outermost(plan))
        certificates = await read_certificates(plan.settings)
        sockets = await enter(listening(plan))
        logs = await enter(open_logs(plan))
        agreed = make_agreement(plan, late_parts)
        observer = await enter(state(plan, agreed, late_parts))
        await enter(agreeing(agreed))
        serving_plane = data_plane(
            plan,
            late_parts,
            agreed=agreed,
            certificates=certificates,
            sockets=sockets.clients,
            logs=logs,
            observer=observer,
        )
        plane = await enter(serving_plane)
        engine = make_engine(plan, agreed, plane, late_parts)
        await enter(follow_snapshot(plan))
        begin_to_agree(plan, agreed)  # not before: it asks the data plane and the engine what they hold
        samplers = await enter(sampling(plan, agreed))
        prober = await enter(learning(plan, certificates.for_backends))
        await begin_saving(late_parts.keeper)  # not before: probes are on their way while the disk is slow
        certificate_watch = CertificateWatch(
            certificates.of_listeners,
            plan.metrics,
            certificates.for_backends.expiry,
            on_read=plane.read_certificates,
        )
        reloader = late_parts.reloader = make_reloader(
            plan,
            prober=prober,
            plane=plane,
            certificates=certificate_watch,
            client_contexts=certificates.for_backends,
        )
        parts = Parts(
            plan=plan,
            history=history,
            certificates=certificates,
            sockets=sockets,
            late_parts=late_parts,
            agreed=agreed,
            plane=plane,
            samplers=samplers,
            prober=prober,
            certificate_watch=certificate_watch,
            reloader=reloader,
        )
        admin = await enter(admin_listeners(parts))
        await plane.start()  # not before: operators see what a slow start waits for
        signals = await enter(watching(parts))
        await accept_clients(parts, admin)
        await enter(driving(engine))  # not before: it sends requests here
        await enter(in_service(parts, admin))
        yield Running(parts, admin, signals)


@asynccontextmanager
async def _outermost(plan: Plan) -> AsyncIterator[History]:
    """Starts the parts of a gateway that end last. The history comes first, so that all others may log."""
    history = History()
    async with AsyncExitStack() as stack:
        history.start()
        stack.callback(history.close)
        # After every other part: for the gateway that has taken over, the closed connection is the end of
        # this one. Then it moves the records by which both have served.
        stack.push_async_callback(plan.handover.close)
        stack.callback(plan.service_manager.close)
        # After the data plane: a request that finishes in the drain may need another connection.
        stack.push_async_callback(plan.resolver.close)
        plan.resolver.retarget(plan.known.services)
        yield history
