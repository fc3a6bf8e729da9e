"""Decisions without a running gateway: for `explain --offline`, `test` and `init` after one probe of each
backend, for `simulate` from databases of usage.

Nothing but probes is ever sent. `core` decides; this module prints nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

from gateway.cli.command import read_settings
from gateway.controlplane.calendar_watch import enforce_sunsets
from gateway.controlplane.discovery.discovery import Discovery
from gateway.controlplane.prober import Prober
from gateway.controlplane.resolver import Resolver
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.state.text import parse_state
from gateway.controlplane.usage.reading import read_files
from gateway.core.clients import Clients
from gateway.core.decision.explanation import explain
from gateway.core.fleet.fleet import Fleet, ObservedFact, ProbeSucceeded
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import Header
from gateway.core.usage.summary import Question
from gateway.core.usage.what_if import answer, changed, reconfigured
from gateway.dataplane.http1.forwarding import described_peer
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import read_described, refusal_sentence
from gateway.errors import AdminError, FramingError
from gateway.settings import Settings
from gateway.telemetry.metrics import Metrics

_JUDGED_OR_HARMLESS: Final = frozenset(
    "name backends policy at_least stabilization ceiling floor paces bridges naming lifecycle "  # noqa: SIM905
    "default_version negotiates_legacy releases operations maintenance retry_after probe retry ejection "
    "timeouts reuse response_edits written sources undiscovered".split()
)
"""Fields of `Service` whose change is a part of the answer, or refuses nobody."""


async def explain_offline(
    settings: Settings, method: str, path: str, headers: Sequence[Header], address: str = ""
) -> dict[str, Any]:
    """Probe every backend once, then explain the request. Raises `AdminError` for a malformed request."""
    snapshot = Snapshot.configured(settings.services, now=monotonic())
    explain_request(snapshot, settings, method, path, headers)  # nothing is probed for what is refused
    return explain_request(await probed(settings), settings, method, path, headers, address)


def explain_request(
    snapshot: Snapshot,
    settings: Settings,
    method: str,
    path: str,
    headers: Sequence[Header],
    address: str = "",
) -> dict[str, Any]:
    """Explain the decision about a request, from a client that is no trusted proxy. Raises `AdminError` for a
    malformed one."""
    table = NameTable.for_requests(snapshot.selected_names, dropped=settings.untrusted_headers)
    try:
        head = read_described(method, path, headers, table, settings.limits)
    except FramingError as refusal:
        raise AdminError(refusal_sentence(refusal)) from None
    name = described_peer(address).client_name(Clients(settings.clients), head)
    return explain(snapshot, head, head.host, client_name=name, wall_time=time())


async def probed(settings: Settings) -> Snapshot:
    """Probe every backend once and return the snapshot with the first offer."""
    discovery = Discovery()
    services = discovery.completed(settings.services)
    holder = SnapshotHolder(Snapshot.configured(services, now=monotonic()))
    async with Resolver() as resolver:
        resolver.retarget(services)
        async with Prober(holder, Metrics(), services, resolve=resolver.resolve, clock=monotonic) as prober:
            discovery.connect(holder, resolver=resolver, prober=prober)
            discovery.retarget(services)
            try:
                # Not for ever: each lookup and each probe has its own deadline.
                await holder.until(_all_probed)
            finally:
                await discovery.close()
    enforce_sunsets(holder, time())
    return with_first_offer(holder.current, holder.current.fleet)


def _all_probed(snapshot: Snapshot) -> bool:
    return all(members.all_probed for members in snapshot.fleet.member_sets.values())


def with_first_offer(snapshot: Snapshot, fleet: Fleet) -> Snapshot:
    """Return `snapshot` with its first offer, which does not wait for backends that are down."""
    return snapshot.with_fleet(fleet, math.inf)


def answer_offline(
    databases: Sequence[Path],
    running: Path,
    question: Question,
    change: Mapping[str, str],
    candidate: Path | None,
) -> dict[str, Any]:
    """Judge a change of a service by databases of usage: the one in `change`, or the reload of `candidate`.
    `running`: the configuration that the gateway runs with. Raises `SkewgateError`."""
    settings, now, days, name = read_settings(running), time(), question.days(), question.service or ""
    record = read_files(databases, name, days)
    source = max(record.sources, key=lambda each: max((run.ends for run in each.periods), default=0.0))
    saved = parse_state(source.state, settings.services).saved
    snapshot = Snapshot.configured(_discovered(settings, saved), now=now, saved=saved)
    # What was saved of a backend is taken for what it still serves.
    probes: list[ObservedFact] = [
        (service, each.backend.name, ProbeSucceeded(each.advertisement, now))
        for service, members in snapshot.fleet.member_sets.items()
        for each in members.all
        if each.advertisement is not None
    ]
    before = snapshot.after(probes, now).views.get(name)
    if before is None:
        raise AdminError(f"{running} has no service {name!a}")
    doubts = [] if source.config == settings.hash else [f"{running} is not the configuration of the record"]
    if candidate is None:
        ((kind, value),) = change.items()
        return answer(record, days, before, changed(before, kind, value, now), doubts)
    wanted = read_settings(candidate)
    after = {each.name: each for each in _discovered(wanted, saved)}.get(name)
    if after is None:
        return answer(record, days, before, None, doubts)
    old, new = _not_judged(settings, name), _not_judged(wanted, name)
    doubts += [f"`{key}` changes, and what that does is not judged" for key in old if old[key] != new[key]]
    return answer(record, days, before, reconfigured(before, after, now, now), doubts)


def _discovered(settings: Settings, saved: Mapping[str, SavedState]) -> tuple[Service, ...]:
    """The services of a configuration with the backends that discovery had found."""
    discovery = Discovery(clock=time)
    discovery.restore(settings.services, saved)
    return discovery.completed(settings.services)


def _not_judged(settings: Settings, name: str) -> dict[str, object]:
    """What else than versions decides whose and whether a service's requests are, by key: all keys but those
    that the answer judges, and those that never refuse a request."""
    own = next(each for each in settings.services if each.name == name)
    return {
        **{key: getattr(settings, key) for key in ("clients", "trusted_proxies", "untrusted_headers")},
        **{
            each.name: getattr(own, each.name) for each in fields(own) if each.name not in _JUDGED_OR_HARMLESS
        },
        "access": own.access and own.access.__reduce__(),  # its lists
        "match": {each.name: each.match for each in settings.services},
        "dialect": (own.dialect.name, own.dialect.made_of),
    }
