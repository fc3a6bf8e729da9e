"""`lifecycle` of a service: which versions are deprecated, and when they are to end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Final

from gateway.core.dialect import Dialect
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.versions.version import Version
from gateway.keys.kinds import ListOf, section
from gateway.keys.texts import DAY, FLAG, VERSION, written_as
from gateway.settings.sections.brownouts import WrittenBrownout, read_brownouts
from gateway.settings.sections.versions import read_version
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node, child

_OPERATOR: Final = "Only the operator knows that."


LINK: Final = written_as(
    r"https?://[A-Za-z0-9\[][!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]{0,1023}",
    "not an absolute URL",
    "write https://HOST/PATH, without blanks or quotation marks",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLine:
    """The part that both lines have in common."""

    below: str = field(
        metadata=VERSION.required("The lowest version that stays.", reason=_OPERATOR, example="1.46")
    )
    link: str | None = LINK.key(
        None,
        "A page about it, as an absolute URL, for a `Link` header.",
        reason=_OPERATOR,
        example="https://docs.example/api/deprecations",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenDeprecation(WrittenLine):
    """The versions that are deprecated."""

    since: date = field(
        metadata=DAY.required("The day from which they are.", reason=_OPERATOR, example="2026-01-15")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSunset(WrittenLine):
    """The versions that are to end, and when."""

    at: date = field(
        metadata=DAY.required("The day on which they are to end.", reason=_OPERATOR, example="2099-06-30")
    )
    enforce: bool = FLAG.key(
        default=False,
        meaning="Whether the floor rises to `below` when the day comes, by the clocks of all replicas. It "
        "rises once: after `skewgate lower` it stays as it is until `below` or `at` changes.",
        reason="Versions that are still used would be refused without anybody having looked.",
        example=True,
    )


@dataclass(frozen=True, slots=True)
class WrittenLifecycle:
    """Announcements to the clients of old versions, as headers of their responses and in documents."""

    deprecated: WrittenDeprecation | None = section(WrittenDeprecation, title="Deprecation").key(
        None,
        "Responses served below a version have `Deprecation` (RFC 9745). A backend's own header stays.",
        reason="Nothing is deprecated.",
        example={"below": "1.46", "since": "2026-01-15"},
    )
    sunset: WrittenSunset | None = section(WrittenSunset, title="Sunset").key(
        None,
        "Responses served below a version have `Sunset` (RFC 8594), and OpenStack's documents the next "
        "minimum. A backend's own header stays.",
        reason="Nothing is to end.",
        example={"below": "1.46", "at": "2099-06-30"},
    )
    brownouts: tuple[WrittenBrownout, ...] = ListOf(section(WrittenBrownout, title="Brownout")).key(
        (),
        "Times at which deprecated versions are refused, with the reason and the end. Documents are not.",
        reason="Only the operator knows when clients may fail.",
        example=[{"at": "2099-02-03T10:00Z", "for": "5m"}],
    )
    unsafe: bool = FLAG.key(
        default=False,
        meaning="Whether brown-outs refuse all methods, not only GET, HEAD and OPTIONS.",
        reason="A client that fails to read does the least harm.",
        example=True,
    )


def read_lifecycle(
    written: WrittenLifecycle, dialect: Dialect, ceiling: Version | None, node: Node | None, found: Findings
) -> Lifecycle | None:
    """The announced end of versions; None: there is none. `node`: the key `lifecycle`."""
    lines, scheme, sunset_node = {}, dialect.scheme, child(node, "sunset")
    for name, line in (("deprecated", written.deprecated), ("sunset", written.sunset)):
        if line is None:
            continue
        place = child(node, name, "below")
        below = read_version(line.below, dialect, place, found)
        if below is None:
            continue
        day = line.since if isinstance(line, WrittenDeprecation) else line.at
        lines[name] = Line(below, day, line.link)
        if ceiling is not None and below > ceiling:
            highest = scheme.format(ceiling)
            message = f"the ceiling is {highest}: every version on offer would be announced as ending"
            found.contradiction(place, message, f"write {highest} or less")
    deprecated, sunset = lines.get("deprecated"), lines.get("sunset")
    enforce = written.sunset is not None and written.sunset.enforce
    if deprecated and sunset and sunset.day < deprecated.day:
        message = f"this is before the deprecation, {deprecated.day}"
        found.contradiction(child(sunset_node, "at"), message, "write a later day")
    if deprecated and sunset and sunset.below > deprecated.below:
        highest = scheme.format(deprecated.below)
        message = f"versions from {highest} on would end without being deprecated"
        found.contradiction(child(sunset_node, "below"), message, f"write {highest} or less")
    if sunset and sunset.day <= datetime.now(UTC).date():
        message = f"passed: versions below {scheme.format(sunset.below)} are still served, with this `Sunset`"
        if enforce:
            message = f"passed: the floor rises to {scheme.format(sunset.below)}, unless it did before"
        found.warn(child(sunset_node, "at"), "sunset-passed", message, "remove it, or write a later day")
    brownouts = read_brownouts(written.brownouts, deprecated, node, found)
    return Lifecycle(deprecated, sunset, brownouts, written.unsafe, enforce) if lines else None
