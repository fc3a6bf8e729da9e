"""The scenarios: what each measures, with which load, peers and settings, and the figure that counts."""

from dataclasses import dataclass

from bench.figure import Figure
from bench.heads import Heads
from bench.load import Load
from bench.loads.bodies import Bodies
from bench.loads.handshakes import Handshakes
from bench.loads.idle import Idle
from bench.loads.quiet import Quiet
from bench.loads.shares import Shares
from bench.loads.steady import Steady
from bench.loads.wrk import Wrk
from bench.setting import Setting

GATEWAYS = ("gateway", "compiled", "earlier")
#: Peers that are configured for scenarios of all kinds.
USUAL = (*GATEWAYS, "nginx")
ALL = (*USUAL, "haproxy", "envoy", "aiohttp", "relay")
#: nginx with `proxy_buffering` and `proxy_request_buffering` on and off: in each round the cheaper counts.
NGINX_FOR_BODIES = ("nginx", "nginx-unbuffered")
#: The same with buffers of 256 KiB, as somebody sets them who serves nothing but large bodies. Shown beside.
NGINX_TUNED_FOR_BODIES = ("nginx-large-buffers", "nginx-large-unbuffered")
BODY_PEERS = (*GATEWAYS, *NGINX_FOR_BODIES, *NGINX_TUNED_FOR_BODIES)


@dataclass(frozen=True)
class Scenario:
    """Every peer runs in every setting. In a smoke run, each runs in the one named `smoke` only."""

    name: str
    title: str
    load: Load
    peers: tuple[str, ...] = USUAL
    settings: tuple[Setting, ...] = (Setting(),)
    #: The size that the others are compared with.
    base: int = 2
    #: Seconds until a peer must be ready.
    ready: int = 30
    #: Without further options it is run.
    default: bool = False
    #: The program of the system that makes the load.
    program: str = "wrk"

    @property
    def unit(self) -> Figure:
        return self.load.columns[0]

    @property
    def smoke(self) -> Setting:
        """The largest setting that starts at once, with TLS if that is a part of the scenario."""
        small = (setting for setting in self.settings if setting.size <= 100)
        return max(small, key=lambda each: (each.size, each.tls))


SCENARIOS = (
    Scenario("unique", "unique ids in every request and response", Wrk(), ALL, default=True),
    Scenario("mixed", "12 kinds of clients on each connection", Wrk(Heads(kinds=12)), default=True),
    Scenario("forty", "40 fields", Wrk(Heads(more=32)), default=True),
    Scenario(
        "proxied",
        "behind an outer proxy, which is trusted",
        Wrk(Heads(proxied=True)),
        settings=(Setting(trusted=True),),
        default=True,
    ),
    Scenario(
        "log",
        "JSON access log, into a file",
        Wrk(),
        (*USUAL, "nginx-log-buffered"),
        (Setting(access_log=True),),
        default=True,
    ),
    Scenario(
        "workers",
        "64 connections, with several workers",
        Shares(),
        USUAL,
        tuple(Setting(workers=count) for count in (1, 2, 4)),
        base=1,
    ),
    Scenario(
        "map",
        "HAProxy with the map of the gateway, with several threads",
        Wrk(),
        ("haproxy", "haproxy-map"),
        tuple(Setting(threads=count) for count in (1, 2, 4)),
        base=1,
    ),
    Scenario("repeated", "the same heads again and again", Wrk(Heads(unique=False)), (*USUAL, "envoy")),
    Scenario("downloads", "64 MiB responses", Bodies("download"), BODY_PEERS, program=""),
    Scenario("uploads", "64 MiB requests", Bodies("upload"), BODY_PEERS, program=""),
    Scenario(
        "tls",
        "unique ids, without and with TLS",
        Wrk(),
        settings=(Setting(), Setting(tls="ecdsa")),
    ),
    Scenario(
        "handshakes-ecdsa",
        "TLS handshakes, ECDSA P-256",
        Handshakes(),
        settings=(Setting(tls="ecdsa"),),
        program="openssl",
    ),
    Scenario(
        "handshakes-rsa",
        "TLS handshakes, RSA-2048",
        Handshakes(),
        settings=(Setting(tls="rsa"),),
        program="openssl",
    ),
    Scenario(
        "tls-downloads",
        "64 MiB responses over TLS",
        Bodies("download"),
        (*GATEWAYS, *NGINX_FOR_BODIES),
        (Setting(tls="ecdsa"),),
        program="",
    ),
    Scenario(
        "tls-uploads",
        "64 MiB requests over TLS",
        Bodies("upload"),
        (*GATEWAYS, *NGINX_FOR_BODIES),
        (Setting(tls="ecdsa"),),
        program="",
    ),
    Scenario(
        "idle",
        "9,000 idle connections",
        Idle(),
        (*USUAL, "haproxy", "envoy"),
        (Setting(connections=9_600),),
        program="",
    ),
    Scenario(
        "latency",
        "1,000 requests/s at a constant rate",
        Steady(),
        (*USUAL, "envoy", "direct"),
        program="h2load",
    ),
    Scenario(
        "backends",
        "behind one service, all probed",
        Wrk(),
        settings=tuple(Setting(backends=count) for count in (2, 10, 100, 1000)),
        ready=120,
    ),
    Scenario(
        "probes",
        "probed every 5 s, without any requests",
        Quiet(),
        GATEWAYS,
        tuple(Setting(backends=count) for count in (2, 100, 1000)),
        ready=120,
    ),
    Scenario(
        "prefixes",
        "found by prefix, all probed",
        Wrk(),
        settings=tuple(Setting(services=count, by="prefix") for count in (1, 2, 10, 100, 1000)),
        ready=120,
    ),
    Scenario(
        "hosts",
        "found by host, all probed",
        Wrk(),
        settings=tuple(Setting(services=count, by="host") for count in (1, 2, 10, 100, 1000)),
        ready=120,
    ),
)
