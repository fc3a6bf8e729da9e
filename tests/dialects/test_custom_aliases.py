"""Requests of the dialect `custom` in which servers find a version that is not spelled as configured.

Such a request is refused as malformed, or negotiated so that every server reads the negotiated version. It is
never forwarded with two versions, and never without negotiation.
"""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import re
import sys
from typing import Final
from urllib.parse import quote

import pytest

from gateway.core.decision.decision import Decision, Forward, Refuse, decide
from gateway.core.decision.operations import OperationRule, Operations, PathTemplate
from gateway.core.dialect import Advertisement, Links, RequestedKind
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead, as_mapping
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.custom.dialect import RESOURCE, Custom
from gateway.dialects.custom.options import CustomOptions, DocumentOptions, LocationOptions
from gateway.settings import load
from tests.core.builders import snapshot
from tests.dialects.test_custom_readers import OFFER, VENDOR, custom, forwarded

LINKS: Final = Links("http://10.0.0.5:80", "api.test", "https://api.test/x")


def kind_requested(dialect: Custom, target: str, *lines: tuple[str, str]) -> RequestedKind | None:
    """How the version of a request is read. None: the request is not negotiated."""
    path, _, query = target.partition("?")
    endpoint = dialect.endpoint("GET", path, query)
    headers = as_mapping((name.lower(), value) for name, value in lines)
    return dialect.read_requested(endpoint, headers).kind if endpoint.negotiated else None


# --- queries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("[version]", "version]", "[]version", "%5Bversion%5D", "%5bversion", "[version][]", "[version]x"),
        *(".version", "version.", "_version", "ver-sion", "version!", "%FFversion", "vers%C2%ADion"),
        *("%2576ersion", "%25255Bversion]", "%u0076ersion", "vers%C4%B1on", "[version][x]", "]version[x"),
    ],
)
def test_R_A3_a_parameter_with_the_letters_and_digits_of_ours_is_malformed(name: str) -> None:
    dialect = custom(LocationOptions(query="version"))

    assert kind_requested(dialect, f"/a?{name}=9") is RequestedKind.MALFORMED
    assert kind_requested(dialect, f"/a?version=3&{name}=9") is RequestedKind.MALFORMED
    assert kind_requested(dialect, f"/a?{name}&version=3") is RequestedKind.MALFORMED


@pytest.mark.parametrize(
    "name", ["api[version", "api%5Bversion", "api]version", "apiversion", "[api-version"]
)
def test_R_A3_a_parameter_of_two_words(name: str) -> None:
    for ours in ("api_version", "api-version"):
        dialect = custom(LocationOptions(query=ours))

        assert kind_requested(dialect, f"/a?{ours}=3&{name}=9") is RequestedKind.MALFORMED


@pytest.mark.parametrize(
    "query",
    [
        *(
            "a=1",
            "versions=9",
            "version2=9",
            "filter[version]=9",
            "filter%5Bversion%5D=9",
            "aversion=9",
            "=9",
        ),
        *("x.version=9", "%F0%9D%96%A0=9", "&&", "_=1", "a=[version]", "a=version", "%2576=1"),
    ],
)
def test_R_A3_other_parameters_mean_nothing(query: str) -> None:
    dialect = custom(LocationOptions(query="version"))

    assert forwarded(dialect, f"/a?{query}&version=3", []) == ("3", f"/a?{query}&version=3", ())


def test_R_A3_escapes_in_the_name_itself_are_decoded_and_the_name_is_written_plainly() -> None:
    dialect = custom(LocationOptions(query="version"))

    assert forwarded(dialect, "/a?v%65rsion=3&b", []) == ("3", "/a?version=3&b", ())


# --- media types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["Accept", "Content-Type"])
@pytest.mark.parametrize(
    "text",
    [
        f"{VENDOR};\xa0version*=UTF-8''9",
        f"{VENDOR};\xa0version=9",
        f"{VENDOR};\x85version=9",
        f"{VENDOR}; version=3;\x85version=9",
        f"{VENDOR}; version\xa0=9",
        f"{VENDOR}; x=\xe9",
        f'{VENDOR}; x="\xe9"',
        'a/b; x"; y="2',
        f'{VENDOR}; x"; y="2',
        f"{VENDOR}; =9",
        f"{VENDOR}; version=3; version=3",
        f"{VENDOR}; x=\\9",
        f"{VENDOR}; version =3",
        f"{VENDOR}; version= 3",
        f"{VENDOR}; ver.sion=9",
        f"{VENDOR}; .version=9",
        f"{VENDOR}; q=0.5; version=3",
        f"{VENDOR}; x=a b",
        f"{VENDOR}; x",
        f"{VENDOR}; (version=9) x=y",
        f"{VENDOR} version=9",
        f"{VENDOR}/version=9",
        "json; x=y",
        f"{VENDOR}; x=<9>",
        f"{VENDOR}; version:9; x=y",
    ],
)
def test_R_A4_what_is_not_a_media_type_by_rfc_9110_is_malformed(field: str, text: str) -> None:
    for types in ((), (VENDOR,)):
        dialect = custom(LocationOptions(parameter="version", media_types=types))

        assert kind_requested(dialect, "/a", (field, text)) is RequestedKind.MALFORMED


