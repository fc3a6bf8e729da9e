"""A browser without JavaScript in front of the admin listener: its cookie, and the forms of the last page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

from aiohttp import ClientSession, DummyCookieJar, web
from yarl import URL

from gateway.admin import AdminAccess, AdminSite, bind_site, create_app
from gateway.admin.ui.access import cookie_name
from gateway.keys.secrets import Secret
from tests.admin.testbed import AdminTestbed

TOKEN = "a canary, wide and yellow"
FORM = "application/x-www-form-urlencoded"


@dataclass
class Form:
    """One form of a page, as it would be sent."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    button: str = ""


@dataclass
class Page:
    """A response."""

    status: int
    headers: Mapping[str, str]
    text: str
    forms: list[Form]

    @property
    def location(self) -> str:
        return self.headers["Location"]

    def form(self, method: str = "post") -> Form:
        """The only form with this method."""
        [found] = [form for form in self.forms if form.method == method]
        return found


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._in_button = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append(Form(given["action"], given["method"]))
        elif tag in {"input", "select"} and self.found and "name" in given:
            self.found[-1].fields[given["name"]] = given.get("value", "")
        self._in_button = tag == "button"

    def handle_data(self, data: str) -> None:
        if self._in_button and self.found:
            self.found[-1].button += data

    def handle_endtag(self, tag: str) -> None:
        self._in_button = False


def forms_of(text: str) -> list[Form]:
    """Those of a page, in order; none of any other text."""
    parser = _Forms()
    parser.feed(text)
    return parser.found


@dataclass
class Visitor:
    """One browser of one person."""

    session: ClientSession
    port: int
    cookie: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request."""

    @property
    def cookie_name(self) -> str:
        return cookie_name(f"127.0.0.1:{self.port}")

    async def get(self, path: str, headers: Mapping[str, str] | None = None, **more: Any) -> Page:
        return await self.send("GET", path, headers, **more)

    async def post(
        self, path: str, fields: Mapping[str, str] | str, headers: Mapping[str, str] | None = None
    ) -> Page:
        body = fields if isinstance(fields, str) else urlencode(fields)
        return await self.send("POST", path, {"Content-Type": FORM, **(headers or {})}, data=body)

    async def submit(self, form: Form, **changed: str) -> Page:
        """Send a form of a page, with its hidden fields and what is typed."""
        fields = {**form.fields, **changed}
        if form.method == "get":
            return await self.get(f"{form.action}?{urlencode(fields)}")
        return await self.post(form.action, fields)

    async def sign_in(self, token: str = TOKEN, target: str = "/ui/") -> Page:
        return await self.post("/ui/sign-in", {"token": token, "next": target})

    async def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Page:
        """The path goes as it is, and no redirection is followed."""
        sent = {**self.headers, **({"Cookie": f"{self.cookie_name}={self.cookie}"} if self.cookie else {})}
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with self.session.request(
            method, url, headers={**sent, **(headers or {})}, allow_redirects=False, **more
        ) as response:
            text = await response.text()
            for line in response.headers.getall("Set-Cookie", []):
                self.cookie = SimpleCookie(line)[self.cookie_name].value
            return Page(response.status, response.headers, text, forms_of(text))


NewVisitor = Callable[[], Visitor]


@asynccontextmanager
async def visited(
    testbed: AdminTestbed, token: Callable[[], str | None] = lambda: TOKEN
) -> AsyncIterator[NewVisitor]:
    """The admin listener on what `testbed` holds. `token`: the one in force, looked at by every request."""

    def secret() -> Secret | None:
        text = token()
        return None if text is None else Secret(text)

    async with serving(
        create_app(replace(testbed.context(), access=AdminAccess(token=secret))), testbed
    ) as visitor:
        yield visitor


@asynccontextmanager
async def serving(app: web.Application, testbed: AdminTestbed) -> AsyncIterator[NewVisitor]:
    """`app` on the real listener, and visitors of it."""
    site = AdminSite(app, await bind_site("127.0.0.1", 0), testbed.count_admin_error)
    await site.start()
    try:
        async with ClientSession(cookie_jar=DummyCookieJar()) as session:
            yield lambda: Visitor(session, site.address[1])
    finally:
        await site.stop()
