"""The API-SIG family as data: the golden examples P1 to P3, and how each service with a preset departs.

What is said of Placement is what real servers of 1.1.0 (1.0 to 1.31) and 16.0.0 (1.0 to 1.39) say.
"""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.dialect import (
    ASK_SILENT,
    Advert,
    Ask,
    AskKind,
    Bounds,
    Failure,
    Links,
    ProbeAnswer,
    ProbeFault,
    ProbeRequest,
    Reason,
    Refusal,
    Refused,
    Served,
    SilenceKind,
)
from gateway.core.message import Header, Reply, as_mapping, fold
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from gateway.dialects import discover
from gateway.dialects.openstack import NEGOTIATED_ROOT, RESOURCE, ROOT, VERSION, OpenStack
from gateway.settings import load

STANDARD = "OpenStack-API-Version"
MANILA_OWN = "X-OpenStack-Manila-API-Version"
INSPECTOR_OWN = "X-OpenStack-Ironic-Inspector-API-Version"
JSON = ("Content-Type", "application/json")
NOTHING = as_mapping([])


def speaking(service_type: str, **options: Any) -> OpenStack:
    return OpenStack.configured(OpenStack.Options(service_type=service_type, **options))


PLACEMENT = speaking("placement")
CINDER = speaking("volume")
MANILA = speaking("shared-file-system")
MAGNUM = speaking("container-infra")
INSPECTOR = speaking("baremetal-introspection")
PLAIN = speaking("backup")
ALL = [PLACEMENT, CINDER, MANILA, MAGNUM, INSPECTOR, PLAIN]


def between(lowest: str, highest: str) -> Bounds:
    return Bounds(VersionSet.read(f"{lowest}-{highest}", PLAIN.scheme))


OFFER = between("1.0", "1.39")


def read(dialect: OpenStack, *lines: Header) -> Ask:
    return dialect.read_ask(RESOURCE, as_mapping((fold(name), value) for name, value in lines))


def refuse(dialect: OpenStack, text: str, bounds: Bounds = OFFER) -> Reply:
    """What the gateway says to the ask `text`, wherever the service reads it."""
    names = {fold(name): name for name in dialect.vary}
    value = f"{dialect.habits.types[0]} {text}" if fold(STANDARD) in names else text
    ask = read(dialect, (dialect.vary[0], value))
    reason = Reason.MALFORMED
    if ask.version is not None:
        reason = Reason.BELOW_MIN if ask.version < bounds.lowest else Reason.ABOVE_MAX
    return dialect.refuse(Refusal(reason, ask, ask.version, bounds), RESOURCE, NOTHING)


def heard(dialect: OpenStack, status: int, *lines: Header) -> Served:
    return dialect.read_reply(RESOURCE, status, as_mapping((fold(name), value) for name, value in lines))


def told(
    dialect: OpenStack,
    status: int,
    *lines: Header,
    settled: Version | None = None,
    silent: bool = False,
) -> tuple[Header, ...]:
    served = heard(dialect, status, *lines)
    return dialect.write_reply(RESOURCE, status, served, settled, OFFER, silent=silent)


def sent(dialect: OpenStack, text: str) -> tuple[Header, ...]:
    return dialect.write_request(RESOURCE, dialect.scheme.require(text), ASK_SILENT, silent=False)


# --- what a request says, and what a backend is sent ---------------------------------------------------


