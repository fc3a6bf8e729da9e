"""Which name a client gets: by its rules, and by the product of its User-Agent."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import hypothesis.strategies as st
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given, settings

from gateway.core.clients import CertificateNames, Client, Clients, product_of, read_header
from gateway.core.http.message import normalize_name
from gateway.core.usage.record import NO_PRODUCT, OTHER
from gateway.errors import TextRefused
from gateway.keys.subjects import read_subject, subject_text
from gateway.workers.channel import dumps, loads
from tests.kit.examples import examples

NOVA = "CN=nova,O=Example"


@pytest.mark.parametrize(
    "user_agent, product",
    [
        (b" python-ironicclient", "python-ironicclient"),
        (b"python-novaclient keystoneauth1/5.3 python-requests/2.31", "python-novaclient"),
        (b"openstacksdk/4.1.0 keystoneauth1/5.8.0", "openstacksdk"),
        (b"Chef Infra Client/18.4 (ruby-3.1.2)", "Chef"),
        (b"curl\r\n", "curl"),
        (b"", NO_PRODUCT),
        (b" \t", NO_PRODUCT),
        (b"/1.0", NO_PRODUCT),
        (b"a\xff\x01\x1b[31m\xc3\xa9/1", r"a\xff\x01\x1b[31m\xc3\xa9"),
        (b"x" * 4096, "x" * 64),
    ],
)
def test_the_product_of_a_user_agent(user_agent: bytes, product: str) -> None:
    assert product_of(user_agent) == product


@pytest.mark.parametrize("word", [OTHER, NO_PRODUCT])
def test_no_client_can_be_taken_for_those_that_are_counted_together(word: str) -> None:
    assert product_of(f"{word}/1.0".encode()) == f"{word}/"


@given(st.binary(max_size=300))
def test_a_product_is_short_and_visible_whatever_comes(user_agent: bytes) -> None:
    product = product_of(user_agent)
    assert 0 < len(product) <= 4 * 64
    assert product.isascii()
    assert product.isprintable()
    assert " " not in product


def name_of(clients: Clients, user_agent: bytes, fields: bytes, *rest: Any, **more: Any) -> str:
    return clients.name_of(clients.possible(user_agent, *rest, **more), fields)


def named(rule: Client, user_agent: bytes = b"", fields: bytes = b"", address: str = "") -> bool:
    return bool(name_of(Clients([rule]), user_agent, fields, ip_address(address) if address else None))


def test_all_conditions_of_a_rule_must_hold() -> None:
    rule = Client(
        "nova",
        ("curl", "Python-IronicClient"),
        {"X-Team": "billing"},
        (ip_network("10.9.0.0/16"),),
        CertificateNames(NOVA, "nova.example.org"),
    )
    all_hold: dict[str, Any] = {
        "user_agent": b"python-ironicclient/5",
        "fields": b"\r\nAccept: */*\r\nX-Team: billing",
        "address": ip_address("10.9.1.1"),
        "subject": "CN=nova,O=Example",
        "alternative_names": ("spiffe://x/y", "nova.example.org"),
    }
    clients = Clients([rule])

    assert name_of(clients, **all_hold) == "nova"
    for other in (
        {"user_agent": b"python-ironicclient2/5"},
        {"fields": b"\r\nX-Team: billing2"},
        {"fields": b"\r\nX-Team2: billing"},
        {"address": ip_address("10.8.1.1")},
        {"address": None},
        {"subject": "CN=nova"},
        {"alternative_names": ()},
    ):
        assert name_of(clients, **(all_hold | other)) == "", other


def test_the_first_rule_that_matches_gives_the_name() -> None:
    clients = Clients(
        [Client("one", header={"X-Team": "a*"}), Client("two", "curl"), Client("three", "curl")]
    )

    assert name_of(clients, b"curl/8", b"\r\nX-Team: ab") == "one"
    assert name_of(clients, b"curl/8", b"\r\nX-Team: b") == "two"
    assert name_of(clients, b"wget/1", b"") == ""
    assert name_of(loads(dumps(clients)), b"curl/8", b"") == "two"


def test_a_header_is_found_in_every_spelling_and_on_every_line() -> None:
    rule = Client("one", header={"x_team": "ab"})

    for fields in (b"\r\nX-TEAM:ab", b"\r\nX.Team: \t ab \t", b"\r\nX-Team: x\r\nA: b\r\nx_team: ab"):
        assert named(rule, fields=fields), fields
    for fields in (b"\r\nX-Team: AB", b"\r\nX-Team: a\r\n b", b"\r\nMy-X-Team: ab", b"\r\nA: X-Team: ab"):
        assert not named(rule, fields=fields), fields


def test_a_client_without_user_agent_can_have_a_name() -> None:
    assert named(Client("silent", "none"))
    assert not named(Client("silent", "none"), b"none/1.0")


@pytest.mark.parametrize(
    "spelling",
    [
        "cn=nova, O = Example\\, Inc.+OU=a",
        "2.5.4.3=nova,OU=a+O=Example\\2C Inc.",
        "CN=\\6eova,2.5.4.11=a+2.5.4.10=Example\\, Inc.",
    ],
)
def test_spellings_of_one_subject(spelling: str) -> None:
    assert read_subject(spelling) == read_subject("CN=nova,O=Example\\, Inc.+OU=a")


@pytest.mark.parametrize(
    "other", ["O=Example\\, Inc.+OU=a,CN=nova", "CN=nova,O=Example", "CN=Nova,O=Example\\, Inc.+OU=a"]
)
def test_other_subjects(other: str) -> None:
    assert read_subject(other) != read_subject("CN=nova,O=Example\\, Inc.+OU=a")


@pytest.mark.parametrize("text", ["", "nova", "CN=a,", ",CN=a", "CN=a\\", "=a", "CN=a+"])
def test_texts_that_are_no_subject(text: str) -> None:
    with pytest.raises(TextRefused):
        read_subject(text)


OIDS = (
    *(NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.EMAIL_ADDRESS, NameOID.SERIAL_NUMBER),
    *(NameOID.DOMAIN_COMPONENT, NameOID.USER_ID, NameOID.LOCALITY_NAME),
)

VALUES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=16)
"""The limit of some attributes is 64 bytes of UTF-8."""


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(OIDS), VALUES),
            min_size=1,
            unique_by=lambda pair: pair[0],
        ),
        min_size=1,
        max_size=4,
    )
)
def test_every_subject_of_a_certificate_is_read(parts: list[list[tuple[x509.ObjectIdentifier, str]]]) -> None:
    """As `cryptography` writes it, which is where the subjects of clients come from."""
    attributes = [[x509.NameAttribute(oid, text[:60]) for oid, text in part] for part in parts]
    name = x509.Name([x509.RelativeDistinguishedName(part) for part in attributes])

    assert read_subject(subject_text(name)) == read_subject(name.rfc4514_string()) == subject_text(name)


@pytest.mark.parametrize(
    "name", ["Authorization", "cookie", "X_Auth.Token", "X-Ops-Authorization-1", "proxy-authorization"]
)
def test_a_secret_is_no_name(name: str) -> None:
    with pytest.raises(TextRefused, match="secret"):
        read_header(name)


@pytest.mark.parametrize("name", ["Host", "X_Forwarded_For", "Connection", "X-Request-ID", "Via"])
def test_a_header_that_the_gateway_takes_for_itself_names_nobody(name: str) -> None:
    with pytest.raises(TextRefused, match="reads or drops"):
        read_header(name)


# --- a rule that another one covers: no request can reach it ------------------------------------------------

PRODUCTS = st.sampled_from(["curl", "Curl", "wget", "none"])
NETWORKS = st.sampled_from([ip_network(text) for text in ("10.0.0.0/8", "10.9.0.0/16", "fd00::/8", "::/0")])
RULES = st.builds(
    Client,
    st.just("x"),
    st.none() | PRODUCTS | st.lists(PRODUCTS, min_size=1, max_size=2).map(tuple),
    st.dictionaries(
        st.sampled_from(["X-A", "x_a", "X-B"]), st.sampled_from(["a", "ab", "a*", "ab*"]), max_size=2
    ),
    st.none() | st.lists(NETWORKS, min_size=1, max_size=2).map(tuple),
    st.none()
    | st.builds(CertificateNames, st.sampled_from([None, NOVA]), st.sampled_from([None, "a.example"])),
)
ADDRESSES = st.sampled_from([None, *map(ip_address, ("10.1.1.1", "10.9.1.1", "fd00::1", "2001::1"))])
REQUESTS = st.tuples(
    st.sampled_from([b"", b"curl/1", b"wget"]),
    st.lists(st.sampled_from([b"X-A: a", b"X_A: ab", b"x-a: abc", b"X-B: a", b"X-B: c"]), max_size=2).map(
        lambda lines: b"".join(b"\r\n" + line for line in lines)
    ),
    ADDRESSES,
    st.sampled_from(["", "CN=nova,O=Example", "CN=other"]),
    st.sampled_from([(), ("a.example",), ("b.example", "a.example")]),
)


@settings(max_examples=examples(1000))
@given(RULES, RULES, REQUESTS)
def test_a_rule_matches_all_that_a_rule_which_it_covers_matches(
    first: Client,
    later: Client,
    request: tuple[bytes, bytes, None, str, tuple[str, ...]],
) -> None:
    if first.covers(later) and name_of(Clients([later]), *request):
        assert name_of(Clients([first]), *request)


@given(RULES, REQUESTS)
def test_a_header_that_names_a_client_is_never_overlooked(
    rule: Client, request: tuple[bytes, bytes, None, str, tuple[str, ...]]
) -> None:
    clients, lines = Clients([rule]), request[1].split(b"\r\n")[1:]
    names = {normalize_name(line.partition(b":")[0].decode()) for line in lines}
    assert clients.headers & names or not rule.header or not name_of(clients, *request)


def test_rules_that_cover_another() -> None:
    narrow = Client(
        "x", "curl", {"X-A": "ab"}, (ip_network("10.9.0.0/16"),), CertificateNames(NOVA, "a.example")
    )
    for wide in (
        narrow,
        Client("x", ("CURL", "wget")),
        Client("x", header={"x_a": "a*"}),
        Client("x", networks=(ip_network("10.0.0.0/8"), ip_network("::/0"))),
        Client("x", certificate=CertificateNames(NOVA)),
    ):
        assert wide.covers(narrow)
        assert wide is narrow or not narrow.covers(wide)
