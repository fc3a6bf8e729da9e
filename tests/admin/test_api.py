"""The admin listener, as scripts and people see it."""

from __future__ import annotations

import time
from urllib.parse import quote

import pytest
from aiohttp import web
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from pytest_aiohttp import AiohttpServer

from gateway.admin import bind_site
from gateway.controlplane.reload import ReloadResult
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import HealthChecked, ProbeFailed
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.errors import StartupError
from gateway.runtime.compiled import build_info, is_compiled
from gateway.telemetry.worker_report import Ejected, WorkerReport
from tests.admin.testbed import StartAdmin, mixed_fleet, unknown_fleet
from tests.kit.ironic import holder_of, learn, service

OWN = "X-OpenStack-Ironic-API-Version"


async def test_status_before_anything_is_known(admin: StartAdmin) -> None:
    testbed = await admin(unknown_fleet())
    nothing = {"min": None, "max": None}
    unknown = {"freshness": "unknown", "drained": False, "legacy": False, **nothing}
    tail = {"last_probe_at": None, "error": None, "in_flight": 0}
    assert await testbed.json("/status") == {
        "generation": 1,
        "build": build_info()._asdict(),
        "config": {"hash": "0123456789ab", "loaded_at": 1790000000.0, "error": None},
        "workers": [{"slot": 0, "pid": 7, "state": "serving", "connections": 3, "restarts": 0}],
        "agreement": None,
        "engine": None,
        "services": {
            "baremetal": {
                "dialect": "ironic",
                "phase": "unknown",
                "pin": None,
                "raised": None,
                "offer": {
                    **nothing,
                    "policy": "guaranteed",
                    "ceiling": None,
                    "floor": None,
                    "floor_suspended": False,
                    "held_by": [],
                    "held_rule": None,
                    "held_by_replicas": [],
                },
                "guaranteed": nothing,
                "reachable": nothing,
                "served_alone": {},
                "oldest_first": ["api-1", "api-2"],
                "backends": {
                    "api-1": {"url": "http://10.0.0.1:6385", **unknown, **tail},
                    "api-2": {"url": "http://10.0.0.2:6385", **unknown, **tail},
                },
            }
        },
    }


