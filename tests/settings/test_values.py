"""The settings have the values that the file says."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

from ipaddress import ip_network

import pytest

from gateway.core.dialect import DefaultKind, DefaultVersion
from gateway.core.fleet.failures import Retry, RetryCause
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.service import Match, Policy, Probe, Service
from gateway.core.fleet.timeouts import Timeouts
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.errors import SettingsError
from gateway.keys.addresses import Address
from gateway.keys.secrets import MaskedText
from gateway.settings import AccessLogSettings, Settings, load
from gateway.settings.sections.admin import Admin
from gateway.settings.sections.listen import Listen
from tests.settings.dialects import Dated
from tests.settings.texts import BASE, load_text


def settings_of(text: str, **environ: str) -> Settings:
    loaded = load_text(text, **environ)
    assert not loaded.errors, loaded.render()
    return loaded.require()


def service_of(more: str, **environ: str) -> Service:
    """The service of the smallest file with `more` added."""
    return settings_of(BASE + more, **environ).services[0]


@pytest.mark.parametrize("text, workers", [("1", 1), ("4", 4), ("64", 64), ("auto", None)])
def test_the_number_of_workers(text: str, workers: int | None) -> None:
    assert load_text(f"{BASE}workers: {text}\n").require().workers == workers


def test_a_minimal_file_gets_every_default() -> None:
    settings = settings_of(BASE)

    assert settings.listen == (Listen("127.0.0.1", 8080),)
    assert settings.admin == Admin(Address("127.0.0.1", 9900))
    assert settings.workers == 1
    assert settings.access_log == AccessLogSettings(format="json", path="-")
    assert settings.metrics.per_backend is True
    assert settings.trusted_proxies == ()
    assert settings.timeouts == Timeouts(
        client_head=10.0,
        client_body_idle=30.0,
        client_idle=75.0,
        client_write_idle=60.0,
        connect=2.0,
        backend_head=30.0,
        backend_body_idle=60.0,
        backend_idle=15.0,
        drain=30.0,
    )
    assert settings.limits == Limits(
        head=32 * 1024,
        line=8 * 1024,
        headers=100,
        body=1024**3,
        replay_body=64 * 1024,
        connections=None,
    )
    [service] = settings.services
    assert service.name == "api"
    assert service.match == Match()
    assert service.policy is Policy.GUARANTEED
    assert service.ceiling is None
    assert service.default_version is None
    assert service.probe == Probe()
    assert service.retry == Retry()
    [backend] = service.backends
    assert (backend.name, backend.url) == ("127.0.0.1:6385", "http://127.0.0.1:6385")
    assert (backend.weight, backend.declared) == (1, None)


def test_a_whole_file() -> None:
    settings = settings_of("""\
listen:
  - address: 0.0.0.0:80
  - {address: "[::1]:8080"}
admin: {listen: "[::]:9901", token: abcdefghijklmnop}
access_log: {format: off, path: /var/log/x}
metrics: {per_backend: false}
trusted_proxies: [10.0.0.0/8, "::1"]
timeouts: {connect: 250ms, drain: 2m}
limits: {headers: 50, body: 512B, replay_body: 0B, connections: 7}
services:
  a.b_c-1:
    dialect: plain
    match: {host: API.example.org, path: /base, strip_prefix: false}
    backends:
      - {url: "http://[::1]", weight: 3, versions: "1.1-1.5, 1.7"}
      - {url: "http://Node_1.local:81/api/v/", name: two}
    probe: {interval: 1s, timeout: 100ms, path: /x, headers: {X-A: b c}}
    offer: {policy: reachable, ceiling: "1.6"}
    default_version: "1.2"
    retry: {attempts: 1, on: [version]}
