"""Ironic's discovery documents from Juno to 39.0.0, as servers write them and as clients must get them.

Each document below comes from a server of that release, with its own address in the links. The gateway offers
1.1 to 1.58 at another address.
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
from gateway.dialects.openstack.ironic import RESOURCE, ROOT, V1, Ironic

IRONIC = Ironic.configured(Ironic.Options())
OFFER = VersionSet.between(Version(1, 1), Version(1, 58))
LINKS = Links(backend="http://127.0.0.1:16396", host="gateway.test:6385", public="https://api.test/baremetal")

DESCRIPTION = (
    "Ironic is an OpenStack project which enables the provision and management of baremetal machines."
)


def rewritten(endpoint: Endpoint, text: str, links: Links = LINKS) -> str | None:
    body = IRONIC.rewrite_document(endpoint, text.encode(), OFFER, links)
    return None if body is None else body.decode()


def entry(base: str, highest: str) -> str:
    return (
        f'{{"id": "v1", "links": [{{"href": "{base}/v1/", "rel": "self"}}], "status": "CURRENT", '
        f'"min_version": "1.1", "version": "{highest}"}}'
    )


def root(base: str, highest: str) -> str:
    """`/` of 21.4.0 and 39.0.0."""
    one = entry(base, highest)
    return (
        f'{{"name": "OpenStack Ironic API", "description": "{DESCRIPTION}", '
        f'"default_version": {one}, "versions": [{one}]}}'
    )


def resource(base: str, name: str) -> str:
    return (
        f'"{name}": [{{"href": "{base}/v1/{name}/", "rel": "self"}}, '
        f'{{"href": "{base}/{name}/", "rel": "bookmark"}}]'
    )


def v1(base: str, *, media_types: str, version: str | None) -> str:
    """`/v1`: `media_types` was a list until 15.1, `version` came with 12.0."""
    with_version = "" if version is None else f', "version": {entry(base, version)}'
    return (
        f'{{"id": "v1", "links": [{{"href": "{base}/v1/", "rel": "self"}}, '
        '{"href": "https://docs.openstack.org//ironic/latest/contributor//webapi.html", '
        '"rel": "describedby", "type": "text/html"}], '
        f'"media_types": {media_types}, '
        + ", ".join(resource(base, name) for name in ("chassis", "nodes", "ports", "drivers"))
        + with_version
        + "}"
    )


MEDIA_TYPE = '{"base": "application/json", "type": "application/vnd.openstack.ironic.v1+json"}'
LINK_BASES = ["http://127.0.0.1:16396", "http://gateway.test:6385", "https://gateway.test:6385"]
"""The start of links as servers build them: their own address, or the client's Host with either scheme."""


@pytest.mark.parametrize("base", LINK_BASES)
@pytest.mark.parametrize("highest", ["1.1", "1.58", "1.82", "1.115"])
def test_I13_root(base: str, highest: str) -> None:
    assert rewritten(ROOT, root(base, highest)) == root("https://api.test/baremetal", "1.58")


def test_I13_the_order_of_keys_is_the_servers() -> None:
    """12.1.6 wrote `version` before `min_version` and `versions` before `default_version`."""
    document = (
        '{"name": "OpenStack Ironic API", "versions": [{"id": "v1", "links": '
        '[{"href": "http://127.0.0.1:16396/v1/", "rel": "self"}], "status": "CURRENT", "version": "1.56", '
        '"min_version": "1.1"}], "default_version": {"id": "v1", "links": '
        '[{"href": "http://127.0.0.1:16396/v1/", "rel": "self"}], "status": "CURRENT", "version": "1.56", '
        '"min_version": "1.1"}}'
    )

    assert rewritten(ROOT, document) == document.replace("1.56", "1.58").replace(
        "http://127.0.0.1:16396", "https://api.test/baremetal"
    )


def test_I15_the_root_of_a_pinned_server_gets_the_offer() -> None:
    assert rewritten(ROOT, root(LINK_BASES[0], "1.96")) == root("https://api.test/baremetal", "1.58")


def test_a_root_without_a_range_keeps_its_shape() -> None:
    """Juno to 4.2: no status, no versions."""
    document = (
        '{"name": "OpenStack Ironic API", "versions": [{"id": "v1", "links": '
        '[{"href": "%s/v1/", "rel": "self"}]}], "default_version": {"id": "v1", "links": '
        '[{"href": "%s/v1/", "rel": "self"}]}}'
    )

    public = "https://api.test/baremetal"
    assert rewritten(ROOT, document % (LINK_BASES[0], LINK_BASES[0])) == document % (public, public)


