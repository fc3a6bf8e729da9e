"""APIs that only the configuration describes, one for each location of a version: old and new servers behind
a whole gateway.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
import re
from urllib.parse import parse_qs

import pytest

from tests.scenarios.custom_fleet import DOCUMENT, SERVED, Versioned, in_front_of, last
from tests.scenarios.fakes import Head
from tests.scenarios.testbed import Testbed

REPEATS = 8
"""Requests after which both servers have nearly always had one. No assertion depends on that."""


async def executed(testbed: Testbed, target: str, *lines: tuple[str, str], version: str) -> list[Head]:
    """Send the same request several times. Each is executed at `version`, and the client can see that."""
    responses = [await testbed.send(target, *lines) for _ in range(REPEATS)]
    assert [(response.status, json.loads(response.body)) for response in responses] == [
        (200, {"executed": version})
    ] * REPEATS
    assert {response.get(SERVED) for response in responses} == {version}
    return responses


async def refused(
    testbed: Testbed, target: str, *lines: tuple[str, str], status: int = 400
) -> dict[str, object]:
    """Send a request that no server gets. The result is the problem document."""
    before = len(testbed.forwarded)
    response = await testbed.send(target, *lines)
    assert (response.status, response.get("Content-Type")) == (status, "application/problem+json")
    assert len(testbed.forwarded) == before
    problem = json.loads(response.body)
    assert isinstance(problem, dict)
    return problem


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
    async with in_front_of(old, new, custom=HEADER) as testbed:
        responses = await executed(testbed, "/orders", ("API-Version", "3"), version="3")
        assert {response.get("Vary") for response in responses} == {"API-Version"}
        await executed(testbed, "/orders", version="2")
        await executed(testbed, "/orders", ("api-version", "latest"), version="3")
        problem = await refused(testbed, "/orders", ("API-Version", "4"))
        assert (problem["minimum"], problem["maximum"]) == ("2", "3")
        for malformed in ("03", "", "2, 3", "two"):
            await refused(testbed, "/orders", ("API-Version", malformed))
        await refused(testbed, "/orders", ("API-Version", "2"), ("API-Version", "3"))

        document = json.loads((await testbed.send(DOCUMENT, ("API-Version", "9"))).body)
        health = await testbed.send("/health", ("API-Version", "9"))

        assert document == {"all": ["2", "3"], "oldest": "2", "newest": "3"}
        assert (health.status, last(testbed).get("API-Version")) == (200, None)
        assert old.refused == new.refused == []


def in_query(head: Head) -> str | None:
    found = parse_qs(head.target.partition("?")[2], keep_blank_values=True).get("api-version")
    assert found is None or len(found) == 1
    return found[0] if found else None


QUERY = """
      places: [{query: api-version}]
      scheme: date
      learn: {path: /versions, list: "$.all[*]"}
      reply: {served: X-Served}
"""


async def test_a_date_in_a_query() -> None:
    old = Versioned(["2023-11-28", "2024-01-01"], in_query)
    new = Versioned(["2024-01-01", "2024-08-31"], in_query)
    async with in_front_of(old, new, custom=QUERY, default_version="refused") as testbed:
        await executed(testbed, "/a?x=%7e&api-version=2024-01-01&y=2+3", version="2024-01-01")
        assert {head.target for head in testbed.forwarded} == {"/a?x=%7e&api-version=2024-01-01&y=2+3"}
        await refused(testbed, "/a?API-Version=2024-01-01&api-version=2024-01-01")
        problem = await refused(testbed, "/a?api-version=2024-08-31")
        assert problem["versions"] == ["2024-01-01"]
        for query in ("", "?", "?api-version=", "?api-version=2024-1-1", "?x=1;api-version=2024-01-01"):
            await refused(testbed, f"/a{query}")
        await refused(testbed, "/a?api-version=2024-01-01&api-version=2023-11-28")


def in_path(head: Head) -> str | None:
    found = re.match(r"/v([0-9.]+)/", head.target)
    return found[1] if found else None


PATH = """
      places: [{path: "/v{version}"}]
      scheme: major.minor
      learn: {path: /versions, minimum: $.oldest, maximum: $.newest}
      reply: {served: X-Served}
      documents: [{path: /versions, minimum: $.oldest, maximum: $.newest}]
