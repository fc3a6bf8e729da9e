"""The verbs that send requests to a running gateway: `status`, `explain`, `healthcheck`, `reload`."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpRawServer

from gateway.assembly import Gateway
from gateway.cli import operator_commands
from gateway.cli.admin_client import HOW_TO_NAME_ONE, NO_GATEWAY
from gateway.cli.status import page
from gateway.runtime.terminal import Paint
from gateway.settings import read_file
from tests.cli.conftest import Call, Running, Write
from tests.kit.fleets import Fleet
from tests.kit.networks import free_port
from tests.kit.processes import TIMEOUT, Ended, finish, ready, start
from tests.kit.waiting import PATIENCE

IRONIC = "X-OpenStack-Ironic-API-Version"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_status_shows_services_and_backends(running: Running, fleet: Fleet, call_main: Call) -> None:
    ended = await call_main("status", "--admin", running.admin)

    services, backends = ended.out.split("\n\n")
    assert (ended.code, ended.err) == (0, "")
    assert [re.split("  +", line) for line in services.splitlines()] == [
        ["SERVICE", "DIALECT", "OFFER", "PHASE", "HELD BY"],
        ["baremetal", "ironic", "1.1-1.58", "mixed", "api-1 (guaranteed)"],
    ]
    ages = re.compile(r"\d+\.\d s ago")
    assert [re.split("  +", ages.sub("AGE", line)) for line in backends.splitlines()] == [
        ["SERVICE", "BACKEND", "FRESHNESS", "SERVES", "IN FLIGHT", "LAST PROBE", "URL", "ERROR"],
        ["baremetal", "api-1", "fresh", "1.1-1.58", "0", "AGE", url(fleet.old.port), "-"],
        ["baremetal", "api-2", "fresh", "1.1-1.90", "0", "AGE", url(fleet.new.port), "-"],
    ]
    starts = {line.index("fresh") for line in backends.splitlines()[1:]}
    assert starts == {backends.splitlines()[0].index("FRESHNESS")}


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


async def test_status_as_json_is_that_of_the_admin_listener(running: Running, call_main: Call) -> None:
    ended = await call_main("status", "--admin", running.admin, "-o", "json")

    assert ended.code == 0
    service = json.loads(ended.out)["services"]["baremetal"]
    assert (service["offer"]["min"], service["offer"]["max"], service["phase"]) == ("1.1", "1.58", "mixed")


def probed_at(page: bytes) -> float:
    """The time of the last probe of api-1 on one page of `status --watch -o json`."""
    return float(json.loads(page)["services"]["baremetal"]["backends"]["api-1"]["last_probe_at"])


@pytest.mark.processes
async def test_watch_repeats_until_ctrl_c(running: Running) -> None:
    process = await start("status", "--admin", running.admin, "--watch", "-o", "json")
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT):
        first = newer = probed_at(await process.stdout.readline())
        while newer == first:  # a page may come before the next probe
            newer = probed_at(await process.stdout.readline())
    process.send_signal(signal.SIGINT)
    ended = await finish(process)

    assert (ended.code, ended.err) == (0, "")
    assert newer > first


def test_only_terminals_get_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"services": {"a": {"dialect": "ironic", "phase": "uniform", "offer": {}, "backends": {}}}}
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    assert "\x1b[32muniform" in page(document, 0.0, Paint(Terminal()))
    assert "\x1b" not in page(document, 0.0, Paint(io.StringIO()))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in page(document, 0.0, Paint(Terminal()))


def test_texts_from_elsewhere_lose_their_control_characters() -> None:
    backend = {"url": "http://x", "freshness": "down", "error": "\x1b]0;owned\x07 gone\nfor good"}
    document = {"services": {"a": {"offer": {}, "backends": {"b": backend}}}}

    shown = page(document, 0.0, Paint(io.StringIO()))

    assert "\x1b" not in shown
    assert shown.splitlines()[-1].endswith("gone\ufffdfor good")


def test_a_page_shows_workers_where_there_are_several() -> None:
    one = {"slot": 0, "pid": 4711, "state": "serving", "connections": 12, "restarts": 0}
    other = {"slot": 1, "pid": None, "state": "starting", "connections": 0, "restarts": 3}

    shown = page({"services": {}, "workers": [one, other]}, 0.0, Paint(io.StringIO())).splitlines()
    assert shown[-3].split() == ["WORKER", "PROCESS", "STATE", "CONNECTIONS", "REPLACED"]
    assert shown[-2].split() == ["0", "4711", "serving", "12", "0"]
    assert shown[-1].split() == ["1", "-", "starting", "0", "3"]
    assert "WORKER" not in page({"services": {}, "workers": [one]}, 0.0, Paint(io.StringIO()))


def test_status_says_who_gets_no_requests_and_why() -> None:
    backends = {
        "a": {"freshness": "fresh", "ejected": {"until": 108.4, "reason": "no response came in time"}},
        "b": {"freshness": "fresh", "unhealthy": "its health check /x answers 503", "backup": True},
    }
    document = {"services": {"s": {"offer": {}, "backends": backends}}}

    *_, one, other = page(document, 100.0, Paint(io.StringIO())).splitlines()

    assert "fresh ejected" in one
    assert one.endswith("ejected for 8 s more: no response came in time")
    assert "fresh unhealthy backup" in other
    assert other.endswith("its health check /x answers 503")


def test_status_shows_the_announced_end_of_versions_and_own_paces_below_the_services() -> None:
    words, pace = "below 1.20 deprecated from 2026-01-15", {"sentence": "ceiling 1.50 for cron"}
    services = {"s": {"offer": {"for": [pace]}, "lifecycle": {"announced": words}}, "t": {"offer": {}}}

    shown, *_ = page({"services": services}, 0.0, Paint(io.StringIO())).split("\n\n")

    assert shown.splitlines()[-2:] == [f"s: {words}", "s: ceiling 1.50 for cron"]
    assert shown.count("\n") == 4


async def test_without_known_versions_there_is_no_range(fleet: Fleet, write: Write, call_main: Call) -> None:
    await fleet.old.stop()
    await fleet.new.stop()
    async with Gateway(read_file(write(), environ=os.environ).require()) as gateway:
        status = await call_main("status", "--admin", gateway.admin_url)
        health = await call_main("healthcheck", "--admin", gateway.admin_url)

    assert re.search(r"baremetal +ironic +- +unknown +-", status.out)
    assert (health.code, health.out) == (1, "")
    assert health.err == (
        "skewgate: not ready (503): offer: no backend of baremetal has reported its versions yet\n"
    )


async def test_healthcheck_of_a_ready_gateway_is_0(running: Running, call_main: Call) -> None:
    assert await call_main("healthcheck", "--admin", running.admin) == (0, "ready\n", "")


@pytest.mark.parametrize("argv", [["status"], ["healthcheck"], ["reload"], ["explain", "GET", "/v1"]])
async def test_no_gateway_is_one_sentence(argv: list[str], call_main: Call) -> None:
    where = f"http://127.0.0.1:{free_port()}"

    ended = await call_main(*argv, "--admin", where)

    assert ended == Ended(1, "", f"skewgate: no gateway responds at {where}: Connection refused\n")


async def another_program(body: str, aiohttp_raw_server: AiohttpRawServer, status: int = 200) -> str:
    """The address of a server that answers everything with this."""

    async def respond(request: web.BaseRequest) -> web.Response:
        return web.Response(text=body, status=status)

    server = await aiohttp_raw_server(respond)
    assert server.port is not None
    return url(server.port)


@pytest.mark.parametrize("argv", [["status"], ["explain", "GET", "/v1"]])
@pytest.mark.parametrize("body", ["<html>", "[]", '{"services": []}', '{"services": {"a": 1}}'])
async def test_another_program_is_one_sentence(
    argv: list[str], body: str, call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    ended = await call_main(*argv, "--admin", await another_program(body, aiohttp_raw_server))

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("skewgate: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["status"],
        ["status", "-o", "json"],
        ["explain", "GET", "/v1", "-o", "json"],
        ["healthcheck"],
        ["reload"],
        ["pin", "a", "1.1", "-o", "json"],
        ["unpin", "a"],
        ["drain", "a/b", "-o", "json"],
        ["enable", "a/b"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("body", ["{}", '{"services": {}}', '{"generation": 1, "services": {}}', "ready\n"])
async def test_no_verb_believes_another_program(
    argv: list[str], body: str, call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    """Whatever answers 200 with some JSON."""
    ended = await call_main(*argv, "--admin", await another_program(body, aiohttp_raw_server))

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    "status, body", [(404, "404 page not found"), (404, '{"error": "x"}'), (400, '{"error": {}}'), (500, "")]
)
async def test_status_says_that_another_program_is_none_whatever_it_answers(
    status: int, body: str, call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    """As Prometheus does, or an API: /status of a gateway is never refused for such a reason."""
    where = await another_program(body, aiohttp_raw_server, status)

    assert await call_main("status", "--admin", where) == (
        *(1, ""),
        f"skewgate: {NO_GATEWAY.format(url=where)}: /status responded {status}\n",
    )


@pytest.mark.parametrize(
    "status, body",
    [
        (404, "404 page not found"),
        (503, "<html>no server is available</html>"),
        (503, "not ready"),
        (200, "not ready\n"),
        (200, ""),
        (500, ""),
        (200, "[+] x\nnot ready\n"),
    ],
)
async def test_healthcheck_says_that_another_program_is_none(
    status: int, body: str, call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    where = await another_program(body, aiohttp_raw_server, status)

    assert await call_main("healthcheck", "--admin", where) == (
        *(1, ""),
        f"skewgate: {NO_GATEWAY.format(url=where)}: /readyz responded {status}\n",
    )


async def test_without_an_address_the_message_says_how_to_name_one(
    monkeypatch: pytest.MonkeyPatch, call_main: Call
) -> None:
    where = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setattr("gateway.cli.admin_client.DEFAULT_URL", where)

    assert await call_main("status") == (
        *(1, ""),
        f"skewgate: no gateway responds at {where}: Connection refused{HOW_TO_NAME_ONE}\n",
    )


VERBS = [
    ["status"],
    ["explain", "GET", "/v1"],
    ["healthcheck"],
    ["reload"],
    ["unpin", "baremetal"],
    ["drain", "baremetal/api-1"],
]


@pytest.mark.parametrize("token", ["open-sesame\r\nHost: other", "open-sesame-\N{EURO SIGN}"])
async def test_a_token_that_no_header_can_hold_is_refused_before_it_is_sent(
    running: Running, call_main: Call, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("SKEWGATE_ADMIN_TOKEN", token)

    ended = await call_main("status", "--admin", running.admin)

    refused = "the address or the token has a character that HTTP does not allow"
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"skewgate: no gateway responds at {running.admin}: {refused}\n"


async def test_the_listener_and_its_token_are_found_in_the_file_or_the_environment(
    write: Write, session: aiohttp.ClientSession, call_main: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(admin_port=free_port(), token="open-sesame-sesame")
    async with Gateway(read_file(file, environ=os.environ).require()) as gateway:
        where = gateway.admin_url
        session.headers["Authorization"] = "Bearer open-sesame-sesame"
        await ready(session, where)

        by_file = await call_main("status", "-c", str(file))
        without = [await call_main(*verb, "--admin", where) for verb in VERBS]
        monkeypatch.setenv("SKEWGATE_ADMIN_TOKEN", "close-sesame")
        # So often that the gateway responds 429 at last, which says the same (threats R3-T5).
        wrong = [await call_main(*verb, "-c", str(file)) for verb in (*VERBS, *VERBS, *VERBS)]
        monkeypatch.delenv("SKEWGATE_ADMIN_TOKEN")
        changed = write(admin_port=urlsplit(where).port, token="other-sesame-sesame")
        by_changed_file = await call_main("status", "-c", str(changed))
        monkeypatch.setenv("SKEWGATE_ADMIN_TOKEN", "open-sesame-sesame")
        by_environment = await call_main("status", "--admin", where)

    assert by_file.code == 0
    assert "1.1-1.58" in by_file.out
    missing = f"skewgate: {where} needs a token: give it in -c FILE or in SKEWGATE_ADMIN_TOKEN\n"
    assert without == [Ended(1, "", missing)] * len(VERBS)
    rejected = f"skewgate: {where} does not accept the token in SKEWGATE_ADMIN_TOKEN\n"
    assert wrong == [Ended(1, "", rejected)] * 3 * len(VERBS)
    assert by_changed_file.err == f"skewgate: {where} does not accept the token in {changed}\n"
    assert by_environment.code == 0


async def test_a_wrong_file_is_exit_2(tmp_path: Path, call_main: Call) -> None:
    ended = await call_main("status", "-c", str(tmp_path / "absent.yaml"))

    assert ended.code == 2
    assert "error[unreadable]" in ended.err


async def test_reload_is_applied_or_refused_with_the_reason(
    running: Running, write: Write, call_main: Call
) -> None:
    write(more="access_log: {format: off}", offer="{ceiling: '1.40'}")
    applied = await call_main("reload", "--admin", running.admin)
    after = await call_main("status", "--admin", running.admin)
    running.file.write_text(running.file.read_text().replace("dialect: ironic", "dialect: iron"))
    refused = await call_main("reload", "--admin", running.admin)
    still = await call_main("status", "--admin", running.admin)

    assert applied.code == 0
    assert applied.out.startswith("reloaded: generation ")
    assert "1.1-1.40 (ceiling 1.40)" in after.out
    assert (refused.code, refused.out) == (1, "")
    assert (
        refused.err
        == f"""\
{running.file}:6:14: error[unknown-dialect]: there is no dialect of this name
    6 |     dialect: iron
      |              ^^^^
      = hint: did you mean ironic?