@pytest.mark.parametrize("base", LINK_BASES)
@pytest.mark.parametrize("media_types", [MEDIA_TYPE, f"[{MEDIA_TYPE}]"], ids=["from 15.2", "until 15.1"])
@pytest.mark.parametrize("version", [None, "1.56", "1.115"], ids=["until 11", "12.1", "39.0"])
def test_v1_of_every_release(base: str, media_types: str, version: str | None) -> None:
    document = v1(base, media_types=media_types, version=version)

    assert rewritten(V1, document) == v1(
        "https://api.test/baremetal", media_types=media_types, version="1.58"
    )


@pytest.mark.parametrize(
    "document, href",
    [
        ('{"id": "v1"}', "https://api.test/baremetal/v1/"),
        ('{"id": "v1", "version": null, "links": 7}', "https://api.test/baremetal/v1/"),
        ('{"id": "v1", "version": {}, "links": [{"rel": "self"}]}', "https://api.test/baremetal/v1/"),
        ('{"id": "v1", "links": [{"rel": "self", "href": "https://x.test/v1"}]}', "https://x.test/v1"),
    ],
)
def test_R3_V15_the_range_is_written_into_a_v1_without_one(document: str, href: str) -> None:
    """Up to 11.1 there is none; gophercloud reads nothing else."""
    text = rewritten(V1, document)

    assert text is not None
    version = json.loads(text)["version"]
    assert list(version.items()) == [
        ("id", "v1"),
        ("links", [{"href": href, "rel": "self"}]),
        ("status", "CURRENT"),
        ("min_version", "1.1"),
        ("version", "1.58"),
    ]


def test_the_documentation_link_stays() -> None:
    text = rewritten(V1, v1(LINK_BASES[0], media_types=MEDIA_TYPE, version="1.115"))

    assert text is not None
    assert '"https://docs.openstack.org//ironic/latest/contributor//webapi.html"' in text


def test_a_configured_address_stays() -> None:
    """`[api]public_endpoint` of the server: an operator has set it on purpose."""
    elsewhere = "https://baremetal.example.org"

    assert rewritten(ROOT, root(elsewhere, "1.115")) == root(elsewhere, "1.58")


@pytest.mark.parametrize("base", ["http://127.0.0.1:163961", "http://127.0.0.1:16396.evil.test"])
def test_an_address_that_only_begins_like_that_of_the_backend_stays(base: str) -> None:
    assert rewritten(ROOT, root(base, "1.115")) == root(base, "1.58")


def test_a_document_that_needs_no_change_stays_the_same() -> None:
    links = Links(backend="http://127.0.0.1:1", host="api.test", public="http://api.test")
    document = root("http://api.test", "1.58")

    assert rewritten(ROOT, document, links) == document


# --- other bodies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "endpoint, text",
    [
        (ROOT, ""),
        (ROOT, "<html></html>"),
        (ROOT, "{}"),
        (ROOT, "[]"),
        (ROOT, '{"versions": "v1", "default_version": "v1"}'),
        (ROOT, '{"error_message": "{}"}'),
        (ROOT, '{"id": "v1"}'),
        (ROOT, '{"versions": [], "nan": NaN}'),
        (V1, '{"versions": []}'),
        (V1, '{"id": "v2"}'),
        (V1, '{"id": ["v1"]}'),
        (V1, '{"id": "v1", "a": ' + "[" * 40 + "]" * 40 + "}"),
        (V1, '{"id": "v1", "a": ' + "[" * 100_000),
        (RESOURCE, root(LINK_BASES[0], "1.115")),
    ],
)
def test_any_other_body_is_not_such_a_document(endpoint: Endpoint, text: str) -> None:
    assert rewritten(endpoint, text) is None


def test_unexpected_values_in_a_document_stay_and_do_no_harm() -> None:
    text = rewritten(
        ROOT,
        '{"versions": [{"id": "v2", "version": "2.5", "min_version": "2.1"},'
        ' {"version": ""}, {"version": "1.115", "version": "1.114"}, {"links": "x", "href": null}],'
        ' "default_version": {"version": null}, "name": 7}',
    )

    assert text is not None
    assert json.loads(text) == {
        "versions": [
            {"id": "v2", "version": "2.5", "min_version": "2.1"},
            {"version": ""},
            {"version": "1.58"},
            {"links": "x", "href": None},
        ],
        "default_version": {"version": None},
        "name": 7,
    }


def test_either_part_of_the_root_is_enough() -> None:
    """The ramdisk agent reads only `default_version`."""
    assert (
        rewritten(ROOT, '{"default_version": {"version": "1.115"}}')
        == '{"default_version": {"version": "1.58"}}'
    )
    assert rewritten(ROOT, '{"versions": [{"version": "1.115"}]}') == '{"versions": [{"version": "1.58"}]}'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("1.115"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "version", "min_version", "versions", "default_version", "links", "href"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from([ROOT, V1, RESOURCE]))
