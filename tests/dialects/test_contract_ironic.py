"""What the gateway requires of a dialect, for anything that clients and backends of Ironic may send."""

from __future__ import annotations

import json
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.dialect import (
    Advertisement,
    BackendResponse,
    Endpoint,
    GatewayError,
    ProbeFault,
    ProbeResponse,
    Refusal,
    RefusalReason,
    RequestedKind,
    RequestedVersion,
    VersionRefusal,
)
from gateway.core.http.message import REASON_PHRASES, Header, as_mapping, normalize_name, render
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import RESOURCE, ROOT, UNCERTAIN, V1, Ironic

IRONIC = Ironic.configured(Ironic.Options())
OFFER = VersionSet.between(Version(1, 1), Version(1, 58))

VERSIONS = st.builds(Version, st.integers(0, 3), st.integers(0, 200))
TEXTS = (
    st.text(st.characters(max_codepoint=255), max_size=20)
    | st.from_regex(r"\A[0-9.,+_ -]{0,10}\Z")
    | st.sampled_from(
        ["1.31", "latest", "LATEST", "spam", "", "1.05", "baremetal 1.9", "1.5,1.6", "baremetal"]
    )
    | VERSIONS.map(IRONIC.scheme.format)
    | VERSIONS.map(lambda version: f"baremetal {IRONIC.scheme.format(version)}")
)
"""Header values as a strict parser lets them through: Latin-1 text."""

REQUEST_LINES = st.lists(st.tuples(st.sampled_from(sorted(IRONIC.reads)), TEXTS), max_size=5)
RESPONSE_LINES = st.lists(st.tuples(st.sampled_from(sorted(IRONIC.owned_response)), TEXTS), max_size=6)
ENDPOINTS = st.sampled_from([ROOT, V1, RESOURCE])
STATUSES = st.sampled_from([100, 200, 204, 300, 401, 404, 405, 406, 409, 413, 500, 502, 503]) | st.integers(
    100, 599
)


def read(lines: list[Header], endpoint: Endpoint = RESOURCE) -> RequestedVersion:
    return IRONIC.read_requested(endpoint, as_mapping(lines))


@given(REQUEST_LINES, ENDPOINTS)
def test_no_request_makes_it_raise_and_its_version_is_of_one_of_four_kinds(
    lines: list[Header], endpoint: Endpoint
) -> None:
    requested = read(lines, endpoint)

    assert (requested.version is not None) == (requested.kind is RequestedKind.EXACT)
    assert requested == read(lines, endpoint)


@given(REQUEST_LINES)
@example([("openstack-api-version", "compute 2.1"), ("x-openstack-ironic-api-version", "1.5, 1.6")])
def test_several_lines_are_one_list(lines: list[Header]) -> None:
    """Threats V2, V3: duplicates resolve to one version, however a proxy in front has joined them."""
    joined = {
        name: ",".join(value for other, value in lines if other == name)
        for name in dict.fromkeys(dict(lines))
    }

    assert read(list(joined.items())) == read(lines)


@given(REQUEST_LINES, st.randoms(use_true_random=False))
def test_the_case_of_names_does_not_matter(lines: list[Header], random: Random) -> None:
    disguised = [
        ("".join(random.choice([letter.lower(), letter.upper()]) for letter in name), value)
        for name, value in lines
    ]

    assert read(disguised) == read(lines)


@given(VERSIONS, st.sampled_from([V1, RESOURCE]))
def test_what_is_written_for_a_backend_is_read_as_the_same_version(
    version: Version, endpoint: Endpoint
) -> None:
    """The round trip, with either header alone, as old or new servers read them, and with both."""
    written = [(normalize_name(name), value) for name, value in IRONIC.write_request(endpoint, version)]

    assert read(written).version == version
    assert all(read([line]).version == version for line in written)
    assert len({name for name, _ in written}) == len(written)


@given(VERSIONS, ENDPOINTS, STATUSES, st.booleans())
def test_every_name_that_is_written_is_owned(
    version: Version, endpoint: Endpoint, status: int, legacy: bool
) -> None:
    served = IRONIC.read_response(endpoint, status, as_mapping([]))

    to_backend = IRONIC.write_request(endpoint, version)
    to_client = IRONIC.write_response(
        BackendResponse(endpoint, status, served, version, OFFER, legacy=legacy)
    )

    assert {normalize_name(name) for name, _ in to_backend} <= IRONIC.owned_request
    assert {normalize_name(name) for name, _ in to_client} <= IRONIC.owned_response
    assert IRONIC.reads <= IRONIC.owned_request


