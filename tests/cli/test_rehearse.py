"""`skewgate rehearse`: what is compared, what a server gets, what the report says, and its exit codes."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientSession
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.rehearse import sending
from gateway.cli.rehearse.comparison import Comparison, Result, differences, judge
from gateway.core.dialect import ProbeResponse
from gateway.telemetry.access_log import AccessLog
from tests.cli.conftest import Call, Running
from tests.kit.backends import ScriptedBackend, UpstreamConnection, never_respond
from tests.kit.messages import response
from tests.telemetry.builders import record
from tests.telemetry.test_access_log import RECORDS

NAMES: Final = st.sampled_from(["id", "name", "links", "metadata", "extra", "state"])
SECRETS: Final = st.text("abcxyz", min_size=3, max_size=8).map(lambda text: f"{text} secret")
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | SECRETS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(NAMES, inner, max_size=3)
        | st.dictionaries(SECRETS, inner, max_size=3)
    ),
    max_leaves=8,
)


def found(before: object, after: object) -> list[tuple[str, str]]:
    return sorted(set(differences(before, after)))


def answered(body: object, status: int = 200) -> ProbeResponse:
    return ProbeResponse(status, {}, json.dumps(body).encode())


# -- the comparison -----------------------------------------------------------------------------------------


@given(VALUES)
def test_a_body_does_not_differ_from_itself(body: object) -> None:
    assert not found(body, json.loads(json.dumps(body)))


@given(VALUES, VALUES)
def test_no_path_shows_what_somebody_chose(before: object, after: object) -> None:
    paths = [path for path, _ in (*found(before, after), *found({"metadata": before}, {"metadata": after}))]
    assert not [path for path in paths if "secret" in path]
    inside = [path.removeprefix("$.metadata") for path in paths if path.startswith("$.metadata")]
    assert not {*"".join(inside)} - {*".*[]"} or "$.metadata" in paths


@given(VALUES, VALUES)
def test_the_other_way_round_what_was_added_is_removed(before: object, after: object) -> None:
    turned = {"added": "removed", "removed": "added", "changed": "changed"}
    assert found(after, before) == sorted((path, turned[kind]) for path, kind in found(before, after))


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ({"a": 1}, {"a": True}, [("$.a", "changed")]),
        ({"a": 1}, {"a": None}, [("$.a", "changed")]),
        ({"a": [1, 2]}, {"a": [1]}, [("$.a[*]", "removed")]),
        ({"a": [{"id": 1}, {"id": 2}]}, {"a": [{"id": 2}]}, [("$.a[*]", "removed")]),
        ({"a": [{"rel": "x"}]}, {"a": [{"rel": "y"}, {"rel": "x"}]}, [("$.a[*]", "added")]),
        (
            {"inventories": {"VCPU": {"a": 1}}},
            {"inventories": {"VCPU": {}}},
            [("$.inventories.*.a", "removed")],
        ),
        (
            {"a": {"private": {"x": 1}, "public": {"x": 2}}},
            {"a": {"private": {"x": 1, "y": 1}, "public": {"x": 2, "y": 2}}},
            [("$.a.*.y", "added")],
        ),
        ({"a": {"0a1b2c3d": 1}}, {"a": {"0a1b2c3d": 2}}, [("$.a.*", "changed")]),
        ({"os-x:a": {"b": 1, "c": {}}}, {"os-x:a": {"b": 2, "c": {}}}, [("$.os-x:a.b", "changed")]),
        ({"extra": {"a": {"b": 1, "c": 2}}}, {"extra": {"a": {"b": 1}}}, [("$.extra.*.*", "removed")]),
    ],
)
def test_a_path_names_members_and_no_data(before: object, after: object, expected: object) -> None:
    assert found(before, after) == expected


@pytest.mark.parametrize(
    "older, newer, expected",
    [
        ([{"a": 1}] * 2, {"a": 1}, "the same"),
        ([{"a": 1}] * 2, {"a": 1, "b": 1}, "only additions"),
        ([{"a": 1}] * 2, {"a": 2, "b": 1}, "changed"),
        ([{"a": 1}] * 2, {}, "changed"),
        ([{"a": 1}, {"a": 2}], {"a": 3}, "the same"),
        ([{"a": 1}, {"a": 2}], {"a": 3, "b": 1}, "only additions"),
        ([{"a": 1}, {"a": 1}, {"a": 2}], {"a": 3}, "the same"),
    ],
)
def test_what_changes_by_itself_is_no_difference(older: list[object], newer: object, expected: str) -> None:
    assert judge([answered(each) for each in older], answered(newer)).result == expected


@pytest.mark.parametrize(
    "older, newer, expected",
    [
        ((200, 200), 404, ("refused", "200, then 404")),
        ((200, 200), 503, ("status differs", "200, then 503")),
        ((404, 404), 200, ("status differs", "404, then 200")),
        ((404, 404), 406, ("not compared", "status 404")),
        ((401, 401), 401, ("not compared", "status 401, credentials are given by -H")),
        ((401, 401), 200, ("not compared", "status 401, credentials are given by -H")),
        ((200, 404), 200, ("not compared", "its status changes by itself")),
    ],
)
def test_a_status_is_judged_before_a_body(
    older: tuple[int, ...], newer: int, expected: tuple[str, str]
) -> None:
    assert judge([answered({}, each) for each in older], answered({}, newer))[:2] == expected


@pytest.mark.parametrize("body", [b"<p>", b"[" * 100_000, b'{"a": ' + b"9" * 10_000 + b"}"])
def test_what_is_no_json_is_the_same_or_not_compared(body: bytes) -> None:
    one, other = ProbeResponse(200, {}, body), ProbeResponse(200, {}, b"{}")
    assert judge([one, one], one) == Comparison(Result.SAME)
    assert judge([one, one], other) == Comparison(Result.NOT_COMPARED, "not JSON")


# -- the command, in front of a server that a test writes ----------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[ScriptedBackend]:
    """A server whose body has a member `new` from version 5 on, but at `/kept`."""

    async def script(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        version, _, path = message.target.removeprefix("/base/api/v").partition("/")
        body = {"id": 1, "now": len(upstream.backend.requests)}
        if int(version) >= 5 and path != "kept":
            body["new"] = 1
        content = json.dumps(body).encode() if message.method != "HEAD" else b""
        await upstream.send(response(200, "Content-Type: application/json", body=content))

    backend = ScriptedBackend(script, "api-1", None)
    await backend.start()
    yield backend
    await backend.close()


@pytest.fixture
def config(tmp_path: Path, server: ScriptedBackend) -> Path:
    file = tmp_path / "gateway.yaml"
    file.write_text(
        f"""\
