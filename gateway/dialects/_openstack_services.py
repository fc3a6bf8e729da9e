"""How OpenStack services with microversions speak about them, as data, and the options that replace it.

Not a dialect: `Habits` is what the `openstack` dialect acts on, one in `PRESETS` for each service that
departs from the API-SIG guideline. A service type without a preset speaks as the guideline says. Nothing here
reads a header or writes a reply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, final

from gateway.core.dialect import SilenceKind
from gateway.core.message import FORWARDING, HOP_BY_HOP, UNLISTABLE, fold
from gateway.core.version import Version
from gateway.dialects._openstack import STANDARD, Latest, release_table

Body: TypeAlias = Literal["api_sig", "fault", "message"]

# --- 1. how services speak ---------------------------------------------------------------------------------

_REFUSED = "Version {version} is not supported by the API. Minimum is {lowest} and maximum is {highest}."
_GARBLED = "API Version String {text} is of invalid format. Must be of format MajorNum.MinorNum."


@final
@dataclass(frozen=True, slots=True)
class Habits:
    """How the servers of one service speak about versions. The defaults are the guideline's."""

    types: tuple[str, ...]
    """Service types that name it in `OpenStack-API-Version`; the first is the one that is written. Empty: the
    standard header is neither read nor written."""
    legacy: tuple[str, ...] = ()
    """Request headers of its own, the first that is there counts; the standard one beats them. All are
    written."""
    first_wins: bool = False
    """Of several items for the service the first counts, and one that only contains its type is one."""
    latest: Latest = Latest.EXACT
    zero_major: bool = False
    """`0.9` is a version (too old), not garbage."""
    silence: SilenceKind = SilenceKind.MINIMUM
    malformed: int = 400
    """The status for a text that is no version."""
    body: Body = "api_sig"
    refused: str = _REFUSED
    garbled: str = _GARBLED
    titles: tuple[str, str] = ("Not Acceptable", "Bad Request")
    codes: tuple[str, str] | None = None
    """What `code` of an API-SIG error says behind the service type, refused and garbled; None: no `code`."""
    echoes: tuple[str, ...] = (STANDARD,)
    """Reply headers that tell the served version, as its servers spell them; empty: none."""
    echoes_refused: bool = False
    """A 406 repeats the version that was refused."""
    range_headers: tuple[str, str] | None = None
    """Reply headers that tell minimum and maximum."""
    range_on_garbled: bool = False
    root_negotiated: bool = False
    """A version counts on `/`, too."""
    range_keys: tuple[str, ...] = ("max_version", "version")
    """Keys of the maximum in documents."""
    id_is_highest: bool = False
    """The `id` in documents is the maximum; no other key tells it."""
    releases: Mapping[str, Version] = field(default_factory=dict)


_UNACCEPTABLE = (
    "The resource could not be generated that was acceptable to your browser (content of type "
    "application/json. \n\n Invalid microversion: Unacceptable version header: {version}"
)
_INVALID = (
    "The server could not comply with the request since it is either malformed or otherwise incorrect."
    "\n\n Invalid microversion: invalid version string: {text}; {why}  "
)
_UNSUPPORTED = "Unsupported API version {version}, supported range is {lowest} to {highest}"
_UNFORMED = "Malformed API version: expected string in form of X.Y"
_WORDS: Mapping[Body, tuple[str, str]] = {
    "api_sig": (_REFUSED, _GARBLED),
    "fault": (_REFUSED, _GARBLED),
    "message": (_UNSUPPORTED, _UNFORMED),
}
"""What is said in a shape of errors that is not the preset's: words that name the range."""
_INSPECTOR = "X-OpenStack-Ironic-Inspector-API-{}Version"
_MANILA = "X-OpenStack-Manila-API-Version"