@pytest.mark.parametrize(
    "dialect,value,version",
    [
        (PLACEMENT, "placement 1.10", "1.10"),
        (PLACEMENT, "PLACEMENT 1.10", "1.10"),
        (PLACEMENT, "compute 2.20, placement 1.10", "1.10"),
        (PLACEMENT, "placement 1.9, placement 1.10", "1.10"),
        (CINDER, "volume 3.50", "3.50"),
        (CINDER, "volume 3.50, volume 3.60", "3.50"),
        (CINDER, "compute 2.1, Volume 3.50", "3.50"),
        (CINDER, "volumev3 3.50, volume 3.60", "3.50"),
        (CINDER, "volume, volume 3.60", "3.60"),
        (MAGNUM, "container-infra 1.5", "1.5"),
        (MAGNUM, "container-infrastructure 1.5", "1.5"),
        (MAGNUM, "container-infrastructure-management 1.5, compute 2.1", "1.5"),
        (PLAIN, "backup 1.5", "1.5"),
    ],
)
def test_each_service_reads_its_own_item(dialect: OpenStack, value: str, version: str) -> None:
    ask = read(dialect, (STANDARD, value))

    assert ask == Ask(AskKind.EXACT, dialect.scheme.require(version), version)


@pytest.mark.parametrize("dialect", [PLACEMENT, CINDER, MAGNUM, PLAIN])
@pytest.mark.parametrize("value", ["compute 2.20", "1.10", "", "nonesuch 1.10"])
def test_a_header_for_others_is_silence(dialect: OpenStack, value: str) -> None:
    assert read(dialect, (STANDARD, value)) == ASK_SILENT


def test_cinder_does_not_accept_block_storage() -> None:
    assert read(CINDER, (STANDARD, "block-storage 3.50")) == ASK_SILENT


def test_one_header_with_several_services_reaches_each_backend_with_its_own_item_alone() -> None:
    value = "compute 2.20, volume 3.50, placement 1.10, container-infra 1.5"
    leaving = {}
    for dialect in (CINDER, PLACEMENT, MAGNUM):
        ask = read(dialect, (STANDARD, value))
        assert ask.version is not None
        leaving[dialect] = dialect.write_request(RESOURCE, ask.version, ask, silent=False)

    assert leaving == {
        CINDER: ((STANDARD, "volume 3.50"),),
        PLACEMENT: ((STANDARD, "placement 1.10"),),
        MAGNUM: ((STANDARD, "container-infra 1.5"),),
    }


def test_cinders_400_to_a_header_without_a_volume_item_cannot_come() -> None:
    """Whatever came, the standard header is taken off and one that names `volume` is written."""
    assert read(CINDER, (STANDARD, "compute 2.20")) == ASK_SILENT
    assert fold(STANDARD) in CINDER.owned_request
    assert sent(CINDER, "3.0") == ((STANDARD, "volume 3.0"),)


@pytest.mark.parametrize("dialect,own", [(MANILA, MANILA_OWN), (INSPECTOR, INSPECTOR_OWN)])
def test_trap_24_services_with_a_header_of_their_own_ignore_the_standard_one(
    dialect: OpenStack, own: str
) -> None:
    assert read(dialect, (own, "2.5")).version == Version(2, 5)
    assert read(dialect, (own, "2.5, 2.6")).version == Version(2, 6)
    assert read(dialect, (own, "")) == ASK_SILENT
    assert read(dialect, (STANDARD, f"{dialect.service_type} 2.5")) == ASK_SILENT
    assert sent(dialect, "2.5") == ((own, "2.5"),)
    assert fold(STANDARD) in dialect.owned_request - dialect.reads
    assert dialect.vary == (own,)


def test_manilas_experimental_flag_is_nobody_elses_business() -> None:
    assert "x-openstack-manila-api-experimental" not in MANILA.owned_request | MANILA.owned_reply


@pytest.mark.parametrize(
    "dialect,exact,shouted",
    [
        (PLACEMENT, AskKind.LATEST, AskKind.GARBLED),
        (CINDER, AskKind.LATEST, AskKind.GARBLED),
        (MAGNUM, AskKind.LATEST, AskKind.LATEST),
        (PLAIN, AskKind.LATEST, AskKind.GARBLED),
    ],
)
def test_latest_as_the_service_spells_it(dialect: OpenStack, exact: AskKind, shouted: AskKind) -> None:
    service = dialect.habits.types[0]
    assert read(dialect, (STANDARD, f"{service} latest")).kind is exact
    assert read(dialect, (STANDARD, f"{service} LATEST")).kind is shouted


