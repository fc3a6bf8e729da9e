"""Backends with https or a unix socket, and the admin listener: addresses, TLS, and each way to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.core.fleet.backend import Backend, BackendTls
from tests.kit.certificates import Authority, authority
from tests.settings.texts import BASE, load_text


def text_of(url: str, *lines: str) -> str:
    """A file whose backend has this URL. The lines of its `tls` begin with line 8."""
    tls = "".join(f"          {line}\n" for line in lines)
    return BASE.replace("http://127.0.0.1:6385", url) + (f"        tls:\n{tls}" if tls else "")


def backend_of(text: str) -> Backend:
    (service,) = load_text(text).require().services
    (backend,) = service.backends
    return backend


def found_in(text: str) -> list[tuple[str, int, str]]:
    """Code, line and message of each problem."""
    return [(problem.code, problem.line, problem.message) for problem in load_text(text).problems]


@pytest.mark.parametrize(
    "url, name, shown, base",
    [
        ("https://api.test", "api.test:443", "https://api.test:443", "https://api.test:443"),
        ("https://[::1]:8443/base", "[::1]:8443", "https://[::1]:8443/base", "https://[::1]:8443/base"),
        ("http://[fd00::1]", "[fd00::1]:80", "http://[fd00::1]:80", "http://[fd00::1]:80"),
        ("unix:/run/ironic/api.sock", "api.sock", "unix:/run/ironic/api.sock", "http://localhost"),
    ],
)
def test_addresses(url: str, name: str, shown: str, base: str) -> None:
    backend = backend_of(text_of(url))

    assert (backend.name, backend.url, backend.origin) == (name, shown, base)


def test_https_verifies_by_the_systems_cas_and_the_host() -> None:
    assert backend_of(text_of("https://api.test")).tls == BackendTls("api.test")
    assert backend_of(text_of("http://api.test")).tls is None


def test_all_keys(tmp_path: Path) -> None:
    ca = authority().write(tmp_path)
    certificate, key = authority().client().write(tmp_path, "gateway")
    text = text_of(
        "https://10.0.0.1",
        f"ca: {ca}",
        "server_name: API.test",
        f"certificate: {certificate}",
        f"key: {key}",
    )

    tls = backend_of(text).tls

    assert tls is not None
    assert (tls.server_name, tls.ca, tls.certificate, tls.key, tls.verify) == (
        *("api.test", str(ca), str(certificate), str(key), True),
    )
    assert len(tls.digest) == 32


def test_new_contents_make_another_configuration(tmp_path: Path) -> None:
    ca = authority().write(tmp_path)
    text = text_of("https://10.0.0.1", f"ca: {ca}")
    before, same = (load_text(text).require().services[0] for _ in range(2))
    Authority("Another").write(tmp_path)
    after = load_text(text).require().services[0]

    assert same.is_written_as(before)
    assert same.backends == before.backends
    assert not after.is_written_as(before)
    assert after.backends != before.backends


@pytest.mark.parametrize(
    "url, code",
    [
        ("ftp://x", "bad-value"),
        ("unix:", "bad-value"),
        ("unix:relative.sock", "bad-value"),
        ("unix:/run/", "bad-value"),
        ("unix:/" + "x" * 107, "bad-value"),
        ("unix:/run/api server", "bad-value"),
        ("https://x?y", "bad-value"),
        ("https://:443", "bad-value"),
        ("https://x:0", "bad-value"),
    ],
)
def test_wrong_addresses(url: str, code: str) -> None:
    assert [(found, line) for found, line, _ in found_in(text_of(f'"{url}"'))] == [(code, 6)]


def test_two_sockets_with_the_same_last_part_need_names() -> None:
    text = text_of("unix:/run/a/api.sock") + "      - url: unix:/run/b/api.sock\n"

    assert [(code, line) for code, line, _ in found_in(text)] == [("duplicate-backend", 7)]


def bad_files(folder: Path) -> dict[str, Path]:
    ca = authority()
    good, good_key = ca.client().write(folder, "good")
    expired, expired_key = ca.client(days=-1).write(folder, "expired")
    _, other_key = ca.client().write(folder, "other")
    _, encrypted = ca.client().write(folder, "encrypted", password=b"x")
    (folder / "garbage").write_bytes(b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    (folder / "empty").write_bytes(b"")
    return {
        "good": good,
        "good_key": good_key,
        "expired": expired,
        "expired_key": expired_key,
        "other_key": other_key,
        "encrypted": encrypted,
        "absent": folder / "absent",
        "folder": folder,
        "garbage": folder / "garbage",
        "empty": folder / "empty",
    }


@pytest.mark.parametrize(
    "lines, line, message",
    [
        (["ca: {absent}"], 8, "No such file"),
        (["ca: {folder}"], 8, "not a file"),
        (["ca: {empty}"], 8, "no certificate in PEM"),
        (["ca: {garbage}"], 8, "damaged"),
        (["ca: {good_key}"], 8, "no certificate in PEM"),
        (["ca: {expired}"], 8, "expired"),
        (["certificate: {absent}", "key: {good_key}"], 8, "No such file"),
        (["certificate: {good}", "key: {absent}"], 9, "No such file"),
        (["certificate: {expired}", "key: {expired_key}"], 8, "expired"),
        (["certificate: {good}", "key: {other_key}"], 9, "does not belong"),
        (["certificate: {good}", "key: {encrypted}"], 9, "encrypted"),
        (["certificate: {garbage}", "key: {good_key}"], 8, "damaged"),
        (["certificate: {good_key}", "key: {good}"], 8, "no certificate"),
    ],
)
def test_wrong_files(tmp_path: Path, lines: list[str], line: int, message: str) -> None:
    paths = bad_files(tmp_path)
    found = found_in(text_of("https://x.test", *(each.format(**paths) for each in lines)))

    assert [(code, at) for code, at, _ in found] == [("bad-certificate", line)]
    assert message in found[0][2]


@pytest.mark.parametrize(
    "url, lines, expected",
    [
        ("http://x", ["ca: /x"], [("contradiction", 7)]),
        ("unix:/x.sock", ["server_name: x"], [("contradiction", 7)]),
        ("https://x", ["certificate: /etc/hostname"], [("missing-key", 8)]),
        ("https://x", ["key: /etc/hostname"], [("missing-key", 8)]),
        ("https://x", ["verify: no"], [("bad-value", 8)]),
        ("https://x", ["verify: off"], [("not-verified", 8)]),
        ("https://x", ["verify: off", "ca: /x"], [("not-verified", 8), ("contradiction", 9)]),
        ("https://x", ["sni: x"], [("unknown-key", 8)]),
        ("https://x", ["server_name: a b"], [("bad-value", 8)]),
    ],
)
def test_wrong_combinations(url: str, lines: list[str], expected: list[tuple[str, int]]) -> None:
    found = [(code, line) for code, line, _ in found_in(text_of(url, *lines))]

    assert [each for each in found if each[0] != "bad-certificate"] == expected


def test_verify_off_is_a_warning_that_every_start_logs() -> None:
    loaded = load_text(text_of("https://x", "verify: off"))

    assert loaded.settings is not None
    assert not loaded.errors
    assert "anyone on the way can take its place" in loaded.render()


ADMIN = "admin:\n  listen: {listen}\n"


def admin_problems(text: str) -> list[tuple[str, int]]:
    return [(problem.code, problem.line) for problem in load_text(BASE + text).problems]


def admin_tls(folder: Path) -> Callable[[str], str]:
    certificate, key = authority().server().write(folder, "admin")
    ca = authority().write(folder)

    def text(more: str = "") -> str:
        pair = f"{{certificate: {certificate}, key: {key}}}"
        return f"  tls: {{certificates: [{pair}]{more.format(ca=ca)}}}\n"

    return text


def test_an_exposed_admin_listener_needs_a_token_or_certificates(tmp_path: Path) -> None:
    exposed, tls = ADMIN.format(listen="0.0.0.0:9900"), admin_tls(tmp_path)

    assert admin_problems(exposed) == [("admin-exposed", 8)]
    assert admin_problems(exposed + tls("")) == [("admin-exposed", 8)]
    assert admin_problems(exposed + tls(", client_ca: {ca}")) == []
    assert admin_problems(exposed + tls(", client_ca: {ca}, client: optional")) == []
    assert admin_problems(exposed + "  token: open-sesame-0123456789\n") == []


def test_files_of_the_admin_listener_are_checked(tmp_path: Path) -> None:
    text = ADMIN.format(listen="127.0.0.1:9900")
    pair = f"{{certificate: {tmp_path / 'absent'}, key: {tmp_path / 'absent'}}}"

    assert admin_problems(text + f"  tls: {{certificates: [{pair}]}}\n") == [("bad-certificate", 9)]


@pytest.mark.parametrize("address", ["127.0.0.1:8080", "127.0.0.1:9900"])
def test_the_listener_for_metrics_needs_an_address_of_its_own(address: str) -> None:
    text = ADMIN.format(listen="127.0.0.1:9900") + f"  metrics_listen: {address}\n"

    assert admin_problems(text) == [("address-taken", 9)]


def test_admin_values() -> None:
    text = (
        ADMIN.format(listen="127.0.0.1:9900") + "  metrics_listen: 10.0.0.5:9901\n  hosts: [A.example.org]\n"
    )
    admin = load_text(BASE + text).require().admin

    assert (admin.metrics_listen, admin.hosts, admin.tls) == (("10.0.0.5", 9901), ("a.example.org",), None)