def test_R_A4_every_line_is_read_alone() -> None:
    dialect = custom(LocationOptions(parameter="version"))
    lines = (("Accept", 'a/b; x="'), ("Accept", '"; y=z'))

    assert kind_requested(dialect, "/a", *lines) is RequestedKind.MALFORMED


def test_R_A4_a_comma_in_quotation_marks_is_malformed_in_a_list() -> None:
    """Django splits `Accept` at every comma."""
    dialect = custom(LocationOptions(parameter="version"))

    assert kind_requested(dialect, "/a", ("Accept", 'a/b; x="1, c/d"')) is RequestedKind.MALFORMED


@pytest.mark.parametrize(
    "accept, written",
    [
        (f'{VENDOR}; profile="a;b"; q=0.5', f'{VENDOR}; version=3; profile="a;b"'),
        (f'{VENDOR}; x=y; version="3"', f"{VENDOR}; version=3; x=y"),
        ("application/json; charset=utf-8", f"{VENDOR}; version=3; charset=utf-8"),
    ],
)
def test_R_A4_the_version_is_the_first_parameter_of_the_type(accept: str, written: str) -> None:
    dialect = custom(LocationOptions(parameter="version", media_types=(VENDOR,)))
    negotiated = dialect.write_request(
        dialect.endpoint("GET", "/a", ""), Version(3), as_mapping([("accept", accept)])
    )

    assert negotiated == (("Accept", written),)


def test_R_A4_the_list_that_java_sends_is_written_by_the_grammar() -> None:
    """`HttpURLConnection` of Java up to 19 sends it whenever a program sets no `Accept`."""
    dialect = custom(LocationOptions(parameter="version"))
    accept = "text/html, image/gif, *; q=.2, */*; q=.2"
    written = "text/html; version=1, image/gif; version=1, */*; version=1; q=0.2, */*; version=1; q=0.2"

    assert forwarded(dialect, "/a", [("Accept", accept)]) == ("1", "/a", (("Accept", written),))


@pytest.mark.parametrize(
    "accept",
    [
        *("", "*/*", " */* ", "text/html, */*;q=0.8", "application/json;", "application/json ; ;q=1.000 ,, "),
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8,a/b;v=b3;q=0.7",
        'application/vnd.api+json; ext="https://jsonapi.org/ext/version"',
        'application/ld+json;profile="http://www.w3.org/ns/activitystreams"',
        'text/plain; x="a\\"b;c=d"',
    ],
)
def test_R_A4_what_clients_send_every_day_means_no_version(accept: str) -> None:
    for types in ((), (VENDOR,)):
        dialect = custom(LocationOptions(parameter="version", media_types=types))

        assert kind_requested(dialect, "/a", ("Accept", accept)) is RequestedKind.NONE


def test_R_A4_only_a_service_with_such_a_place_looks_at_these_fields() -> None:
    dialect = custom(LocationOptions(header="API-Version"))

    assert kind_requested(dialect, "/a", ("Accept", "no type; \xa0")) is RequestedKind.NONE


# --- paths -------------------------------------------------------------------------------------------------

ADMIN: Final = LocationOptions(path="/admin/api/{version}")


@pytest.mark.parametrize(
    "prefix",
    ["/adm%C4%B1n/api", "/adm%C4%B0n/ap%C4%B1", "/%61dm%C4%B1n/api", "/ADM%C4%B1N/API", "//adm%C4%B1n/api"],
)
def test_R_A5_a_prefix_is_compared_decoded_and_without_case(prefix: str) -> None:
    dialect = custom(ADMIN)

    assert kind_requested(dialect, f"{prefix}/9/x") is not None
    assert forwarded(dialect, f"{prefix}/9/x", []) is None
    for below in ("/3/x", "/3", "/", ""):
        assert kind_requested(dialect, prefix + below) is not None


