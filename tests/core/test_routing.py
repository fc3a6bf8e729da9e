"""Host and path -> service: the host decides first, then the longest prefix on a segment boundary."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.routing import FEW, Prefixes, Route, Routes
from gateway.core.fleet.service import Match, Service
from tests.core.builders import service


def routes(**matches: Match) -> Routes:
    return Routes.of([service("b", name=name, match=match) for name, match in matches.items()])


def found(table: Routes, host: str, path: str) -> str | None:
    route = table.find(host, path)
    return None if route is None else route.service


MANY = routes(
    root=Match(),
    v1=Match(path="/v1"),
    nodes=Match(path="/v1/nodes"),
    api=Match(host=("api.test",)),
    metal=Match(host=("api.test",), path="/baremetal"),
    six=Match(host=("[::1]",), path="/six"),
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
        ("api.test.", "metal"),
        ("api.test.:80", "metal"),
        ("api.test..", "root"),
        ("api.test:x", "root"),
        ("xapi.test", "root"),
        ("other.test", "root"),
        ("", "root"),
        ("[::1]", "root"),
    ],
)
def test_the_host_decides_first(host: str, expected: str) -> None:
    assert found(MANY, host, "/baremetal/v1") == expected


WILD = routes(
    root=Match(),
    exact=Match(host=("www.example.org", "example.org")),
    short=Match(host=("*.example.org",)),
    long=Match(host=("*.eu.example.org", "*.us.example.org"), path="/v1"),
)


@pytest.mark.parametrize(
    "host, expected",
    [
        ("example.org", "exact"),
        ("www.example.org", "exact"),
        ("Other.Example.ORG.:443", "short"),
        ("one.two.three.example.org", "short"),
        ("eu.example.org", "short"),
        ("one.eu.example.org", "long"),
        ("one.two.us.example.org:80", "long"),
        ("xexample.org", "root"),
        (".example.org", "root"),
        ("*.example.org", "short"),
        ("example.org.evil.test", "root"),
        ("", "root"),
    ],
)
def test_a_wildcard_stands_for_one_label_or_more(host: str, expected: str) -> None:
    """As in nginx and Envoy. An exact name goes before a wildcard, a longer wildcard before a shorter one."""
    assert found(WILD, host, "/v1/nodes") == expected


def test_a_path_that_the_longest_wildcard_has_not_goes_to_the_next_one() -> None:
    assert found(WILD, "one.eu.example.org", "/v2") == "short"


def test_the_route_names_the_host_that_matched() -> None:
    route = WILD.find("one.us.example.org", "/v1")

    assert route is not None
    assert (route.host, route.match.hosts) == ("*.us.example.org", ("*.eu.example.org", "*.us.example.org"))


@pytest.mark.parametrize("host", ["[::1]", "[::1]:8080", "[::1]:", "[0:0:0:0:0:0:0:1]:80", "[0::1]"])
def test_an_ipv6_host_with_and_without_port(host: str) -> None:
    assert found(MANY, host, "/six/1") == "six"
    assert found(MANY, host, "/v1") == "v1", "no route of that host covers it"


def test_a_host_with_a_port_is_the_same_host() -> None:
    table = routes(api=Match(host=("api.test",)))

    assert found(table, "api.test:1", "/") == "api"
    assert found(table, "other.test", "/") is None
    assert found(table, "", "/") is None


def test_without_a_service_for_everything_some_paths_have_no_route() -> None:
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
    route = routes(only=Match(path=prefix), other=Match(host=("x",))).find("", path)

    assert route is not None
    assert route.local(path) == local


HOSTS = st.sampled_from([None, "a.test", "b.a.test", "*.test", "*.a.test", "*.b.a.test", "[::1]"])
REQUESTED_HOSTS = st.sampled_from(
    ["a.test", "b.a.test", "c.b.a.test", "d.c.b.a.test", "c.test", "xa.test", "test", "[::1]", "", "other"]
)
WRITTEN = st.sampled_from([str.lower, str.upper, str.title])
PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3).map(lambda parts: "/" + "/".join(parts))
SERVICES = st.lists(st.tuples(HOSTS, PATHS), max_size=24, unique=True).map(
    lambda matches: [
        service("b", name=f"s{number}", match=Match(() if host is None else (host,), path))
        for number, (host, path) in enumerate(matches)
    ]
)


def covers_host(pattern: str | None, host: str) -> bool:
    """Compare label by label."""
    if pattern is None or pattern == host:
        return True
    labels, ending = host.split("."), pattern.split(".")[1:]
    return pattern[0] == "*" and len(labels) > len(ending) and labels[-len(ending) :] == ending


def by_hand(services: list[Service], host: str, path: str) -> str | None:
    """Compare every service with every host of it, label by label and segment by segment."""
    segments = path.split("/")[1:]
    patterns = {pattern for one in services for pattern in one.match.hosts or (None,)}
    # An exact name, then the longest wildcard, then no host.
    by_length = sorted(
        (pattern for pattern in patterns if covers_host(pattern, host)),
        key=lambda pattern: (pattern != host, -len(pattern or "")),
    )
    for wanted in by_length:
        best: tuple[int, str] | None = None
        for candidate in services:
            prefix = [part for part in candidate.match.path.split("/") if part]
            covers = segments[: len(prefix)] == prefix
            length = len(candidate.match.path)
            if wanted in (candidate.match.hosts or (None,)) and covers and (best is None or length > best[0]):
                best = (length, candidate.name)
        if best is not None:
            return best[1]
    return None


@given(SERVICES, REQUESTED_HOSTS, PATHS, st.sampled_from(["", ".", ":80", ".:80", ":"]), WRITTEN)
def test_the_table_finds_what_a_search_of_all_services_finds(
    services: list[Service], host: str, path: str, after: str, written: Callable[[str], str]
) -> None:
    asked = written(host) + (after if host[-1:].isalnum() else after.strip("."))

    assert found(Routes.of(services), asked, path) == by_hand(services, host, path)


@given(
    st.lists(st.tuples(st.sets(HOSTS.filter(bool), max_size=3), PATHS), max_size=12), REQUESTED_HOSTS, PATHS
)
def test_a_service_with_several_hosts_is_found_by_each_of_them(
    matches: list[tuple[set[str], str]], host: str, path: str
) -> None:
    taken: set[tuple[str | None, str]] = set()
    services = []
    for number, (hosts, prefix) in enumerate(matches):  # as settings demand: no two match the same
        free = tuple(sorted(one for one in hosts if (one, prefix) not in taken))
        if free or (not hosts and (None, prefix) not in taken):
            services.append(service("b", name=f"s{number}", match=Match(free, prefix)))
            taken |= {(one, prefix) for one in free or (None,)}

    assert found(Routes.of(services), host, path) == by_hand(services, host, path)


class Counted(dict[str, Route]):
    """A table that counts how often it is read."""

    reads = 0

    def get(self, key: str, default: Route | None = None) -> Route | None:  # type: ignore[override]
        self.reads += 1
        return super().get(key, default)


@pytest.mark.parametrize("size", [FEW + 1, 1000])
def test_a_route_is_found_by_as_many_lookups_as_the_deepest_prefix_has_segments(size: int) -> None:
    made = routes(**{f"s{number}": Match(path=f"/api/s{number}") for number in range(size)}).any_host
    counted = Counted(made.by_prefix)
    prefixes = Prefixes(made.few, counted, made.deepest, made.root)

    route = prefixes.find(f"/api/s{size - 1}/v1/nodes")

    assert route is not None
    assert (made.few, route.service, counted.reads) == ((), f"s{size - 1}", 2)


def test_a_few_routes_are_compared_one_by_one() -> None:
    table = routes(**{f"s{number}": Match(path="/a" * (number + 1)) for number in range(FEW)})

    assert [route.prefix for route in table.any_host.few] == ["/a" * number for number in range(FEW, 0, -1)]
    assert found(table, "", "/a/a/b") == "s1"
    assert found(table, "", "/ab") is None
