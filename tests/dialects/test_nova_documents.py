"""Nova's discovery documents (N1, N2, N13), as servers write them and as clients must get them.

The gateway offers 2.1 to 2.60 at another address.
"""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.dialect import Endpoint, Links
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.nova import CHOICES, LEGACY, RESOURCE, ROOT, V1_1, V2, V2_1, Nova

NOVA = Nova.configured(Nova.Options())
OFFER = VersionSet.between(Version(2, 1), Version(2, 60))
LINKS = Links(backend="http://127.0.0.1:16601", host="gateway.test:8774", public="https://api.test/compute")
PUBLIC = "https://api.test/compute"

LINK_BASES = ["http://127.0.0.1:16601", "http://gateway.test:8774", "https://gateway.test:8774"]
"""The start of links as servers build them: their own address, or the client's Host with either scheme."""
V2_STATES = [("SUPPORTED", "2011-01-21T11:33:21Z"), ("DEPRECATED", "2025-07-04T12:00:00Z")]


def rewritten(endpoint: Endpoint, text: str, links: Links = LINKS) -> str | None:
    body = NOVA.rewrite_document(endpoint, text.encode(), OFFER, links)
    return None if body is None else body.decode()


def v2_0(base: str, status: str, updated: str, more: str = "") -> str:
    return (
        f'{{"id": "v2.0", "status": "{status}", "version": "", "min_version": "", "updated": "{updated}", '
        f'"links": [{{"rel": "self", "href": "{base}/v2/"}}{more}'
    )


def v2_1(base: str, highest: str, more: str = "") -> str:
    return (
        f'{{"id": "v2.1", "status": "CURRENT", "version": "{highest}", "min_version": "2.1", '
        f'"updated": "2013-07-23T11:33:21Z", "links": [{{"rel": "self", "href": "{base}/v2.1/"}}{more}'
    )


def described(version: str) -> str:
    return (
        ', {"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"}], '
        '"media-types": [{"base": "application/json", '
        f'"type": "application/vnd.openstack.compute+json;version={version}"}}]}}'
    )


def root(base: str, highest: str, v2_state: tuple[str, str] = V2_STATES[1]) -> str:
    return f'{{"versions": [{v2_0(base, *v2_state)}]}}, {v2_1(base, highest)}]}}]}}'


def version_2_1(base: str, highest: str) -> str:
    return f'{{"version": {v2_1(base, highest, described("2.1"))}}}'


def version_2_0(base: str, v2_state: tuple[str, str] = V2_STATES[1]) -> str:
    return f'{{"version": {v2_0(base, *v2_state, described("2"))}}}'


def choices(base: str, path: str) -> str:
    """A 300; its entries have no version."""

    def choice(name: str, status: str, mount: str, version: str) -> str:
        return (
            f'{{"id": "{name}", "status": "{status}", "links": '
            f'[{{"rel": "self", "href": "{base}/{mount}{path}"}}], '
            '"media-types": [{"base": "application/json", "type": '
            f'"application/vnd.openstack.compute+json;version={version}"}}]}}'
        )

    both = f"{choice('v2.0', 'DEPRECATED', 'v2', '2')}, {choice('v2.1', 'CURRENT', 'v2.1', '2.1')}"
    return f'{{"choices": [{both}]}}'


@pytest.mark.parametrize("base", LINK_BASES)
@pytest.mark.parametrize(
    "highest, v2_state", [("2.60", V2_STATES[0]), ("2.104", V2_STATES[1])], ids=["17.0.13", "34.0.0"]
)
def test_N1_the_root_gets_the_offer_for_v2_1_and_nothing_for_v2_0(
    base: str, highest: str, v2_state: tuple[str, str]
) -> None:
    assert rewritten(ROOT, root(base, highest, v2_state)) == root(PUBLIC, "2.60", v2_state)


@pytest.mark.parametrize("base", LINK_BASES)
@pytest.mark.parametrize("highest", ["2.1", "2.60", "2.104"])
def test_N2_the_version_document_gets_the_offer(base: str, highest: str) -> None:
    assert rewritten(V2_1, version_2_1(base, highest)) == version_2_1(PUBLIC, "2.60")


@pytest.mark.parametrize("base", LINK_BASES)
def test_the_document_of_v2_gets_links_and_no_range(base: str) -> None:
    assert rewritten(V2, version_2_0(base)) == version_2_0(PUBLIC)


@pytest.mark.parametrize("base", LINK_BASES)
@pytest.mark.parametrize(
    "endpoint, path", [(CHOICES, "/servers"), (CHOICES, "/v3/flavors"), (V1_1, "/v1.1/x")]
)
def test_N13_choices_have_links_that_the_client_can_follow(base: str, endpoint: Endpoint, path: str) -> None:
    assert rewritten(endpoint, choices(base, path)) == choices(PUBLIC, path)


def test_the_minimum_is_that_of_the_offer_as_well() -> None:
    offer = VersionSet.between(Version(2, 5), Version(2, 60))

    body = NOVA.rewrite_document(V2_1, version_2_1(LINK_BASES[0], "2.104").encode(), offer, LINKS)

    assert body is not None
    entry = json.loads(body)["version"]
    assert (entry["min_version"], entry["version"]) == ("2.5", "2.60")


