"""Who may not use the admin listener, and is refused before any handler runs (threats O6)."""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import pytest

from gateway.controlplane.snapshot_holder import SnapshotHolder
from tests.admin.testbed import StartAdmin, mixed_fleet, on_site

TOKEN = "a canary, wide and yellow"


@pytest.fixture
def snapshot_holder() -> SnapshotHolder:
    return mixed_fleet()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "gate.internal"])
async def test_its_own_names_are_answered(
    admin: StartAdmin, snapshot_holder: SnapshotHolder, host: str
) -> None:
    testbed = await admin(snapshot_holder, hosts=("Gate.internal",))
    assert await testbed.raw("GET /status HTTP/1.1", f"Host: {host}:{testbed.port}") == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:{port}",  # DNS rebinding: the name points here, the page came from there
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost:{port}.evil.example",
        "localhost.evil.example:{port}",
        "10.0.0.1:{port}",
        "",
        "gate.internal:{port}",
    ],
)
async def test_any_other_host_is_refused_wherever_more_than_health_is_told(
    admin: StartAdmin, snapshot_holder: SnapshotHolder, host: str
) -> None:
    testbed = await admin(snapshot_holder)
    line = f"Host: {host.format(port=testbed.port)}"
    for path in ("/status", "/metrics", "/livez?verbose", "/readyz?verbose", "/livez/", "/ui/", "/nowhere"):
        assert await testbed.raw(f"GET {path} HTTP/1.1", line) == 403
    assert await testbed.raw("POST /-/reload HTTP/1.1", line, "Content-Length: 0") == 403
    assert testbed.reloads == 0


CHECKS = {
    "HAProxy, option httpchk": ["GET {path} HTTP/1.0"],
    "HAProxy, http-check send with a name": [
        "GET {path} HTTP/1.1",
        "Host: gate.example",
        "Connection: close",
    ],
    "kubelet": [
        "GET {path} HTTP/1.1",
        "Host: 10.4.5.6:9901",
        "User-Agent: kube-probe/1.31",
        "Accept: */*",
        "Connection: close",
    ],
    "Prometheus in a composition": [
        "GET {path} HTTP/1.1",
        "Host: skewgate:9901",
        "User-Agent: Prometheus/3.5.0",
        "Accept: text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "Accept-Encoding: gzip",
    ],
    "an empty Host": ["GET {path} HTTP/1.1", "Host:"],
    "HEAD by a name": ["HEAD {path} HTTP/1.1", "Host: gate.example"],
}
"""What sends requests to a gateway by an address that is not its own, and its requests."""


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
async def test_R3_V0_health_is_told_whatever_the_host(
    admin: StartAdmin, snapshot_holder: SnapshotHolder, check: list[str], token: str | None
) -> None:
    testbed = await admin(snapshot_holder, token)
    for path, status in (("/livez", 200), ("/readyz", 200), ("/readyz?attached", 200)):
        assert await testbed.raw(*(line.format(path=path) for line in check)) == status
    for path in ("/readyz?verbose", "/status", "/metrics"):
        assert await testbed.raw(*(line.format(path=path) for line in check)) == 403
    testbed.not_serving = "the gateway is shutting down"
    assert await testbed.raw(*(line.format(path="/readyz") for line in check)) == 503


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
async def test_R3_V0_the_metrics_listener_answers_by_every_name(
    snapshot_holder: SnapshotHolder, check: list[str]
) -> None:
    async with on_site(snapshot_holder, metrics_only=True) as testbed:
        for path in ("/livez", "/readyz", "/readyz?verbose", "/metrics"):
            assert await testbed.raw(*(line.format(path=path) for line in check)) == 200
        assert await testbed.raw(*(line.format(path="/status") for line in check)) == 404


async def test_R3_V0_only_http_1_0_may_leave_host_out(
    admin: StartAdmin, snapshot_holder: SnapshotHolder
) -> None:
    """RFC 9112 3.2: a request of HTTP/1.1 without Host, or with two, is answered with 400."""
    testbed = await admin(snapshot_holder)
    assert await testbed.raw("GET /readyz HTTP/1.0") == 200
    assert await testbed.raw("GET /readyz HTTP/1.1") == 400
    assert await testbed.raw("GET /readyz HTTP/1.1", "Host: a", "Host: a") == 400