"""


async def test_a_segment_at_the_start_of_the_path() -> None:
    old = Versioned(["1.24", "1.41", "1.42", "1.43"], in_path)
    new = Versioned(["1.24", "1.41", "1.42", "1.43", "1.44", "1.45"], in_path)
    async with in_front_of(old, new, custom=PATH, default_version="maximum") as testbed:
        await executed(testbed, "/v1.42/containers/json?all=1", version="1.42")
        assert last(testbed).target == "/v1.42/containers/json?all=1"
        await executed(testbed, "/containers/json", version="1.43")
        assert last(testbed).target == "/v1.43/containers/json"
        await executed(testbed, "/volumes", version="1.43")
        problem = await refused(testbed, "/v1.45/info")
        assert problem["maximum"] == "1.43"
        for path in ("/v1.042/info", "/%761.42/info", "//v1.42/info", "/V1.42/info", "/v1.42;a/info"):
            await refused(testbed, path)
        document = json.loads((await testbed.send(DOCUMENT)).body)
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
    async with in_front_of(old, new, custom=AFTER_A_PREFIX) as testbed:
        await executed(testbed, "/admin/api/2024-04/shop.json", version="2024-04")
        await executed(testbed, "/admin/api/2025-01/shop.json", version="2024-04")
        assert last(testbed).target == "/admin/api/2024-04/shop.json"
        await executed(testbed, "/admin/api/2024-03/shop.json", version="2024-01")
        await refused(testbed, "/admin/api/2023-10/shop.json")
        for path in ("/admin/api/shop.json", "/admin//api/2024-01/x"):
            await refused(testbed, path)
        assert (await testbed.send("/admin/oauth?x=1")).status == 200
        assert last(testbed).target == "/admin/oauth?x=1"


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
    old, new = Versioned("78", in_media_type), Versioned("89", in_media_type)
    async with in_front_of(old, new, custom=MEDIA_TYPE) as testbed:
        eight = f"{VENDOR}; compatible-with=8"
        for accept in (eight, f'{VENDOR};compatible-with="8"', "application/json", "*/*", "text/plain"):
            await executed(testbed, "/_search", ("Accept", accept), version="8")
        await executed(testbed, "/_search", version="8")
        assert last(testbed).get("Accept") == eight
        response = await testbed.send(
            "/_search", ("Accept", eight), ("Content-Type", "application/json"), method="POST", body=b"{}"
        )
        assert (response.status, last(testbed).get("Content-Type")) == (200, eight)
        await refused(testbed, "/_search", ("Accept", f"{VENDOR}; compatible-with=9"))
        await refused(testbed, "/_search", ("Accept", eight), ("Content-Type", f"{VENDOR};compatible-with=7"))
        health = await testbed.send("/health", ("Accept", f"text/html, {VENDOR};compatible-with=99;q=0.5"))
        assert (health.status, last(testbed).get("Accept")) == (200, f"text/html, {VENDOR}; q=0.5")


SEVERAL = """
      places:
        - {header: API-Version, spelling: "apps/{version}"}
        - {query: version, sent: false}
        - {path: "/{version}", sent: false}
      scheme: named
      names: [v1alpha1, v1beta1, v1]
      reply: {served: X-Served}