skewgate: reload refused, the old configuration stays in force
"""
    )
    assert "1.1-1.40 (ceiling 1.40)" in still.out


async def test_reload_refuses_what_needs_a_restart_with_the_keys(
    running: Running, write: Write, call_main: Call
) -> None:
    file = write(more="access_log: {format: text}\nlimits: {headers: 64}", offer="{ceiling: '1.40'}")
    refused = await call_main("reload", "--admin", running.admin)
    found = await call_main("status", "--admin", running.admin, "-o", "json")
    shown = await call_main("status", "--admin", running.admin)
    write(more="access_log: {format: off}", offer="{ceiling: '1.40'}")
    taken_back = await call_main("reload", "--admin", running.admin)
    after = await call_main("status", "--admin", running.admin, "-o", "json")

    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        f"{file}:3:14: error[needs-restart]: `access_log.format` cannot change while the gateway runs\n"
        "    3 | access_log: {format: text}\n"
        "      |              ^^^^^^\n"
        "      = hint: restart the gateway, or restore the old value; the old file stays in force\n"
        f"{file}:4:10: error[needs-restart]: `limits.headers` cannot change while the gateway runs\n"
        "    4 | limits: {headers: 64}\n"
        "      |          ^^^^^^^\n"
        "      = hint: restart the gateway, or restore the old value; the old file stays in force\n"
        "skewgate: reload refused, the old configuration stays in force\n"
    )
    assert "\n\nthe last reload was refused, the old configuration is in force: " in shown.out
    before = json.loads(found.out)
    assert before["services"]["baremetal"]["offer"]["ceiling"] is None
    assert before["config"]["error"].startswith(f"{file}:3:14: error[needs-restart]")
    assert (taken_back.code, taken_back.err) == (0, "")
    assert json.loads(after.out)["config"]["error"] is None
    assert json.loads(after.out)["services"]["baremetal"]["offer"]["ceiling"] == "1.40"


async def test_a_renewed_token_is_taken_by_the_watch_and_reload_waits_for_it(
    write: Write,
    session: aiohttp.ClientSession,
    call_main: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`ExecReload` reads the new token at once, and the gateway a second or two later."""
    monkeypatch.setattr(operator_commands, "TOKEN_WAIT", PATIENCE)
    (tmp_path / "token").write_text("open-sesame-sesame")
    file = write(admin_port=free_port(), token="'${FILE:token}'")
    loaded = read_file(file, environ=os.environ)
    async with Gateway(loaded.require(), source=file, seen=loaded.seen) as gateway:
        (tmp_path / "token").write_text("other-sesame-sesame\n")
        reloaded = await call_main("reload", "-c", str(file))
        session.headers["Authorization"] = "Bearer open-sesame-sesame"
        async with session.get(f"{gateway.admin_url}/status") as response:
            old = response.status
        session.headers["Authorization"] = "Bearer other-sesame-sesame"
        async with session.get(f"{gateway.admin_url}/status") as response:
            new = response.status

    assert (reloaded.code, reloaded.err) == (0, "")
    assert (old, new) == (401, 200)