async def test_status_and_explain_say_who_gets_no_requests_and_why(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    testbed.snapshot_holder.observe(
        "baremetal", "api-1", HealthChecked("its health check /x answers 503", 2.0)
    )
    ejected = Ejected("no response came in time, 5 in a row", 60.0)
    testbed.report = WorkerReport(ejected={"baremetal/api-2": ejected})
    testbed.held_back = {"baremetal/api-2": 0}

    one, two = (await testbed.json("/status"))["services"]["baremetal"]["backends"].values()
    explanation = await testbed.json("/explain?path=/v1/nodes")

    assert one["unhealthy"] == "its health check /x answers 503"
    assert two["ejected"]["reason"] == "no response came in time, 5 in a row"
    assert two["ejected"]["until"] == pytest.approx(time.time() + 60, abs=20)
    assert not {"ejected", "backup", "queued"} & one.keys()
    (candidate,), (left_out,) = explanation["candidates"], explanation["left_out"]
    assert (candidate["backend"], candidate["why"]) == ("api-1", "its health check /x answers 503")
    assert (left_out["backend"], left_out["reason"]) == ("api-2", "ejected")
    assert left_out["why"] == "ejected: no response came in time, 5 in a row"


async def test_status_in_the_middle_of_an_upgrade(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet(ceiling=Version(1, 90)))
    testbed.snapshot_holder.observe("baremetal", "api-2", ProbeFailed("no connection", 2.0))
    testbed.report = WorkerReport(in_flight_by_member={"baremetal/api-1": 3})
    testbed.last_probe_at = {("baremetal", "api-1"): 1790000001.5}
    response = await testbed.send("GET", "/status")
    service = (await response.json())["services"]["baremetal"]

    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Cache-Control"] == "no-store"
    assert service["phase"] == "mixed"
    assert service["offer"] == {
        "min": "1.1",
        "max": "1.58",
        "policy": "guaranteed",
        "ceiling": "1.90",
        "floor": None,
        "floor_suspended": False,
        "held_by": ["api-1"],
        "held_rule": "guaranteed",
        "held_by_replicas": [],
    }
    assert service["guaranteed"] == {"min": "1.1", "max": "1.58"}
    assert service["reachable"] == {"min": "1.1", "max": "1.90"}
    one, two = service["backends"]["api-1"], service["backends"]["api-2"]
    assert (one["freshness"], one["in_flight"], one["last_probe_at"]) == ("fresh", 3, 1790000001.5)
    assert (two["freshness"], two["max"], two["error"]) == ("stale", "1.90", "no connection")


async def test_liveness_and_readiness(admin: StartAdmin) -> None:
    testbed = await admin(unknown_fleet())
    assert (await testbed.send("GET", "/livez")).status == 200
    waiting = await testbed.send("GET", "/readyz?verbose")
    assert (waiting.status, await waiting.text()) == (
        503,
        (
            "[+] configuration\n[+] lifecycle\n"
            "[-] offer: no backend of baremetal has reported its versions yet\nnot ready\n"
        ),
    )

    testbed = await admin(mixed_fleet())
    ready = await testbed.send("GET", "/readyz")
    assert (ready.status, await ready.text()) == (200, "ready\n")

    testbed.not_serving = "the gateway is shutting down"
    draining = await testbed.send("GET", "/readyz?verbose")
    assert (draining.status, (await testbed.send("GET", "/livez")).status) == (503, 200)
    assert "[-] lifecycle: the gateway is shutting down\n" in await draining.text()


async def test_a_service_whose_backends_are_all_legacy_is_ready(admin: StartAdmin) -> None:
    snapshot_holder = unknown_fleet()
    for name in ("api-1", "api-2"):
        learn(snapshot_holder, name, Advertisement(VersionSet.only(Version(1, 1)), legacy=True))
    testbed = await admin(snapshot_holder)
    assert (await testbed.send("GET", "/readyz")).status == 200


async def test_backends_that_leave_nothing_to_offer_are_not_reported_as_unknown(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet(ceiling=Version(1, 0)))
    response = await testbed.send("GET", "/readyz?verbose")
    assert "[-] offer: no version can be offered for baremetal\n" in await response.text()


async def test_one_service_that_can_be_served_is_enough(admin: StartAdmin) -> None:
    known = service(Backend("x", "10.0.0.1", 1, declared=VersionSet.only(Version(1, 1))), name="a")
    other = service(Backend("x", "10.0.0.1", 1), name="b")
    testbed = await admin(holder_of(known, other))
    assert (await testbed.send("GET", "/readyz")).status == 200


async def test_metrics_in_the_format_that_accept_prefers(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    plain = await testbed.send("GET", "/metrics")
    assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "skewgate_offer_info" in {family.name for family in parse_text(await plain.text())}

    accept = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.1"}
    modern = await testbed.send("GET", "/metrics", headers=accept)
    assert modern.headers["Content-Type"].startswith("application/openmetrics-text")
    text = await modern.text()
    families = {family.name: family for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
    (build,) = families["skewgate_build_info"].samples
    assert build.labels["loop"] in {"asyncio", "uvloop"}
    running = (await testbed.json("/status"))["build"]
    assert build.labels == {**running, "compiled": str(running["compiled"]).lower()}
    assert running["compiled"] is is_compiled()


async def test_explain(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    query = f"method=get&path={quote('/v1/nodes?limit=2')}&header={quote(f'{OWN}: 1.90')}&header=Host:%20api"
    explanation = await testbed.json(f"/explain?{query}")

    assert (explanation["method"], explanation["path"], explanation["host"]) == (
        "GET",
        "/v1/nodes?limit=2",
        "api",
    )
    assert (explanation["service"], explanation["decision"], explanation["status"]) == (
        "baremetal",
        "refuse",
        406,
    )
    assert explanation["offer"]["max"] == "1.58"
    assert [candidate["reason"] for candidate in explanation["left_out"]] == ["not_asked", "not_asked"]

    assert (await testbed.json("/explain?path=/v1/nodes"))["decision"] == "forward"


@pytest.mark.parametrize(
    "query, sentence",
    [
        ("", "`path` must begin with /"),
        ("path=v1", "`path` must begin with /"),
        ("path=/v1%20x", "`path` must begin with /"),
        ("path=/v1%0d%0aX:y", "`path` must begin with /"),
        ("path=/v1%23x", "`path` must begin with /"),
        ("path=/" + "x" * 5000, "`path` must begin with /"),
        ("path=/&path=/v1", "`path` is given more than once"),
        ("path=/&method=G%20T", "`method` must be a method"),
        ("path=/&header=novalue", "each `header` must be"),
        ("path=/&header=:x", "each `header` must be"),
        ("path=/&header=A%20B:x", "each `header` must be"),
        ("path=/&header=A:x%0d%0aB:y", "each `header` must be"),
        ("path=/a/../b", "refused with 400: the path contains `..`"),
        ("path=/a%252fb", "refused with 400: the path contains the escape `%2f`"),
        ("path=/&method=TRACE", "refused with 405: this method is not proxied"),
        (
            "path=/&header=Host:a&header=Host:b",
            "refused with 400: `Host` is missing, malformed, or there are several",
        ),
        (
            "path=/&header=Host:a&header=Transfer-Encoding:gzip",
            "refused with 400: the head is not valid HTTP",
        ),
        ("path=/&header=A:%00", "each `header` must be"),
        ("path=/&header=A:%E2%80%A8", "each `header` must be"),
        ("path=/&" + "&".join(["header=A:b"] * 101), "`header` can be given at most 100 times"),
        ("path=/&from=nobody", "`from` must be an IP address"),
        ("path=/&from=10.0.0.1&from=10.0.0.2", "`from` is given more than once"),
        ("path=/&headers=A:b", "the only parameters are method, path, header and from"),
    ],
)
async def test_explain_refuses_what_is_not_a_request(admin: StartAdmin, query: str, sentence: str) -> None:
    testbed = await admin(mixed_fleet())
    response = await testbed.send("GET", f"/explain?{query}", allow_redirects=False)
    assert response.status == 400
    assert (await response.json())["error"].startswith(sentence)


async def test_reload(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    response = await testbed.send("POST", "/-/reload")
    state = await response.json()
    assert (response.status, state["generation"]) == (200, 3)
    assert "baremetal" in state["services"]

    problems = ["x.yaml:3:1: error[tag]: no\n    3 | !!a\n      | ^^^", "x.yaml:4:1: error[tag]: neither"]
    testbed.reload_result = ReloadResult(problems=tuple(problems), restart=("listen",))
    refused = await testbed.send("POST", "/-/reload", data=b"a body is not needed and not looked at")
    assert refused.status == 400
    assert await refused.json() == {
        "error": (
            "reload refused, the old configuration stays in force: x.yaml:3:1: error[tag]: no, and 1 more"
        ),
        "problems": problems,
        "restart_needed": ["listen"],
    }
    assert testbed.reloads == 2


PATHS = ("/livez", "/readyz", "/metrics", "/status", "/explain?path=/v1")


@pytest.mark.parametrize("path", PATHS)
async def test_get_and_head_only(admin: StartAdmin, path: str) -> None:
    testbed = await admin(mixed_fleet())
    got, head = await testbed.send("GET", path), await testbed.send("HEAD", path)
    assert (got.status, head.status, await head.read()) == (200, 200, b"")
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        refused = await testbed.send(method, path)
        assert refused.status == 405, method
        assert refused.headers["Allow"] == "GET,HEAD"


async def test_getting_changes_nothing(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    before = testbed.snapshot_holder.current
    for path in (*PATHS, "/-/reload", "/nowhere"):
        await testbed.send("GET", path)

    assert testbed.snapshot_holder.current is before
    assert testbed.reloads == 0
    assert (await testbed.send("GET", "/-/reload")).status == 405


async def test_an_unknown_path_is_404_in_json(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    response = await testbed.send("GET", "/nowhere")
    assert (response.status, await response.json()) == (404, {"error": "Not Found"})
    assert response.headers["Cache-Control"] == "no-store"


async def test_a_bug_is_500_and_logged_and_the_listener_goes_on(
    admin: StartAdmin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    testbed = await admin(mixed_fleet())

    def broken(*_: object, **__: object) -> None:
        raise KeyError("secret detail")

    monkeypatch.setattr("gateway.admin.status_document.views.status", broken)
    response = await testbed.send("GET", "/status")

    assert response.status == 500
    assert "secret detail" not in await response.text()
    assert "secret detail" in caplog.text
    assert (await testbed.send("GET", "/livez")).status == 200


async def test_a_taken_port_is_reported_in_a_sentence(aiohttp_server: AiohttpServer) -> None:
    port = (await aiohttp_server(web.Application())).port
    assert port is not None
    with pytest.raises(StartupError, match=rf"cannot listen on 127\.0\.0\.1:{port}: address already in use"):
        await bind_site("127.0.0.1", port)


@pytest.mark.parametrize("method", ["M-SEARCH", "frob", "Foo.bar!"])
async def test_R_B6_explain_takes_any_method_as_it_is(  # noqa: N802 - an id
    admin: StartAdmin, method: str
) -> None:
    testbed = await admin(mixed_fleet())

    explanation = await testbed.json(f"/explain?path=/v1/nodes&method={method}")

    assert (explanation["method"], explanation["decision"]) == (method, "forward")
