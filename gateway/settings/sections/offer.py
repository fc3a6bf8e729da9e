"""`offer`, `releases` and `default_version` of a service: the versions that its clients get."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from math import inf
from typing import Final, final

from gateway.core.dialect import DefaultKind, DefaultVersion, Dialect
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.service import ALL_BACKENDS, AtLeast, Policy, Service
from gateway.core.versions.version import Version
from gateway.keys.kinds import Either, ListOf, Text, reject, section
from gateway.keys.texts import LINE, VERSION, WAIT, one_of
from gateway.settings.sections.pace import WrittenPace
from gateway.settings.sections.versions import read_version
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import quoted
from gateway.settings.yaml.tree import Node, child


def read_share(text: str) -> AtLeast:
    """Read how many backends must serve a version: a number, `2`, or a percentage of them, `50%`."""
    number = text.removesuffix("%")
    percent = number != text
    if re.fullmatch("[1-9][0-9]{0,2}", number, re.ASCII) is None or (percent and int(number) > 100):
        reject("not a valid number of backends", "write a number such as 2, or a percentage from 1% to 100%")
    return AtLeast(int(number), percent)


SHARE: Final = Text(
    read_share,
    {
        "type": ["string", "integer"],
        "minimum": 1,
        "maximum": 999,
        "pattern": "^(?:[1-9][0-9]{0,2}|100%|[1-9][0-9]?%)$",
    },
)


@final
@dataclass(frozen=True, slots=True)
class ReleaseCeiling:
    """A ceiling given by the name of a release: the highest version that this release serves."""

    release: str = field(
        metadata=LINE.required(
            "A release of the dialect's table or of `releases`.",
            reason="A ceiling needs a version or a release.",
            example="2024.1",
        )
    )


@final
@dataclass(frozen=True, slots=True)
class WrittenOffer:
    """The versions that the service offers to clients."""

    policy: str = one_of("guaranteed", "reachable", "at_least").key(
        "guaranteed",
        "guaranteed: what every backend in service serves. reachable: what at least one serves. at_least: "
        "what at least `at_least` of them serve.",
        reason="Clients keep a version for hours. Only what every backend serves survives the loss of one.",
        example="reachable",
    )
    at_least: AtLeast | None = SHARE.key(
        None,
        "For the policy `at_least`: how many of the backends in service must serve a version, as a number or "
        "as a percentage, which is rounded up.",
        reason="The other policies need no number.",
        example="50%",
    )
    stabilization: float = WAIT.key(
        "5s",
        "How long the policy must allow a version before it is added to the offer; `0s`: at once. The first "
        "offer waits at most this long for backends that have not answered.",
        reason="One interval of probes: a server that is rolled back at once does not raise the offer.",
        example="30s",
    )
    ceiling: str | ReleaseCeiling | None = Either(VERSION, section(ReleaseCeiling)).key(
        None,
        'The highest version on offer, as a version ("1.90") or as {release: NAME}.',
        reason="The versions of the fleet are the limit.",
        example="1.90",
    )
    for_: tuple[WrittenPace, ...] = ListOf(section(WrittenPace, title="Pace")).key(
        (),
        "Lower ceilings for named clients. Range headers, documents, `latest` and refusals agree with them. "
        "Every response of the service lists the deciding headers in `Vary`, and is `private` if an address "
        "or a certificate decides.",
        reason="All clients are offered the same.",
        example=[{"clients": ["nova-cron"], "ceiling": "1.72", "until": "2099-06-30"}],
    )
    floor: str | None = VERSION.key(
        None,
        "The lowest version on offer. It is suspended while all versions that could be on offer are lower.",
        reason="What backends serve is offered.",
        example="1.40",
    )


def read_at_least(
    offer: WrittenOffer, service: str, number_of_backends: int | None, node: Node | None, findings: Findings
) -> AtLeast:
    """Number of backends that policy `at_least` needs. `number_of_backends`: None if some are discovered."""
    policy, share = offer.policy, offer.at_least
    at = ("services", service, "offer")
    if share is None:
        if policy == Policy.AT_LEAST and not findings.is_dropped(*at, "at_least"):
            message = "the policy at_least needs a number"
            findings.contradiction(child(node, "policy"), message, "add `at_least: 2` or `at_least: 50%`")
        return ALL_BACKENDS
    place = child(node, "at_least")
    if policy != Policy.AT_LEAST and not findings.is_dropped(*at, "policy"):
        message = f"the policy {policy} does not use at_least"
        findings.contradiction(place, message, "write `policy: at_least`, or remove this key")
    elif not share.percent and number_of_backends is not None and share.number > number_of_backends:
        message = f"more than the service's backends, {number_of_backends}: no version could be added"
        findings.contradiction(place, message, "lower the number, or write a percentage")
    return share


def read_releases(
    written: Mapping[str, str], dialect: Dialect, node: Node | None, findings: Findings
) -> Mapping[str, Version]:
    """The versions of the releases that the file defines, by name. `node`: the key `releases`."""
    releases = {}
    for name, text in written.items():
        place = child(node, name)
        version = read_version(text, dialect, place, findings)
        if version is None:
            continue
        known = dialect.releases.get(name)
        if known is not None and known != version:
            message = f"the dialect already has this release, with the version {dialect.scheme.format(known)}"
            findings.add(place, "duplicate-release", message, "give yours another name")
        releases[name] = version
    return releases


def read_ceiling(
    offer: WrittenOffer,
    releases: Mapping[str, Version],
    backends: Sequence[Backend],
    dialect: Dialect,
    node: Node | None,
    findings: Findings,
) -> Version | None:
    """The highest version that may be offered; None: no ceiling. `releases`: of the dialect and the file."""
    written, place, scheme = offer.ceiling, child(node, "ceiling"), dialect.scheme
    if written is None:
        return None
    if isinstance(written, ReleaseCeiling):
        ceiling = _read_release(written.release, releases, child(place, "release"), findings)
    elif scheme.parse(written) is None and written in releases:
        ceiling = None
        hint = f"write {{release: {quoted(written)}}}"
        findings.bad_value(place, "this is the name of a release", hint)
    else:
        ceiling = read_version(written, dialect, place, findings)
    if ceiling is None:
        return None
    if releases and ceiling > (highest := max(releases.values())):
        message = f"no known release serves more than {scheme.format(highest)}: this hides nothing"
        hint = "lower the ceiling, or remove it; newer releases can be named under `releases`"
        findings.warn(place, "no-effect", message, hint)
    declared = [backend.declared for backend in backends if backend.declared]
    reachable = offer.policy == Policy.REACHABLE and len(declared) < len(backends)
    lowest = min((versions.lowest for versions in declared), default=ceiling)
    if ceiling < lowest and not reachable:
        message = f"the lowest declared version is {scheme.format(lowest)}: nothing would be offered"
        findings.add(place, "ceiling-below-minimum", message, "raise the ceiling")
    return ceiling


def check_floors(service: Service, node: Node | None, findings: Findings) -> None:
    """Report a floor, now or at a sunset, that would leave nothing, or clients without a rule."""
    if service.floor is not None:
        _check_floor(service, service.floor, 0.0, child(node, "offer", "floor"), findings)
    if (sunset := service.passed_sunset(inf)) is not None:
        at = child(node, "lifecycle", "sunset", "below")
        _check_floor(service, sunset.below, sunset.timestamp, at, findings)


def _check_floor(service: Service, floor: Version, since: float, node: Node | None, found: Findings) -> None:
    dialect = service.dialect
    declared = [backend.declared for backend in service.backends if backend.declared]
    all_declared = len(declared) == len(service.backends) and not service.sources
    highest = max((versions.highest for versions in declared), default=None) if all_declared else None
    begins = max(since, datetime.now(UTC).timestamp())
    own = min((each.ceiling for each in service.paces if begins < each.ends_at), default=None)
    limits = (
        (service.ceiling, "the ceiling"),
        (highest, "the highest declared version"),
        (own, "one in `for`"),
    )
    for limit, what in limits:
        if limit is not None and floor > limit:
            message = f"{what} is {dialect.scheme.format(limit)}: nothing would be offered"
            found.contradiction(node, message, "lower the floor")
            return
    lifecycle = None if since else service.lifecycle  # until a sunset, brown-outs do refuse
    if lifecycle and lifecycle.brownouts and lifecycle.deprecated and floor >= lifecycle.deprecated.below:
        message = "no deprecated version is on offer: brown-outs refuse nothing"
        found.warn(node, "no-effect", message, "remove `lifecycle.brownouts`")
    written_for = dialect.written_for if service.default_version is None else None
    if written_for is not None and floor > written_for:
        found.contradiction(
            node,
            f"clients that name no version rely on {dialect.scheme.format(written_for)}, which is beneath",
            f'add `default_version: minimum`, `refused`, or a version: "{dialect.scheme.format(floor)}"',
        )


def _read_release(
    name: str, releases: Mapping[str, Version], node: Node | None, findings: Findings
) -> Version | None:
    if name not in releases:
        close = get_close_matches(name, releases, n=1)
        hint = f"did you mean {close[0]}?" if close else "add it under `releases`, or write a version"
        findings.add(node, "unknown-release", "neither the dialect nor `releases` has this release", hint)
    return releases.get(name)


def read_default_version(
    text: str | None, dialect: Dialect, node: Node | None, findings: Findings
) -> DefaultVersion | None:
    """The version for requests that name none; None: the dialect decides."""
    if text is None:
        return None
    if text in {DefaultKind.MINIMUM.value, DefaultKind.MAXIMUM.value, DefaultKind.REFUSED.value}:
        return DefaultVersion(DefaultKind(text))
    version = read_version(text, dialect, node, findings, ", minimum, maximum or refused")
    return None if version is None else DefaultVersion(DefaultKind.CONSTANT, version)