def test_an_older_list_without_ranges_keeps_its_shape() -> None:
    """Juno: v2.1 as an experiment."""
    document = (
        '{"versions": [{"status": "CURRENT", "updated": "2011-01-21T11:33:21Z", "id": "v2.0", "links": '
        '[{"href": "%s/v2/", "rel": "self"}]}, {"status": "EXPERIMENTAL", "updated": "2013-07-23T11:33:21Z", '
        '"id": "v2.1", "links": [{"href": "%s/v2.1/", "rel": "self"}]}]}'
    )

    assert rewritten(ROOT, document % (LINK_BASES[0], LINK_BASES[0])) == document % (PUBLIC, PUBLIC)


def test_the_address_of_compute_link_prefix_stays() -> None:
    """An operator has set it on purpose."""
    elsewhere = "https://compute.example.org"

    assert rewritten(ROOT, root(elsewhere, "2.104")) == root(elsewhere, "2.60")


def test_a_document_that_needs_no_change_stays_the_same() -> None:
    links = Links(backend="http://127.0.0.1:1", host="api.test", public="http://api.test")
    document = root("http://api.test", "2.60")

    assert rewritten(ROOT, document, links) == document


@pytest.mark.parametrize(
    "endpoint, text",
    [
        (ROOT, ""),
        (ROOT, "<html></html>"),
        (ROOT, "{}"),
        (ROOT, "[]"),
        (ROOT, '{"versions": "v2.1"}'),
        (ROOT, '{"version": "2.1"}'),
        (CHOICES, '{"choices": {}}'),
        (ROOT, '{"versions": [], "nan": NaN}'),
        (V2_1, '{"computeFault": {"code": 406, "message": "x"}}'),
        (V2_1, '{"version": {}, "a": ' + "[" * 40 + "]" * 40 + "}"),
        (V2_1, '{"version": {}, "a": ' + "[" * 100_000),
        (RESOURCE, version_2_1(LINK_BASES[0], "2.104")),
        (LEGACY, version_2_0(LINK_BASES[0])),
    ],
)
def test_any_other_body_is_not_such_a_document(endpoint: Endpoint, text: str) -> None:
    assert rewritten(endpoint, text) is None


def test_unexpected_values_in_a_document_stay_and_do_no_harm() -> None:
    unexpected: list[Any] = [
        {"id": ["v2.1"], "version": ""},
        {"id": "v2.1", "version": "3.5", "min_version": "3.1"},
        {"id": "v2.0", "version": None, "updated": 7},
        {"id": "v2.1", "links": "x", "href": None},
    ]

    text = rewritten(ROOT, json.dumps({"versions": [*unexpected, {"id": "v2.1", "version": "2.104"}]}))

    assert text is not None
    assert json.loads(text) == {"versions": [*unexpected, {"id": "v2.1", "version": "2.60"}]}


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.sampled_from(["v2.1", "2.104"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "version", "min_version", "versions", "choices", "links", "href"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
ENDPOINTS = st.sampled_from([ROOT, V2_1, V2, V1_1, CHOICES, RESOURCE, LEGACY])


@given(JSON, ENDPOINTS)
def test_no_json_makes_it_raise_and_a_second_rewrite_changes_nothing(
    document: Any, endpoint: Endpoint
) -> None:
    once = NOVA.rewrite_document(endpoint, json.dumps(document).encode(), OFFER, LINKS)

    if once is not None:
        assert NOVA.rewrite_document(endpoint, once, OFFER, LINKS) == once


@given(st.binary(max_size=200), ENDPOINTS)
def test_no_bytes_make_it_raise(body: bytes, endpoint: Endpoint) -> None:
    result = NOVA.rewrite_document(endpoint, body, OFFER, LINKS)

    assert result is None or json.loads(result) is not None


@pytest.mark.parametrize(
    "endpoint, document",
    [
        (ROOT, {"versions": [{"id": "v2.1", "min_version": 2.1, "version": 2.104}]}),
        (ROOT, {"versions": [{"id": "v2.1", "version": "2.104 "}]}),
        (ROOT, {"versions": ["2.104", {"id": "v2.0"}]}),
        (ROOT, {"versions": [{"id": "v2.1", "version": ["2.104"]}]}),
        (V2_1, {"version": {"id": "v2.1", "min_version": {"": "2.1"}}}),
        (CHOICES, {"choices": ["2.104"]}),
    ],
)
def test_R_A9_a_range_in_another_shape_is_not_such_a_document(
    endpoint: Endpoint, document: dict[str, Any]
) -> None:
    assert rewritten(endpoint, json.dumps(document)) is None


@pytest.mark.parametrize(
    "endpoint, document",
    [
        (ROOT, {"versions": [{"id": "v2.1", "max_version": "2.104"}]}),
        (ROOT, {"versions": [{"id": "v2.1.0", "version": "2.104"}]}),
        (V2_1, {"version": {"id": ["v2.1"], "version": "2.104"}}),
        (CHOICES, {"choices": [{"id": "v2.1", "version": "2.104"}]}),
    ],
)
def test_R_A9_a_range_gets_the_offer_wherever_it_stands(endpoint: Endpoint, document: dict[str, Any]) -> None:
    text = rewritten(endpoint, json.dumps(document))

    assert text is not None
    assert "2.104" not in text
    assert "2.60" in text
