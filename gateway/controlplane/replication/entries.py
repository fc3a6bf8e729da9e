"""Format of the entries that replicas write under their own keys: votes of live ones, and registrations.

Read strictly: an entry with anything unexpected is no vote. Values in, values out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from enum import Enum
from hashlib import sha256
from typing import Final, NamedTuple, final

from gateway.controlplane.sight import Evidence, Sight
from gateway.controlplane.stores.store import Entry
from gateway.core.agreement.ladder import LiveReplica, Vote
from gateway.core.agreement.raised import Raised, read_raised, read_sunset, write_raised, write_sunset
from gateway.core.agreement.record import (
    FORMS,
    MAX_ITEMS,
    MAX_SEQ,
    UnreadableRecord,
    read_rule,
    read_version,
    read_versions,
    write_versions,
)
from gateway.core.decision.operations import Operation
from gateway.core.fleet.service import Service
from gateway.core.versions.version import Scheme

DRAINED: Final = "drained"
DRAINED_BY: Final = "drained_by"

_MAX_TEXT: Final = 200
"""Largest length of a name, host, release, or digest, in characters."""
_MAX_BACKEND: Final = 255
"""Largest length of a backend's name in characters, as in the configuration."""
_MAX_FORMS: Final = 64

_LIVE_KEYS: Final = 6
_VOTE_KEYS: Final = 5
"""Number of keys of a vote without `least` and `passed`, which older releases do not read."""


@final
@dataclass(frozen=True, slots=True)
class LiveEntry:
    """Entry of a live replica in the store."""

    text: str
    """Text of the live replica's entry in the store."""
    replica: LiveReplica
    forms: tuple[int, ...]
    idle: frozenset[str]
    """Names of drained backends to which the replica has no request in flight."""
    config: str
    """Digest of the part of the configuration that clients can notice."""


class ReplicaInfo(NamedTuple):
    """Registration of a replica: its name, host and release, for people."""

    name: str
    host: str
    release: str


def write_live(
    ack: int, vote: Vote | None, idle: frozenset[str], service: Service, *, transparent: bool
) -> str:
    """Format a live replica's entry for the store. `ack`: the seq that it acknowledges."""
    scheme = service.dialect.scheme
    own: dict[str, object] | None = None
    if vote is not None:
        own = {
            "rule": vote.rule,
            "floor": write_versions(vote.floor, scheme),
            "want": write_versions(vote.want, scheme),
            "gives": write_versions(vote.gives, scheme),
            "cap": None if vote.cap is None else scheme.format(vote.cap),
        }
        if vote.least is not None:
            own["least"] = scheme.format(vote.least)
        if vote.passed is not None:
            own["passed"] = write_sunset(vote.passed, scheme)
    return _text(
        {
            "ack": ack,
            "forms": sorted(FORMS),
            "vote": own,
            "transparent": transparent,
            "idle": sorted(idle),
            "config": config_digest(service),
        }
    )


def read_live(text: str, scheme: Scheme) -> LiveEntry:
    """Parse the entry of a live replica. Raises `UnreadableRecord`."""
    found = _object(text)
    match found:
        case {
            "ack": int() as ack,
            "forms": [*forms],
            "vote": dict() | None as vote,
            "transparent": bool() as transparent,
            "idle": [*idle],
            "config": str() as config,
        } if (
            len(found) == _LIVE_KEYS
            and _is_number(ack, 0)
            and len(config) <= _MAX_TEXT
            and 0 < len(forms) <= _MAX_FORMS
            and all(_is_number(each, 1) for each in forms)
            and len(idle) <= MAX_ITEMS
            and all(isinstance(each, str) and 0 < len(each) <= _MAX_BACKEND for each in idle)
        ):
            own = None if vote is None else _read_vote(vote, scheme)
            return LiveEntry(
                text=text,
                replica=LiveReplica(ack, own, transparent),
                forms=tuple(each for each in forms if isinstance(each, int)),
                idle=frozenset(map(str, idle)),
                config=config,
            )
        case _:
            raise UnreadableRecord("it is no word of a replica")


def _is_number(value: object, lowest: int) -> bool:
    """Whether a JSON value is a number in range. A bool is not, although Python takes it for one."""
    return type(value) is int and lowest <= value <= MAX_SEQ


def write_replica_info(info: ReplicaInfo) -> str:
    """Format the registration of a replica for the store."""
    return _text(info._asdict())


def read_replica_info(text: str) -> ReplicaInfo:
    """Parse the registration of a replica. Whatever cannot be read is empty."""
    try:
        found = _object(text)
    except UnreadableRecord:
        found = {}
    return ReplicaInfo(*(str(found.get(name, ""))[:_MAX_TEXT] for name in ReplicaInfo._fields))


def write_drains(drained: Mapping[str, str]) -> Mapping[str, str]:
    """Format the names of drained backends for the store, and the names given with drains, by key. Earlier
    releases read only the first, and write it alone."""
    by = {backend: name for backend, name in drained.items() if name}
    return {key: _text(own) for key, own in ((DRAINED, sorted(drained)), (DRAINED_BY, by)) if own}


def read_drains(names: Entry, by: Entry | None) -> Mapping[str, str] | None:
    """Parse the names of drained backends, each with the name given for that; None: they cannot be read. An
    earlier release writes the first entry alone: then nobody knows who has drained what."""
    try:
        found = read_json(names.text)
        given = read_json(by.text) if by is not None and by.revision == names.revision else {}
    except UnreadableRecord:
        return None
    if isinstance(found, list) and isinstance(given, dict) and all(isinstance(each, str) for each in found):
        return {each: str(given.get(each, "")) for each in sorted(found)}
    return None


