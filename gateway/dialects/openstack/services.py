"""Profiles of OpenStack services: how each handles microversions, as data, and the options that change it.

`ServiceProfile` is the table that the dialect `openstack` follows. `PRESETS` has one profile for each service
that departs from the API-SIG guideline; every other service type gets the guideline's profile. Nothing here
reads a header or writes a response.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, final

from gateway.core.dialect import DefaultKind
from gateway.core.http.message import FORWARDING, HEADER_NAME, HOP_BY_HOP, HTTPOXY, UNLISTABLE, normalize_name
from gateway.core.versions.version import Version
from gateway.dialects.openstack.microversion import (
    BAD_REQUEST,
    MALFORMED,
    REQUEST_ID,
    STANDARD,
    UNSUPPORTED,
    UNSUPPORTED_MINOR,
    Latest,
    release_table,
)
from gateway.errors import OptionProblem, OptionsError
from gateway.keys.kinds import ListOf
from gateway.keys.texts import FLAG, LINE, literal

ErrorShape: TypeAlias = Literal["api_sig", "fault", "message"]
"""Shape of an error's body: a list `errors` as in the guideline, a fault as in Nova, or one `message`."""


@final
@dataclass(frozen=True, slots=True)
class ServiceProfile:
    """Handling of microversions by the servers of one service. The defaults are the guideline's."""

    service_types: tuple[str, ...]
    """The service's types in `OpenStack-API-Version`; the first is written. Empty: it is not used."""
    legacy_headers: tuple[str, ...] = ()
    """The service's own version headers. The first present one counts after the standard header."""
    first_item_counts: bool = False
    """Whether the first header item that contains the service type counts, instead of the last equal one."""
    latest: Latest = Latest.EXACT
    zero_major: bool = False
    """Whether the service takes `0.9` for a version (too old), not for malformed text."""
    default_version: DefaultKind = DefaultKind.MINIMUM
    malformed_status: int = 400
    error_shape: ErrorShape = "api_sig"
    refused_text: str = UNSUPPORTED
    malformed_text: str = MALFORMED
    refused_title: str = "Not Acceptable"
    malformed_title: str = "Bad Request"
    error_codes: tuple[str, str] | None = None
    """Ends of the `code` in the service's errors, for a refused and a malformed version; None: no `code`."""
    echo_headers: tuple[str, ...] = (STANDARD,)
    """Response headers with the served version, as the service's servers spell them; empty: none."""
    echoes_refused_version: bool = False
    """Whether the service's 406 repeats the version that was refused, in a header."""
    range_headers: tuple[str, str] | None = None
    range_on_malformed: bool = False
    """Whether the service's refusal of a malformed version has the range headers, too."""
    root_negotiated: bool = False
    """Whether the service reads a requested version on `/`, too."""
    maximum_keys: tuple[str, ...] = ("max_version", "version")
    id_is_maximum: bool = False
    """Whether the `id` in discovery documents is the maximum version, which no other key has."""
    index_key: str | None = None
    """Key that marks a document at `/vN` as a list of resources, without versions."""
    releases: Mapping[str, Version] = field(default_factory=dict)
    item_required: bool = False
    """Whether a standard version header without an item for the service is malformed; else it is ignored."""
    unversioned_mounts: frozenset[str] = frozenset()
    """First segments of paths at and below which the service's servers know no version."""
    echoing_mounts: frozenset[str] = frozenset()
    """First path segments below which every successful response names the served version, in all releases."""
    retry_after: bool = True
    """Whether clients of the service accept `Retry-After`; some break on it."""
    request_id_headers: tuple[str, ...] = (REQUEST_ID,)
    """Response headers with the id of a request; empty: the service has no ids of its own."""
    request_id_in_errors: bool = False
    """Whether each error in the service's error bodies names the request id, too."""