PRESETS: Mapping[str, Habits] = {
    "volume": Habits(
        ("volume",),
        first_wins=True,
        body="fault",
        echoes_refused=True,
        releases=release_table(
            {
                "3.15": "newton 9.0",
                "3.50": "queens 12.0",
                "3.60": "ussuri 16.0",
                "3.68": "yoga 20.0",
                "3.70": "bobcat 2023.2 23.0",
                "3.71": "epoxy 2025.1 26.0 flamingo 2025.2 27.0 gazpacho 2026.1 28.0",
            }
        ),
    ),
    "shared-file-system": Habits(
        (),
        legacy=(_MANILA,),
        latest=Latest.OFF,
        body="fault",
        echoes=(_MANILA,),
        echoes_refused=True,
        releases=release_table(
            {
                "2.22": "newton 3.0",
                "2.51": "train 9.0",
                "2.70": "yoga 14.0",
                "2.82": "bobcat 2023.2 17.0",
                "2.89": "epoxy 2025.1 20.0",
                "2.91": "flamingo 2025.2 21.0",
                "2.95": "gazpacho 2026.1 22.0",
            }
        ),
    ),
    "placement": Habits(
        ("placement",),
        zero_major=True,
        refused=_UNACCEPTABLE,
        garbled=_INVALID,
        echoes=(STANDARD.lower(),),
        root_negotiated=True,
        releases=release_table({"1.31": "stein 1.1"}),
    ),
    "container-infra": Habits(
        ("container-infra", "container-infrastructure", "container-infrastructure-management"),
        latest=Latest.ANY_CASE,
        zero_major=True,
        malformed=406,
        refused="Version {version} was requested but the minor version is not supported by this service. "
        "The supported version range is: [{lowest}, {highest}].",
        garbled=f"Invalid value for {STANDARD} header",
        titles=("Not Acceptable", "Not Acceptable"),
        codes=("", ""),
        range_headers=("OpenStack-API-Minimum-Version", "OpenStack-API-Maximum-Version"),
    ),
    "baremetal-introspection": Habits(
        (),
        legacy=(_INSPECTOR.format(""),),
        latest=Latest.ANY_CASE,
        zero_major=True,
        silence=SilenceKind.MAXIMUM,
        body="message",
        refused=_UNSUPPORTED,
        garbled=_UNFORMED,
        echoes=(),
        range_headers=(_INSPECTOR.format("Minimum-"), _INSPECTOR.format("Maximum-")),
        range_on_garbled=True,
        root_negotiated=True,
        id_is_highest=True,
    ),
}
"""By service type. What is said of refusals is what servers say; see tests for the examples."""

ALIASES: Mapping[str, str] = {
    "cinder": "volume",
    "volumev3": "volume",
    "block-storage": "volume",
    "manila": "shared-file-system",
    "share": "shared-file-system",
    "sharev2": "shared-file-system",
    "magnum": "container-infra",
    "container-infrastructure": "container-infra",
    "container-infrastructure-management": "container-infra",
    "ironic-inspector": "baremetal-introspection",
}
"""Other names of a preset in the configuration. On the wire only its own types count."""


def habits_of(service_type: str) -> Habits:
    """The preset of a service type; the guideline's habits for one without."""
    return PRESETS.get(service_type) or Habits(
        (service_type,),
        titles=("Requested microversion is unsupported", "Requested microversion is malformed"),
        codes=("microversion-unsupported", "microversion-malformed"),
    )