def test_manila_knows_no_latest_and_the_inspector_does() -> None:
    assert read(MANILA, (MANILA_OWN, "latest")).kind is AskKind.GARBLED
    assert read(INSPECTOR, (INSPECTOR_OWN, "Latest")).kind is AskKind.LATEST


def test_silence_is_the_minimum_but_for_the_inspector() -> None:
    assert [dialect.silence.kind for dialect in ALL] == [
        *[SilenceKind.MINIMUM] * 4,
        SilenceKind.MAXIMUM,
        SilenceKind.MINIMUM,
    ]


def test_0_9_is_too_old_for_placement_and_malformed_for_others() -> None:
    assert read(PLACEMENT, (STANDARD, "placement 0.9")).version == Version(0, 9)
    assert read(CINDER, (STANDARD, "volume 0.9")).kind is AskKind.GARBLED
    assert read(PLAIN, (STANDARD, "backup 0.9")).kind is AskKind.GARBLED


def test_a_silent_backend_and_a_place_that_is_not_negotiated_are_sent_no_version() -> None:
    assert CINDER.write_request(RESOURCE, Version(3, 0), ASK_SILENT, silent=True) == ()
    assert CINDER.write_request(ROOT, Version(3, 0), ASK_SILENT, silent=False) == ()


# --- places --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "", "//", "/%2F"])
def test_the_root_is_negotiated_where_its_servers_do_that(path: str) -> None:
    assert PLACEMENT.place("GET", path, "") == INSPECTOR.place("GET", path, "") == NEGOTIATED_ROOT
    assert {each.place("GET", path, "") for each in (CINDER, MANILA, MAGNUM, PLAIN)} == {ROOT}


@pytest.mark.parametrize("path", ["/v3", "/v3/", "/v2.0/", "/%763/"])
def test_a_version_with_and_without_a_slash_is_a_document(path: str) -> None:
    assert CINDER.place("GET", path, "") == VERSION
    assert (VERSION.negotiated, VERSION.document, VERSION.versioned_only) == (True, True, True)


@pytest.mark.parametrize("path", ["/v3/abc/volumes", "/v", "/versions", "/resource_providers", "/v3//"])
def test_everything_else_is_a_resource(path: str) -> None:
    assert CINDER.place("GET", path, "") == RESOURCE


# --- refusals made by the gateway ----------------------------------------------------------------------


def test_P1_placement_out_of_range() -> None:
    assert refuse(PLACEMENT, "1.99") == Reply(
        406,
        (JSON,),
        b'{"errors": [{"status": 406, "title": "Not Acceptable", "detail": "The resource could not be '
        b"generated that was acceptable to your browser (content of type application/json. \\n\\n Invalid "
        b'microversion: Unacceptable version header: 1.99", "max_version": "1.39", "min_version": "1.0"}]}',
    )
    assert b"Unacceptable version header: 0.9" in refuse(PLACEMENT, "0.9").body


@pytest.mark.parametrize(
    "text,why",
    [
        ("spam", "invalid literal for int() with base 10: 'spam'"),
        ("1.2.3", "invalid literal for int() with base 10: '2.3'"),
        ("1", "Version.__new__() missing 1 required positional argument: 'minor'"),
    ],
)
def test_P2_placement_malformed(text: str, why: str) -> None:
    assert refuse(PLACEMENT, text) == Reply(
        400,
        (JSON,),
        b'{"errors": [{"status": 400, "title": "Bad Request", "detail": "The server could not comply with '
        b"the request since it is either malformed or otherwise incorrect.\\n\\n Invalid microversion: "
        + f'invalid version string: {text}; {why}  "}}]}}'.encode(),
    )