_PLACEMENT_REFUSED = (
    "The resource could not be generated that was acceptable to your browser (content of type "
    "application/json. \n\n Invalid microversion: Unacceptable version header: {version}"
)
_PLACEMENT_MALFORMED = BAD_REQUEST + "\n\n Invalid microversion: invalid version string: {text}; {why}  "
_INSPECTOR_REFUSED = "Unsupported API version {version}, supported range is {lowest} to {highest}"
_INSPECTOR_MALFORMED = "Malformed API version: expected string in form of X.Y"
_TEXTS: Mapping[ErrorShape, tuple[str, str]] = {
    "api_sig": (UNSUPPORTED, MALFORMED),
    "fault": (UNSUPPORTED, MALFORMED),
    "message": (_INSPECTOR_REFUSED, _INSPECTOR_MALFORMED),
}
"""Error texts by shape, if options replace the preset's: for a refused and for a malformed version."""
_INSPECTOR_HEADER = "X-OpenStack-Ironic-Inspector-API-{}Version"
_MANILA_HEADER = "X-OpenStack-Manila-API-Version"
_COMPUTE_REQUEST_ID = "X-Compute-Request-Id"  # Cinder and Manila inherited it from Nova

PRESETS: Mapping[str, ServiceProfile] = {
    "volume": ServiceProfile(
        ("volume",),
        first_item_counts=True,
        item_required=True,
        error_shape="fault",
        echoes_refused_version=True,
        root_negotiated=True,
        unversioned_mounts=frozenset({"v1", "v2"}),  # v1 until Queens, v2 until Wallaby
        echoing_mounts=frozenset({"v3"}),
        request_id_headers=(REQUEST_ID, _COMPUTE_REQUEST_ID),
        releases=release_table(
            {
                "3.0": "mitaka 8.0",
                "3.15": "newton 9.0",
                "3.27": "ocata 10.0",
                "3.43": "pike 11.0",
                "3.50": "queens 12.0",
                "3.55": "rocky 13.0",
                "3.59": "stein 14.0 train 15.0",
                "3.60": "ussuri 16.0",
                "3.62": "victoria 17.0",
                "3.64": "wallaby 18.0",
                "3.66": "xena 19.0",
                "3.68": "yoga 20.0",
                "3.70": "zed 21.0 antelope 2023.1 22.0 bobcat 2023.2 23.0",
                "3.71": "caracal 2024.1 24.0 dalmatian 2024.2 25.0 epoxy 2025.1 26.0 "
                "flamingo 2025.2 27.0 gazpacho 2026.1 28.0 2026.2 29.0",
            }
        ),
    ),
    "shared-file-system": ServiceProfile(
        (),
        legacy_headers=(_MANILA_HEADER,),
        latest=Latest.OFF,
        error_shape="fault",
        echo_headers=(_MANILA_HEADER,),
        echoes_refused_version=True,
        unversioned_mounts=frozenset({"v1"}),  # always answers that it served 1.0; gone in 23.0.1
        echoing_mounts=frozenset({"v2"}),
        retry_after=False,  # manilaclient raises TypeError at it
        request_id_headers=(REQUEST_ID, _COMPUTE_REQUEST_ID),
        releases=release_table(
            {
                "2.6": "liberty 1.0",
                "2.15": "mitaka 2.0",
                "2.22": "newton 3.0",
                "2.32": "ocata 4.0",
                "2.40": "pike 5.0",
                "2.42": "queens 6.0",
                "2.46": "rocky 7.0",
                "2.49": "stein 8.0",
                "2.51": "train 9.0",
                "2.55": "ussuri 10.0",
                "2.57": "victoria 11.0",
                "2.63": "wallaby 12.0",
                "2.65": "xena 13.0",
                "2.70": "yoga 14.0",
                "2.73": "zed 15.0",
                "2.78": "antelope 2023.1 16.0",
                "2.82": "bobcat 2023.2 17.0",
                "2.85": "caracal 2024.1 18.0",
                "2.87": "dalmatian 2024.2 19.0",
                "2.89": "epoxy 2025.1 20.0",
                "2.91": "flamingo 2025.2 21.0",
                "2.95": "gazpacho 2026.1 22.0",
                "2.99": "2026.2 23.0",
            }
        ),
    ),
    "placement": ServiceProfile(
        ("placement",),
        zero_major=True,
        refused_text=_PLACEMENT_REFUSED,
        malformed_text=_PLACEMENT_MALFORMED,
        echo_headers=(STANDARD.lower(),),
        root_negotiated=True,
        echoing_mounts=frozenset(
            {
                "allocation_candidates",
                "allocations",
                "reshaper",
                "resource_classes",
                "resource_providers",
                "traits",
                "usages",
            }
        ),
        request_id_in_errors=True,
        releases=release_table(
            {
                "1.0": "newton",
                "1.4": "ocata",
                "1.10": "pike",
                "1.17": "queens",
                "1.30": "rocky",
                "1.31": "stein 1.0 1.1",
                "1.36": "train 2.0 ussuri 3.0 victoria 4.0 wallaby 5.0",
                "1.38": "xena 6.0",
                "1.39": "yoga 7.0 zed 8.0 antelope 2023.1 9.0 bobcat 2023.2 10.0 "
                "caracal 2024.1 11.0 dalmatian 2024.2 12.0 epoxy 2025.1 13.0 "
                "flamingo 2025.2 14.0 gazpacho 2026.1 15.0 2026.2 16.0",
            }
        ),
    ),
    "container-infra": ServiceProfile(
        ("container-infra", "container-infrastructure", "container-infrastructure-management"),
        latest=Latest.ANY_CASE,
        zero_major=True,
        malformed_status=406,
        refused_text=UNSUPPORTED_MINOR,
        malformed_text=f"Invalid value for {STANDARD} header",
        malformed_title="Not Acceptable",
        error_codes=("", ""),
        range_headers=("OpenStack-API-Minimum-Version", "OpenStack-API-Maximum-Version"),
        echoing_mounts=frozenset({"v1"}),
    ),
    "baremetal-introspection": ServiceProfile(
        (),
        legacy_headers=(_INSPECTOR_HEADER.format(""),),
        latest=Latest.ANY_CASE,
        zero_major=True,
        default_version=DefaultKind.MAXIMUM,
        error_shape="message",
        refused_text=_INSPECTOR_REFUSED,
        malformed_text=_INSPECTOR_MALFORMED,
        echo_headers=(),
        range_headers=(_INSPECTOR_HEADER.format("Minimum-"), _INSPECTOR_HEADER.format("Maximum-")),
        range_on_malformed=True,
        root_negotiated=True,
        id_is_maximum=True,
        index_key="resources",
        retry_after=False,
        request_id_headers=(),
    ),
}
"""Profiles by type of service. The texts are those of real servers; the tests have the recorded examples."""

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
"""Other names of service types in the configuration. On the wire only the types of the profile count."""