async def test_the_problems_of_a_refused_file_lose_their_control_characters(
    call_main: Call, aiohttp_raw_server: AiohttpRawServer
) -> None:
    async def respond(request: web.BaseRequest) -> web.Response:
        return web.json_response({"error": "no", "problems": ["a\x1b]0;owned\x07:\n\tb"]}, status=400)

    server = await aiohttp_raw_server(respond)
    assert server.port is not None
    ended = await call_main("reload", "--admin", url(server.port))

    assert ended.err.splitlines()[:2] == ["a\ufffd]0;owned\ufffd:", "\tb"]


async def test_explain_shows_what_would_happen_and_why(
    running: Running, fleet: Fleet, call_main: Call
) -> None:
    served = await call_main("explain", "--admin", running.admin, "get", "/v1/nodes", "-H", f"{IRONIC}: 1.31")
    refused = await call_main(
        "explain", "--admin", running.admin, "GET", "/v1/nodes", "-H", f"{IRONIC}: 1.70"
    )

    assert served.code == refused.code == 0
    assert served.out.startswith("GET /v1/nodes: forward\n")
    assert f"  sends     {IRONIC}: 1.31\n" in served.out
    assert "  route     host any, path /" in served.out
    assert url(fleet.old.port) in served.out
    assert refused.out.startswith("GET /v1/nodes: refuse 406\n")
    assert "(1.70) is not in the offer 1.1-1.58" in refused.out
    assert sum(fleet.old.received.values()) == fleet.old.received[""], "only probes may have arrived"