@pytest.mark.parametrize(
    "dialect,text,echo",
    [(CINDER, "3.99", (STANDARD, "volume 3.99")), (MANILA, "3.99", (MANILA_OWN, "3.99"))],
)
def test_cinder_and_manila_refuse_as_nova_does(dialect: OpenStack, text: str, echo: Header) -> None:
    assert refuse(dialect, text, between("3.0", "3.71")) == Reply(
        406,
        (JSON, echo),
        b'{"computeFault": {"code": 406, "message": "Version 3.99 is not supported by the API. '
        b'Minimum is 3.0 and maximum is 3.71."}}',
    )


@pytest.mark.parametrize("dialect", [CINDER, MANILA])
def test_cinder_and_manila_call_a_garbled_text_a_bad_request(dialect: OpenStack) -> None:
    assert refuse(dialect, "spam") == Reply(
        400,
        (JSON,),
        b'{"badRequest": {"code": 400, "message": "API Version String spam is of invalid format. '
        b'Must be of format MajorNum.MinorNum."}}',
    )


MAGNUM_RANGE = (("OpenStack-API-Minimum-Version", "1.0"), ("OpenStack-API-Maximum-Version", "1.39"))


def test_magnum_refuses_with_range_headers_and_a_malformed_text_with_406_and_without() -> None:
    reply = refuse(MAGNUM, "1.99")
    assert (reply.status, reply.headers) == (406, (*MAGNUM_RANGE, JSON))
    assert json.loads(reply.body) == {
        "errors": [
            {
                "code": "",
                "status": 406,
                "title": "Not Acceptable",
                "detail": "Version 1.99 was requested but the minor version is not supported by this "
                "service. The supported version range is: [1.0, 1.39].",
                "links": [],
                "max_version": "1.39",
                "min_version": "1.0",
            }
        ]
    }

    garbled = refuse(MAGNUM, "spam")
    assert (garbled.status, garbled.headers) == (406, (JSON,))
    assert json.loads(garbled.body)["errors"][0]["detail"] == "Invalid value for OpenStack-API-Version header"


INSPECTOR_RANGE = (
    ("X-OpenStack-Ironic-Inspector-API-Minimum-Version", "1.0"),
    ("X-OpenStack-Ironic-Inspector-API-Maximum-Version", "1.39"),
)


def test_the_inspector_tells_its_range_on_every_refusal() -> None:
    assert refuse(INSPECTOR, "1.99") == Reply(
        406,
        (*INSPECTOR_RANGE, JSON),
        b'{"error": {"message": "Unsupported API version 1.99, supported range is 1.0 to 1.39"}}',
    )
    assert refuse(INSPECTOR, "spam") == Reply(
        400,
        (*INSPECTOR_RANGE, JSON),
        b'{"error": {"message": "Malformed API version: expected string in form of X.Y"}}',
    )


def test_a_service_without_a_preset_refuses_as_the_guideline_says() -> None:
    reply = refuse(PLAIN, "1.99")
    assert (reply.status, reply.headers) == (406, (JSON,))
    assert json.loads(reply.body) == {
        "errors": [
            {
                "code": "backup.microversion-unsupported",
                "status": 406,
                "title": "Requested microversion is unsupported",
                "detail": "Version 1.99 is not supported by the API. Minimum is 1.0 and maximum is 1.39.",
                "links": [],
                "max_version": "1.39",
                "min_version": "1.0",
            }
        ]
    }
    garbled = json.loads(refuse(PLAIN, "spam").body)["errors"][0]
    assert (garbled["status"], garbled["code"]) == (400, "backup.microversion-malformed")
    assert "max_version" not in garbled


@pytest.mark.parametrize("text", ["{", "{text}", "%s", '"', "\u00e9"])
def test_a_garbled_text_is_quoted_and_never_a_pattern(text: str) -> None:
    assert json.loads(refuse(PLAIN, text).body)["errors"][0]["detail"].startswith(
        f"API Version String {text} is"
    )


