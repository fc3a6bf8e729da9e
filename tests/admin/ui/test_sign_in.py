"""Who may look at the operations page, and how an operator signs in (threats O6)."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from gateway.admin.ui.access import local_page
from tests.admin.testbed import AdminTestbed, mixed_fleet
from tests.admin.ui.visitor import FORM, TOKEN, visited
from tests.kit.waiting import PATIENCE

CONFIRM = "/ui/services/baremetal/confirm?do=unpin"


def bed_of_fleet() -> AdminTestbed:
    return AdminTestbed(mixed_fleet())


async def test_without_a_session_a_page_leads_to_the_sign_in_and_back() -> None:
    async with visited(bed_of_fleet()) as visitor:
        browser = visitor()
        led = await browser.get(CONFIRM)
        assert (led.status, led.location) == (303, f"/ui/sign-in?next={quote(CONFIRM)}")

        page = await browser.get(led.location)
        assert page.status == 200
        signed = await browser.submit(page.form(), token=TOKEN)
        assert (signed.status, signed.location) == (303, CONFIRM)
        assert (await browser.get(signed.location)).status == 200


async def test_everything_else_without_a_session_is_401() -> None:
    async with visited(bed_of_fleet()) as visitor:
        browser = visitor()
        for method, path, headers in (
            ("POST", "/ui/services/baremetal/pin", {}),
            ("POST", "/ui/sign-out", {}),
            ("PUT", "/ui/", {}),
            ("GET", "/ui/events", {"Accept": "text/event-stream"}),
            ("GET", "/ui/", {"Authorization": "Bearer wrong"}),
        ):
            refused = await browser.send(method, path, headers)
            assert refused.status == 401, path
            assert refused.headers["WWW-Authenticate"] == "Bearer"
            assert "sign in, or send the admin token" in refused.text
        assert (await browser.send("HEAD", CONFIRM)).status == 303


@pytest.mark.parametrize(
    "token", ["", "wrong", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "\x00", "é", "<script>alert(1)</script>"]
)
async def test_a_wrong_token_says_so_and_is_counted(token: str) -> None:
    bed = bed_of_fleet()
    async with visited(bed) as visitor:
        browser = visitor()
        page = await browser.sign_in(token, CONFIRM)
        assert (page.status, browser.cookie) == (401, "")
        assert "Wrong token: enter the value of `admin.token`." in page.text
        assert page.form().fields == {"next": CONFIRM, "token": ""}  # what was typed is not repeated
        assert "canary" not in page.text
        assert "alert(1)" not in page.text
        assert (await browser.get(CONFIRM)).status == 303

        counts = (await visitor().get("/metrics", {"Authorization": f"Bearer {TOKEN}"})).text
        assert 'skewgate_admin_errors_total{reason="unauthorized"} 1.0' in counts


async def test_the_cookie_is_for_the_page_only() -> None:
    bed = bed_of_fleet()
    async with visited(bed) as visitor:
        browser = visitor()
        signed = await browser.sign_in()
        assert signed.headers["Set-Cookie"] == (
            f"skewgate_session_{browser.port}={browser.cookie}; HttpOnly; Path=/ui/; SameSite=Strict"
        )
        assert len(browser.cookie) == 43
        assert (await browser.get(CONFIRM)).status == 200

        before = bed.snapshot_holder.current
        for method, path in (
            ("GET", "/status"),
            ("GET", "/metrics"),
            ("GET", "/readyz?verbose"),
            ("GET", "/explain?path=/"),
            ("GET", "/ui/../status"),
            ("GET", "/ui/%2e%2e/status"),
            ("GET", "//ui/status"),
            ("POST", "/-/reload"),
            ("POST", "/services/baremetal/backends/api-1/drain"),
            ("POST", "/ui/../services/baremetal/backends/api-1/drain"),
            ("DELETE", "/services/baremetal/ceiling"),
        ):
            assert (await browser.send(method, path)).status in {401, 404}, path
        assert (bed.reloads, bed.snapshot_holder.current) == (0, before)


@pytest.mark.parametrize(
    "cookie",
    [
        "",
        "x" * 43,
        "../../etc/passwd",
        "é",
        '"quoted"',
        "a; b=c",
    ],
)
async def test_a_forged_cookie_is_none(cookie: str) -> None:
    async with visited(bed_of_fleet()) as visitor:
        guesser = visitor()
        page = await guesser.get(CONFIRM, {"Cookie": f"{guesser.cookie_name}={cookie}"})
        assert page.status == 303


async def test_two_cookies_of_the_name_are_none() -> None:
    """Another program on this host can set one beside ours."""
    async with visited(bed_of_fleet()) as visitor:
        browser = visitor()
        await browser.sign_in()
        name = browser.cookie_name
        own = f"{name}={browser.cookie}"
        assert (await visitor().get(CONFIRM, {"Cookie": f"a=b; {own}; c"})).status == 200
        for both in (f"{own}; {name}=x", f"{name}=x;{own}", f"{own};{own}"):
            assert (await visitor().get(CONFIRM, {"Cookie": both})).status == 303


async def test_a_browser_may_be_signed_in_to_two_gateways_at_one_host() -> None:
    """Cookies know no ports: it sends both cookies to each."""
    async with visited(bed_of_fleet()) as one, visited(bed_of_fleet()) as other:
        browsers = (one(), other())
        for browser in browsers:
            await browser.sign_in()
        both = "; ".join(f"{browser.cookie_name}={browser.cookie}" for browser in browsers)
        for visitor in (one(), other()):
            assert (await visitor.get(CONFIRM, {"Cookie": both})).status == 200


async def test_another_token_after_a_reload_ends_all_sessions() -> None:
    token = TOKEN
    async with visited(bed_of_fleet(), lambda: token) as visitor:
        browser, other = visitor(), visitor()
        await browser.sign_in()
        await other.sign_in()
        assert (await browser.get(CONFIRM)).status == 200

        token = "a new one, after the reload"
        assert (await browser.get(CONFIRM)).status == 303
        assert (await other.post("/ui/services/baremetal/unpin", {})).status == 401
        assert (await browser.sign_in(TOKEN)).status == 401
        token = TOKEN
        assert (await browser.get(CONFIRM)).status == 303

        assert (await browser.sign_in()).status == 303
        assert (await browser.get(CONFIRM)).status == 200


async def test_signing_in_again_ends_the_session_before() -> None:
    async with visited(bed_of_fleet()) as visitor:
        browser = visitor()
        await browser.sign_in()
        first = browser.cookie
        await browser.sign_in()
        assert browser.cookie != first
        assert (await visitor().get(CONFIRM, {"Cookie": f"{browser.cookie_name}={first}"})).status == 303


async def test_signing_out_needs_the_form_and_ends_the_session() -> None:
    async with visited(bed_of_fleet()) as visitor:
        browser = visitor()
        await browser.sign_in()
        cookie = browser.cookie
        question = await browser.get("/ui/sign-out")
        assert (await browser.get(CONFIRM)).status == 200  # GET changes nothing
        assert (await browser.post("/ui/sign-out", {"csrf": "x"})).status == 403
        assert (await browser.get(CONFIRM)).status == 200

        signed_out = await browser.submit(question.form())
        assert (signed_out.status, signed_out.location, browser.cookie) == (303, "/ui/", "")
        assert (await visitor().get(CONFIRM, {"Cookie": f"{browser.cookie_name}={cookie}"})).status == 303


async def test_without_a_token_everybody_on_this_machine_may_look_and_nobody_command() -> None:
    bed = bed_of_fleet()
    async with visited(bed, lambda: None) as visitor:
        browser = visitor()
        assert (await browser.get("/ui/sign-in?next=/ui/services/baremetal")).location == (
            "/ui/services/baremetal"
        )
        assert (await browser.sign_in("anything")).location == "/ui/"
        assert browser.cookie == ""

        before = bed.snapshot_holder.current
        refused = await browser.get(CONFIRM)
        assert (refused.status, "set `admin.token`" in refused.text) == (403, True)
        fields = {"csrf": "", "seen": "", "version": "1.58"}
        assert (await browser.post("/ui/services/baremetal/pin", fields)).status == 403
        assert bed.snapshot_holder.current is before


async def test_the_token_in_the_head_opens_the_page_and_a_form_needs_a_session_all_the_same() -> None:
    """A proxy in front may add the token to whatever a browser sends."""
    bed = bed_of_fleet()
    async with visited(bed) as visitor:
        proxied = visitor()
        proxied.headers = {"Authorization": f"Bearer {TOKEN}"}
        before = bed.snapshot_holder.current
        fields = {"csrf": "", "seen": "", "version": "1.58"}
        assert (await proxied.post("/ui/services/baremetal/pin", fields)).status == 403
        assert bed.snapshot_holder.current is before

        page = await proxied.get("/ui/services/baremetal/confirm?do=pin&version=1.58")
        assert proxied.cookie
        assert (await proxied.submit(page.form())).status == 303
        assert bed.snapshot_holder.current is not before


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "///evil.example/ui/",
        "/\\evil.example",
        "/ui/\\evil.example",
        "https://evil.example/ui/",
        "javascript:alert(1)",
        "/ui//evil.example",
        "/ui/%2f%2fevil.example",
        "/ui/../-/reload",
        "/ui/%2e%2e/status",
        "/ui/./x",
        "/status",
        "/uix",
        "ui/",
        "/ui/\r\nSet-Cookie: a=b",
        "/ui/x y",
        "/ui/\u00e9",
        "/ui/sign-in?next=/ui/",
        "/ui/sign-out",
        "/ui/" + "x" * 5000,
        "",
    ],
)
async def test_a_sign_in_leads_to_no_other_place(target: str) -> None:
    assert local_page(target) == "/ui/"
    async with visited(bed_of_fleet()) as visitor:
        browser = visitor()
        page = await browser.get(f"/ui/sign-in?next={quote(target)}")
        assert page.form().fields["next"] == "/ui/"
        assert (await browser.sign_in(target=target)).location == "/ui/"


@pytest.mark.parametrize(
    "target",
    ["/ui/", "/ui/services/a%2Fb/confirm?do=pin&version=1.58", "/ui/explain?path=//x/../y&header=A:%20b"],
)
def test_a_sign_in_leads_to_every_page_of_ours(target: str) -> None:
    assert local_page(target) == target


async def test_a_page_of_another_origin_signs_nobody_in_or_out() -> None:
    async with visited(bed_of_fleet()) as visitor:
        browser = visitor()
        for origin in ("http://evil.example", "null", "https://127.0.0.1"):
            refused = await browser.post("/ui/sign-in", {"token": TOKEN}, {"Origin": origin})
            assert (refused.status, browser.cookie) == (403, "")
        own = f"http://127.0.0.1:{browser.port}"
        assert (await browser.post("/ui/sign-in", {"token": TOKEN}, {"Origin": own})).status == 303


@pytest.mark.parametrize(
    "content_type, body, status",
    [
        ("application/json", '{"token": "x"}', 415),
        ("multipart/form-data; boundary=x", "--x--", 415),
        ("text/plain", f"token={TOKEN}", 415),
        ("", f"token={TOKEN}", 415),
        (FORM, "token=a&token=b", 400),
        (FORM, "token=a&TOKEN=b", 400),
        (FORM, "token=a&more=b", 400),
        (FORM, "a=1&b=2&c=3&d=4", 400),
        (FORM, "token", 400),
        (FORM, "token=%ff", 400),
        (FORM, "token=\u00e9", 400),
        (FORM, f"token={'x' * 9000}", 413),
        (FORM, f"token={'x' * 70_000}", 413),
        (FORM, "", 401),
    ],
)
async def test_what_no_form_of_ours_sends_is_refused(content_type: str, body: str, status: int) -> None:
    async with visited(bed_of_fleet()) as visitor:
        browser = visitor()
        page = await browser.post("/ui/sign-in", body, {"Content-Type": content_type})
        assert (page.status, browser.cookie) == (status, "")
        assert page.headers["Content-Type"].startswith("text/html")


async def test_every_page_has_a_strict_head() -> None:
    async with visited(bed_of_fleet()) as visitor:
        browser = visitor()
        pages = [await browser.get("/ui/sign-in"), await browser.sign_in("wrong"), await browser.sign_in()]
        pages += [await browser.get(CONFIRM), await browser.get("/ui/nowhere")]
        for page in pages:
            policy = page.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert page.headers["Cache-Control"] == "no-store"
            assert page.headers["Referrer-Policy"] == "same-origin"
            assert page.headers["X-Content-Type-Options"] == "nosniff"
            assert "Server" not in page.headers
            assert not [name for name in page.headers if name.lower().startswith("access-control-")]
            assert "style=" not in page.text
            assert "<script>" not in page.text


async def test_connections_of_a_signed_in_operator_are_authorised() -> None:
    """They are the last to go when there are too many, and are kept for the next request."""
    async with visited(bed_of_fleet()) as visitor:
        browser = visitor()
        assert (await browser.get("/ui/sign-in")).headers["Connection"] == "close"
        assert (await browser.sign_in()).headers["Connection"] == "close"
        assert "Connection" not in (await browser.get(CONFIRM)).headers


async def test_a_stream_ends_with_its_session() -> None:
    """It may have been open for hours when the token is changed."""
    token = TOKEN
    async with visited(bed_of_fleet(), lambda: token) as visitor:
        browser = visitor()
        await browser.sign_in()
        url = f"http://127.0.0.1:{browser.port}/ui/events"
        headers = {"Accept": "text/event-stream", "Cookie": f"{browser.cookie_name}={browser.cookie}"}
        async with browser.session.get(url, headers=headers) as stream, asyncio.timeout(PATIENCE):
            assert stream.status == 200
            assert await stream.content.readline()
            token = "a new one, after the reload"
            await stream.content.read()  # to the end
        assert (await browser.get("/ui/events", headers)).status == 401
