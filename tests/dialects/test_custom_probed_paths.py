"""What clients get at the paths that probes request, of an API whose versions stand in paths."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.dialect import (
    Links,
    OptionWarning,
    ProbePaths,
    Refusal,
    RefusalReason,
    RequestedKind,
)
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.custom.dialect import RESOURCE, UNVERSIONED, Custom
from gateway.dialects.custom.options import CustomOptions, DocumentOptions, LearnOptions, LocationOptions
from gateway.dialects.custom.probes import SHOWS_ONE_SERVER

OPTIONS = CustomOptions(
    places=(LocationOptions(path="/api/{version}"),),
    learn=LearnOptions(path="/api/versions", minimum="$.oldest", maximum="$.newest"),
    documents=(),
    probes=ProbePaths(health="/api/health"),
)
OFFER = VersionSet.between(Version(1), Version(4))
LINKS = Links("http://10.0.0.5:7001", "api.test", "http://api.test")


def made(**more: Any) -> Custom:
    return Custom.configured(replace(OPTIONS, **more))


def learning(**more: Any) -> Custom:
    """Of versions in a header, without `documents` unless they are named."""
    documents = more.pop("documents", None)
    learn = LearnOptions(**({"path": "/versions", "minimum": "$.oldest", "maximum": "$.newest"} | more))
    return Custom.configured(CustomOptions(learn=learn, documents=documents))


# --- N1: they pass without a version -----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/api/versions", "/api/health"])
def test_R3_N1_what_probes_request_passes_without_a_version(method: str, path: str) -> None:
    assert made().endpoint(method, path, "") == UNVERSIONED


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/api/versions"),
        ("GET", "/api/versions/"),
        ("GET", "/api/versions/1"),
        ("GET", "/api/Versions"),
        ("GET", "/api/%76ersions"),
        ("GET", "/api//versions"),
        ("GET", "/api/other"),
    ],
)
def test_R3_N1_everything_else_is_refused(method: str, path: str) -> None:
    dialect = made()
    endpoint = dialect.endpoint(method, path, "")

    assert endpoint.negotiated
    assert dialect.read_requested(endpoint, {}).kind is RequestedKind.MALFORMED


def test_R3_N1_a_query_that_names_a_version_is_not_let_pass() -> None:
    places = (LocationOptions(path="/api/{version}"), LocationOptions(query="v"))
    dialect = made(places=places)

    assert dialect.endpoint("GET", "/api/health", "a=1") == UNVERSIONED
    assert dialect.endpoint("GET", "/api/health", "v=2").negotiated


def test_R3_N1_probe_path_replaces_that_of_learn_and_a_prefix_is_left_out() -> None:
    probes = ProbePaths("/shop/api/state?full=1", "/alive", "/shop")
    dialect = made(probes=probes)

    assert dialect.endpoint("GET", "/api/state", "") == UNVERSIONED
    assert dialect.endpoint("GET", "/api/versions", "").negotiated
    assert probes.local("/alive") is None, "no client gets there"
    assert (probes.local("/shop"), probes.local("/shopping")) == ("/", None)


@pytest.mark.parametrize(
    "word, proposed", [("widgets", True), ("v2x", False), ("1.x", False), ("a%20b", False)]
)
def test_R3_N1_the_refusal_says_how_a_path_is_let_pass(word: str, proposed: bool) -> None:
    dialect = made()
    endpoint = dialect.endpoint("GET", f"/api/{word}", "")
    requested = dialect.read_requested(endpoint, {})
    refusal = Refusal(RefusalReason.MALFORMED, requested, None, OFFER)

    detail = json.loads(dialect.refuse(refusal, endpoint, {}).body)["detail"]

    assert detail.startswith(f"{word} is no version. Supported: 1 to 4.")
    assert detail.endswith(f"unversioned: [/api/{word}].") is proposed


def test_R3_N1_check_proposes_to_list_them() -> None:
    [note] = made().configuration_rules.notes

    assert "GET and HEAD of /api/health, /api/versions" in note
    assert note.endswith("unversioned: [/api/health, /api/versions]")
    assert made(unversioned=("/api/health", "/api/versions")).configuration_rules.notes == ()
    assert learning().configuration_rules.notes == ()


# --- N3: the document that `learn` reads -------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/versions", "/versions/", "/Versions"])
def test_R3_N3_the_document_that_learn_reads_shows_the_offer(path: str) -> None:
    dialect = learning()
    endpoint = dialect.endpoint("GET", path, "")

    assert endpoint.document
    body = dialect.rewrite_document(endpoint, b'{"oldest": 2, "newest": 9}', OFFER, LINKS)
    assert body == b'{"oldest":1,"newest":4}'
    assert dialect.configuration_rules.warnings == ()


def test_R3_N3_it_does_so_beside_a_version_in_its_path() -> None:
    dialect = made(documents=None, places=(LocationOptions(path="/v{version}"),))

    assert dialect.endpoint("GET", "/v3/api/versions", "").document
    at_root = replace(OPTIONS.learn, path="/")
    dialect = made(documents=None, places=(LocationOptions(path="/v{version}"),), learn=at_root)
    assert dialect.endpoint("GET", "/", "").document
    assert not dialect.endpoint("GET", "/v3/", "").document, "that is rarely the same document"


def test_R3_N3_an_empty_list_of_documents_switches_that_off() -> None:
    dialect = learning(documents=())

    assert dialect.endpoint("GET", "/versions", "") == RESOURCE
    assert dialect.configuration_rules.warnings == ()


def test_R3_N3_a_path_without_versions_may_be_named_in_its_place() -> None:
    dialect = Custom.configured(
        CustomOptions(learn=LearnOptions(path="/versions", list="$[*]"), unversioned=("/versions",))
    )

    assert dialect.endpoint("GET", "/versions", "") == UNVERSIONED
    assert dialect.configuration_rules.warnings == ()


@pytest.mark.parametrize(
    "more",
    [
        {"spelling": "{version}.*"},
        {"content_type": "application/xml"},
        {"statuses": (404,)},
        {"documents": (DocumentOptions(path="/other", maximum="$.newest"),)},
    ],
)
def test_R3_N3_check_warns_of_what_stays_the_document_of_one_server(more: dict[str, Any]) -> None:
    dialect = learning(**more)

    assert not dialect.endpoint("GET", "/versions", "").document
    [warning] = dialect.configuration_rules.warnings
    assert isinstance(warning, OptionWarning)
    assert (warning.at, warning.message) == (("learn", "path"), SHOWS_ONE_SERVER)


def test_R3_N3_versions_that_are_learned_from_headers_make_no_document() -> None:
    dialect = learning(minimum=None, maximum=None)

    assert dialect.endpoint("GET", "/versions", "") == RESOURCE
    assert dialect.configuration_rules.warnings == ()