def test_a_failure_has_the_shape_of_the_service_and_the_range_where_errors_carry_one() -> None:
    failure = Failure(503, "Service Unavailable", "None now.", bounds=OFFER)

    assert json.loads(CINDER.fail(failure).body) == {
        "serviceUnavailable": {"code": 503, "message": "None now."}
    }
    assert json.loads(PLACEMENT.fail(failure).body) == {
        "errors": [{"status": 503, "title": "Service Unavailable", "detail": "None now."}]
    }
    assert json.loads(PLAIN.fail(failure).body)["errors"][0]["code"] == ""
    assert INSPECTOR.fail(failure) == Reply(
        503, (*INSPECTOR_RANGE, JSON), b'{"error": {"message": "None now."}}'
    )
    assert INSPECTOR.fail(Failure(502, "Bad Gateway", "No.")).headers == (JSON,)
    assert b"computeFault" in CINDER.fail(Failure(502, "Bad Gateway", "No.")).body


# --- replies of a backend ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dialect,line,version",
    [
        (PLACEMENT, ("openstack-api-version", "placement 1.10"), Version(1, 10)),
        (CINDER, (STANDARD, "volume 3.50"), Version(3, 50)),
        (MANILA, (MANILA_OWN, "2.50"), Version(2, 50)),
        (MAGNUM, (STANDARD, "container-infra 1.5"), Version(1, 5)),
        (PLAIN, (STANDARD, "backup 1.5"), Version(1, 5)),
    ],
)
def test_P3_served_stands_as_it_was_said_and_spelled(
    dialect: OpenStack, line: Header, version: Version
) -> None:
    """Placement writes its names in lower case, and so does the gateway in front of it."""
    assert heard(dialect, 200, line) == Served(version)
    assert told(dialect, 200, line, settled=Version(1, 1)) == (line,)


@pytest.mark.parametrize("value", ["compute 2.1", "1.5", "placement spam", ""])
def test_V8_what_is_no_version_of_the_service_is_not_passed_on(value: str) -> None:
    assert told(PLACEMENT, 200, (STANDARD, value)) == ()


@pytest.mark.parametrize("dialect", ALL)
def test_a_reply_without_version_headers_gets_none(dialect: OpenStack) -> None:
    assert heard(dialect, 404) == Served()
    assert told(dialect, 404, settled=Version(1, 1)) == ()


def test_the_offer_stands_where_the_backend_told_its_own_range() -> None:
    own = tuple((name, value) for (name, _), value in zip(MAGNUM_RANGE, ("1.1", "1.14"), strict=True))

    assert heard(MAGNUM, 200, *own).advert == Advert(between("1.1", "1.14").versions)
    assert told(MAGNUM, 200, *own, (STANDARD, "container-infra 1.5")) == (
        *MAGNUM_RANGE,
        (STANDARD, "container-infra 1.5"),
    )


def test_the_inspector_echoes_nothing() -> None:
    own = tuple((name, value) for (name, _), value in zip(INSPECTOR_RANGE, ("1.0", "1.18"), strict=True))

    assert told(INSPECTOR, 200, *own, settled=Version(1, 5)) == INSPECTOR_RANGE


@pytest.mark.parametrize("status,lines", [(200, 1), (204, 1), (300, 1), (404, 0), (503, 0)])
def test_a_silent_backends_success_gets_what_a_new_one_would_have_said(status: int, lines: int) -> None:
    given = told(PLACEMENT, status, settled=Version(1, 0), silent=True)

    assert given == (("openstack-api-version", "placement 1.0"),) * lines
    assert told(PLACEMENT, status, settled=None, silent=True) == ()


