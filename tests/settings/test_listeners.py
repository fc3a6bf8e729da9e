"""`listen` in the file: addresses of all kinds, TLS with its files, and what contradicts what."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings import load
from gateway.settings.sections.listen import Listen
from gateway.tls.values import CertificateFiles, ServerTls
from tests.kit.certificates import Authority, Leaf
from tests.settings.dialects import DIALECTS
from tests.settings.texts import BASE, load_text

ROOT = Authority()
LEAF = ROOT.server()
REST = BASE.partition("\n")[2]


def listening(text: str, more: str = "") -> tuple[Listen, ...]:
    return load_text(f"listen: {text}\n{REST}{more}").require().listen


def found(text: str, more: str = "") -> list[tuple[str, int, int]]:
    problems = load_text(f"listen: {text}\n{REST}{more}").problems
    return [(problem.code, problem.line, problem.column) for problem in problems]


def test_addresses_of_all_kinds() -> None:
    assert listening("unix:/run/x.sock") == (Listen("", 0, "/run/x.sock"),)
    assert listening('[{address: "unix:/run/x.sock", mode: "0600"}, {address: "127.0.0.1:80"}]') == (
        Listen("", 0, "/run/x.sock", mode=0o600),
        Listen("127.0.0.1", 80),
    )
    assert listening("'[::1]:80'") == (Listen("::1", 80),)
    assert [
        str(each) for each in listening("[{address: 'unix:/x'}, {address: '[::1]:80'}, {address: 'a:1'}]")
    ] == [
        "unix:/x",
        "[::1]:80",
        "a:1",
    ]


@pytest.mark.parametrize(
    "text, dual",
    [
        ("'[::]:80'", [True]),
        ("[{address: '[::]:80'}, {address: '0.0.0.0:80'}]", [False, False]),
        ("[{address: '[::]:80'}, {address: '127.0.0.1:80'}]", [False, False]),
        ("[{address: '[::]:80'}, {address: '0.0.0.0:81'}]", [True, False]),
        ("'[::]:9900'", [False]),  # the admin listener has that port
        ("'[::1]:80'", [False]),
    ],
)
def test_the_ipv6_wildcard_is_for_ipv4_too_unless_somebody_else_is(text: str, dual: list[bool]) -> None:
    assert [each.dual_stack for each in listening(text)] == dual


def test_unix_among_trusted_proxies() -> None:
    (listen,) = listening("unix:/run/x.sock", "trusted_proxies: ['unix:', 10.0.0.0/8]\n")

    assert listen.trusted
    settings = load_text(BASE + "trusted_proxies: ['unix:', 10.0.0.0/8]\n").require()
    assert [str(network) for network in settings.trusted_proxies] == ["10.0.0.0/8"]


def test_ipv4_written_as_ipv6_is_ipv4() -> None:
    """Clients' addresses are read so, too: else no such proxy would be trusted."""
    networks = "['::ffff:10.0.0.0/104', '::ffff:10.9.0.7', 'fd00::/8']"
    settings = load_text(BASE + f"trusted_proxies: {networks}\n").require()
    assert [str(network) for network in settings.trusted_proxies] == ["10.0.0.0/8", "10.9.0.7/32", "fd00::/8"]


def test_proxy_protocol() -> None:
    (listen,) = listening("[{address: 'a:1', proxy_protocol: on}]", "trusted_proxies: [10.0.0.0/8]\n")

    assert listen.proxy_protocol
    assert found("[{address: 'a:1', proxy_protocol: on}]") == [("contradiction", 1, 43)]
    assert found("[{address: 'unix:/x', proxy_protocol: on}]", "trusted_proxies: [10.0.0.0/8]\n") == [
        ("contradiction", 1, 47)
    ]
    assert found("[{address: 'a:1', proxy_protocol: on}]", "trusted_proxies: ['unix:']\n") == [
        ("contradiction", 1, 43)
    ]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("'unix:'", ("bad-value", 1, 9)),
        ("unix:/run/", ("bad-value", 1, 9)),
        ("unix:/" + "x" * 107, ("bad-value", 1, 9)),
        ("[{address: 'unix:/x', mode: 9}]", ("bad-value", 1, 37)),
        ("[{address: 'unix:/x', mode: rw-rw----}]", ("bad-value", 1, 37)),
        ("[{address: 'a:1', mode: 0660}]", ("contradiction", 1, 33)),
        ("[{address: 'unix:/x'}, {address: 'unix:/x'}]", ("address-taken", 1, 42)),
        ("[{address: 'a:1', proxy_protocol: 'yes'}]", ("bad-value", 1, 43)),
        ("[{address: 'a:1', tls: {}}]", ("missing-key", 1, 27)),
        ("[{address: 'a:1', tls: {certificates: []}}]", ("bad-value", 1, 47)),
        ("[{address: 'a:1', tls: {certificates: [{}]}}]", ("missing-key", 1, 48)),
        ("[{address: 'a:1', tls: {certificate: x}}]", ("unknown-key", 1, 33)),
    ],
)
def test_what_is_wrong_has_its_position(text: str, expected: tuple[str, int, int]) -> None:
    assert expected in found(text)


