"""APIs that are described in the configuration alone, one for each place of a version: a mixed fleet, old and
new, behind a whole gateway.
"""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qs

import pytest

from tests.scenarios.fakes import Head
from tests.scenarios.header_fleet import DOCUMENT, SERVED, Versioned, described, last
from tests.scenarios.stand import Stand

TRIES = 8
"""Requests: enough that both servers have answered, nearly always; no assertion rests on that."""


async def executed(stand: Stand, target: str, *lines: tuple[str, str], version: str) -> list[Head]:
    """The same request several times: each is executed at `version`, and the client is told so."""
    replies = [await stand.ask(target, *lines) for _ in range(TRIES)]
    assert [(each.status, json.loads(each.body)) for each in replies] == [
        (200, {"executed": version})
    ] * TRIES
    assert {each.get(SERVED) for each in replies} == {version}
    return replies


async def refused(stand: Stand, target: str, *lines: tuple[str, str], status: int = 400) -> dict[str, object]:
    """The problem that the client is told; no server has seen the request."""
    before = len(stand.asked)
    reply = await stand.ask(target, *lines)
    assert (reply.status, reply.get("Content-Type")) == (status, "application/problem+json")
    assert len(stand.asked) == before
    told = json.loads(reply.body)
    assert isinstance(told, dict)
    return told


def in_header(head: Head) -> str | None:
    return head.get("API-Version")


HEADER = """
      places: [{header: API-Version}]
      learn: {path: /versions, minimum: $.oldest, maximum: $.newest}
      reply: {served: X-Served}
      newest: latest
      unversioned: [/health]
      documents: [{path: /versions, minimum: $.oldest, maximum: $.newest, list: "$.all[*]"}]
"""


async def test_a_whole_number_in_a_header() -> None:
    old, new = Versioned("123", in_header), Versioned("2345", in_header)
    async with described(HEADER, old, new) as stand:
        replies = await executed(stand, "/orders", ("API-Version", "3"), version="3")
        assert {each.get("Vary") for each in replies} == {"API-Version"}
        await executed(stand, "/orders", version="2")
        await executed(stand, "/orders", ("api-version", "latest"), version="3")
        told = await refused(stand, "/orders", ("API-Version", "4"))
        assert (told["minimum"], told["maximum"]) == ("2", "3")
        for garbled in ("03", "", "2, 3", "two"):
            await refused(stand, "/orders", ("API-Version", garbled))
        await refused(stand, "/orders", ("API-Version", "2"), ("API-Version", "3"))

        document = json.loads((await stand.ask(DOCUMENT, ("API-Version", "9"))).body)
        health = await stand.ask("/health", ("API-Version", "9"))

        assert document == {"all": ["2", "3"], "oldest": "2", "newest": "3"}
        assert (health.status, last(stand).get("API-Version")) == (200, None)
        assert old.refused == new.refused == []


def in_query(head: Head) -> str | None:
    found = parse_qs(head.target.partition("?")[2], keep_blank_values=True).get("api-version")
    assert found is None or len(found) == 1
    return found[0] if found else None


QUERY = """
      places: [{query: api-version}]
      scheme: date
      silence: refused
      learn: {path: /versions, list: "$.all[*]"}
      reply: {served: X-Served}
"""


async def test_a_date_in_a_query() -> None:
    old = Versioned(["2023-11-28", "2024-01-01"], in_query)
    new = Versioned(["2024-01-01", "2024-08-31"], in_query)
    async with described(QUERY, old, new) as stand:
        await executed(stand, "/a?x=%7e&api-version=2024-01-01&y=2+3", version="2024-01-01")
        assert {head.target for head in stand.asked} == {"/a?x=%7e&api-version=2024-01-01&y=2+3"}
        await executed(stand, "/a?API-Version=2024-01-01&api-version=2024-01-01", version="2024-01-01")
        assert last(stand).target == "/a?api-version=2024-01-01"
        told = await refused(stand, "/a?api-version=2024-08-31")
        assert told["versions"] == ["2024-01-01"]
        for query in ("", "?", "?api-version=", "?api-version=2024-1-1", "?x=1;api-version=2024-01-01"):
            await refused(stand, f"/a{query}")
        await refused(stand, "/a?api-version=2024-01-01&api-version=2023-11-28")