listen: 127.0.0.1:8080
admin: {{listen: 127.0.0.1:1}}
services:
  engine:
    match: {{path: /api, strip_prefix: false}}
    dialect: custom
    custom: {{method_override: [X-Method], scheme: integer, places: [{{path: "/v{{version}}"}}]}}
    probe: {{headers: {{X-Token: of-the-file}}}}
    headers: {{request: {{set: {{X-Token: of-the-file}}}}}}
    backends: [{{name: api-1, url: 'http://127.0.0.1:{server.port}/base', versions: "1-9"}}]
"""
    )
    return file


@pytest.fixture
def rehearse(call_main: Call, config: Path, tmp_path: Path) -> Any:
    async def call(lines: str, *options: str, older: str = "3", newer: str = "6") -> Any:
        file = tmp_path / "requests"
        file.write_text(lines)
        versions = ("--from", older, "--to", newer, "--rate", "1000/s")
        return await call_main(
            "rehearse", "engine", "-c", str(config), "--requests", str(file), *versions, *options
        )

    return call


async def test_each_request_is_sent_to_one_server_at_both_versions(
    rehearse: Any, server: ScriptedBackend
) -> None:
    ended = await rehearse(
        "# a comment\nGET /api/v1/things/7?limit=2\nHEAD /api/v1/kept\n",
        *("-H", "Authorization: Bearer x", "-H", "Accept-Encoding: gzip"),
    )
    assert ended.code == 0
    assert [message.start_line for message in server.requests] == [
        "GET /base/api/v3/things/7?limit=2 HTTP/1.1",
        "GET /base/api/v3/things/7?limit=2 HTTP/1.1",
        "GET /base/api/v6/things/7?limit=2 HTTP/1.1",
        "GET /base/api/v3/things/7?limit=2 HTTP/1.1",
        "HEAD /base/api/v3/kept HTTP/1.1",
        "HEAD /base/api/v3/kept HTTP/1.1",
        "HEAD /base/api/v6/kept HTTP/1.1",
    ]
    assert {tuple(message.fields) for message in server.requests} == {
        (
            ("Host", f"127.0.0.1:{server.port}"),
            ("Authorization", "Bearer x"),
            ("Accept-Encoding", "identity"),
            ("Connection", "close"),
        )
    }


async def test_the_report_fits_a_terminal(rehearse: Any) -> None:
    ended = await rehearse("GET /api/v1/kept\nGET /api/v1/things/7\nGET /api/v1/things/8\n")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "engine: 3, then 6, at api-1",
        "",
        "GET /things/{id} (2): only additions",
        "  added   $.new",
        "  changes by itself: $.now",
        "",
        "GET /kept (1): the same",
        "  changes by itself: $.now",
        "",
        "clients may be missing: no gateway responds at http://127.0.0.1:1: Connection",
        "refused",
        "",
        "1 only additions, 1 the same",
    ]


async def test_what_is_taken_away_is_a_change(rehearse: Any) -> None:
    ended = await rehearse("GET /api/v1/things/7", older="6", newer="3")
    assert ended.code == 3
    assert ended.out.splitlines()[2:4] == ["GET /things/{id} (1): changed", "  removed $.new"]


@pytest.mark.parametrize(
    "line, problem",
    [
        ("POST /api/v1/things", "only GET, HEAD, OPTIONS are sent"),
        ("GET /other", "the path is not below /api"),
        ("GET /api/v1/../x", "the path contains `..`"),
        ("GET /api/v1/x y", "the path has a character that HTTP does not allow"),
        ("/api/v1/x", "request line"),
        ('{"a": 1}', "is not of a skewgate access log"),
    ],
)
async def test_nothing_is_sent_if_a_line_cannot_be(
    rehearse: Any, server: ScriptedBackend, line: str, problem: str
) -> None:
    ended = await rehearse(f"GET /api/v1/x\n{line}\n")
    assert (ended.code, server.requests) == (1, [])
    assert "line 2 of the requests" in ended.err
    assert problem in ended.err


async def test_no_header_makes_a_request_unsafe(rehearse: Any, server: ScriptedBackend) -> None:
    named = ("-H", "X-Method: DELETE", "-H", "X_Method: PUT", "-H", "X-HTTP-Method-Override: DELETE")
    assert (await rehearse("GET /api/v1/kept", *named)).code == 0
    assert {"method" in name.lower() for message in server.requests for name, _ in message.fields} == {False}


async def test_an_access_log_gives_the_last_requests_that_were_served(
    rehearse: Any, server: ScriptedBackend
) -> None:
    def line(target: str, **other: object) -> str:
        return json.dumps({"method": "GET", "target": target, "service": "engine", "status": 200} | other)

    lines = [line(f"/api/v1/things/{number}") for number in range(9)]
    others = [
        line("/api/v1/things/10", status=404),
        line("/api/v1/things/11", method="DELETE"),
        line("/api/v1/things/12", service="other"),
        line(f"/api/v1/things/{'1' * 1100}"),
        line("/api/v1/kept?limit=*"),
    ]
    assert (await rehearse("\n".join([*lines, *others]))).code == 0
    sent = [message.target.removeprefix("/base/api/v6") for message in server.requests]
    assert sorted(each for each in sent if "v3" not in each) == [
        "/kept",
        *(f"/things/{number}" for number in range(4, 9)),
    ]


async def test_an_access_log_in_text_gives_the_same_requests(rehearse: Any, server: ScriptedBackend) -> None:
    def line(target: str, agent: str = "a", service: str = "engine", status: int = 200) -> str:
        written = f"method=GET host=a:80 target={json.dumps(target)} status={status} service={service}"
        return f"2026-11-20T13:43:28.123Z client=- {written} version=- user_agent={json.dumps(agent)}"

    lines = [
        line("/api/v1/things/7", 'a" target="/api/v1/kept'),
        line("/api/v1/things/8?limit=*"),
        line("/api/v1/things/9", status=404),
        line("/api/v1/kept", service="other"),
    ]
    cut = await rehearse(lines[0][:-1])
    assert (cut.code, server.requests) == (1, [])
    assert (await rehearse("\n".join(lines))).code == 0
    sent = [message.target.removeprefix("/base/api/v6") for message in server.requests]
    assert [each for each in sent if "v3" not in each] == ["/things/7", "/things/8"]


@given(RECORDS)
def test_a_line_in_text_reads_as_one_in_json(fields: dict[str, Any]) -> None:
    logged = record(**fields | {"backend": "api-1"})
    as_json, as_text = (AccessLog(form, os.devnull, "keep") for form in ("json", "text"))
    line = as_text._as_text(0.0, logged).strip()
    entry, expected = sending._logged(line), sending._logged(as_json._as_json(0.0, logged))
    assert sending._TEXT_LINE.fullmatch(line)
    for name in ("method", "target", "service", "status"):
        assert entry[name] == ("-" if expected[name] is None else str(expected[name]))
    as_json.close()
    as_text.close()


async def test_headers_are_compared_by_name(rehearse: Any, server: ScriptedBackend) -> None:

    async def script(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        number = len(upstream.backend.requests)
        own = "X-Old: secret" if "/v3/" in message.target else "X-New: secret"
        await upstream.send(
            response(200, own, f"X-{number % 2}: a", "Keep-Alive: 9", "Version: 3", body=b"-")
        )

    server.script = script
    ended = await rehearse("GET /api/v1/things/7")
    assert ended.code == 3
    assert ended.out.splitlines()[2:6] == [
        "GET /things/{id} (1): changed",
        "  added   header x-new",
        "  removed header x-old",
        "  changes by itself: header x-0, header x-1",
    ]


async def test_what_is_too_slow_or_too_large_is_not_compared(
    rehearse: Any, server: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "LONGEST", 0.001)
    server.script = never_respond
    slow = await rehearse("GET /api/v1/things/7")
    monkeypatch.undo()

    async def large(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(response(200, body=b" " * (sending.LARGEST + 1)))

    server.script = large
    too_large = await rehearse("GET /api/v1/things/7")
    assert (slow.code, too_large.code) == (1, 1)
    assert "not compared: slower than 0.001 s (1)" in slow.out
    assert "not compared: larger than 256 KiB (1)" in too_large.out


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"newer": "10"}, "api-1 does not serve 10"),
        ({"older": "x"}, "'x' is not a version"),
    ],
)
async def test_a_version_that_the_server_does_not_serve_is_bad_usage(
    rehearse: Any, options: dict[str, str], problem: str
) -> None:
    ended = await rehearse("GET /api/v1/things/7", **options)
    assert ended.code == 2
    assert problem in ended.err


async def test_an_unknown_backend_is_bad_usage(rehearse: Any) -> None:
    ended = await rehearse("GET /api/v1/things/7", "--backend", "zz")
    assert ended.code == 2
    assert "there is no backend 'zz'; there are: api-1" in ended.err


async def test_a_service_whose_clients_sign_is_refused(call_main: Call, tmp_path: Path) -> None:
    file = tmp_path / "chef.yaml"
    file.write_text(
        "listen: 127.0.0.1:8080\nservices: {chef: {dialect: chef, backends: [{url: 'http://127.0.0.1:1'}]}}\n"
    )
    options = ("--from", "0", "--to", "1", "--requests", "/dev/null", "-c", str(file))
    ended = await call_main("rehearse", "chef", *options)
    assert ended.code == 2
    assert "clients of chef sign their requests" in ended.err


# -- beside a gateway ---------------------------------------------------------------------------------------


async def test_usage_names_the_clients_and_counts_no_rehearsal(
    running: Running,
    session: ClientSession,
    call_main: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers = {"X-OpenStack-Ironic-API-Version": "1.30", "User-Agent": "dashboard/2.0"}
    async with session.get(f"{running.url}/v1/nodes", headers=headers) as response:
        assert response.status == 200
    file = tmp_path / "requests"
    file.write_text("GET /v1/nodes\nGET /v1/nodes?_method=DELETE\n")
    options = ["rehearse", "baremetal", "--from", "1.30", "--to", "1.90", "--requests", str(file)]
    options += ["--admin", running.admin]
    monkeypatch.setenv("SKEWGATE_CONFIG", str(running.file))

    refused = await call_main(*options)
    file.write_text("GET /v1/nodes\nGET /v1/nodes/7\nGET /\n")
    ended = await call_main(*options, "--rate", "1000")
    usage = await call_main("usage", "--admin", running.admin, "-o", "json")

    assert (refused.code, ended.code) == (1, 0)
    assert "only GET, HEAD, OPTIONS are sent" in refused.err
    assert ended.out.splitlines() == [
        "baremetal: 1.30, then 1.90, at api-2",
        "",
        "GET /v1/nodes (1): the same",
        "  used by dashboard",
        "",
        "GET / (1): not compared",
        "  not compared: no version is negotiated there (1)",
        "",
        "GET /v1/nodes/{id} (1): not compared",
        "  not compared: status 404 (1)",
        "",
        "1 the same, 2 not compared",
    ]
    assert json.loads(usage.out)["requests"] == 1