def preset_for(service_type: str) -> ServiceProfile:
    """The profile of a service type: its preset, or the guideline's."""
    return PRESETS.get(service_type) or ServiceProfile(
        (service_type,),
        refused_title="Requested microversion is unsupported",
        malformed_title="Requested microversion is malformed",
        error_codes=("microversion-unsupported", "microversion-malformed"),
        request_id_in_errors=True,
    )


DuplicatesOption: TypeAlias = Literal["preset", "first", "last"]
LatestOption: TypeAlias = Literal["preset", "off", "exact", "any_case"]
MalformedOption: TypeAlias = Literal["preset", "bad_request", "not_acceptable"]
ErrorsOption: TypeAlias = Literal["preset", "api_sig", "fault", "message"]


_AS_SERVERS_DO: Final = "What the dialect's servers do."


@final
@dataclass(frozen=True, slots=True)
class OpenStackOptions:
    """Options of the dialect `openstack`: the service, and its differences from the preset."""

    service_type: str | None = LINE.key(
        None,
        "The service type that clients name in OpenStack-API-Version; a service of this "
        "dialect needs it. There are presets for volume (cinder), shared-file-system (manila), "
        "placement, container-infra (magnum) and baremetal-introspection (ironic-inspector); any other "
        "follows the API-SIG guideline.",
        reason="A wrong one would leave versions in headers that the gateway does not touch.",
        example="volume",
    )
    standard_header: bool = FLAG.key(
        default=True,
        meaning="false: OpenStack-API-Version is neither read nor written, only legacy_headers "
        "are. Presets of services that do not read it never use it.",
        reason=_AS_SERVERS_DO,
        example=False,
    )
    legacy_headers: tuple[str, ...] = ListOf(LINE).key(
        (),
        "The service's own version headers. They are read in this order when the standard "
        "header does not name the service, and all are written. Empty: those of the preset.",
        reason=_AS_SERVERS_DO,
        example=("X-OpenStack-Manila-API-Version",),
    )
    duplicates: DuplicatesOption = literal(DuplicatesOption).key(
        "preset",
        "Which item counts when OpenStack-API-Version names the service twice.",
        reason=_AS_SERVERS_DO,
        example="last",
    )
    latest: LatestOption = literal(LatestOption).key(
        "preset",
        "How clients may spell `latest`: not at all, in lower case, or in any case.",
        reason=_AS_SERVERS_DO,
        example="exact",
    )
    malformed: MalformedOption = literal(MalformedOption).key(
        "preset",
        "The status for a text that is not a version: 400 or 406.",
        reason=_AS_SERVERS_DO,
        example="bad_request",
    )
    errors: ErrorsOption = literal(ErrorsOption).key(
        "preset",
        "The shape of errors: a list `errors`, a fault like Cinder's, or one `message`.",
        reason=_AS_SERVERS_DO,
        example="api_sig",
    )
    echo_headers: tuple[str, ...] = ListOf(LINE).key(
        (),
        "Response headers with the served version, spelled as the service's servers spell "
        "them. Empty: those of the preset.",
        reason=_AS_SERVERS_DO,
        example=("openstack-api-version",),
    )
    range_headers: tuple[str, ...] = ListOf(LINE).key(
        (),
        "The two response headers of the minimum and the maximum. Empty: those of the preset.",
        reason=_AS_SERVERS_DO,
        example=("OpenStack-API-Minimum-Version", "OpenStack-API-Maximum-Version"),
    )