def in_path(head: Head) -> str | None:
    found = re.match(r"/v([0-9.]+)/", head.target)
    return found[1] if found else None


PATH = """
      places: [{path: "/v{version}"}]
      scheme: major.minor
      silence: maximum
      learn: {path: /versions, minimum: $.oldest, maximum: $.newest}
      reply: {served: X-Served}
      documents: [{path: /versions, minimum: $.oldest, maximum: $.newest}]
"""


async def test_a_segment_at_the_start_of_the_path() -> None:
    old = Versioned(["1.24", "1.41", "1.42", "1.43"], in_path)
    new = Versioned(["1.24", "1.41", "1.42", "1.43", "1.44", "1.45"], in_path)
    async with described(PATH, old, new) as stand:
        await executed(stand, "/v1.42/containers/json?all=1", version="1.42")
        assert last(stand).target == "/v1.42/containers/json?all=1"
        await executed(stand, "/containers/json", version="1.43")
        assert last(stand).target == "/v1.43/containers/json"
        await executed(stand, "/volumes", version="1.43")
        told = await refused(stand, "/v1.45/info")
        assert told["maximum"] == "1.43"
        for path in ("/v1.042/info", "/%761.42/info", "//v1.42/info", "/V1.42/info", "/v1.42;a/info"):
            await refused(stand, path)
        document = json.loads((await stand.ask(DOCUMENT)).body)
        assert (document["oldest"], document["newest"]) == ("1.24", "1.43")


def after_prefix(head: Head) -> str | None:
    found = re.match(r"/admin/api/([^/]+)/", head.target)
    return found[1] if found else None


AFTER_A_PREFIX = """
      places: [{path: "/admin/api/{version}"}]
      scheme: date
      date_form: month
      match: nearest_earlier
      learn: {path: /versions, list: "$.all[*]"}
      reply: {served: X-Served}
"""


async def test_a_segment_after_a_prefix_falls_back_to_an_earlier_version() -> None:
    old = Versioned(["2023-10", "2024-01", "2024-04"], after_prefix)
    new = Versioned(["2024-01", "2024-04", "2024-07"], after_prefix)
    async with described(AFTER_A_PREFIX, old, new) as stand:
        await executed(stand, "/admin/api/2024-04/shop.json", version="2024-04")
        await executed(stand, "/admin/api/2025-01/shop.json", version="2024-04")
        assert last(stand).target == "/admin/api/2024-04/shop.json"
        await executed(stand, "/admin/api/2024-03/shop.json", version="2024-01")
        await refused(stand, "/admin/api/2023-10/shop.json")
        for path in ("/admin/api/shop.json", "/admin//api/2024-01/x", "/Admin/api/2024-01/x"):
            await refused(stand, path)
        assert (await stand.ask("/admin/oauth?x=1")).status == 200
        assert last(stand).target == "/admin/oauth?x=1"


VENDOR = "application/vnd.example+json"


def in_media_type(head: Head) -> str | None:
    texts = [*head.all("Accept"), *head.all("Content-Type")]
    found = set(re.findall(rf"{re.escape(VENDOR)}; ?compatible-with=([^,; ]+)", ", ".join(texts)))
    assert len(found) <= 1
    return found.pop() if found else None


MEDIA_TYPE = f"""
      places: [{{parameter: compatible-with, media_types: [{VENDOR}]}}]
      learn: {{path: /versions, minimum: $.oldest, maximum: $.newest}}
      reply: {{served: X-Served}}
      unversioned: [/health]
"""


