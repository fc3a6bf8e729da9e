"""The operations page over TLS: a certificate in place of the sign-in, and forms that need a session too."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from aiohttp import ClientResponse, ClientSession, DummyCookieJar

from gateway.admin.ui.access import cookie_name
from gateway.admin.ui.stream import MAX_OF_SESSION
from tests.admin.raw_clients import TOKEN
from tests.admin.test_tls import TlsAdmin, authority, running_tls
from tests.admin.ui.visitor import FORM, Form, forms_of
from tests.kit.certificates import client_context

PIN = "/ui/services/baremetal/confirm?do=pin&version=1.30"


class Browser:
    """One that shows a certificate, or none."""

    def __init__(self, session: ClientSession, tls: TlsAdmin, context: ssl.SSLContext) -> None:
        self._session = session
        self._url = tls.admin.gateway.admin_url
        self._context = context
        self.cookie = ""
        self._cookie_name = cookie_name(urlsplit(self._url).netloc)

    async def send(self, method: str, path: str, **more: object) -> tuple[ClientResponse, list[Form]]:
        headers = {"Cookie": f"{self._cookie_name}={self.cookie}"} if self.cookie else {}
        headers |= {"Content-Type": FORM} if "data" in more else {}
        response = await self._session.request(
            method,
            f"{self._url}{path}",
            ssl=self._context,
            headers=headers,
            allow_redirects=False,
            **more,  # type: ignore[arg-type]
        )
        text = await response.text()
        for line in response.headers.getall("Set-Cookie", []):
            self.cookie = SimpleCookie(line)[self._cookie_name].value
        return response, forms_of(text)

    async def follow(self) -> ClientResponse:
        """A stream of events, or its refusal."""
        headers = {"Cookie": f"{self._cookie_name}={self.cookie}"} if self.cookie else {}
        return await self._session.get(f"{self._url}/ui/events", ssl=self._context, headers=headers)

    async def status(self, method: str, path: str, **more: object) -> int:
        return (await self.send(method, path, **more))[0].status


def another_operator(folder: Path) -> ssl.SSLContext:
    pair = authority().client("another operator").write(folder, "another")
    return client_context(authority(), pair)


@pytest.mark.parametrize("token", [TOKEN, None])
async def test_a_certificate_is_the_sign_in_and_a_form_needs_its_session(
    tmp_path: Path, token: str | None
) -> None:
    async with (
        running_tls(tmp_path, token=token, client="optional") as tls,
        ClientSession(cookie_jar=DummyCookieJar()) as session,
    ):
        operator = Browser(session, tls, tls.context(operator=True))
        response, _ = await operator.send("GET", "/ui/services/baremetal")
        assert (response.status, operator.cookie) == (200, "")
        assert "do=drain" in await response.text()
        body = urlencode({"csrf": "", "seen": "", "version": "1.30"})
        assert await operator.status("POST", "/ui/services/baremetal/pin", data=body) == 403

        response, forms = await operator.send("GET", PIN)
        assert response.status == 200
        assert response.headers["Set-Cookie"].endswith("; HttpOnly; Path=/ui/; SameSite=Strict; Secure")
        [form] = [form for form in forms if form.method == "post"]

        stranger = Browser(session, tls, tls.context())
        other = Browser(session, tls, another_operator(tmp_path))
        cookie = operator.cookie
        for browser in (stranger, other):  # with a cookie that was stolen, without the certificate
            browser.cookie = cookie
            data = urlencode(form.fields)
            assert await browser.status("POST", form.action, data=data) in {401, 403}

        response, forms = await operator.send("GET", PIN)  # the stolen session has ended
        assert operator.cookie != cookie
        [form] = [form for form in forms if form.method == "post"]
        assert await operator.status("POST", form.action, data=urlencode(form.fields)) == 303


async def test_R3_T10_a_certificate_holds_four_streams_with_and_without_a_session(tmp_path: Path) -> None:
    async with (
        running_tls(tmp_path, token=None, client="optional") as tls,
        ClientSession(cookie_jar=DummyCookieJar()) as session,
        AsyncExitStack() as stack,
    ):
        operator = Browser(session, tls, tls.context(operator=True))
        other = Browser(session, tls, another_operator(tmp_path))
        for number in range(MAX_OF_SESSION):
            stream = await stack.enter_async_context(await operator.follow())
            assert stream.status == 200
            if number == 1:
                assert await operator.status("GET", PIN) == 200
                assert operator.cookie  # the confirmation has made a session
        assert (await stack.enter_async_context(await operator.follow())).status == 503
        assert (await stack.enter_async_context(await other.follow())).status == 200


async def test_without_certificate_and_token_a_page_says_what_is_missing(tmp_path: Path) -> None:
    async with (
        running_tls(tmp_path, token=None, client="optional") as tls,
        ClientSession(cookie_jar=DummyCookieJar()) as session,
    ):
        stranger = Browser(session, tls, tls.context())
        response, _ = await stranger.send("GET", "/ui/")
        assert response.status == 403
        assert "a client certificate of an operator" in await response.text()
        response, _ = await stranger.send("GET", "/ui/sign-in")
        assert response.headers["Location"] == "/ui/"


async def test_the_cookie_of_a_sign_in_over_tls_is_secure(tmp_path: Path) -> None:
    async with (
        running_tls(tmp_path) as tls,
        ClientSession(cookie_jar=DummyCookieJar()) as session,
    ):
        operator = Browser(session, tls, tls.context())
        assert await operator.status("GET", PIN) == 303
        response, _ = await operator.send("POST", "/ui/sign-in", data=urlencode({"token": TOKEN}))
        assert response.headers["Set-Cookie"].endswith("; HttpOnly; Path=/ui/; SameSite=Strict; Secure")
        assert await operator.status("GET", PIN) == 200