async def test_R3_V0_a_page_of_another_origin_gets_no_health_either(
    admin: StartAdmin, snapshot_holder: SnapshotHolder
) -> None:
    testbed = await admin(snapshot_holder)
    origin = "Origin: http://evil.example"
    assert await testbed.raw("GET /readyz HTTP/1.0", origin) == 403
    assert await testbed.raw("GET /readyz HTTP/1.1", "Host: gate.example", origin) == 403
    assert await testbed.raw("GET /readyz HTTP/1.1", "Host: evil.example", origin) == 200


async def test_none_or_two_hosts_are_refused(admin: StartAdmin, snapshot_holder: SnapshotHolder) -> None:
    testbed = await admin(snapshot_holder)
    own = f"Host: 127.0.0.1:{testbed.port}"
    assert await testbed.raw("GET /status HTTP/1.1") in {400, 403}
    assert await testbed.raw("GET /status HTTP/1.1", own, own) in {400, 403}


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "https://127.0.0.1:{port}", "http://127.0.0.1:1"]
)
async def test_pages_of_other_origins_are_refused(
    admin: StartAdmin, snapshot_holder: SnapshotHolder, origin: str
) -> None:
    testbed = await admin(snapshot_holder)
    headers = {"Origin": origin.format(port=testbed.port)}
    for method, path in (("GET", "/status"), ("POST", "/-/reload"), ("OPTIONS", "/status")):
        response = await testbed.send(method, path, headers=headers)
        assert response.status == 403
        assert not [name for name in response.headers if name.lower().startswith("access-control-")]
    assert testbed.reloads == 0


async def test_its_own_pages_may_ask(admin: StartAdmin, snapshot_holder: SnapshotHolder) -> None:
    testbed = await admin(snapshot_holder)
    headers = {"Origin": f"http://127.0.0.1:{testbed.port}"}
    assert (await testbed.send("POST", "/-/reload", headers=headers)).status == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer \xff",
    ],
)
async def test_without_the_token_only_health_is_answered(
    admin: StartAdmin, snapshot_holder: SnapshotHolder, authorization: str | None
) -> None:
    testbed = await admin(snapshot_holder, TOKEN)
    own = [f"Host: 127.0.0.1:{testbed.port}"]
    own += [] if authorization is None else [f"Authorization: {authorization}"]
    # Wrong tokens beyond ten get 429 (threats R3-T5).
    statuses = {401} if authorization is None else {401, 429}
    refused = (
        "/status",
        "/metrics",
        "/explain?path=/",
        "/nowhere",
        "/livez/",
        "//livez",
        "//readyz",
        "/readyz/x",
    )
    verbose = ("/readyz?verbose", "/readyz?verbose=0", "/readyz?a&%76erbose=1", "/livez?verbose")
    for path in (*refused, *verbose):
        assert await testbed.raw(f"GET {path} HTTP/1.1", *own) in statuses, path
    assert await testbed.raw("POST /-/reload HTTP/1.1", *own, "Content-Length: 0") in statuses
    for method in ("GET", "HEAD"):
        assert await testbed.raw(f"{method} /livez HTTP/1.1", *own) == 200
        assert await testbed.raw(f"{method} /readyz HTTP/1.1", *own) == 200
    testbed.not_serving = "the gateway is shutting down"
    assert await testbed.raw("GET /readyz HTTP/1.1", *own) == 503
    assert testbed.reloads == 0


async def test_with_the_token_everything_is_shown_but_the_token(
    admin: StartAdmin, snapshot_holder: SnapshotHolder
) -> None:
    """A canary in the token shows up nowhere (threats O9)."""
    testbed = await admin(snapshot_holder, TOKEN)
    headers = {"Authorization": f"bearer {TOKEN}"}
    for path in ("/status", "/metrics", "/readyz?verbose", "/explain?path=/v1"):
        response = await testbed.send("GET", path, headers=headers)
        assert response.status == 200
        assert "canary" not in await response.text()

    refused = await testbed.send("GET", "/status")
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert "canary" not in await refused.text()


async def test_two_authorizations_are_none(admin: StartAdmin, snapshot_holder: SnapshotHolder) -> None:
    testbed = await admin(snapshot_holder, TOKEN)
    own, right = f"Host: 127.0.0.1:{testbed.port}", f"Authorization: Bearer {TOKEN}"
    assert await testbed.raw("GET /status HTTP/1.1", own, right) == 200
    assert await testbed.raw("GET /status HTTP/1.1", own, "Authorization: Bearer x", right) in {400, 401}
