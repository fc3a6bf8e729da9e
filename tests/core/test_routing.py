"""Host and path -> service: the host decides first, then the longest prefix on a segment boundary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.routing import Routes
from gateway.core.service import Match, Service
from tests.core.stage import service


def routes(**matches: Match) -> Routes:
    return Routes.of([service("b", name=name, match=match) for name, match in matches.items()])


def found(table: Routes, host: str, path: str) -> str | None:
    route = table.find(host, path)
    return None if route is None else route.service


MANY = routes(
    root=Match(),
    v1=Match(path="/v1"),
    nodes=Match(path="/v1/nodes"),
    api=Match(host="api.test"),
    metal=Match(host="api.test", path="/baremetal"),
    six=Match(host="[::1]", path="/six"),
)


@pytest.mark.parametrize(
    "path, expected",
    [
        ("/", "root"),
        ("/v1", "v1"),
        ("/v1/", "v1"),
        ("/v1x", "root"),
        ("/v1/node", "v1"),
        ("/v1/nodes", "nodes"),
        ("/v1/nodes/", "nodes"),
        ("/v1/nodes/7", "nodes"),
        ("/v1/nodesx", "v1"),
        ("/V1/nodes", "root"),
        ("//v1/nodes", "root"),
        ("/%761/nodes", "root"),
        ("*", "root"),
    ],
)
def test_the_longest_prefix_on_a_segment_boundary(path: str, expected: str) -> None:
    """Paths are compared as they came: routing, log and backend see the same bytes."""
    assert found(MANY, "", path) == expected


@pytest.mark.parametrize(
    "host, expected",
    [
        ("api.test", "metal"),
        ("API.Test", "metal"),
        ("api.test:8080", "metal"),
        ("api.test:", "metal"),
        ("api.test.", "root"),
        ("api.test:x", "root"),
        ("xapi.test", "root"),
        ("other.test", "root"),
        ("", "root"),
        ("[::1]", "root"),
    ],
)
def test_the_host_decides_first(host: str, expected: str) -> None:
    assert found(MANY, host, "/baremetal/v1") == expected


@pytest.mark.parametrize("host", ["[::1]", "[::1]:8080", "[::1]:"])
def test_an_ipv6_host_with_and_without_port(host: str) -> None:
    assert found(MANY, host, "/six/1") == "six"
    assert found(MANY, host, "/v1") == "v1", "no route of that host covers it"


def test_a_host_with_a_port_of_its_own_is_no_other_host() -> None:
    table = routes(api=Match(host="api.test"))

    assert found(table, "api.test:1", "/") == "api"
    assert found(table, "other.test", "/") is None
    assert found(table, "", "/") is None


def test_without_a_service_for_everything_some_paths_lead_nowhere() -> None:
    table = routes(v1=Match(path="/v1"), v2=Match(path="/v2"))

    assert table.everything is None
    assert found(table, "api.test", "/v3") is None
    assert found(table, "api.test", "/v2/x") == "v2"


def test_a_single_service_at_the_root_takes_everything() -> None:
    table = routes(only=Match())

    assert table.everything is not None
    assert found(table, "any.test:1", "/any/path") == "only"


@pytest.mark.parametrize(
    "prefix, path, local",
    [
        ("/", "/v1", "/v1"),
        ("/baremetal", "/baremetal", "/"),
        ("/baremetal", "/baremetal/", "/"),
        ("/baremetal", "/baremetal//v1", "//v1"),
        ("/baremetal", "/baremetal/baremetal", "/baremetal"),
    ],
)
def test_the_local_path_is_the_apis_own(prefix: str, path: str, local: str) -> None:
    route = routes(only=Match(path=prefix), other=Match(host="x")).find("", path)

    assert route is not None
    assert route.local(path) == local


HOSTS = st.sampled_from([None, "a.test", "b.test"])
PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3).map(lambda parts: "/" + "/".join(parts))
SERVICES = st.lists(st.tuples(HOSTS, PATHS), max_size=6, unique=True).map(
    lambda those: [
        service("b", name=f"s{number}", match=Match(host, path)) for number, (host, path) in enumerate(those)
    ]
)


def by_hand(services: list[Service], host: str, path: str) -> str | None:
    """Segment by segment, everybody asked."""
    segments = path.split("/")[1:]
    for wanted in (host, None):
        best: tuple[int, str] | None = None
        for each in services:
            prefix = [part for part in each.match.path.split("/") if part]
            covers = segments[: len(prefix)] == prefix
            if each.match.host == wanted and covers and (best is None or len(each.match.path) > best[0]):
                best = (len(each.match.path), each.name)
        if best is not None:
            return best[1]
    return None


@given(SERVICES, st.sampled_from(["a.test", "b.test", "c.test"]), PATHS, st.sampled_from(["", ":80"]))
def test_the_table_says_what_asking_everybody_would(
    services: list[Service], host: str, path: str, port: str
) -> None:
    assert found(Routes.of(services), host + port, path) == by_hand(services, host, path)