async def test_a_parameter_of_both_media_types() -> None:
    async with described(MEDIA_TYPE, Versioned("78", in_media_type), Versioned("89", in_media_type)) as stand:
        eight = f"{VENDOR}; compatible-with=8"
        for accept in (eight, f'{VENDOR};compatible-with="8"', "application/json", "*/*", "text/plain"):
            await executed(stand, "/_search", ("Accept", accept), version="8")
        await executed(stand, "/_search", version="8")
        assert last(stand).get("Accept") == eight
        reply = await stand.ask(
            "/_search", ("Accept", eight), ("Content-Type", "application/json"), method="POST", body=b"{}"
        )
        assert (reply.status, last(stand).get("Content-Type")) == (200, eight)
        await refused(stand, "/_search", ("Accept", f"{VENDOR}; compatible-with=9"))
        await refused(stand, "/_search", ("Accept", eight), ("Content-Type", f"{VENDOR};compatible-with=7"))
        health = await stand.ask("/health", ("Accept", f"text/html, {VENDOR};compatible-with=99;q=0.5"))
        assert (health.status, last(stand).get("Accept")) == (200, f"text/html, {VENDOR}; q=0.5")


SEVERAL = """
      places:
        - {header: API-Version, spelling: "apps/{version}"}
        - {query: version, sent: false}
        - {path: "/{version}", sent: false}
      scheme: named
      names: [v1alpha1, v1beta1, v1]
      reply: {served: X-Served}
"""


@pytest.mark.parametrize("spelled", ["places that agree", "one place"])
async def test_names_in_several_places_of_which_backends_read_one(spelled: str) -> None:
    options = SEVERAL.replace("apps/", "apps.")
    servers = [Versioned(["apps.v1beta1", "apps.v1"], in_header) for _ in range(2)]
    async with described(options, *servers, backends=", versions: 'v1beta1..v1'") as stand:
        if spelled == "one place":
            replies = [await stand.ask(target) for target in ("/v1/apps?x=1", "/apps?x=1&version=v1")]
        else:
            replies = [await stand.ask("/v1/apps?version=v1&x=1", ("API-Version", "apps.v1"))]
        assert {each.status for each in replies} == {200}
        assert {(head.target, in_header(head)) for head in stand.asked} == {("/apps?x=1", "apps.v1")}
        await refused(stand, "/v1/apps?version=v1beta1")
        await refused(stand, "/v1/apps", ("API-Version", "apps.v1beta1"))
        await refused(stand, "/apps?version=v1alpha1")


def grouped(head: Head) -> str | None:
    found = re.match(r"/apis/apps/([^/?]+)/", head.target)
    return found[1] if found else None


def local(head: Head) -> str | None:
    found = re.match(r"/([^/?]+)/", head.target)
    return found[1] if found else None


async def test_a_path_that_is_the_prefix_itself_gets_no_slash() -> None:
    options = "{places: [{query: v}], unversioned: [/health]}"
    match = "{path: /api, strip_prefix: false}"
    server = Versioned("3", lambda head: head.target.partition("?v=")[2] or None)
    async with described(options, server, backends=", versions: '3'", match=match) as stand:
        for target in ("/api", "/api/", "/api?v=3", "/api/x"):
            assert (await stand.ask(target)).status == 200
        assert [head.target for head in server.common] == ["/api?v=3", "/api/?v=3", "/api?v=3", "/api/x?v=3"]


@pytest.mark.parametrize("strip", [False, True])
async def test_paths_of_the_description_are_those_below_the_prefix_of_the_service(strip: bool) -> None:
    """Whether or not backends see that prefix."""
    options = "{places: [{path: '/{version}'}], scheme: named, names: [v1beta1, v1], unversioned: [/health]}"
    match = f"{{path: /apis/apps, strip_prefix: {str(strip).lower()}}}"
    server = Versioned(["v1beta1", "v1"], local if strip else grouped)
    async with described(options, server, backends=", versions: 'v1beta1..v1'", match=match) as stand:
        for target, version in (("/apis/apps/v1/pods?a=1", "v1"), ("/apis/apps/pods", "v1beta1")):
            assert json.loads((await stand.ask(target)).body) == {"executed": version}
        expected = ["/v1/pods?a=1", "/v1beta1/pods"]
        assert [head.target for head in server.common] == [("/apis/apps" * (not strip)) + e for e in expected]
        assert (await stand.ask("/apis/apps/health")).status in (200, 404)
        assert server.common[-1].target == ("/apis/apps" * (not strip)) + "/health"
