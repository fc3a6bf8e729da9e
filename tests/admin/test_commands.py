"""Ceilings and drains at run time, as scripts set them."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import ClientResponse

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend
from gateway.core.versions.version import Version
from tests.admin.testbed import AdminTestbed, StartAdmin, on_site
from tests.kit.ironic import holder_of, learn, service, upto

CEILING = "/services/baremetal/ceiling"
BACKENDS = (Backend("api-1", "10.0.0.1", 6385), Backend("10.0.0.2:6385", "10.0.0.2", 6385))


def uniform(highest: int = 90, lowest: int = 1, **options: Any) -> SnapshotHolder:
    holder = holder_of(service(*BACKENDS, **options))
    for backend in BACKENDS:
        learn(holder, backend.name, upto(highest, lowest))
    return holder


async def put(testbed: AdminTestbed, document: object, path: str = CEILING) -> ClientResponse:
    return await testbed.send("PUT", path, data=json.dumps(document))


async def offer(response: ClientResponse) -> Mapping[str, Any]:
    assert response.status == 200, await response.text()
    service: Mapping[str, Any] = (await response.json())["services"]["baremetal"]
    return {**service["offer"], "phase": service["phase"], "pin": service["pin"]}


async def test_a_ceiling_is_in_force_when_the_response_comes(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    pinned = await offer(await put(testbed, {"version": "1.58"}))
    assert (pinned["max"], pinned["ceiling"], pinned["pin"]) == ("1.58", "1.58", "1.58")
    assert (pinned["phase"], pinned["held_rule"]) == ("capped", "ceiling")

    free = await offer(await testbed.send("DELETE", CEILING))
    assert (free["max"], free["ceiling"], free["pin"], free["phase"]) == ("1.90", None, None, "uniform")
    again = await testbed.send("DELETE", CEILING, data=b"a body is not needed and not looked at")
    assert (await offer(again))["max"] == "1.90"


async def test_the_response_is_status_and_whether_it_survives_a_restart(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    for kept in (True, False):
        testbed.state_saved = kept
        document = await (await put(testbed, {"version": "1.58"})).json()
        assert (document.pop("kept"), document.pop("warning"), document.pop("pending")) == (kept, None, [])
        assert document == await testbed.json("/status")


async def test_the_response_names_for_whom_a_change_still_waits(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    testbed.pending = ("workers",)
    for method, path, body in (
        ("PUT", CEILING, {"version": "1.58"}),
        ("DELETE", CEILING, None),
        ("POST", "/-/reload", None),
    ):
        document = await (await testbed.send(method, path, json=body)).json()
        assert document["pending"] == ["workers"]


@pytest.mark.parametrize("name, highest", [("2024.1", "1.90"), ("train", "1.58"), ("our-build-7", "1.31")])
async def test_a_release_of_the_dialect_or_of_the_configuration(
    admin: StartAdmin, name: str, highest: str
) -> None:
    testbed = await admin(uniform(95, releases={"our-build-7": Version(1, 31)}))
    assert (await offer(await put(testbed, {"release": name})))["max"] == highest


async def test_a_pin_replaces_the_configured_ceiling(admin: StartAdmin) -> None:
    testbed = await admin(uniform(ceiling=Version(1, 50)))
    assert (await offer(await put(testbed, {"version": "1.80"})))["max"] == "1.80"
    freed = await offer(await testbed.send("DELETE", CEILING))
    assert (freed["max"], freed["ceiling"], freed["pin"]) == ("1.50", "1.50", None)


@pytest.mark.parametrize(
    "body",
    [
        *('{"version": 1.90}', '{"version": 1}', '{"release": 2024.1}', '{"version": null}'),
        *('{"version": ["1.90"]}', '{"version": {"version": "1.90"}}', '{"version": true}'),
        *('{"version": "1.90", "release": "2024.1"}', "{}", '{"ceiling": "1.90"}'),
        *('{"version": "1.90", "x": 1}', '{"version": "1.58", "version": "1.90"}'),
        *('"1.90"', '["version"]', "null", "1.90", "", "{", "version=1.90", "[" * 60_000),
        *('{"version": "latest"}', '{"version": "1.9O"}', '{"version": " 1.90"}', '{"version": "1.090"}'),
        *('{"version": ""}', '{"version": "2024.1.1"}', '{"version": "1.1000000"}'),
    ],
    ids=lambda body: body[:40],
)
async def test_a_bad_value_is_400_and_changes_nothing(admin: StartAdmin, body: str) -> None:
    testbed = await admin(uniform())
    before = testbed.snapshot_holder.current
    response = await testbed.send("PUT", CEILING, data=body.encode())
    assert (response.status, set(await response.json())) == (400, {"error"})
    assert testbed.snapshot_holder.current is before


async def test_the_error_for_a_number_shows_how_to_write_it(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    response = await put(testbed, {"version": 1.9})
    assert (await response.json())["error"] == (
        '`version` must be a string in quotation marks, as in {"version": "1.90"} or {"release": "2024.1"}'
    )


async def test_a_body_that_is_not_text_or_too_large_is_refused(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    assert (await testbed.send("PUT", CEILING, data=b'{"version": "\xff"}')).status == 400
    assert (await testbed.send("PUT", CEILING, data=b" " * 70_000)).status == 413


UNKNOWN = [
    ("PUT", "/services/metal/ceiling"),
    ("DELETE", "/services/metal/ceiling"),
    ("POST", "/services/metal/backends/api-1/drain"),
    ("POST", "/services/baremetal/backends/api-9/drain"),
    ("POST", "/services/baremetal/backends/api-9/enable"),
    ("POST", "/services/baremetal/backends/api-1/stop"),
    ("POST", "/services/baremetal/backends//drain"),
    ("POST", "/services/baremetal/backends/..%2Fapi-1/drain"),
    ("POST", "/services/baremetal/backends/api-1%00/drain"),
    ("POST", "/services/bare%0Ametal/backends/api-1/drain"),
]


@pytest.mark.parametrize("method, path", UNKNOWN)
async def test_an_unknown_name_is_404(admin: StartAdmin, method: str, path: str) -> None:
    testbed = await admin(uniform())
    before = testbed.snapshot_holder.current
    response = await testbed.send(method, path, data='{"version": "1.58"}' if method == "PUT" else None)
    assert (response.status, set(await response.json())) == (404, {"error"})
    assert testbed.snapshot_holder.current is before


async def test_an_unknown_release_is_404(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    response = await put(testbed, {"release": "2O24.1"})
    assert response.status == 404
    assert (await response.json())["error"] == (
        "neither the dialect ironic nor `releases` of baremetal knows '2O24.1'"
    )


async def test_a_ceiling_below_the_minimum_is_409_and_changes_nothing(admin: StartAdmin) -> None:
    testbed = await admin(uniform(90, lowest=20))
    before = testbed.snapshot_holder.current
    response = await put(testbed, {"version": "1.19"})
    assert response.status == 409
    assert (await response.json())["error"] == (
        "the ceiling 1.19 is below the minimum 1.20 on offer: nothing could be served"
    )
    assert testbed.snapshot_holder.current is before
    assert (await offer(await put(testbed, {"version": "1.20"})))["max"] == "1.20"
    assert (await put(testbed, {"version": "1.19"})).status == 409


async def test_the_minimum_counts_also_while_a_ceiling_leaves_nothing_to_offer(admin: StartAdmin) -> None:
    testbed = await admin(uniform(90, ceiling=Version(1, 10)))
    for backend in BACKENDS:
        learn(testbed.snapshot_holder, backend.name, upto(90, 20), 2.0)
    before = await testbed.json("/status")
    assert before["services"]["baremetal"]["offer"]["max"] is None
    assert before["services"]["baremetal"]["phase"] == "unknown"

    assert (await put(testbed, {"version": "1.19"})).status == 409
    assert (await offer(await put(testbed, {"version": "1.30"})))["max"] == "1.30"


async def test_before_anything_is_known_any_ceiling_may_be_set(admin: StartAdmin) -> None:
    snapshot_holder = holder_of(service(*BACKENDS))
    testbed = await admin(snapshot_holder)
    assert (await offer(await put(testbed, {"version": "1.58"})))["ceiling"] == "1.58"
    for backend in BACKENDS:
        learn(snapshot_holder, backend.name, upto(90))
    assert (await testbed.json("/status"))["services"]["baremetal"]["offer"]["max"] == "1.58"


@pytest.mark.parametrize("path", ["api-1", "10.0.0.2:6385", "10.0.0.2%3A6385", "%61pi-1"])
async def test_a_backend_is_drained_and_enabled(admin: StartAdmin, path: str) -> None:
    testbed = await admin(uniform())
    name = {"%61pi-1": "api-1", "10.0.0.2%3A6385": "10.0.0.2:6385"}.get(path, path)

    async def command(verb: str) -> bool:
        response = await testbed.send("POST", f"/services/baremetal/backends/{path}/{verb}")
        assert response.status == 200
        drained: bool = (await response.json())["services"]["baremetal"]["backends"][name]["drained"]
        return drained

    assert [await command(verb) for verb in ("drain", "drain", "enable", "enable", "drain")] == [
        *(True, True, False, False, True)
    ]
    metrics = await (await testbed.send("GET", "/metrics")).text()
    assert f'skewgate_backend_draining{{backend="{name}",service="baremetal"}} 1.0' in metrics
    assert 'skewgate_phase{phase="uniform",service="baremetal"} 1.0' in metrics


async def test_who_drains_a_backend_is_shown_until_it_is_enabled(admin: StartAdmin) -> None:
    testbed = await admin(uniform())

    async def drained_by(command: str) -> object:
        response = await testbed.send("POST", f"/services/baremetal/backends/api-1/{command}")
        backend = (await response.json())["services"]["baremetal"]["backends"]["api-1"]
        return backend["drained"], backend.get("drained_by")

    assert await drained_by("drain?by=roll%201a2b%0A") == (True, "roll 1a2b\\n")
    assert "drained by roll 1a2b" in await (await testbed.send("GET", "/ui/services/baremetal")).text()
    assert await drained_by("enable") == (False, None)


@pytest.mark.parametrize(
    "path, known",
    [
        ("backends/api-1/drain?serve", "by, served"),
        ("backends/api-1/enable?served", "by"),
    ],
)
async def test_a_condition_that_is_misspelt_is_refused(admin: StartAdmin, path: str, known: str) -> None:
    """It would be a command without its condition."""
    testbed = await admin(uniform())
    response = await testbed.send("POST", f"/services/baremetal/{path}")
    assert (response.status, (await response.json())["error"]) == (400, f"the only parameters are {known}")
    assert not (await testbed.json("/status"))["services"]["baremetal"]["backends"]["api-1"]["drained"]


async def test_a_drain_says_what_it_leaves_unserved(admin: StartAdmin) -> None:
    """It takes nothing off the offer: that is 503 until the backend is back."""
    testbed = await admin(uniform())

    async def warning(backend: str, verb: str) -> str | None:
        response = await testbed.send("POST", f"/services/baremetal/backends/{backend}/{verb}")
        text: str | None = (await response.json())["warning"]
        return text

    async def alone() -> dict[str, str]:
        found: dict[str, str] = (await testbed.json("/status"))["services"]["baremetal"]["served_alone"]
        return found

    *first, last = [backend.name for backend in BACKENDS]
    assert await alone() == {}
    assert [await warning(name, "drain") for name in first] == [None] * len(first)
    assert await alone() == {last: "1.1-1.90"}
    unserved = await warning(last, "drain")
    assert unserved is not None
    assert unserved.startswith("1.1-1.90 stays on offer, but no backend in service serves it")
    assert await warning(last, "enable") is None


async def test_a_pin_above_everything_is_accepted_with_a_warning(admin: StartAdmin) -> None:
    testbed = await admin(uniform())

    above = await (await put(testbed, {"version": "1.91"})).json()
    exact = await (await put(testbed, {"version": "1.90"})).json()

    assert above["services"]["baremetal"]["pin"] == "1.91"
    assert above["warning"] == "the ceiling 1.91 has no effect now: no known backend serves more than 1.90"
    assert exact["warning"] is None


async def test_a_pin_shows_in_the_metrics(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    await put(testbed, {"version": "1.58"})
    metrics = await (await testbed.send("GET", "/metrics")).text()
    assert 'skewgate_phase{phase="capped",service="baremetal"} 1.0' in metrics
    assert 'skewgate_offer_info{max="1.58",min="1.1",service="baremetal"} 1.0' in metrics


ENDPOINTS = [
    (CEILING, {"PUT", "DELETE"}),
    ("/services/baremetal/backends/api-1/drain", {"POST"}),
    ("/services/baremetal/backends/api-1/enable", {"POST"}),
]


@pytest.mark.parametrize("path, methods", ENDPOINTS, ids=[path for path, _ in ENDPOINTS])
async def test_get_and_other_methods_change_nothing(admin: StartAdmin, path: str, methods: set[str]) -> None:
    testbed = await admin(uniform())
    before = testbed.snapshot_holder.current
    for method in {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - methods:
        response = await testbed.send(method, path)
        assert (response.status, set(response.headers["Allow"].split(","))) == (405, methods), method
    assert testbed.snapshot_holder.current is before


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"Host": "evil.example:80"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": ""}, 401),
    ],
)
@pytest.mark.parametrize("path, methods", ENDPOINTS, ids=[path for path, _ in ENDPOINTS])
async def test_commands_are_guarded(
    admin: StartAdmin, path: str, methods: set[str], headers: Mapping[str, str], status: int
) -> None:
    testbed = await admin(uniform(), token="open-sesame")
    before = testbed.snapshot_holder.current
    sent = {"Authorization": "Bearer open-sesame", **headers}
    for method in methods:
        response = await testbed.send(method, path, headers=sent, data='{"version": "1.58"}')
        assert response.status == status
    assert testbed.snapshot_holder.current is before


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity"])
async def test_an_encoded_body_is_refused(coding: str, caplog: pytest.LogCaptureFixture) -> None:
    async with on_site(uniform()) as testbed:
        for body in (gzip.compress(b'{"version": "1.58"}'), b"nonsense"):
            response = await testbed.send("PUT", CEILING, data=body, headers={"Content-Encoding": coding})
            assert (response.status, "must be" in (await response.json())["error"]) == (400, True)
    assert not caplog.records


async def test_a_client_that_leaves_in_the_middle_of_a_body_is_not_logged_as_a_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with on_site(uniform()) as testbed:
        _, writer = await asyncio.open_connection("127.0.0.1", testbed.port)
        head = f"PUT {CEILING} HTTP/1.1\r\nHost: 127.0.0.1:{testbed.port}\r\nContent-Length: 99\r\n\r\n"
        writer.write(head.encode() + b'{"version": "1.58"}')
        await writer.drain()
        await testbed.json("/status")  # by then it has been read
        writer.close()
        await writer.wait_closed()
        assert (await testbed.json("/status"))["services"]["baremetal"]["pin"] is None
    assert not caplog.records


async def test_an_error_quotes_no_more_than_a_line(admin: StartAdmin) -> None:
    testbed = await admin(uniform())
    for key in ("version", "release"):
        response = await put(testbed, {key: "a" * 60_000})
        assert len(await response.text()) < 300