async def test_explain_offline_probes_the_backends_and_needs_no_gateway(
    write: Write, fleet: Fleet, call_main: Call
) -> None:
    file = write(admin_port=free_port())
    await fleet.old.stop()

    ended = await call_main(
        *(
            "explain",
            "--offline",
            "-c",
            str(file),
            "GET",
            "/v1/nodes",
            "-H",
            f"{IRONIC}: latest",
            "-o",
            "json",
        )
    )

    explanation = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert (explanation["decision"], explanation["version"]) == ("forward", "1.90")
    assert [candidate["backend"] for candidate in explanation["candidates"]] == ["api-2"]
    assert [(left_out["backend"], left_out["reason"]) for left_out in explanation["left_out"]] == [
        ("api-1", "unknown")
    ]
    assert fleet.new.received == {"": 1}, "one probe, and never the request itself"


async def test_explain_offline_and_online_agree(running: Running, call_main: Call) -> None:
    request = ("GET", "/v1/nodes", "-H", f"{IRONIC}: 1.999", "-o", "json")

    online = await call_main("explain", "--admin", running.admin, *request)
    offline = await call_main("explain", "--offline", "-c", str(running.file), *request)

    one, other = json.loads(online.out), json.loads(offline.out)
    del one["generation"], other["generation"]
    assert one == other

    refused = ("GET", "/v1/../nodes")
    online = await call_main("explain", "--admin", running.admin, *refused)
    offline = await call_main("explain", "--offline", "-c", str(running.file), *refused)
    assert (online.code, offline.code) == (1, 1)
    assert online.err.endswith(offline.err.removeprefix("skewgate: "))


