"""The admin listener, as scripts and people see it."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gateway.admin import AdminSite
from gateway.controlplane.cell import Cell
from gateway.controlplane.reload import Reloaded
from gateway.core.backend import Backend
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered, Failed
from gateway.core.ranges import VersionSet
from gateway.core.service import Service
from gateway.core.snapshot import Snapshot
from gateway.core.version import Version
from gateway.dialects.ironic import Ironic
from gateway.errors import StartupError
from tests.admin.stand import admin

OWN = "X-OpenStack-Ironic-API-Version"


def empty(**wanted: object) -> Cell:
    backends = (Backend("api-1", "10.0.0.1", 6385), Backend("api-2", "10.0.0.2", 6385))
    return Cell(Snapshot.configured([Service("baremetal", Ironic(), backends, **wanted)], now=0.0))  # type: ignore[arg-type]


def filled(**wanted: object) -> Cell:
    cell = empty(**wanted)
    for name, highest in (("api-1", 58), ("api-2", 90)):
        versions = VersionSet.between(Version(1, 1), Version(1, highest))
        cell.observe("baremetal", name, Answered(Advert(versions), 1.0))
    return cell


async def test_status_before_anything_is_known() -> None:
    async with admin(empty()) as stand:
        nothing = {"min": None, "max": None}
        unheard = {"standing": "unknown", "drained": False, "silent": False, **nothing}
        tail = {"last_probe_at": None, "error": None, "in_flight": 0}
        assert await stand.json("/status") == {
            "generation": 1,
            "config": {"hash": "0123456789ab", "loaded_at": 1790000000.0},
            "services": {
                "baremetal": {
                    "dialect": "ironic",
                    "phase": "unknown",
                    "pin": None,
                    "offer": {
                        **nothing,
                        "policy": "guaranteed",
                        "ceiling": None,
                        "held_by": [],
                        "held_rule": None,
                    },
                    "guaranteed": nothing,
                    "reachable": nothing,
                    "backends": {
                        "api-1": {"url": "http://10.0.0.1:6385", **unheard, **tail},
                        "api-2": {"url": "http://10.0.0.2:6385", **unheard, **tail},
                    },
                }
            },
        }


async def test_status_in_the_middle_of_an_upgrade() -> None:
    async with admin(filled(ceiling=Version(1, 90))) as stand:
        stand.cell.observe("baremetal", "api-2", Failed("no connection", 2.0))
        stand.load = {"baremetal/api-1": 3}
        stand.probed_at = {("baremetal", "api-1"): 1790000001.5}
        reply = await stand.ask("GET", "/status")
        service = (await reply.json())["services"]["baremetal"]

        assert reply.headers["Content-Type"] == "application/json"
        assert reply.headers["Cache-Control"] == "no-store"
        assert service["phase"] == "mixed"
        assert service["offer"] == {
            "min": "1.1",
            "max": "1.58",
            "policy": "guaranteed",
            "ceiling": "1.90",
            "held_by": ["api-2"],
            "held_rule": "guaranteed",
        }
        assert service["guaranteed"] == {"min": "1.1", "max": "1.58"}
        assert service["reachable"] == {"min": "1.1", "max": "1.90"}
        one, two = service["backends"]["api-1"], service["backends"]["api-2"]
        assert (one["standing"], one["in_flight"], one["last_probe_at"]) == ("fresh", 3, 1790000001.5)
        assert (two["standing"], two["max"], two["error"]) == ("stale", "1.90", "no connection")


async def test_liveness_and_readiness() -> None:
    async with admin(empty()) as stand:
        assert (await stand.ask("GET", "/livez")).status == 200
        waiting = await stand.ask("GET", "/readyz?verbose")
        assert (waiting.status, await waiting.text()) == (
            503,
            (
                "[+] configuration\n[+] lifecycle\n"
                "[-] offer: nothing is known of the backends of baremetal\nnot ready\n"
            ),
        )

    async with admin(filled()) as stand:
        ready = await stand.ask("GET", "/readyz")
        assert (ready.status, await ready.text()) == (200, "ready\n")

        stand.draining = True
        draining = await stand.ask("GET", "/readyz?verbose")
        assert (draining.status, (await stand.ask("GET", "/livez")).status) == (503, 200)
        assert "[-] lifecycle: the gateway is shutting down\n" in await draining.text()


async def test_a_service_whose_backends_are_all_silent_is_ready() -> None:
    cell = empty()
    for name in ("api-1", "api-2"):
        cell.observe("baremetal", name, Answered(Advert(VersionSet.only(Version(1, 1)), silent=True), 1.0))
    async with admin(cell) as stand:
        assert (await stand.ask("GET", "/readyz")).status == 200


async def test_backends_that_leave_nothing_to_offer_are_not_said_to_be_unknown() -> None:
    async with admin(filled(ceiling=Version(1, 0))) as stand:
        reply = await stand.ask("GET", "/readyz?verbose")
        assert "[-] offer: no version can be offered for baremetal\n" in await reply.text()


async def test_one_service_that_can_be_served_is_enough() -> None:
    known = Service("a", Ironic(), (Backend("x", "10.0.0.1", 1, declared=VersionSet.only(Version(1, 1))),))
    other = Service("b", Ironic(), (Backend("x", "10.0.0.1", 1),))
    async with admin(Cell(Snapshot.configured([known, other], now=0.0))) as stand:
        assert (await stand.ask("GET", "/readyz")).status == 200


async def test_metrics_in_the_form_that_is_asked_for() -> None:
    async with admin(filled()) as stand:
        plain = await stand.ask("GET", "/metrics")
        assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "skewgate_offer_info" in {family.name for family in parse_text(await plain.text())}

        accept = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.1"}
        modern = await stand.ask("GET", "/metrics", headers=accept)
        assert modern.headers["Content-Type"].startswith("application/openmetrics-text")
        text = await modern.text()
        families = {family.name: family for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
        (build,) = families["skewgate_build_info"].samples
        assert build.labels["loop"] in {"asyncio", "uvloop"}


async def test_explain() -> None:
    async with admin(filled()) as stand:
        query = (
            f"method=get&path={quote('/v1/nodes?limit=2')}&header={quote(f'{OWN}: 1.90')}&header=Host:%20api"
        )
        told = await stand.json(f"/explain?{query}")

        assert (told["method"], told["path"], told["host"]) == ("GET", "/v1/nodes?limit=2", "api")
        assert (told["service"], told["decision"], told["status"]) == ("baremetal", "refuse", 406)
        assert told["offer"]["max"] == "1.58"
        assert [each["reason"] for each in told["left_out"]] == ["not_asked", "not_asked"]

        assert (await stand.json("/explain?path=/v1/nodes"))["decision"] == "forward"


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
        ("path=/a/../b", "the gateway answers 400 to this request line, before any service: path"),
        ("path=/a%252fb", "the gateway answers 400 to this request line, before any service: path"),
        ("path=/&method=TRACE", "the gateway answers 405 to this request line, before any service: method"),
        ("path=/&header=A:%00", "each `header` must be"),
        ("path=/&header=A:%E2%80%A8", "each `header` must be"),
        ("path=/&" + "&".join(["header=A:b"] * 101), "at most 100 headers"),
        ("path=/&headers=A:b", "the parameters are method, path and header"),
    ],
)
async def test_explain_refuses_what_is_no_request(query: str, sentence: str) -> None:
    async with admin(filled()) as stand:
        reply = await stand.ask("GET", f"/explain?{query}", allow_redirects=False)
        assert reply.status == 400
        assert (await reply.json())["error"].startswith(sentence)


async def test_reload() -> None:
    async with admin(filled()) as stand:
        stand.result = Reloaded(restart=("listen",))
        reply = await stand.ask("POST", "/-/reload")
        state = await reply.json()
        assert (reply.status, state["generation"], state["restart_needed"]) == (200, 3, ["listen"])
        assert "baremetal" in state["services"]

        problems = ["x.yaml:3:1: error[tag]: no\n    3 | !!a\n      | ^^^", "x.yaml:4:1: error[tag]: neither"]
        stand.result = Reloaded(problems=tuple(problems))
        refused = await stand.ask("POST", "/-/reload", data=b"a body is not needed and not looked at")
        assert refused.status == 400
        assert await refused.json() == {
            "error": (
                "the file is refused, the old configuration stays in force: "
                "x.yaml:3:1: error[tag]: no, and 1 more"
            ),
            "problems": problems,
        }
        assert stand.reloads == 2


PATHS = ("/livez", "/readyz", "/metrics", "/status", "/explain?path=/v1")


@pytest.mark.parametrize("path", PATHS)
async def test_get_and_head_only(path: str) -> None:
    async with admin(filled()) as stand:
        got, head = await stand.ask("GET", path), await stand.ask("HEAD", path)
        assert (got.status, head.status, await head.read()) == (200, 200, b"")
        assert got.headers["X-Content-Type-Options"] == "nosniff"
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            refused = await stand.ask(method, path)
            assert refused.status == 405, method
            assert refused.headers["Allow"] == "GET,HEAD"


async def test_getting_changes_nothing() -> None:
    async with admin(filled()) as stand:
        before = stand.cell.current
        for path in (*PATHS, "/-/reload", "/nowhere"):
            await stand.ask("GET", path)

        assert stand.cell.current is before
        assert stand.reloads == 0
        assert (await stand.ask("GET", "/-/reload")).status == 405


async def test_an_unknown_path_is_404_in_json() -> None:
    async with admin(filled()) as stand:
        reply = await stand.ask("GET", "/nowhere")
        assert (reply.status, await reply.json()) == (404, {"error": "Not Found"})
        assert reply.headers["Cache-Control"] == "no-store"


async def test_a_bug_is_answered_and_logged_and_the_listener_lives(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin(filled()) as stand:

        def broken(*_: object) -> None:
            raise KeyError("secret detail")

        monkeypatch.setattr("gateway.admin.api.views.status", broken)
        reply = await stand.ask("GET", "/status")

        assert reply.status == 500
        assert "secret detail" not in await reply.text()
        assert "secret detail" in caplog.text
        assert (await stand.ask("GET", "/livez")).status == 200


async def test_a_taken_port_is_said_in_a_sentence() -> None:
    async with admin(filled()) as stand:
        from aiohttp import web

        other = AdminSite(web.Application(), "127.0.0.1", stand.port)
        with pytest.raises(
            StartupError, match=rf"cannot listen on 127\.0\.0\.1:{stand.port}: address already in use"
        ):
            await other.start()
        await other.stop()