@given(REQUEST_LINES, ENDPOINTS)
def test_a_refusal_names_the_range_or_says_that_the_text_is_not_a_version(
    lines: list[Header], endpoint: Endpoint
) -> None:
    requested = read(lines)
    reason = RefusalReason.MALFORMED if requested.version is None else RefusalReason.ABOVE_MAX

    response = IRONIC.refuse(
        Refusal(reason, requested, requested.version, OFFER), endpoint, as_mapping(lines)
    )

    inner = json.loads(json.loads(response.body)["error_message"])
    assert (response.status, inner["code"], inner["title"]) == (406, 406, "Not Acceptable")
    names = [name for name, _ in response.headers]
    if requested.version is None:
        assert names == ["Content-Type"]
        # It never quotes the client.
        assert inner["description"] == "Invalid value for X-OpenStack-Ironic-API-Version header"
    else:
        assert inner["description"].endswith(" The supported version range is: [1.1, 1.58].")
        assert len(names) == 3
        assert dict(response.headers)["X-OpenStack-Ironic-API-Maximum-Version"] == "1.58"
    render(response.headers)


@given(st.integers(400, 599), st.text(max_size=40), st.booleans())
def test_any_error_is_json_in_the_shape_of_ironic(status: int, detail: str, offered: bool) -> None:
    response = IRONIC.error_response(GatewayError(status, detail, offered=OFFER if offered else None))

    assert response.status == status
    assert json.loads(json.loads(response.body)["error_message"]) == {
        "code": status,
        "title": REASON_PHRASES.get(status, "Error"),
        "description": detail,
    }
    assert len(response.headers) == (3 if offered else 1)


@given(RESPONSE_LINES, ENDPOINTS, STATUSES, st.none() | VERSIONS, st.booleans())
def test_no_response_makes_it_raise_and_clients_get_only_versions_and_the_offer(
    lines: list[Header], endpoint: Endpoint, status: int, negotiated: Version | None, legacy: bool
) -> None:
    served = IRONIC.read_response(endpoint, status, as_mapping(lines))
    written = IRONIC.write_response(
        BackendResponse(endpoint, status, served, negotiated, OFFER, legacy=legacy)
    )

    by_name = dict(written)
    assert len(by_name) == len(written)
    assert by_name.get("X-OpenStack-Ironic-API-Minimum-Version", "1.1") == "1.1"
    assert by_name.get("X-OpenStack-Ironic-API-Maximum-Version", "1.58") == "1.58"
    echo = by_name.get("X-OpenStack-Ironic-API-Version")
    assert echo is None or IRONIC.scheme.parse(echo) in {
        served.version,
        negotiated if legacy else served.version,
    }
    assert served.version_refusal is VersionRefusal.NO or (status == 406 and served.version is None)
    assert (
        served.advertisement is None
        or served.advertisement.versions.lowest <= served.advertisement.versions.highest
    )


@given(VERSIONS, STATUSES)
def test_a_served_version_is_passed_on_unchanged(version: Version, status: int) -> None:
    line = ("x-openstack-ironic-api-version", IRONIC.scheme.format(version))
    served = IRONIC.read_response(RESOURCE, status, as_mapping([line]))

    written = IRONIC.write_response(BackendResponse(RESOURCE, status, served, Version(1, 1), OFFER))

    assert [(normalize_name(name), value) for name, value in written] == [line]


@given(STATUSES, RESPONSE_LINES, st.binary(max_size=60) | st.just(b'{"id": "v1"}'))
def test_a_probe_ends_after_one_request(status: int, lines: list[Header], body: bytes) -> None:
    step = IRONIC.probe((ProbeResponse(status, as_mapping(lines), body),), None)

    assert isinstance(step, Advertisement | ProbeFault)
    if isinstance(step, ProbeFault):
        assert step.reason in {"status", "range", "document"}
        assert step.detail
    else:
        assert step.versions
        assert not step.legacy or step.versions == IRONIC.legacy_versions


@given(st.text(max_size=30), st.text(max_size=10))
@example("/v1/%", "")
@example("/%ff%fe", "")
def test_every_target_has_an_endpoint(path: str, query: str) -> None:
    assert IRONIC.endpoint("GET", path, query) in {ROOT, V1, RESOURCE, UNCERTAIN}