# --- files of TLS ------------------------------------------------------------------------------------------


def with_tls(certificate: Path | str, key: Path | str, more: str = "") -> str:
    return f"""\
listen:
  - address: 127.0.0.1:8443
    tls:
      certificates:
        - certificate: {certificate}
          key: {key}
{more}{REST}"""


def test_tls_of_a_listener(tmp_path: Path) -> None:
    certificate, key = LEAF.write(tmp_path)
    ca = ROOT.write(tmp_path)
    more = f"      client_ca: {ca}\n      client: optional\n      forward_client_cert: true\n"

    (listen,) = load_text(with_tls(certificate, key, more)).require().listen

    files = CertificateFiles(str(certificate), str(key))
    assert listen.tls == ServerTls((files,), str(ca), client="optional", forward_client_cert=True)
    assert listen.fixed != Listen("127.0.0.1", 8443)
    (other,) = load_text(with_tls(certificate, key)).require().listen
    assert other.fixed != listen.fixed  # what backends are told is fixed
    assert listen.fixed.tls != listen.tls


def _foreign_key(folder: Path) -> None:
    (folder / "tls.key").write_bytes(ROOT.server().key_pem())


def _wrong_chain(folder: Path) -> None:
    Leaf(LEAF.certificate, (Authority().certificate,), LEAF.key).write(folder)


@pytest.mark.parametrize(
    "spoil, expected, words",
    [
        (lambda folder: (folder / "tls.crt").unlink(), (5, 24), "cannot be read: No such file"),
        (lambda folder: (folder / "tls.key").unlink(), (6, 16), "cannot be read: No such file"),
        (lambda folder: ROOT.server(days=-1).write(folder), (5, 24), "expired on"),
        (_foreign_key, (6, 16), "does not belong to the certificate"),
        (lambda folder: LEAF.write(folder, password=b"x"), (6, 16), "the key is encrypted"),
        (_wrong_chain, (5, 24), "wrong chain"),
    ],
)
def test_each_wrong_file_is_an_error_with_position_and_reason(
    tmp_path: Path, spoil: object, expected: tuple[int, int], words: str
) -> None:
    certificate, key = LEAF.write(tmp_path)
    assert callable(spoil)
    spoil(tmp_path)

    (problem,) = load_text(with_tls(certificate, key)).problems

    assert problem.code == "bad-certificate"
    assert (problem.line, problem.column) == expected
    assert words in problem.message


def test_a_wrong_ca_of_clients(tmp_path: Path) -> None:
    certificate, key = LEAF.write(tmp_path)

    (problem,) = load_text(with_tls(certificate, key, f"      client_ca: {certificate}\n")).problems

    assert (problem.code, problem.line, problem.column) == ("bad-certificate", 7, 18)
    assert "not that of a CA" in problem.message


def test_a_certificate_that_expires_soon_is_a_warning(tmp_path: Path) -> None:
    certificate, key = ROOT.server(days=13.5).write(tmp_path)

    loaded = load_text(with_tls(certificate, key))

    assert loaded.settings is not None
    (problem,) = loaded.problems
    assert (problem.code, problem.severity, problem.line) == ("expires-soon", "warning", 5)
    assert "in 13 days" in problem.message


@pytest.mark.parametrize("line", ["client: optional", "forward_client_cert: true"])
def test_without_a_ca_keys_about_clients_mean_nothing(tmp_path: Path, line: str) -> None:
    certificate, key = LEAF.write(tmp_path)

    (problem,) = load_text(with_tls(certificate, key, f"      {line}\n")).problems

    assert (problem.code, problem.line) == ("contradiction", 7)


def test_a_ca_of_a_wrong_type_is_reported_once(tmp_path: Path) -> None:
    certificate, key = LEAF.write(tmp_path)
    more = "      client_ca: [/ca.crt]\n      client: optional\n"

    (problem,) = load_text(with_tls(certificate, key, more)).problems

    assert (problem.code, problem.line) == ("wrong-type", 7)


def test_verbs_that_only_look_for_the_admin_listener_read_no_certificate() -> None:
    text = with_tls("/absent.crt", "/absent.key")

    assert load(text, filename="x", environ={}, dialects=DIALECTS, check_files=False).settings is not None