@pytest.mark.parametrize("prefix", ["/Admin/API", "/%61dmin/api", "/ADM%C4%B1N/%61pi"])
def test_R_A5_the_version_is_written_behind_the_prefix_as_it_came(prefix: str) -> None:
    dialect = custom(ADMIN)

    assert forwarded(dialect, f"{prefix}/latest/x%20y?q=1", []) == ("5", f"{prefix}/5/x%20y?q=1", ())
    assert forwarded(dialect, f"{prefix}/3", []) == ("3", f"{prefix}/3", ())
    assert forwarded(dialect, prefix, []) == ("1", f"{prefix}/1", ())


@pytest.mark.parametrize(
    "path", ["/admin/ap%C4%B1", "/admin/API/", "/admin;x/api", "/admin/api;x", "//admin/api/"]
)
def test_R_A5_a_prefix_without_a_version_is_negotiated_too(path: str) -> None:
    assert kind_requested(custom(ADMIN), path) is not None


def test_R_A5_no_letter_that_any_server_takes_for_ours_passes_without_negotiation() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    dialect = custom(LocationOptions(path=f"/{letters}/{{version}}"))
    passed = []
    every = [chr(code) for code in range(128, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    matched = set(re.findall("[a-z]", "".join(every), re.IGNORECASE))
    for character in every:
        taken = {character.lower(), character.casefold(), character.upper().lower()} & set(letters)
        if character in matched:
            taken |= {letter for letter in letters if re.fullmatch(letter, character, re.IGNORECASE)}
        for letter in taken:
            target = "/" + letters.replace(letter, quote(character)) + "/9"
            if kind_requested(dialect, target) is None:
                passed.append(f"U+{ord(character):04X} as {letter}")

    assert not passed


@pytest.mark.parametrize(
    "path", ["/v%39/x", "/V9/x", "/%569/x", "/v9%20/x", "/v%D9%A9/x", "/v9;a/x", "//v9/x"]
)
def test_R_A5_a_version_has_one_spelling_in_a_path(path: str) -> None:
    assert kind_requested(custom(LocationOptions(path="/v{version}")), path) in (
        RequestedKind.MALFORMED,
        RequestedKind.NONE,
    )
    assert kind_requested(custom(LocationOptions(path="/api/v{version}")), "/api" + path) is (
        RequestedKind.MALFORMED
    )


@pytest.mark.parametrize(
    "path, negotiated",
    [
        ("/health", False),
        ("/he%61lth/x", False),
        ("/HEALTH", True),
        ("/Health/live", True),
        ("//health", True),
        ("/;/health", True),
        ("/healt%C4%A7", True),
    ],
)
def test_R_A5_only_the_exact_path_has_no_version(path: str, negotiated: bool) -> None:
    """A look-alike may be another resource, where a server reads a version. To negotiate it does no harm."""
    dialect = _dialect("unversioned: [/health]")

    assert dialect.endpoint("GET", path, "").negotiated is negotiated


@pytest.mark.parametrize(
    "path", ["/VERSIONS", "/vers%C4%B1ons", "/%76ersions", "//versions", "/versions/", "/versions;a=b"]
)
def test_R_A5_paths_of_documents_are_compared_in_the_same_way(path: str) -> None:
    dialect = _dialect("documents: [{path: /versions, minimum: $.low, maximum: $.high}]")

    assert dialect.endpoint("GET", path, "").document


# --- suffixes and method overrides -------------------------------------------------------------------------

OVERRIDE: Final = "x-http-method-override"


def _snapshot(options: str) -> Snapshot:
    """A service for 1-5 with these options. Users are deleted and listed from 4 on."""
    text = f"""\
listen: 127.0.0.1:8080
services:
  shop:
    dialect: custom
    backends: [{{url: "http://127.0.0.1:6385", versions: 1-5}}]
    operations:
      - {{methods: [DELETE], path: "/users/{{id}}", versions: ">=4"}}
      - {{methods: [GET], path: /users, versions: ">=4"}}
    custom:
      {options}
"""
    return Snapshot.configured(load(text, filename="shop.yaml", environ={}).require().services, now=0.0)


def _dialect(options: str) -> Custom:
    dialect = _snapshot(options).views["shop"].service.dialect
    assert isinstance(dialect, Custom)
    return dialect


def _decided(options: str, method: str, path: str, *lines: tuple[str, str]) -> Decision:
    head = RequestHead(method, path, "", (("api-version", "3"), *lines))
    return decide(_snapshot(options), head, "any", {}, 0, {})


SUFFIXES: Final = "suffixes: [.json, .xml]"


@pytest.mark.parametrize(
    "path",
    [
        *("/users.json", "/users.xml", "/users.JSON", "/users%2Ejson", "/users.json/", "/users.json;a=b"),
        *("/%75sers%2ejson", "//users.json", "/users.json//", "/us%65rs.%6ason"),
    ],
)
def test_R_A17_a_suffix_does_not_avoid_the_rule_of_an_operation(path: str) -> None:
    assert isinstance(_decided(SUFFIXES, "GET", path), Refuse)


@pytest.mark.parametrize(
    "path",
    ["/users.yaml", "/users.json.bak", "/users/.json", "/users%252ejson", "/.json", "/x.json", "/json"],
)
def test_R_A17_other_paths_are_no_such_operation(path: str) -> None:
    assert isinstance(_decided(SUFFIXES, "GET", path), Forward)


def test_R_A17_without_the_option_a_suffix_is_a_part_of_the_path() -> None:
    assert isinstance(_decided("{}", "GET", "/users.json"), Forward)
    assert isinstance(_decided("{}", "GET", "/users"), Refuse)


def test_R_A17_suffixes_at_documents_and_paths_without_versions() -> None:
    dialect = _dialect(
        "{suffixes: [.json], unversioned: [/health], documents: [{path: /versions, list: '$[*]'}]}"
    )

    assert not dialect.endpoint("GET", "/health.json", "").negotiated
    assert dialect.endpoint("GET", "/versions.json", "").document
    assert not dialect.endpoint("GET", "/versions.xml", "").document


OVERRIDES: Final = "method_override: [X-HTTP-Method-Override, X-Method]"


@pytest.mark.parametrize(
    "lines",
    [
        [(OVERRIDE, "DELETE")],
        [(OVERRIDE, " delete ")],
        [("x-method", "Delete")],
        [(OVERRIDE, "DELETE"), ("x-method", "GET")],
        [("x-method", "GET"), (OVERRIDE, "DELETE")],
    ],
)
def test_R_A17_a_method_override_does_not_avoid_the_rule_of_an_operation(
    lines: list[tuple[str, str]],
) -> None:
    assert isinstance(_decided(OVERRIDES, "POST", "/users/7", *lines), Refuse)


@pytest.mark.parametrize(
    "method, lines",
    [
        ("POST", []),
        ("POST", [(OVERRIDE, "PUT")]),
        ("POST", [(OVERRIDE, "NONSENSE")]),
        ("POST", [(OVERRIDE, "")]),
        ("POST", [("x-other", "DELETE")]),
        ("GET", [(OVERRIDE, "DELETE")]),
    ],
)
def test_R_A17_only_a_known_method_of_a_post_counts(method: str, lines: list[tuple[str, str]]) -> None:
    assert isinstance(_decided(OVERRIDES, method, "/users/7", *lines), Forward)


@pytest.mark.parametrize(
    "lines",
    [
        [(OVERRIDE, "GET,DELETE")],
        [(OVERRIDE, "GET"), (OVERRIDE, "delete")],
        [(OVERRIDE, "GET"), ("x-method", "DELETE")],
    ],
)
def test_R_A17_several_overrides_do_not_avoid_the_rule_of_an_operation(lines: list[tuple[str, str]]) -> None:
    """Which of them counts differs between servers."""
    assert isinstance(_decided(OVERRIDES, "POST", "/users/7", *lines), Refuse)


@pytest.mark.parametrize("value", ["GET", "GET, x", "get"])
def test_R_A17_a_post_is_not_sent_again_because_a_header_calls_it_a_get(value: str) -> None:
    """A server that does not read the header, or not such a value, executes a POST."""
    decision = _decided(OVERRIDES, "POST", "/users/7", (OVERRIDE, value))

    assert isinstance(decision, Forward)
    assert set(decision.methods) == {"GET", "POST"}


def test_R_A17_any_dialect_may_have_a_method_override() -> None:
    dialect = custom(LocationOptions(header="API-Version"))
    dialect.method_override = (OVERRIDE,)
    dialect.reads |= {OVERRIDE}
    rule = OperationRule(
        ("DELETE",), PathTemplate.read("/users/{id}"), VersionSet.between(Version(4), Version(5))
    )
    operations = Operations.of([rule])
    served = Advertisement(VersionSet.between(Version(1), Version(5)))
    head = RequestHead("POST", "/users/7", "", (("api-version", "3"), (OVERRIDE, "DELETE")))
    now = snapshot({"one": served}, dialect=dialect, operations=operations)

    assert isinstance(decide(now, head, "any", {}, 0, {}), Refuse)


def test_R_A17_the_header_of_an_override_reaches_the_backend_and_its_method_finds_the_endpoint() -> None:
    options = f"{{{OVERRIDES}, documents: [{{path: /versions, list: '$[*]'}}]}}"
    decision = _decided(options, "POST", "/users/7", (OVERRIDE, "PUT"))

    assert isinstance(decision, Forward)
    assert b"x-http-method-override: PUT\r\n" in decision.resolution.request_field_lines
    assert OVERRIDE in _dialect(options).reads - _dialect(options).owned_request
    document = _decided(options, "POST", "/versions", (OVERRIDE, "GET"))
    assert isinstance(document, Forward)
    assert document.resolution.endpoint.document


# --- documents ---------------------------------------------------------------------------------------------

ENDS: Final = DocumentOptions(path="/versions", minimum="$.min", maximum="$.max")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_R_A10_only_get_and_head_are_documents(method: str) -> None:
    dialect = Custom.configured(CustomOptions(documents=(ENDS,)))

    assert dialect.endpoint(method, "/versions", "") == RESOURCE
    for safe in ("GET", "HEAD"):
        assert dialect.endpoint(safe, "/versions", "").document


def test_R_A9_another_document_may_stand_at_the_path_with_a_version() -> None:
    """Kubernetes: `/apis/batch` lists versions, `/apis/batch/v1` lists resources, and neither is 502."""
    options = "{places: [{path: '/v{version}'}], documents: [{path: /, list: '$[*]', versioned: false}]}"
    dialect = _dialect(options)

    assert dialect.endpoint("GET", "/", "").document
    assert not dialect.endpoint("GET", "/v3", "").document
    assert _dialect(options.replace(", versioned: false", "")).endpoint("GET", "/v3", "").document


def _rewritten(body: bytes, *documents: DocumentOptions) -> bytes | None:
    dialect = Custom.configured(CustomOptions(documents=documents or (ENDS,)))
    return dialect.rewrite_document(dialect.endpoint("GET", "/versions", ""), body, OFFER, LINKS)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"1", b'"x"', b"[]", b"{}", b"{", b'{"min": 1, "max": 9} x', b"<html>", b"\xff"),
        *(b'{"min": 1, "max": 9, "x": NaN}', b'{"min": 1, "max": 9, "x": -Infinity}', b'{"min": 1e999}'),
        *(b'{"min": 1, "max": 9, "x": 1e999}', b'{"min": 1, "max": 9, "x": "\\ud800"}'),
        *(b'{"min": 1, "max": 9, "x": "\xff"}', b'{"min": 1, "x": ' + b"1" * 5000 + b"}"),
        *(b'{"min": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"[" * 100_000, b'{"a":' * 100_000),
        *(b'{"other": 1}', b"\x1f\x8b\x08"),
    ],
)
def test_R_A9_what_is_not_such_a_document_is_not_rewritten(body: bytes) -> None:
    assert _rewritten(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"min": {"min": 1}}',
        b'{"min": 1, "max": 9.5}',
        b'{"min": 1, "max": ["9"]}',
        b'{"min": 1, "max": {"id": 9}}',
        b'{"min": 1, "max": 9, "all": ["9.0"]}',
        b'{"min": 1, "max": 9, "all": {"9": 1}}',
        b'{"min": 1, "max": 9, "all": [3, "9.0"], "each": [{"id": "9.0"}]}',
    ],
)
def test_R_A9_a_version_that_cannot_be_read_is_not_shown(body: bytes) -> None:
    all_versions = DocumentOptions(path="/versions", list="$.all[*]")
    each_version = DocumentOptions(path="/versions", list="$.each[*].id")

    assert _rewritten(body, ENDS, all_versions, each_version) is None


@pytest.mark.parametrize("body", [b'{"min": "1", "max": "9.x"}', b'{"min": "v1", "max": "v9"}'])
def test_R_A9_a_text_that_may_be_a_version_is_replaced(body: bytes) -> None:
    assert _rewritten(body) == b'{"min":"1","max":"5"}'


def test_R_A9_a_value_without_a_version_stays() -> None:
    assert _rewritten(b'{"min": null, "max": 9, "all": []}', ENDS) == b'{"min":null,"max":5,"all":[]}'
    assert _rewritten(b'{"min": "", "max": "none"}', ENDS) == b'{"min":"","max":"none"}'
    assert _rewritten(b'\xef\xbb\xbf{"min": 2, "max": 3}', ENDS) == b'{"min":1,"max":5}'
