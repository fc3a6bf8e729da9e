"""A link of a document or a `Location` becomes one that the client can follow."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.dialect import Links

BACKEND = "http://10.0.0.5:6385"
PLAIN = Links(BACKEND, "api.test", "http://api.test")
"""Mounted at the root: clients cannot reach the backend's own address only."""
STRIPPED = Links(BACKEND, "gw.test:8080", "https://api.test/baremetal")
"""Mounted below /baremetal, behind a trusted proxy that is reached as https://api.test."""
BASED = Links(BACKEND + "/ironic", "api.test", "http://api.test/baremetal")
"""The backend has a base path, which no client knows."""


@pytest.mark.parametrize(
    "link",
    [
        "http://10.0.0.5:6385/v1/",
        "https://10.0.0.5:6385/v1/",
        "http://gw.test:8080/v1/",
        "https://gw.test:8080/v1/",
        "HTTP://GW.test:8080/v1/",
        "//gw.test:8080/v1/",
    ],
)
def test_the_backends_and_the_clients_authority_become_the_public_one(link: str) -> None:
    assert STRIPPED.rewrite(link) == "https://api.test/baremetal/v1/"


@pytest.mark.parametrize(
    "link",
    [
        "https://api.test/baremetal/v1/",
        "https://api.test:443/baremetal/v1/",
        "http://api.test/baremetal/v1/",  # it parsed the host but not the scheme
        "http://gw.test:8080/baremetal/v1/",  # only the prefix
    ],
)
def test_a_backend_that_parses_forwarded_headers_gets_no_second_prefix(link: str) -> None:
    assert STRIPPED.rewrite(link) == "https://api.test/baremetal/v1/"


def test_a_backend_that_parses_all_but_the_prefix_gets_it() -> None:
    assert STRIPPED.rewrite("https://api.test/v1/") == "https://api.test/baremetal/v1/"
    assert STRIPPED.rewrite("https://api.test/baremetals/1") == "https://api.test/baremetal/baremetals/1"


@pytest.mark.parametrize(
    "host, link, same",
    [
        ("api.test:80", "http://api.test/v1", True),
        ("api.test", "http://api.test:80/v1", True),
        ("api.test:443", "https://api.test/v1", True),
        ("api.test", "https://api.test:443/v1", True),
        ("api.test:443", "http://api.test:443/v1", True),
        ("api.test:", "http://api.test/v1", True),
        ("[::1]:80", "http://[::1]/v1", True),
        ("[::1]", "http://[::1]:80/v1", True),
        ("api.test:443", "http://api.test/v1", False),
        ("api.test:80", "https://api.test/v1", False),
        ("api.test", "http://api.test:8080/v1", False),
        ("[::1]", "http://[::1:80]/v1", False),
    ],
)
def test_an_authority_is_the_same_with_and_without_its_default_port(host: str, link: str, same: bool) -> None:
    links = Links(BACKEND, host, "https://public.test/p")

    assert links.rewrite(link) == ("https://public.test/p/v1" if same else link)


@pytest.mark.parametrize(
    "link, expected",
    [
        ("/v1/nodes", "/baremetal/v1/nodes"),
        ("/", "/baremetal/"),
        ("/?x=1", "/baremetal/?x=1"),
        ("/baremetal/v1/nodes", "/baremetal/v1/nodes"),
        ("/baremetal", "/baremetal"),
        ("/baremetalx", "/baremetal/baremetalx"),
        ("nodes/1", "nodes/1"),
        ("?marker=1", "?marker=1"),
        ("#top", "#top"),
        ("", ""),
    ],
)
def test_a_relative_link_gets_the_prefix_that_was_stripped(link: str, expected: str) -> None:
    """Links that do not begin with a slash are relative to the client's own target: they stay."""
    assert STRIPPED.rewrite(link) == expected
    assert PLAIN.rewrite(link) == link