async def test_explain_names_an_operation_that_is_missing_in_a_version(
    write: Write, fleet: Fleet, call_main: Call
) -> None:
    file = write(admin_port=free_port())
    item = "{methods: [GET], path: '/v1/nodes/{node}/vifs', versions: '>=1.28'}"
    text = file.read_text().replace("    backends:", f"    operations: [{item}]\n    backends:", 1)
    file.write_text(text)

    for version, exists in (("1.27", False), ("1.28", True)):
        ended = await call_main(
            *("explain", "--offline", "-c", str(file), "GET", "/v1/nodes/5/vifs"),
            "-H",
            f"{IRONIC}: {version}",
        )
        verb = "exists" if exists else "does not exist"
        line = f"operation GET /v1/nodes/{{node}}/vifs {verb} at this version: 1.28 and later"
        assert line in ended.out
        because = "but GET /v1/nodes/{node}/vifs exists only in 1.28 and later"
        assert (because in ended.out) is not exists


async def test_what_the_gateway_refuses_to_explain_is_one_sentence(running: Running, call_main: Call) -> None:
    ended = await call_main("explain", "--admin", running.admin, "GET", "/with blank")

    assert (ended.code, ended.out) == (1, "")
    assert "/explain responded 400: " in ended.err
    assert ended.err.count("\n") == 1
