"""Reports about replicas, for status and metrics, made from what was read last."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.controlplane.replication.clocks import Clocks
from gateway.controlplane.replication.entries import config_digest
from gateway.controlplane.replication.membership import Membership
from gateway.controlplane.replication.reading import Beat, Reading, Readings
from gateway.core.agreement.ladder import awaited
from gateway.settings import AgreementSettings
from gateway.telemetry.neighbours import AgreementReport, ReplicaReport, ServiceReport


def make_report(
    own: str,
    members: Mapping[str, Membership],
    read: Readings,
    settings: AgreementSettings,
    clocks: Clocks,
    *,
    store_error: str,
    joining: bool,
) -> AgreementReport:
    """Report the present state of the agreement between replicas."""
    now, readings = clocks.boot_time(), read.services
    registered = {each for reading in readings.values() for each in reading.known}
    return AgreementReport(
        id=own,
        store_error=store_error,
        replicas=tuple(_replica(each, readings, read.beats, clocks) for each in sorted(registered)),
        services={name: _service(me, readings.get(name), now) for name, me in sorted(members.items())},
        forget=settings.forget,
        joining=joining,
    )


def _service(me: Membership, reading: Reading | None, now: float) -> ServiceReport:
    report = ServiceReport(
        attached=me.is_attached(now),
        since=me.since,
        seq=me.seq,
        answers_for=me.answers_for(now),
        problem=me.problem,
    )
    if reading is None:
        return report
    return report._replace(
        awaited=awaited(reading.record, reading.replicas),
        busy={
            backend: (  # what cannot be read may say anything
                *sorted(each for each, entry in reading.live.items() if backend not in entry.idle),
                *reading.unreadable,
            )
            for backend in reading.drained
        },
        away=tuple(sorted(reading.known.keys() - reading.live.keys() - {*reading.unreadable})),
    )


def _replica(
    each: str, readings: Mapping[str, Reading], beats: Mapping[str, Beat], clocks: Clocks
) -> ReplicaReport:
    registered = {name: reading for name, reading in readings.items() if each in reading.known}
    info = next(reading.known[each] for reading in registered.values())
    beat = beats.get(each)
    live = {name: reading.live[each] for name, reading in registered.items() if each in reading.live}
    return ReplicaReport(
        each,
        *info,
        attached=len(live) == len(registered),
        seen_at=None if beat is None or not beat.revision else clocks.wall_of(beat.seen_at),
        holds=tuple(name for name, reading in registered.items() if _holds(each, reading)),
        differs=tuple(
            name for name, entry in live.items() if entry.config != config_digest(registered[name].service)
        ),
    )


def _holds(each: str, reading: Reading) -> bool:
    """Whether a replica holds up the next step: no acknowledgement, or no vote for what another wants."""
    entry = reading.live.get(each)
    record = reading.record
    if entry is None:
        return record is not None and record.open != record.accepted
    vote = entry.replica.vote
    if entry.replica.ack != (0 if record is None else record.seq) or vote is None:
        return True
    others = [one.replica.vote for one in reading.live.values() if one.replica.vote is not None]
    state = None if record is None else record.state
    return any(bool(other.want - vote.want - (vote.want if state is None else state)) for other in others)