def raised_text(raised: Raised, scheme: Scheme) -> str:
    """Format a raised floor for the store."""
    return _text(write_raised(raised, scheme))


def raised_of(text: str, scheme: Scheme) -> Raised | None:
    """Parse a raised floor from the store; None: it is none that this release can read."""
    try:
        return read_raised(read_json(text), scheme)
    except UnreadableRecord:
        return None


def write_beat(number: int, sights: Mapping[str, tuple[int, Sight, Scheme]]) -> str:
    """Format a beat for the store: its number, and this replica's answers to the last questions, by service
    with the question's revision. Releases that know no questions read no text of a beat."""
    if not sights:
        return str(number)
    answers = {
        name: {
            **{key: sorted(value) for key, value in sight._asdict().items() if isinstance(value, frozenset)},
            "asked": revision,
            "phase": sight.phase,
            "serves": {each: write_versions(versions, scheme) for each, versions in sight.serves.items()},
            "evidence": sight.evidence and sight.evidence._asdict(),
        }
        for name, (revision, sight, scheme) in sights.items()
    }
    return _text({"beat": number, "answers": answers})


def read_sight(text: str, service: str, question: int, scheme: Scheme) -> Sight | None:
    """Parse a replica's answer to a question about a service, or to a later one; None: its beat has none."""
    try:
        beat = read_json(text)
        answers = beat.get("answers") if isinstance(beat, dict) else None
        match answers.get(service) if isinstance(answers, dict) else None:
            case {
                "asked": int() as asked,
                "phase": str() as phase,
                "serves": dict() as serves,
                "unanswered": [*unanswered],
                "unprobed": [*unprobed],
                "idle": [*idle],
                **more,
            } if asked >= question:
                return Sight(
                    phase,
                    {str(each): read_versions(found, scheme, "serves") for each, found in serves.items()},
                    frozenset(map(str, unanswered)),
                    frozenset(map(str, unprobed)),
                    frozenset(map(str, idle)),
                    _read_evidence(more.get("evidence")),
                )
            case _:
                return None
    except UnreadableRecord:
        return None


def _read_evidence(found: object) -> Evidence | None:
    """Parse what a replica has counted to judge a member; None: nothing that can be read."""
    match found:
        case {
            "member": str() as member,
            "trouble": str() as trouble,
            "lost": int() as lost,
            "by_version": dict() as rows,
        } if all(isinstance(row, list) and [*map(type, row)] == [int] * 4 for row in rows.values()):
            return Evidence(member, trouble, lost, rows)
        case _:
            return None


def config_digest(service: Service) -> str:
    """Digest of all configuration of a service that its clients can notice. Only values that are named here
    count, so that two releases agree, and options of one release only if not at their default."""
    scheme, default = service.dialect.scheme, service.effective_default_version
    policy, number = service.policy_and_number
    noticed = {
        "dialect": [service.dialect.name, *scheme.key],
        "options": _plain(service.dialect.made_of),
        "default": [default.kind.value, _plain(default.constant)],
        "policy": [policy.value, None if number is None else [number.number, number.percent]],
        "ceiling": _plain(service.ceiling),
        "retry_after": service.effective_retry_after,
        "operations": sorted(_operation(each) for each in service.operations.listed),
        "match": [sorted(service.match.hosts), service.match.path],
        **({"legacy": "refuse"} if service.negotiates_legacy else {}),
        **({} if service.floor is None else {"floor": _plain(service.floor)}),
    }
    if service.paces or service.bridges:
        rules = [
            (rule.name, rule.products, rule.headers, [*map(str, rule.networks or ())], rule.identities)
            for rule in service.naming.rules
        ]
        noticed["named"] = _plain((service.paces, service.bridges, rules))
    if service.lifecycle is not None:
        noticed["lifecycle"] = _plain(service.lifecycle)
    text = json.dumps(noticed, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("ascii")).hexdigest()[:16]


def _operation(operation: Operation) -> str:
    return json.dumps(
        [
            operation.method,
            list(operation.path.segments),
            [[_plain(one.low), _plain(one.high)] for one in operation.versions.ranges],
            operation.refusal,
        ]
    )


def _plain(value: object) -> object:
    """Convert a value to JSON that is the same in every process and leaves out defaults."""
    if is_dataclass(value):
        found = {each.name: (getattr(value, each.name), each.default) for each in fields(value)}
        return {name: _plain(own) for name, (own, default) in found.items() if own != default}
    match value:
        case Enum():
            return _plain(value.value)
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case frozenset() | set():
            return sorted((_plain(each) for each in value), key=json.dumps)
        case date():
            return value.isoformat()
        case tuple() | list():
            return [_plain(each) for each in value]
        case _:
            return type(value).__name__


def _read_vote(found: Mapping[str, object], scheme: Scheme) -> Vote:
    if len(found) != _VOTE_KEYS + ("least" in found) + ("passed" in found):
        raise UnreadableRecord("its vote has foreign keys, or lacks some")
    cap, least = found.get("cap"), found.get("least")
    return Vote(
        rule=read_rule(found.get("rule")),
        floor=read_versions(found.get("floor"), scheme, "floor"),
        want=read_versions(found.get("want"), scheme, "want"),
        gives=read_versions(found.get("gives"), scheme, "gives"),
        cap=None if cap is None else read_version(cap, scheme, "cap"),
        least=None if least is None else read_version(least, scheme, "least"),
        passed=read_sunset(found["passed"], scheme) if "passed" in found else None,
    )


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def read_json(text: str) -> object:
    """Parse a JSON text from the store. Raises `UnreadableRecord`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableRecord("it is not JSON") from None


def _object(text: str) -> dict[str, object]:
    found = read_json(text)
    if not isinstance(found, dict):
        raise UnreadableRecord("it is no object")
    return found