_SERVICE_TYPE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_RESERVED = HOP_BY_HOP | FORWARDING | HTTPOXY | UNLISTABLE | {"accept", "content-type", "vary"}
"""Headers (normalized names) that cannot carry a version: without one the message has another meaning."""
_LATEST = {"off": Latest.OFF, "exact": Latest.EXACT, "any_case": Latest.ANY_CASE}
_MALFORMED_STATUS = {"bad_request": 400, "not_acceptable": 406}


NO_SERVICE_TYPE: Final = "the dialect openstack needs the service type of the API"
HOW_TO_NAME_IT: Final = f"{', '.join(PRESETS)}, or another service type of OpenStack"
"""Allowed service types, for hints: those with a preset, and others."""


def read_options(options: OpenStackOptions) -> tuple[str, ServiceProfile]:
    """The service type and its preset with the changes of the options. Raises `ValueError` and `OptionsError`
    for options that do not fit."""
    if options.service_type is None:
        hint = f"write `openstack: {{service_type: TYPE}}`; TYPE is {HOW_TO_NAME_IT}"
        raise OptionsError((OptionProblem(("service_type",), NO_SERVICE_TYPE, hint),))
    service_type = ALIASES.get(options.service_type, options.service_type)
    if _SERVICE_TYPE.fullmatch(service_type) is None:
        raise ValueError("a service type is lower-case letters, digits and `-`")
    for name in (*options.legacy_headers, *options.echo_headers, *options.range_headers):
        if HEADER_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not a valid header name")
        if normalize_name(name) in _RESERVED:
            raise ValueError(f"{name!r} is not a header for versions")
    if len(options.range_headers) not in (0, 2):
        raise ValueError("range_headers needs two names: of the minimum, then of the maximum")
    profile = preset_for(service_type)
    if not options.standard_header:
        profile = replace(profile, service_types=())
    if options.range_headers:
        profile = replace(profile, range_headers=(options.range_headers[0], options.range_headers[1]))
    if options.duplicates != "preset":
        profile = replace(profile, first_item_counts=options.duplicates == "first")
    if options.errors != "preset":
        refused, malformed = _TEXTS[options.errors]
        profile = replace(profile, error_shape=options.errors, refused_text=refused, malformed_text=malformed)
    profile = replace(
        profile,
        legacy_headers=options.legacy_headers or profile.legacy_headers,
        echo_headers=options.echo_headers or profile.echo_headers,
        latest=_LATEST.get(options.latest, profile.latest),
        malformed_status=_MALFORMED_STATUS.get(options.malformed, profile.malformed_status),
    )
    if not profile.service_types and not profile.legacy_headers:
        raise ValueError("without the standard header the service needs legacy_headers")
    return service_type, profile