@pytest.mark.parametrize(
    "link",
    [
        "https://docs.openstack.org/ironic",
        "http://10.0.0.55:6385/v1",
        "http://10.0.0.5:63850/v1",
        "http://10.0.0.5/v1",
        "http://gw.test:8080x/v1",
        "http://gw.testx:8080/v1",
        "http://gw.test:8080@evil.test/v1",
        "http://user@gw.test:8080/v1",
        "http://gw.test:8080\\@evil.test/v1",
        "//evil.test/v1",
        "ftp://gw.test:8080/v1",
        "mailto:x@gw.test:8080",
        "http:/v1",
    ],
)
def test_third_parties_and_look_alikes_are_left_alone(link: str) -> None:
    assert STRIPPED.rewrite(link) == link


@pytest.mark.parametrize(
    "link, expected",
    [
        ("http://10.0.0.5:6385/ironic/v1/", "http://api.test/baremetal/v1/"),
        ("http://10.0.0.5:6385/ironic", "http://api.test/baremetal"),
        ("http://10.0.0.5:6385/ironic?x", "http://api.test/baremetal?x"),
        ("http://10.0.0.5:6385/ironicx/", "http://10.0.0.5:6385/ironicx/"),
        ("http://10.0.0.5:6385/", "http://10.0.0.5:6385/"),
        ("http://api.test/ironic/v1/", "http://api.test/baremetal/v1/"),
        ("http://api.test/baremetal/ironic/v1/", "http://api.test/baremetal/v1/"),
        ("http://api.test/v1/", "http://api.test/baremetal/v1/"),
        ("/ironic/v1/", "/baremetal/v1/"),
    ],
)
def test_the_backends_base_path_is_removed(link: str, expected: str) -> None:
    assert BASED.rewrite(link) == expected


@pytest.mark.parametrize("link", ["http://10.0.0.5:6385/v1/", "/v1/"])
def test_without_a_host_a_link_becomes_a_path(link: str) -> None:
    """A client of HTTP/1.0 sent none, so its authority for the gateway is not known."""
    assert Links(BACKEND, "", "http:///baremetal").rewrite(link) == "/baremetal/v1/"


@given(
    st.text(max_size=40)
    | st.from_regex(r"(https?:)?//(gw\.test:8080|api\.test)?(/[a-z]*){0,4}", fullmatch=True)
)
def test_rewriting_twice_is_rewriting_once(link: str) -> None:
    once = STRIPPED.rewrite(link)

    assert STRIPPED.rewrite(once) == once


@pytest.mark.parametrize("public", ["https, http://api.test", "ftp://api.test", "", "/baremetal"])
@pytest.mark.parametrize("link", ["http://gw.test/v1", "/v1"])
def test_an_unusable_public_address_changes_nothing(public: str, link: str) -> None:
    """A trusted proxy may send any text as the scheme."""
    assert Links(BACKEND, "gw.test", public).rewrite(link) == link


PLACES = [
    "http://api.test",
    "https://api.test/baremetal",
    "http://other.test:81/outer/baremetal",
    "http:///metal",
]


@pytest.mark.parametrize("before", PLACES)
@pytest.mark.parametrize("after", PLACES)
@pytest.mark.parametrize(
    "link",
    [
        *(
            "http://10.0.0.5:6385/v1/",
            "http://gw.test:8080/v1",
            "//gw.test:8080/v1/?a=b#c",
            "HTTP://GW.test:8080",
        ),
        *(
            "/v1/",
            "/",
            "/?x=1",
            "nodes/1",
            "",
            "?marker=1",
            "#top",
            "//evil.test/v1",
            "https://docs.test/v1/",
        ),
    ],
)
def test_R_D7_a_link_of_a_cached_document_becomes_that_of_the_present_client(
    link: str, before: str, after: str
) -> None:
    moved = Links(BACKEND, "gw.test:8080", before, moved_to=after).rewrite(link)

    expected = Links(BACKEND, "gw.test:8080", after).rewrite(link)
    if before == "http:///metal" and expected.startswith("http") and "docs" not in expected:
        # The first client had no authority for the gateway, so links became paths, and paths they stay.
        expected = "/" + expected.split("/", 3)[3] if expected.count("/") > 2 else ""
    assert moved == expected


def test_R_D7_a_path_that_only_begins_like_the_prefix_gets_the_prefix() -> None:
    links = Links(BACKEND, "gw.test", "http://gw.test/metal", moved_to="http://gw.test/wood")

    assert links.rewrite("http://gw.test/metals") == "http://gw.test/wood/metals"
    assert links.rewrite("/metals") == "/wood/metals"