def test_no_json_makes_it_raise_and_a_second_rewrite_changes_nothing(
    document: Any, endpoint: Endpoint
) -> None:
    once = IRONIC.rewrite_document(endpoint, json.dumps(document).encode(), OFFER, LINKS)

    if once is not None:
        assert IRONIC.rewrite_document(endpoint, once, OFFER, LINKS) == once


@given(st.binary(max_size=200), st.sampled_from([ROOT, V1]))
def test_no_bytes_make_it_raise(body: bytes, endpoint: Endpoint) -> None:
    result = IRONIC.rewrite_document(endpoint, body, OFFER, LINKS)

    assert result is None or json.loads(result) is not None


@pytest.mark.parametrize(
    "endpoint, document",
    [
        (ROOT, {"versions": [{"id": "v1", "min_version": 1.1, "version": 1.115}]}),
        (ROOT, {"versions": [{"id": "v1", "version": " 1.115"}]}),
        (ROOT, {"versions": [{"id": "v1", "version": "v1.115"}]}),
        (ROOT, {"versions": [{"id": "v1", "version": ["1.115"]}]}),
        (ROOT, {"versions": ["1.115"]}),
        (ROOT, {"versions": [["1.115"]]}),
        (ROOT, {"versions": [], "default_version": [{"version": "1.115"}, "1.115"]}),
        (V1, {"id": "v1", "version": ["1.115"]}),
        (V1, {"id": "v1", "version": 1.115}),
        (V1, {"id": "v1", "version": {"id": "v1", "version": True}}),
    ],
)
def test_R_A9_a_range_in_another_shape_is_not_such_a_document(
    endpoint: Endpoint, document: dict[str, Any]
) -> None:
    assert rewritten(endpoint, json.dumps(document)) is None


@pytest.mark.parametrize(
    "endpoint, document",
    [
        (ROOT, {"versions": [], "version": "1.115"}),
        (ROOT, {"versions": [{"id": "v1", "max_version": "1.115"}]}),
        (V1, {"id": "v1", "max_version": "1.115"}),
        (V1, {"id": "v1", "nodes": [{"version": {"version": "1.115"}}]}),
    ],
)
def test_R_A9_a_range_gets_the_offer_wherever_it_stands(endpoint: Endpoint, document: dict[str, Any]) -> None:
    text = rewritten(endpoint, json.dumps(document))

    assert text is not None
    assert "1.115" not in text
    assert "1.58" in text


@pytest.mark.parametrize(
    "body",
    [
        b'{"versions": [], "a": NaN}',
        b'{"versions": [], "a": -Infinity}',
        b'{"versions": [], "a": 1e999}',
        b'{"versions": [], "a": ' + b"9" * 5000 + b"}",
        b'{"versions": []} {}',
        b'{"versions": []}\x00',
        b'{"versions": []',
        b'{"versions": [], "a": "\xff"}',
        b"\xff\xfe\x00",
        b'{"versions": [], "a": ' + b"[" * 40 + b"]" * 40 + b"}",
        b"[" * 200_000,
        b'"versions"',
        b"null",
        b"",
    ],
)
def test_R_A9_what_is_not_json_with_an_object_is_not_such_a_document(body: bytes) -> None:
    assert IRONIC.rewrite_document(ROOT, body, OFFER, LINKS) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"versions": [{"version": "1.115", "version": "1.114"}]}',
        b'{"versions": [{"version": "1.115"}], "versions": [{"version": "1.114"}]}',
        b'\xef\xbb\xbf{"versions": [{"version": "1.114"}]}',
        '{"versions": [{"version": "1.114"}]}'.encode("utf-16"),
    ],
)
def test_R_A9_what_two_readers_read_differently_is_written_anew(body: bytes) -> None:
    assert IRONIC.rewrite_document(ROOT, body, OFFER, LINKS) == b'{"versions": [{"version": "1.58"}]}'


def test_R_A9_the_root_of_legacy_servers_keeps_its_shape() -> None:
    """Icehouse and Juno: neither `/` nor `/v1` names a range. `/v1` gets one, `/` does not."""
    base, public = LINK_BASES[0], "https://api.test/baremetal"
    plain = '{"id": "v1", "links": [{"href": "%s/v1/", "rel": "self"}]}'
    document = f'{{"versions": [{plain}], "description": "x", "default_version": {plain}}}'

    assert rewritten(ROOT, document.replace("%s", base)) == document.replace("%s", public)

    own = '{"id": "v1", "links": [{"href": "%s/v1/", "rel": "self"}], "media_types": []'
    assert rewritten(V1, f"{own}}}".replace("%s", base)) == (
        f'{own}, "version": {entry("%s", "1.58")}}}'.replace("%s", public)
    )