@pytest.mark.parametrize("dialect", ALL)
def test_a_refusal_of_a_backend_is_told_by_its_body(dialect: OpenStack) -> None:
    """The round trip: what each service says to a version that it lacks is understood as that."""
    assert heard(dialect, 406).refused is Refused.READ_BODY
    assert heard(dialect, 400).refused is Refused.NO
    assert dialect.read_reply(ROOT, 406, NOTHING).refused is Refused.NO
    assert dialect.read_refusal(406, NOTHING, refuse(dialect, "9.99").body) == Advert(OFFER.versions)


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"errors": [{"status": 406, "detail": "No JSON here."}]}',
        b'{"errors": ["x"], "error": 7}',
        b'{"computeFault": {"message": 7, "detail": null}}',
        b'{"computeFault": {"message": "Minimum is 3.9 and maximum is 3.1."}}',
    ],
)
def test_a_406_that_names_no_range_is_about_other_things(dialect: OpenStack, body: bytes) -> None:
    assert dialect.read_refusal(406, NOTHING, body) is None


# --- documents -----------------------------------------------------------------------------------------

LINKS = Links(backend="http://10.0.0.5:80", host="api.test", public="https://api.test/p")


def rewritten(dialect: OpenStack, document: object, bounds: Bounds) -> Any:
    body = dialect.rewrite_document(ROOT, json.dumps(document).encode(), bounds, LINKS)
    return None if body is None else json.loads(body)


def entry(name: str, key: str, lowest: str, highest: str, link: str) -> dict[str, Any]:
    links = [{"rel": "self", "href": link}]
    return {"id": name, key: highest, "min_version": lowest, "status": "CURRENT", "links": links}


def test_placements_document_has_an_empty_link_that_stays() -> None:
    document = {"versions": [entry("v1.0", "max_version", "1.0", "1.39", "")]}

    assert rewritten(PLACEMENT, document, between("1.0", "1.31")) == {
        "versions": [entry("v1.0", "max_version", "1.0", "1.31", "")]
    }


def test_cinders_document_tells_the_offer_under_the_key_version() -> None:
    older = {"id": "v2.0", "status": "DEPRECATED", "version": "", "min_version": "", "links": []}
    document = {"versions": [older, entry("v3.0", "version", "3.0", "3.71", "http://api.test/v3/")]}

    assert rewritten(CINDER, document, between("3.0", "3.60")) == {
        "versions": [older, entry("v3.0", "version", "3.0", "3.60", "https://api.test/p/v3/")]
    }


def test_a_document_may_be_one_version_or_one_in_a_frame() -> None:
    """Magnum's `/v1` is the version itself; Keystone's list stands in `values`."""
    bare = entry("v1", "max_version", "1.1", "1.14", "http://10.0.0.5:80/v1")
    want = entry("v1", "max_version", "1.1", "1.9", "https://api.test/p/v1")
    offer = between("1.1", "1.9")

    assert rewritten(MAGNUM, bare, offer) == want
    assert rewritten(MAGNUM, {"version": bare}, offer) == {"version": want}
    assert rewritten(MAGNUM, {"versions": {"values": [bare, None]}}, offer) == {
        "versions": {"values": [want, None]}
    }


def test_the_inspectors_id_is_its_maximum() -> None:
    document = {"versions": [{"id": "1.18", "status": "CURRENT", "links": [{"href": "http://api.test/v1"}]}]}

    assert rewritten(INSPECTOR, document, between("1.0", "1.9")) == {
        "versions": [{"id": "1.9", "status": "CURRENT", "links": [{"href": "https://api.test/p/v1"}]}]
    }
    assert rewritten(INSPECTOR, {"versions": [{"id": "v1"}]}, OFFER) == {"versions": [{"id": "v1"}]}


@pytest.mark.parametrize(
    "document", [[], {}, {"versions": "v1"}, {"version": 1}, {"versions": [None]}, {"id": "x"}, {"links": []}]
)
def test_any_other_body_is_passed_on_untouched(document: object) -> None:
    assert rewritten(PLAIN, document, OFFER) is None


# --- probes --------------------------------------------------------------------------------------------