""")

    assert settings.listen == (Listen("0.0.0.0", 80), Listen("::1", 8080))
    assert settings.admin.listen == ("::", 9901)
    assert settings.admin.token is not None
    assert settings.admin.token.reveal() == "abcdefghijklmnop"
    assert settings.access_log.format == "off"
    assert settings.metrics.per_backend is False
    assert settings.trusted_proxies == (ip_network("10.0.0.0/8"), ip_network("::1"))
    assert (settings.timeouts.connect, settings.timeouts.drain) == (0.25, 120.0)
    assert (settings.limits.body, settings.limits.replay_body, settings.limits.connections) == (512, 0, 7)
    [service] = settings.services
    assert service.match == Match(("api.example.org",), "/base", strip_prefix=False)
    first, second = service.backends
    assert (first.name, first.host, first.port, first.weight) == ("[::1]:80", "::1", 80, 3)
    assert first.declared == VersionSet.read("1.1-1.5, 1.7", service.dialect.scheme)
    assert (second.name, second.host, second.port, second.path) == ("two", "node_1.local", 81, "/api/v")
    assert service.probe == Probe(1.0, 0.1, "/x", {"X-A": MaskedText("b c")})
    assert service.policy is Policy.REACHABLE
    assert service.ceiling == Version(1, 6)
    assert service.default_version == DefaultVersion(DefaultKind.CONSTANT, Version(1, 2))
    assert service.retry == Retry(1, frozenset({RetryCause.VERSION}))


@pytest.mark.parametrize(
    "written, ceiling",
    [
        ('"1.90"', Version(1, 90)),
        ("1.90", Version(1, 90)),  # as written, not the number 1.9
        ("{release: old}", Version(1, 10)),
        ("{release: 2024.1}", Version(1, 90)),
        ("{release: ours}", Version(1, 77)),
    ],
)
def test_ceilings(written: str, ceiling: Version) -> None:
    service = service_of(f"    offer: {{ceiling: {written}}}\n    releases: {{ours: '1.77'}}\n")

    assert service.ceiling == ceiling
    assert service.releases == {"ours": Version(1, 77)}, "for ceilings that are set at run time"


def test_without_releases_in_the_file_there_are_none() -> None:
    assert service_of("").releases == {}


@pytest.mark.parametrize(
    "written, host", [("API.example", "api.example"), ("'[0:0::1]'", "[::1]"), ("10.0.0.1", "10.0.0.1")]
)
def test_a_host_is_kept_as_a_host_field_has_it(written: str, host: str) -> None:
    assert service_of(f"    match:\n      host: {written}\n").match.hosts == (host,)


@pytest.mark.parametrize(
    "written, default_version",
    [
        ("minimum", DefaultVersion(DefaultKind.MINIMUM)),
        ("maximum", DefaultVersion(DefaultKind.MAXIMUM)),
        ("refused", DefaultVersion(DefaultKind.REFUSED)),
        ('"1.4"', DefaultVersion(DefaultKind.CONSTANT, Version(1, 4))),
    ],
)
def test_default_versions(written: str, default_version: DefaultVersion) -> None:
    assert service_of(f"    default_version: {written}\n").default_version == default_version


@pytest.mark.parametrize(
    "value, path",
    [
        ("/${A}", "/one"),
        ('"/${A}/${B:-two}"', "/one/two"),
        ("/${EMPTY:-x}", "/x"),
        ("/${DOLLAR}", "/$B"),  # the value of a variable is not searched for variables
    ],
)
def test_variables(value: str, path: str) -> None:
    service = service_of(f"    match:\n      path: {value}\n", A="one", EMPTY="", DOLLAR="$B")

    assert service.match.path == path


def test_a_key_is_never_replaced() -> None:
    loaded = load_text(BASE + "${A}: 1\n", A="workers")

    assert [problem.code for problem in loaded.problems] == ["unknown-key"]


def test_options_reach_the_dialect() -> None:
    text = BASE.replace("plain", "dated") + "    dated: {days: false, shape: long, retries: 7, title: on}\n"

    dialect = settings_of(text + "    offer: {ceiling: 2024-02}\n").services[0].dialect

    assert isinstance(dialect, Dated)
    assert (dialect.options.days, dialect.options.shape) == (False, "long")
    assert (dialect.options.retries, dialect.options.title) == (7, "on")


def test_the_hash_is_that_of_the_text() -> None:
    assert settings_of(BASE).hash == settings_of(BASE).hash
    assert settings_of(BASE).hash != settings_of(BASE + "# x\n").hash
    assert len(settings_of(BASE).hash) == 12


def test_warnings_leave_the_settings() -> None:
    loaded = load_text(BASE + "    default_version: 1.10\n")

    assert [(problem.code, str(problem.severity)) for problem in loaded.problems] == [("number", "warning")]
    assert loaded.require().services[0].default_version == DefaultVersion(
        DefaultKind.CONSTANT, Version(1, 10)
    )


def test_require_raises_the_text_of_render() -> None:
    loaded = load("listen: x\n", filename="x.yaml", environ={})

    with pytest.raises(SettingsError) as caught:
        loaded.require()

    assert str(caught.value) == loaded.render()
    assert caught.value.problems == loaded.problems


def test_code_may_make_settings_without_a_file() -> None:
    settings = Settings(listen=(Listen("127.0.0.1", 0),), services=(), timeouts=Timeouts(connect=0.1))

    assert settings.timeouts.connect == 0.1
    assert settings.limits.line == 8192


@pytest.mark.parametrize("written, value", [("true", True), ("false", False)])
def test_R_D2_whether_503_has_retry_after(written: str, value: bool) -> None:
    service = service_of(f"    retry_after: {written}\n")

    assert service.retry_after is service.effective_retry_after is value


def test_R_D2_without_the_key_the_dialect_says_whether_503_has_retry_after() -> None:
    service = service_of("")

    assert service.retry_after is None
    assert service.effective_retry_after is service.dialect.retry_after


def test_R_B10_the_headers_that_are_dropped_from_untrusted_peers() -> None:
    settings = settings_of(
        BASE + "untrusted_headers: [X-Forwarded-*, x-remote-user, '${NAME}']\n", NAME="X-A"
    )

    assert settings.untrusted_headers == ("X-Forwarded-*", "x-remote-user", "X-A")
    assert settings_of(BASE + "untrusted_headers: []\n").untrusted_headers == ()


def test_R_B10_without_the_key_it_is_a_list_of_headers_that_proxies_write() -> None:
    expected = (
        *("Forwarded", "X-Forwarded-*", "X-Real-IP", "True-Client-IP", "X-Client-IP", "Front-End-Https"),
        *("X-Original-*", "X-Rewrite-URL", "X-Host", "X-HTTP-Host-Override", "CF-Connecting-IP"),
        *("Fastly-Client-IP", "X-Cluster-Client-IP", "X-Envoy-External-Address", "X-Azure-ClientIP"),
        *("X-Azure-SocketIP", "Client-Cert", "Client-Cert-Chain", "X-Client-Cert*", "X-Client-Verify"),
        *("X-Client-DN", "X-SSL-*", "SSL-Client-*", "X-TLS-Client-*", "X-Amzn-Mtls-*", "X-ARR-ClientCert"),
        *("Remote-User", "X-Remote-User", "X-Auth-Request-*", "X-WebAuth-*"),
    )
    listed = settings_of(BASE + f"untrusted_headers: [{', '.join(expected)}]\n")

    assert listed.untrusted_headers == settings_of(BASE).untrusted_headers == expected
