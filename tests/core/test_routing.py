"""Host and path -> service: the host decides first, then the longest prefix on a segment boundary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.routing import Routes
from gateway.core.fleet.service import RouteMatch, Service
from tests.core.builders import service


def routes(**matches: RouteMatch) -> Routes:
    return Routes.of([service("b", name=name, match=match) for name, match in matches.items()])


def found(table: Routes, host: str, path: str) -> str | None:
    route = table.find(host, path)
    return None if route is None else route.service


MANY = routes(
    root=RouteMatch(),
    v1=RouteMatch(path="/v1"),
    nodes=RouteMatch(path="/v1/nodes"),
    api=RouteMatch(host="api.test"),
    metal=RouteMatch(host="api.test", path="/baremetal"),
    six=RouteMatch(host="[::1]", path="/six"),
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


def test_a_host_with_a_port_is_the_same_host() -> None:
    table = routes(api=RouteMatch(host="api.test"))

    assert found(table, "api.test:1", "/") == "api"
    assert found(table, "other.test", "/") is None
    assert found(table, "", "/") is None


def test_without_a_service_for_everything_some_paths_have_no_route() -> None:
    table = routes(v1=RouteMatch(path="/v1"), v2=RouteMatch(path="/v2"))

    assert table.everything is None
    assert found(table, "api.test", "/v3") is None
    assert found(table, "api.test", "/v2/x") == "v2"


def test_a_single_service_at_the_root_takes_everything() -> None:
    table = routes(only=RouteMatch())

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
    route = routes(only=RouteMatch(path=prefix), other=RouteMatch(host="x")).find("", path)

    assert route is not None
    assert route.local(path) == local


HOSTS = st.sampled_from([None, "a.test", "b.test"])
PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3).map(lambda parts: "/" + "/".join(parts))
SERVICES = st.lists(st.tuples(HOSTS, PATHS), max_size=6, unique=True).map(
    lambda matches: [
        service("b", name=f"s{number}", match=RouteMatch(host, path))
        for number, (host, path) in enumerate(matches)
    ]
)


def by_hand(services: list[Service], host: str, path: str) -> str | None:
    """Compare every service, segment by segment."""
    segments = path.split("/")[1:]
    for wanted in (host, None):
        best: tuple[int, str] | None = None
        for candidate in services:
            prefix = [part for part in candidate.match.path.split("/") if part]
            covers = segments[: len(prefix)] == prefix
            length = len(candidate.match.path)
            if candidate.match.host == wanted and covers and (best is None or length > best[0]):
                best = (length, candidate.name)
        if best is not None:
            return best[1]
    return None


@given(SERVICES, st.sampled_from(["a.test", "b.test", "c.test"]), PATHS, st.sampled_from(["", ":80"]))
def test_the_table_finds_what_a_search_of_all_services_finds(
    services: list[Service], host: str, path: str, port: str
) -> None:
    assert found(Routes.of(services), host + port, path) == by_hand(services, host, path)