def probed(dialect: OpenStack, status: int, document: object, *lines: Header) -> object:
    headers = as_mapping((fold(name), value) for name, value in lines)
    return dialect.probe((ProbeAnswer(status, headers, json.dumps(document).encode()),), None)


def reason(step: object) -> str:
    assert isinstance(step, ProbeFault)
    assert step.detail
    return step.reason


def test_a_probe_asks_the_root_without_a_version() -> None:
    accept = (("Accept", "application/json"),)

    assert PLACEMENT.probe((), None) == ProbeRequest("/", accept)
    assert PLACEMENT.probe((), "/placement") == ProbeRequest("/placement", accept)


@pytest.mark.parametrize("status", [200, 300])
def test_a_probe_reads_the_newest_range_of_a_list(status: int) -> None:
    document = {
        "versions": [
            {"id": "v1", "status": "DEPRECATED"},
            entry("v1.0", "version", "1.0", "1.0", ""),
            entry("v2.0", "version", "2.0", "2.99", ""),
            {"id": "v0", "min_version": "x", "version": "y"},
        ]
    }

    assert probed(MANILA, status, document) == Advert(between("2.0", "2.99").versions)


def test_of_two_keys_for_the_maximum_the_guidelines_counts() -> None:
    document = {"version": {"id": "v1", "min_version": "1.0", "max_version": "1.9", "version": "1.0"}}

    assert probed(PLAIN, 200, document) == Advert(between("1.0", "1.9").versions)


def test_range_headers_count_where_the_service_has_them() -> None:
    document = {"versions": [{"id": "1.18"}]}

    assert probed(INSPECTOR, 200, document, *INSPECTOR_RANGE) == Advert(OFFER.versions)
    assert reason(probed(INSPECTOR, 200, document, INSPECTOR_RANGE[0])) == "range"


def test_entries_without_a_range_are_those_of_a_silent_server_for_which_nothing_stands() -> None:
    document = {"versions": [{"id": "v2.0", "version": "", "min_version": "", "links": []}]}

    assert probed(CINDER, 300, document) == Advert(VersionSet(), silent=True)


@pytest.mark.parametrize("status", [204, 302, 401, 403, 404, 406, 429, 500, 503])
def test_trap_22_an_error_says_nothing_about_versions(status: int) -> None:
    assert reason(probed(CINDER, status, {"versions": [{"id": "v3.0"}]})) == "status"


@pytest.mark.parametrize("document", [[], {}, {"versions": []}, {"errors": []}])
def test_what_is_no_list_of_versions_is_nonsense(document: object) -> None:
    assert reason(probed(CINDER, 200, document)) == "document"


@pytest.mark.parametrize(
    "told_range", [{"min_version": "1.0"}, {"version": "1.9"}, {"min_version": "1.9", "version": "1.1"}]
)
def test_a_probe_does_not_believe_an_impossible_range(told_range: dict[str, str]) -> None:
    assert reason(probed(CINDER, 200, {"versions": [{"id": "v3.0", **told_range}]})) == "range"


# --- options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "alias,dialect",
    [
        ("cinder", CINDER),
        ("volumev3", CINDER),
        ("manila", MANILA),
        ("sharev2", MANILA),
        ("magnum", MAGNUM),
        ("ironic-inspector", INSPECTOR),
    ],
)
def test_a_preset_is_found_by_its_other_names(alias: str, dialect: OpenStack) -> None:
    assert (speaking(alias).service_type, speaking(alias).habits) == (dialect.service_type, dialect.habits)


