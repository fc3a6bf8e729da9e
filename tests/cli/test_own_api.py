"""What `init` finds out about an API that no dialect knows, and the file that it makes of it."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.cli.init_file import InitOptions, of_own_api, questions
from gateway.cli.own_api import infer
from gateway.cli.own_api_versions import notation_of
from gateway.core.dialect import Advertisement, ProbeRequest, ProbeResponse
from gateway.core.fleet.service import Service
from gateway.settings import load
from tests.kit.examples import examples

NO_HEADERS: Mapping[str, str] = {}
HOST = "127.0.0.1:7001"


def answer(
    document: Any,
    headers: Mapping[str, str] = NO_HEADERS,
    *,
    status: int = 200,
    kind: str = "application/json",
) -> ProbeResponse:
    lines = CIMultiDict({"Content-Type": kind, **headers})
    return ProbeResponse(status, lines, json.dumps(document).encode())


def file_of(*seen: Mapping[str, ProbeResponse]) -> str | None:
    hosts = [f"127.0.0.1:{7001 + number}" for number in range(len(seen))]
    target = InitOptions([f"http://{host}" for host in hosts], "api", "127.0.0.1:8080", None)
    return of_own_api(target, infer(hosts, seen), seen)


def read(text: str | None) -> Service:
    """The service in a file of which nothing is wrong."""
    assert text is not None
    loaded = load(text, filename="x", environ={})
    assert loaded.problems == ()
    [service] = loaded.require().services
    assert service.default_version is not None
    assert questions(text) > 0
    return service


def learned(text: str | None, seen: Mapping[str, ProbeResponse]) -> list[str]:
    """What a probe reads, as the file describes it."""
    dialect = read(text).dialect
    step = dialect.probe((), None)
    assert isinstance(step, ProbeRequest)
    found = dialect.probe((seen[step.path],), None)
    assert isinstance(found, Advertisement)
    return [dialect.scheme.format(version) for each in found.versions.ranges for version in each]


@pytest.mark.parametrize(
    "path, document, expected",
    [
        ("/versions", {"versions": ["v1", "v2"]}, ["1", "2"]),
        ("/versions", ["2023-11-01", "2024-05-01"], ["2023-11-01", "2024-05-01"]),
        ("/versions", [1, 2, 3], ["1", "2", "3"]),
        ("/version", {"oldest": 1, "newest": 4}, ["1", "2", "3", "4"]),
        ("/version", {"MinAPIVersion": "1.24", "ApiVersion": "1.26"}, ["1.24", "1.25", "1.26"]),
        ("/", {"name": "x", "api": {"supported_versions": ["2024-01", "2024-04"]}}, ["2024-01", "2024-04"]),
        ("/", {"versions": [{"id": "v1.0", "status": "OLD"}, {"id": "v1.1"}]}, ["1.0", "1.1"]),
        ("/api/versions", {"values": [{"version": "1.2.3"}, {"version": "1.3.0"}]}, ["1.2.3", "1.3.0"]),
        ("/versions", ["v1", "v1beta1", "v2alpha1"], ["v1beta1", "v1", "v2alpha1"]),
    ],
)
def test_R3_N5_versions_in_a_document_are_learned_from_it(
    path: str, document: Any, expected: list[str]
) -> None:
    seen = {path: answer(document)}

    assert learned(file_of(seen), seen) == expected


@pytest.mark.parametrize(
    "headers, expected",
    [
        ({"Api-Supported-Versions": "1.0, 1.1"}, ["1.0", "1.1"]),
        ({"X-Api-Min-Version": "2", "X-Api-Max-Version": "4"}, ["2", "3", "4"]),
    ],
)
def test_R3_N5_versions_in_response_headers_are_learned_from_them(
    headers: dict[str, str], expected: list[str]
) -> None:
    seen = {"/version": answer({"commit": "abc"}, headers)}

    assert learned(file_of(seen), seen) == expected


def test_R3_N5_versions_in_paths_are_declared_and_the_other_paths_proposed() -> None:
    paths: dict[str, Any] = {"/v1/users/{id}": {}, "/v2/users": {}, "/health": {}, "/files/{name}": {}}
    document = {"servers": [{"url": "https://example.org/api"}], "paths": paths}

    text = file_of({"/openapi.json": answer(document), "/": answer({})})

    service = read(text)
    assert text is not None
    assert '        - path: "/api/v{version}"\n' in text
    listed = "".join(f"        - {path}\n" for path in ("/api/files", "/api/health"))
    assert f"      unversioned:\n{listed}" in text
    assert "    default_version: refused\n" in text
    assert '        versions: "1, 2"\n' in text
    assert service.dialect.endpoint("GET", "/api/v1/users", "").negotiated
    assert not service.dialect.endpoint("GET", "/api/health", "").negotiated


def test_R3_N5_at_the_start_every_path_needs_a_version_or_is_listed() -> None:
    document: dict[str, Any] = {"paths": {"/v1/users/{id}": {}, "/health": {}}}

    text = file_of({"/openapi.json": answer(document), "/": answer({})})

    service = read(text)
    assert text is not None
    listed = "".join(f"        - {path}\n" for path in ("/", "/health", "/openapi.json"))
    assert '        - path: "/v{version}"\n' in text
    assert f"      unversioned:\n{listed}" in text
    assert not service.dialect.endpoint("GET", "/health", "").negotiated


def test_R3_N5_versions_below_several_paths_are_asked_about() -> None:
    paths = ["/api", "/api/v1", "/apis/batch/v1", "/apis/batch/v2", "/healthz"]

    text = file_of({"/": answer({"paths": paths})})

    read(text)
    assert text is not None
    assert '        - path: "/apis/batch/v{version}"\n' in text
    assert "      # Open: there are versions below /api, too." in text


def test_R3_N5_links_of_this_host_show_the_place_and_others_do_not() -> None:
    versions = [{"id": "v1", "href": f"http://{HOST}/api/v1/"}, {"id": "v2", "href": "/api/v2/"}]
    elsewhere = [{"id": "v1", "href": "https://example.org/docs/v1/"}]

    here = file_of({"/versions": answer({"versions": versions})})
    away = file_of({"/versions": answer({"versions": elsewhere})})

    assert here is not None
    assert away is not None
    assert '- path: "/api/v{version}"\n' in here
    assert "/docs" not in away
    assert "# Open: where do requests carry the version?" in away


@pytest.mark.parametrize("kind, name", [("query", "api-version"), ("header", "X-Api-Version")])
def test_R3_N5_a_parameter_that_openapi_describes_is_the_place(kind: str, name: str) -> None:
    parameter = {"in": kind, "name": name, "schema": {"enum": ["2023-11-01", "2024-05-01"]}}
    text = file_of({"/openapi.json": answer({"components": {"parameters": {"version": parameter}}})})

    read(text)
    assert text is not None
    assert f"      places:\n        - {kind}: {name}\n      #" in text
    assert "      scheme: date\n" in text
    assert '        versions: "2023-11-01, 2024-05-01"\n' in text


def test_R3_N5_a_response_header_proposes_the_place_as_a_question() -> None:
    seen = {"/": answer({"versions": [1, 2, 3]}, {"Acme-Version": "3"})}

    text = file_of(seen)

    assert text is not None
    assert learned(text, seen) == ["1", "2", "3"]
    assert "        - header: Acme-Version\n" in text
    assert "# Open: is the response header Acme-Version the served version?" in text
    assert "    default_version: maximum\n" in text


def test_R3_N5_a_single_version_is_declared_and_doubted() -> None:
    text = file_of({"/version": answer({"version": "1.4.2"})})

    read(text)
    assert text is not None
    assert '        versions: "1.4.2"\n' in text
    assert "# Open: does each server serve exactly these versions?" in text
    assert "the software's release" in text.replace("\n    #", "")


def test_R3_N5_a_server_that_names_none_has_no_version_invented() -> None:
    text = file_of({"/version": answer({"version": "3"})}, {})

    service = read(text)
    assert text is not None
    assert [backend.name for backend in service.backends] == ["127.0.0.1:7001"]
    assert "      # - url: http://127.0.0.1:7002\n" in text


@pytest.mark.parametrize(
    "seen",
    [
        {},
        {"/": answer({"name": "x", "ports": [1, 2], "limits": {"min": 1, "max": 9}})},
        {"/": answer({"versions": [1.5, None]})},
        {"/": answer({"python_version": "3.11", "database": {"version": "14"}})},
        {"/versions": answer(["v1"], status=404)},
        {"/": answer({}, {"X-AspNet-Version": "4.0.30319", "MIME-Version": "1.0", "X-App-Version": "7"})},
    ],
)
def test_R3_N5_where_nothing_shows_a_version_no_file_is_made(seen: Mapping[str, ProbeResponse]) -> None:
    assert file_of(seen) is None


@pytest.mark.parametrize(
    "texts, scheme, spelling",
    [
        (["v1", "v2"], "integer", "v{version}"),
        (["1.10", "1.9"], "major.minor", "{version}"),
        (["rel-2024-01-31"], "date", "rel-{version}"),
        (["1", "1.1"], None, ""),
        (["v1", "2"], None, ""),
        (["v1", "v1rc"], None, ""),
        (["01"], None, ""),
        ([], None, ""),
    ],
)
def test_R3_N5_all_texts_have_one_notation_or_none(
    texts: Sequence[str], scheme: str | None, spelling: str
) -> None:
    notation = notation_of(texts)

    assert (notation and notation.scheme.name) == scheme
    assert notation is None or notation.spelling == spelling


VERSIONS = st.one_of(
    st.integers(-2, 10**7),
    st.sampled_from(["v1", "v2", "v1beta1", "1.0", "1.10", "1.2.3", "2024-01-31", "2024-13", "v0", "none"]),
    st.text(max_size=8),
)
KEYS = st.one_of(
    st.sampled_from(["versions", "version", "id", "min_version", "max_version", "oldest", "newest", "href"]),
    st.sampled_from(["info", "paths", "servers", "url", "parameters", "in", "name", "schema", "enum"]),
    st.text(max_size=8),
)
LINKS = st.sampled_from(
    ["/v1/x", "/api/v2", "/v1beta1", "http://127.0.0.1:7001/v3", "http://[", "/a b/v1", "/x"]
)
JSONS = st.recursive(
    st.one_of(VERSIONS, LINKS, st.none(), st.booleans(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(KEYS, LINKS), inner, max_size=4)
    ),
    max_leaves=12,
)
DESCRIBED = st.fixed_dictionaries(
    {},
    optional={
        "info": st.fixed_dictionaries({"version": VERSIONS}),
        "paths": st.dictionaries(st.one_of(LINKS, st.text(max_size=8)), JSONS, max_size=4),
        "servers": st.lists(st.fixed_dictionaries({"url": LINKS}), max_size=2),
        "parameters": st.dictionaries(
            KEYS,
            st.fixed_dictionaries(
                {
                    "in": st.sampled_from(["header", "query", "path"]),
                    "name": st.sampled_from(["Api-Version", "api-version", "version", "x y version", "v"]),
                    "schema": st.fixed_dictionaries({"enum": st.lists(VERSIONS, max_size=3)}),
                }
            ),
            max_size=2,
        ),
    },
)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["Api-Version", "X-Version", "Api-Supported-Versions", "Min-Version", "Max-Version", "Vary"]
    ),
    st.one_of(VERSIONS.map(str), st.lists(VERSIONS.map(str), max_size=3).map(", ".join)),
    max_size=4,
)
RESPONSES = st.builds(
    lambda status, kind, headers, document: answer(document, headers, status=status, kind=kind),
    st.sampled_from([200, 200, 200, 300, 404]),
    st.sampled_from(["application/json", "application/json; charset=utf-8", "text/plain", "${HOME}", ""]),
    HEADERS,
    st.one_of(JSONS, DESCRIBED),
)
SERVERS = st.lists(
    st.dictionaries(
        st.sampled_from(["/", "/versions", "/version", "/api/versions", "/openapi.json"]),
        RESPONSES,
        max_size=5,
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=examples(300))
@given(SERVERS)
def test_R3_N5_whatever_is_found_the_file_has_no_problem(seen: list[dict[str, ProbeResponse]]) -> None:
    text = file_of(*seen)

    if text is not None:
        service = read(text)
        assert 1 <= len(service.backends) <= len(seen)