# --- 2. options --------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class OpenStackOptions:
    """The service, and habits that differ from its preset."""

    service_type: str = field(
        default="placement",
        metadata={
            "description": "The service type that clients name in OpenStack-API-Version. There are presets "
            "for volume (cinder), shared-file-system (manila), placement, container-infra (magnum) and "
            "baremetal-introspection (ironic-inspector); any other speaks as the API-SIG guideline says.",
            "examples": ("volume",),
            "reason": "Placement departs least from the guideline.",
        },
    )
    standard_header: bool = field(
        default=True,
        metadata={
            "description": "false: OpenStack-API-Version is neither read nor written, only legacy_headers "
            "are. (With presets of services that never read it, it never is.)",
            "examples": (False,),
        },
    )
    legacy_headers: tuple[str, ...] = field(
        default=(),
        metadata={
            "description": "Version headers of the service's own, read in this order where the standard one "
            "does not name it, and all written. None: those of the preset.",
            "examples": (("X-OpenStack-Manila-API-Version",),),
        },
    )
    duplicates: Literal["preset", "first", "last"] = field(
        default="preset",
        metadata={
            "description": "Which item counts when OpenStack-API-Version names the service twice.",
            "examples": ("last",),
        },
    )
    latest: Literal["preset", "off", "exact", "any_case"] = field(
        default="preset",
        metadata={"description": "How `latest` may be spelled, if at all.", "examples": ("exact",)},
    )
    malformed: Literal["preset", "bad_request", "not_acceptable"] = field(
        default="preset",
        metadata={
            "description": "The status for a text that is no version: 400 or 406.",
            "examples": ("bad_request",),
        },
    )
    errors: Literal["preset", "api_sig", "fault", "message"] = field(
        default="preset",
        metadata={
            "description": "The shape of errors: a list `errors`, a fault as Cinder's, or one `message`.",
            "examples": ("api_sig",),
        },
    )
    echo_headers: tuple[str, ...] = field(
        default=(),
        metadata={
            "description": "Reply headers that tell the served version, spelled as its servers spell them. "
            "None: those of the preset.",
            "examples": (("openstack-api-version",),),
        },
    )
    range_headers: tuple[str, ...] = field(
        default=(),
        metadata={
            "description": "The two reply headers that tell minimum and maximum. None: those of the preset.",
            "examples": (("OpenStack-API-Minimum-Version", "OpenStack-API-Maximum-Version"),),
        },
    )


_TYPE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_NOT_OURS = HOP_BY_HOP | FORWARDING | UNLISTABLE | {"accept", "content-type", "vary"}
"""Folded names without which a message would no longer be what it is."""
_LATEST = {"off": Latest.OFF, "exact": Latest.EXACT, "any_case": Latest.ANY_CASE}
_MALFORMED = {"bad_request": 400, "not_acceptable": 406}


def chosen(options: OpenStackOptions) -> tuple[str, Habits]:
    """The service type, and its preset with what the options replace.

    Raises `ValueError` where they make no dialect.
    """
    service_type = ALIASES.get(options.service_type, options.service_type)
    if _TYPE.fullmatch(service_type) is None:
        raise ValueError("a service type is lower-case letters, digits and `-`")
    for name in (*options.legacy_headers, *options.echo_headers, *options.range_headers):
        if _TOKEN.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no header name")
        if fold(name) in _NOT_OURS:
            raise ValueError(f"{name!r} says other things than a version")
    if len(options.range_headers) not in (0, 2):
        raise ValueError("range_headers are two names: of the minimum, then of the maximum")
    habits = habits_of(service_type)
    if not options.standard_header:
        habits = replace(habits, types=())
    if options.range_headers:
        habits = replace(habits, range_headers=(options.range_headers[0], options.range_headers[1]))
    if options.duplicates != "preset":
        habits = replace(habits, first_wins=options.duplicates == "first")
    if options.errors != "preset":
        refused, garbled = _WORDS[options.errors]
        habits = replace(habits, body=options.errors, refused=refused, garbled=garbled)
    habits = replace(
        habits,
        legacy=options.legacy_headers or habits.legacy,
        echoes=options.echo_headers or habits.echoes,
        latest=_LATEST.get(options.latest, habits.latest),
        malformed=_MALFORMED.get(options.malformed, habits.malformed),
    )
    if not habits.types and not habits.legacy:
        raise ValueError("without the standard header the service needs legacy_headers")
    return service_type, habits