def test_every_habit_may_be_replaced() -> None:
    dialect = speaking(
        "backup",
        legacy_headers=("X-Backup-Version", "X-Old-Version"),
        duplicates="first",
        latest="any_case",
        malformed="not_acceptable",
        errors="message",
        echo_headers=("X-Backup-Version", STANDARD),
        range_headers=("X-Backup-Minimum", "X-Backup-Maximum"),
    )

    assert read(dialect, (STANDARD, "backup 1.5, backup 1.6")).version == Version(1, 5)
    assert read(dialect, ("X-Old-Version", "LATEST")).kind is AskKind.LATEST
    assert read(dialect, ("X-Old-Version", "1.5"), ("X-Backup-Version", "1.6")).version == Version(1, 6)
    assert sent(dialect, "1.5") == (
        ("X-Backup-Version", "1.5"),
        ("X-Old-Version", "1.5"),
        (STANDARD, "backup 1.5"),
    )
    assert dialect.vary == (STANDARD, "X-Backup-Version", "X-Old-Version")
    assert refuse(dialect, "spam").status == 406
    assert refuse(dialect, "1.99").headers[:2] == (("X-Backup-Minimum", "1.0"), ("X-Backup-Maximum", "1.39"))
    assert told(dialect, 200, ("X-Backup-Version", "x"), (STANDARD, "backup 1.5")) == (
        ("X-Backup-Version", "1.5"),
        (STANDARD, "backup 1.5"),
    )


def test_without_the_standard_header_the_service_is_not_named() -> None:
    dialect = speaking(
        "backup", standard_header=False, legacy_headers=("X-Backup-Version",), echo_headers=(STANDARD,)
    )

    assert read(dialect, (STANDARD, "backup 1.5")) == ASK_SILENT
    assert sent(dialect, "1.5") == (("X-Backup-Version", "1.5"),)
    assert told(dialect, 200, (STANDARD, "backup 1.5")) == ((STANDARD, "backup 1.5"),)


@pytest.mark.parametrize(
    "options,said",
    [
        ({"service_type": "Volume"}, "a service type is"),
        ({"service_type": "two words"}, "a service type is"),
        ({"legacy_headers": ("No Name",)}, "is no header name"),
        ({"echo_headers": ("Content-Length",)}, "says other things"),
        ({"legacy_headers": ("host",)}, "says other things"),
        ({"range_headers": ("One",)}, "two names"),
        ({"standard_header": False}, "needs legacy_headers"),
    ],
)
def test_options_that_make_no_dialect_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OpenStack.configured(OpenStack.Options(**options))


CONFIGURATION = """
listen: 127.0.0.1:0
services:
  block:
    dialect: openstack
    openstack: {%s}
    backends: [{url: "http://127.0.0.1:1"}]
"""


def test_options_come_from_the_configuration() -> None:
    written = "service_type: volume, latest: any_case, legacy_headers: [X-Own], standard_header: true"
    loaded = load(CONFIGURATION % written, filename="x", environ={}).require()

    dialect = loaded.services[0].dialect
    assert isinstance(dialect, OpenStack)
    assert dialect.service_type == "volume"
    assert read(dialect, ("X-Own", "LATEST")).kind is AskKind.LATEST


@pytest.mark.parametrize("written", ["service_type: Volume", "latest: sometimes", "legacy_headers: [a b]"])
def test_what_a_configuration_gets_wrong_is_a_problem_with_a_place(written: str) -> None:
    (problem,) = load(CONFIGURATION % written, filename="x", environ={}).errors

    assert problem.code == "bad-value"


def test_a_ceiling_may_name_a_release_of_the_service() -> None:
    assert CINDER.releases["yoga"] == Version(3, 68)
    assert MANILA.releases["train"] == Version(2, 51)
    assert PLAIN.releases == {}


def test_the_dialect_is_found_by_its_file() -> None:
    assert discover()["openstack"] is OpenStack


@pytest.mark.parametrize("dialect", ALL)
def test_every_name_that_is_read_is_owned_and_folded(dialect: OpenStack) -> None:
    assert dialect.reads <= dialect.owned_request
    assert {fold(name) for name in dialect.vary} == dialect.reads
    assert all(fold(name) == name for name in dialect.owned_request | dialect.owned_reply)
