"""The targets: figures of the gateway, interpreted and compiled, and what they should be at most."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.figure import RATE, UNEVEN
from bench.results import Results, Spread, by_round, differences, ratios
from bench.scenarios import NGINX_FOR_BODIES

Measured = Callable[[Results, str], Spread | None]
"""A figure of one of the builds of the gateway, from the results of a scenario."""


def ratio_to(*peers: str) -> Measured:
    """To the best of these peers in each round."""

    def measured(results: Results, build: str) -> Spread | None:
        name = results.scenario.unit.name
        return ratios(results.values(name, build), results.best(name, peers))

    return measured


def growth(size: int, than: int) -> Measured:
    """The gateway with more backends or services, against itself with fewer."""

    def measured(results: Results, build: str) -> Spread | None:
        name = results.scenario.unit.name
        many, few = results.with_size(size), results.with_size(than)
        if many is None or few is None:
            return None
        return ratios(results.values(name, build, many), results.values(name, build, few))

    return measured


def growth_next_to(peer: str, size: int, than: int, allowed: float) -> Measured:
    """The same, less `allowed` of a core for the probes of so many backends, divided by another peer's."""

    def measured(results: Results, build: str) -> Spread | None:
        name = results.scenario.unit.name
        many, few = results.with_size(size), results.with_size(than)
        if many is None or few is None:
            return None
        rate = results.values(RATE.name, build, many)
        served = {
            number: cpu - allowed * 1e6 / rate[number]
            for number, cpu in results.values(name, build, many).items()
        }
        ours = by_round(served, results.values(name, build, few))
        return ratios(ours, by_round(results.values(name, peer, many), results.values(name, peer, few)))

    return measured


def more_than(peer: str, name: str) -> Measured:
    """The difference to another peer. What both add to a direct request is in it on both sides."""

    def measured(results: Results, build: str) -> Spread | None:
        return differences(results.values(name, build), results.values(name, peer))

    return measured


def added(peer: str) -> Measured:
    """What the second setting costs more than the first, against what it does in another peer."""

    def measured(results: Results, build: str) -> Spread | None:
        name, (plain, other) = results.scenario.unit.name, results.scenario.settings
        ours, theirs = (results.more(name, each, than=plain, setting=other) for each in (build, peer))
        return ratios(ours, theirs)

    return measured


def uneven(size: int) -> Measured:
    """By how much the worker that is farthest from its share is away from it, of so many workers."""

    def measured(results: Results, build: str) -> Spread | None:
        setting = results.with_size(size)
        return Spread.of(list(results.values(UNEVEN.name, build, setting).values())) if setting else None

    return measured


def map_against_haproxy(threads: int) -> Measured:
    """HAProxy with the map to HAProxy alone, in the column of the interpreted gateway: of no build."""

    def measured(results: Results, build: str) -> Spread | None:
        name, setting = results.scenario.unit.name, results.with_size(threads)
        if setting is None or build != "gateway":
            return None
        return ratios(results.values(name, "haproxy-map", setting), results.values(name, "haproxy", setting))

    return measured


def alone(results: Results, build: str) -> Spread | None:
    return Spread.of(list(results.values(results.scenario.unit.name, build).values()))


@dataclass(frozen=True)
class Target:
    """`interpreted`, `compiled`: at most this; None: there is no target for this build."""

    figure: str
    scenario: str
    measured: Measured
    interpreted: float | None
    compiled: float | None
    digits: int = 2


#: Part of a core that probing 1,000 backends every 5 s may take.
PROBES = 0.10

TARGETS = (
    Target("unique ids, to nginx", "unique", ratio_to("nginx"), 1.7, 1.16),
    Target("unique ids, to Envoy", "unique", ratio_to("envoy"), 0.80, 0.50),
    Target("12 kinds of clients mixed, to nginx", "mixed", ratio_to("nginx"), 1.9, 1.25),
    Target("40 fields, to nginx", "forty", ratio_to("nginx"), 1.5, 1.15),
    Target("behind an outer proxy, to nginx", "proxied", ratio_to("nginx"), 1.8, 1.2),
    Target("JSON access log, to nginx's", "log", ratio_to("nginx", "nginx-log-buffered"), None, 1.4),
    *(
        Target(
            f"{many} against 2, less 10 % of a core for probes, to nginx's growth",
            scenario,
            growth_next_to("nginx", 1000, 2, PROBES),
            1.0,
            1.0,
        )
        for many, scenario in (
            ("1,000 backends", "backends"),
            ("1,000 services by prefix", "prefixes"),
            ("1,000 services by host", "hosts"),
        )
    ),
    Target("2 workers against one", "workers", growth(2, 1), 1.1, 1.05),
    Target("4 workers against one", "workers", growth(4, 1), 1.1, 1.1),
    Target("one of 2 workers, % from its share", "workers", uneven(2), 20, 20, 0),
    Target("one of 4 workers, % from its share", "workers", uneven(4), 20, 20, 0),
    Target("HAProxy with the map, to HAProxy", "map", map_against_haproxy(1), 1.25, None),
    Target("HAProxy with the map, to HAProxy, 2 threads", "map", map_against_haproxy(2), 1.25, None),
    Target("HAProxy with the map, to HAProxy, 4 threads", "map", map_against_haproxy(4), 1.25, None),
    Target("64 MiB downloads, to nginx", "downloads", ratio_to(*NGINX_FOR_BODIES), 0.9, 0.9),
    Target("64 MiB uploads, to nginx", "uploads", ratio_to(*NGINX_FOR_BODIES), 0.9, 0.9),
    Target("KiB per idle connection", "idle", alone, 6.0, 2.0, 1),
    Target("what TLS adds, to nginx", "tls", added("nginx"), 2.0, 2.0),
    Target("handshakes, ECDSA P-256, to nginx", "handshakes-ecdsa", ratio_to("nginx"), 2.5, 2.5),
    Target("handshakes, RSA-2048, to nginx", "handshakes-rsa", ratio_to("nginx"), 1.25, 1.15),
    Target("64 MiB downloads over TLS, to nginx", "tls-downloads", ratio_to(*NGINX_FOR_BODIES), 2.0, 2.0),
    Target("64 MiB uploads over TLS, to nginx", "tls-uploads", ratio_to(*NGINX_FOR_BODIES), 2.0, 2.0),
    Target("added p50 over nginx's, µs", "latency", more_than("nginx", "p50_us"), None, 50, 0),
    Target("added p99 over nginx's, µs", "latency", more_than("nginx", "p99_us"), None, 100, 0),
)


def met(target: Target, interpreted: Spread | None, compiled: Spread | None) -> str:
    """For each build that has a target: whether its figure is at most that. Empty: nothing was measured."""
    builds = (("interpreted", interpreted, target.interpreted), ("compiled", compiled, target.compiled))
    found = {
        name: "yes" if spread.median <= limit else "no"
        for name, spread, limit in builds
        if spread is not None and limit is not None
    }
    if len(set(found.values())) == 1 and len(found) == sum(limit is not None for _, _, limit in builds):
        return next(iter(found.values()))
    return ", ".join(f"{name} {answer}" for name, answer in found.items())
