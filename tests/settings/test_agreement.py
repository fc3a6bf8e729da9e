"""The key `agreement`: what it reads, and each way to be wrong."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from gateway.core.fleet.backend import BackendTls
from gateway.keys.secrets import Secret
from gateway.settings import AgreementSettings
from gateway.settings.sections.agreement import EtcdSettings
from gateway.settings.yaml.problem import Severity
from tests.kit.certificates import authority
from tests.settings.texts import BASE, load_text

# Its endpoints are in line 10.
ETCD = """\
state: /var/lib/skewgate-state.json
agreement:
  etcd:
    endpoints: [http://127.0.0.1:2379, http://127.0.0.2:2379, http://127.0.0.3:2379]
  cluster: site-1
"""
URLS = ("http://127.0.0.1:2379", "http://127.0.0.2:2379", "http://127.0.0.3:2379")
LIST = f"[{', '.join(URLS)}]"


def found_in(text: str) -> list[tuple[str, int, str]]:
    """Code, line and message of each problem."""
    return [(problem.code, problem.line, problem.message) for problem in load_text(BASE + text).problems]


def https(*lines: str) -> str:
    """With TLS, whose lines begin with line 12."""
    section = "".join(f"      {line}\n" for line in lines)
    tls = f"    tls:\n{section}" if lines else ""
    text = ETCD.replace("http:", "https:")
    return text.replace("  cluster", f"{tls}  cluster")


def test_without_it_a_replica_stands_alone() -> None:
    assert load_text(BASE).require().agreement is None


def test_defaults() -> None:
    loaded = load_text(BASE + ETCD)

    assert loaded.require().agreement == AgreementSettings(EtcdSettings(URLS), "site-1", 3.0, 86_400.0)
    assert loaded.require().agreement.prefix == "/skewgate/site-1/"  # type: ignore[union-attr]
    assert loaded.problems == ()


def test_all_keys(tmp_path: Path) -> None:
    ca = authority().write(tmp_path)
    certificate, key = authority().client("replica").write(tmp_path, "client")
    text = https(
        f"ca: {ca}", "server_name: etcd.example.org", f"certificate: {certificate}", f"key: {key}"
    ).replace(
        "  cluster",
        "    user: sk\n    password: ${PW}\n    prefix: /a/b.c\n  ttl: 500ms\n  forget: never\n  cluster",
    )

    loaded = load_text(BASE + text, PW="pa ss")

    assert [problem.code for problem in loaded.problems] == []
    assert loaded.require().agreement == AgreementSettings(
        EtcdSettings(
            tuple(url.replace("http:", "https:") for url in URLS),
            BackendTls("etcd.example.org", str(ca), str(certificate), str(key)),
            "sk",
            Secret("pa ss"),
            "/a/b.c",
        ),
        "site-1",
        0.5,
        None,
    )


def test_the_default_port_and_ipv6() -> None:
    text = ETCD.replace(LIST, '[http://etcd-1, "http://[::1]:2380/", http://ETCD-2.test:1]')
    agreement = load_text(BASE + text).require().agreement

    assert agreement is not None
    assert agreement.etcd.endpoints == ("http://etcd-1:2379", "http://[::1]:2380", "http://etcd-2.test:1")


def test_longer_durations() -> None:
    agreement = load_text(BASE + ETCD + "  ttl: 60s\n  forget: 720h\n").require().agreement

    assert agreement is not None
    assert (agreement.ttl, agreement.forget) == (60.0, 720 * 3600.0)


def test_workers_are_not_told_the_password() -> None:
    text = ETCD.replace("  cluster", "    user: sk\n    password: secret\n  cluster")
    settings = load_text(BASE + text).require()

    assert "secret" not in repr(settings)
    assert settings.for_workers.agreement is None
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(settings.agreement)


def test_the_password_is_not_shown() -> None:
    loaded = load_text(BASE + ETCD.replace("  cluster", "    password: secret\n  cluster"))

    assert loaded.settings is None
    assert "secret" not in "\n".join(loaded.lines) + loaded.render()


@pytest.mark.parametrize(
    "written, message",
    [
        ("[]", "the list is empty"),
        ("[10.0.0.1:2379]", "an endpoint must begin with http:// or https://"),
        ("[unix:/run/etcd]", "an endpoint must begin with http:// or https://"),
        ("[http://u:p@a:1]", "an endpoint must not contain a user or password"),
        ("[http://a:1/v3]", "an endpoint must not contain a path"),
        ("['http://a?x']", "an endpoint must not contain a query"),
        ("['http://:2379']", "the endpoint has no host"),
        ("[http://a:0]", "the port must be a number from 1 to 65535"),
        ("[http://a, http://b, 'http://a:2379']", "this endpoint is in the list twice"),
        ("[https://a, http://b, https://c]", "some endpoints are https, and this one is not"),
    ],
)
def test_endpoints(written: str, message: str) -> None:
    ((_, line, found),) = found_in(ETCD.replace(LIST, written))

    assert line == 10
    assert message in found


@pytest.mark.parametrize(
    "more, message",
    [
        ("  ttl: 100ms\n", "this duration must be from 500ms to 60s"),
        ("  ttl: 61s\n", "this duration must be from 500ms to 60s"),
        ("  forget: 721h\n", "the duration must be at most 720h"),
        ("  forget: ever\n", "not a valid duration"),
        ("  forget: 0h\n", "a duration must be more than 0"),
        ("  forget: 8s\n", "agreement.forget is less than 3 times agreement.ttl"),
        ("  lease: 3s\n", "there is no key 'lease' here"),
    ],
)
def test_durations(more: str, message: str) -> None:
    ((_, line, found),) = found_in(ETCD + more)

    assert line == 12
    assert message in found


@pytest.mark.parametrize(
    "text, code, line",
    [
        (ETCD.replace("  cluster: site-1\n", ""), "missing-key", 8),
        (ETCD.replace("site-1", "a/b"), "bad-value", 11),
        (ETCD.replace("  cluster", "    prefix: skewgate\n  cluster"), "bad-value", 11),
        (ETCD.replace("  cluster", "    prefix: /\n  cluster"), "bad-value", 11),
        (ETCD.replace("  cluster", "    prefix: /a/\n  cluster"), "bad-value", 11),
        (ETCD.replace("  cluster", "    user: a\n  cluster"), "missing-key", 11),
        (ETCD.replace("  cluster", "    password: a\n  cluster"), "missing-key", 11),
        (ETCD.replace("  cluster", "    tls:\n      server_name: a\n  cluster"), "contradiction", 12),
        (https("certificate: /nowhere/tls.crt"), "missing-key", 12),
        (https("ca: /nowhere/ca.crt"), "bad-certificate", 12),
        (https("verify: off"), "unknown-key", 12),
        ("agreement: yes\n", "wrong-type", 7),
    ],
)
def test_errors(text: str, code: str, line: int) -> None:
    loaded = load_text(BASE + text)

    assert loaded.settings is None
    assert (code, line) in [(problem.code, problem.line) for problem in loaded.problems]


@pytest.mark.parametrize(
    "text, code",
    [
        (ETCD.replace("state: /var/lib/skewgate-state.json\n", ""), "no-state"),
        (ETCD.replace(LIST, "[http://127.0.0.1]"), "one-endpoint"),
        (ETCD + "  forget: 1m\n", "short-forget"),
        (
            ETCD.replace("127.0.0.2", "10.0.0.2").replace(
                "  cluster", "    user: a\n    password: b\n  cluster"
            ),
            "password-exposed",
        ),
    ],
)
def test_warnings(text: str, code: str) -> None:
    loaded = load_text(BASE + text)

    assert [(problem.code, problem.severity) for problem in loaded.problems] == [(code, Severity.WARNING)]
    assert loaded.require().agreement is not None