"""


@pytest.mark.parametrize("used", ["locations that agree", "one location"])
async def test_names_in_several_locations_of_which_backends_read_one(used: str) -> None:
    options = SEVERAL.replace("apps/", "apps.")
    servers = [Versioned(["apps.v1beta1", "apps.v1"], in_header) for _ in range(2)]
    async with in_front_of(*servers, custom=options, backends=", versions: 'v1beta1..v1'") as testbed:
        if used == "one location":
            responses = [await testbed.send(target) for target in ("/v1/apps?x=1", "/apps?x=1&version=v1")]
        else:
            responses = [await testbed.send("/v1/apps?version=v1&x=1", ("API-Version", "apps.v1"))]
        assert {response.status for response in responses} == {200}
        assert {(head.target, in_header(head)) for head in testbed.forwarded} == {("/apps?x=1", "apps.v1")}
        await refused(testbed, "/v1/apps?version=v1beta1")
        await refused(testbed, "/v1/apps", ("API-Version", "apps.v1beta1"))
        await refused(testbed, "/apps?version=v1alpha1")


def after_group(head: Head) -> str | None:
    found = re.match(r"/apis/apps/([^/?]+)/", head.target)
    return found[1] if found else None


def first_segment(head: Head) -> str | None:
    found = re.match(r"/([^/?]+)/", head.target)
    return found[1] if found else None


async def test_a_path_equal_to_the_prefix_gets_no_slash() -> None:
    options = "{places: [{query: v}], unversioned: [/health]}"
    match = "{path: /api, strip_prefix: false}"
    server = Versioned("3", lambda head: head.target.partition("?v=")[2] or None)
    async with in_front_of(server, custom=options, backends=", versions: '3'", match=match) as testbed:
        for target in ("/api", "/api/", "/api?v=3", "/api/x"):
            assert (await testbed.send(target)).status == 200
        assert [head.target for head in server.common] == ["/api?v=3", "/api/?v=3", "/api?v=3", "/api/x?v=3"]


@pytest.mark.parametrize("strip", [False, True])
async def test_paths_in_the_options_begin_after_the_prefix_of_the_service(strip: bool) -> None:
    """Whether or not backends see that prefix."""
    options = "{places: [{path: '/{version}'}], scheme: named, names: [v1beta1, v1], unversioned: [/health]}"
    match = f"{{path: /apis/apps, strip_prefix: {str(strip).lower()}}}"
    prefix = "" if strip else "/apis/apps"
    server = Versioned(["v1beta1", "v1"], first_segment if strip else after_group)
    declared = ", versions: 'v1beta1..v1'"
    async with in_front_of(server, custom=options, backends=declared, match=match) as testbed:
        for target, version in (("/apis/apps/v1/pods?a=1", "v1"), ("/apis/apps/pods", "v1beta1")):
            assert json.loads((await testbed.send(target)).body) == {"executed": version}
        expected = ["/v1/pods?a=1", "/v1beta1/pods"]
        assert [head.target for head in server.common] == [prefix + path for path in expected]
        assert (await testbed.send("/apis/apps/health")).status in (200, 404)
        assert server.common[-1].target == prefix + "/health"


class BelowApi(Versioned):
    """A server all of whose paths are below `/api`, the versions in the second segment."""

    def _response(self, head: Head) -> bytes:
        return super()._response(head._replace(start=head.start.replace(" /api/", " /", 1)))


def in_second_segment(head: Head) -> str:
    return head.target.split("/")[1]


async def test_R3_N1_what_probes_request_passes_and_shows_the_offer() -> None:
    """Neither path is named anywhere else in the configuration."""
    custom = "{places: [{path: '/api/{version}'}], learn: {path: /api/versions, list: '$.all[*]'}}"
    servers = BelowApi(["1", "2"], in_second_segment), BelowApi(["1", "2", "3"], in_second_segment)
    async with in_front_of(*servers, custom=custom) as testbed:
        for _ in range(REPEATS):
            response = await testbed.send("/api/versions")
            assert (response.status, json.loads(response.body)["all"]) == (200, ["1", "2"])
        assert (await testbed.send("/api/2/things")).status == 200

        refused = await testbed.send("/api/health")
        assert refused.status == 400
        assert json.loads(refused.body)["detail"].endswith("unversioned: [/api/health].")
