"""`clients`: what an operator writes, and entries that no request could match."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from gateway.core.clients import CertificateNames, Client
from gateway.settings import load
from gateway.settings.yaml.problem import Severity
from tests.settings.dialects import DIALECTS
from tests.settings.texts import BASE, load_text

TLS = BASE.replace(
    "listen: 127.0.0.1:8080",
    "listen: [{address: '127.0.0.1:0', tls: {certificates: [{certificate: a, key: b}], client_ca: c}}]",
)


def problems(*entries: str, base: str = BASE) -> list[tuple[int, str, str]]:
    """Line of the entry, from 1, code and message of each problem."""
    text = "".join([base, "clients:\n", *(f"  - {entry}\n" for entry in entries)])
    loaded = load_text(text)
    before = base.count("\n") + 1
    return [(each.line - before, each.code, each.message) for each in loaded.problems if each.line > before]


def test_clients_as_they_are_written() -> None:
    loaded = load_text(
        f"{BASE}clients:\n"
        "  - {name: cron, user_agent: Python-IronicClient, header: {X_Team: compute-*}}\n"
        "  - {name: cron, user_agent: [curl, none], networks: [10.9.0.0/16, '::ffff:10.8.0.0/112']}\n"
    )

    assert loaded.require().clients == (
        Client("cron", "Python-IronicClient", {"X_Team": "compute-*"}),
        Client("cron", ("curl", "none"), networks=(ip_network("10.9.0.0/16"), ip_network("10.8.0.0/16"))),
    )


@pytest.mark.parametrize(
    "written, compared",
    [
        ("san: Nova.Example.org", CertificateNames(san="nova.example.org")),
        ("san: 'spiffe://Example/Nova'", CertificateNames(san="spiffe://Example/Nova")),
        ("subject: 'cn = Nova, O=Example'", CertificateNames("CN=Nova,O=Example")),
    ],
)
def test_only_names_of_hosts_are_equal_in_any_case(written: str, compared: CertificateNames) -> None:
    text = f"{TLS}clients:\n  - {{name: x, certificate: {{{written}}}}}\n"
    loaded = load(text, filename="x", environ={}, dialects=DIALECTS, check_files=False)

    assert loaded.require().clients[0].certificate == compared


def test_every_example_of_the_page_is_read() -> None:
    assert (
        problems(
            "{name: a, user_agent: python-ironicclient}",
            "{name: b, user_agent: [Chef, 'curl']}",
            '{name: c, header: {User-Agent: "Chef Knife*", X-Team: "a b"}}',
            "{name: d, networks: [10.0.0.1, 'fd00::/8']}",
        )
        == []
    )


@pytest.mark.parametrize(
    "entry, message",
    [
        ("{name: a}", "the entry has no condition: it would name every client"),
        ("{name: a, header: {}, certificate: {}}", "the entry has no condition: it would name every client"),
        ("{name: a, user_agent: x, certificate: {}}", "no name is given"),
        ("{name: a, user_agent: []}", "the list is empty"),
        ("{name: a, networks: []}", "the list is empty"),
        ("{name: a, user_agent: curl/8}", "not the product of a User-Agent"),
        ("{name: a, user_agent: 'python-*'}", "not the product of a User-Agent"),
        (
            "{name: a, header: {X-Team: '*'}}",
            "a value must be visible ASCII, or begin with some before its `*`",
        ),
        (
            "{name: a, header: {X-Team: 'ä'}}",
            "a value must be visible ASCII, or begin with some before its `*`",
        ),
        ("{name: a, header: {authorization: x}}", "this header holds a secret, which is no name"),
        ("{name: a, header: {X_Auth.Token: x}}", "this header holds a secret, which is no name"),
        ("{name: a, header: {Cookie: x}}", "this header holds a secret, which is no name"),
        ("{name: a, header: {X-Forwarded-For: x}}", "the gateway itself reads or drops this header"),
        ("{name: a, certificate: {subject: nova}}", "not a distinguished name"),
        ("{name: 'a b', user_agent: x}", "a name must have 1 to 64 letters, digits, `_`, `.` or `-`"),
        ("{user_agent: x}", "the key 'name' is missing"),
        ("{name: a, certificate: {cn: nova}}", "there is no key 'cn' here"),
    ],
)
def test_an_entry_that_is_wrong(entry: str, message: str) -> None:
    assert [(line, said) for line, _, said in problems(entry)] == [(1, message)]


def test_an_entry_that_no_request_reaches() -> None:
    assert problems(
        "{name: a, user_agent: curl}",
        "{name: b, user_agent: [curl, wget]}",
        "{name: c, user_agent: CURL, networks: [10.0.0.0/8]}",
        "{name: c, user_agent: wget}",
    ) == [
        (3, "contradiction", "the entry 'a' (line 8) matches all that this one matches"),
        (4, "contradiction", "the entry 'b' (line 9) matches all that this one matches"),
    ]


def test_a_certificate_that_nobody_asks_for_is_a_warning() -> None:
    loaded = load_text(f"{BASE}clients:\n  - {{name: a, certificate: {{san: x}}}}\n")

    (problem,) = loaded.problems
    assert (problem.code, problem.severity) == ("never-matches", Severity.WARNING)
    assert loaded.settings is not None
