"""Commands from the operations page: confirmed, by the rules of the API, by no other form (threats O6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.stores.store import StoreError
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import Drain, OperatorCommand, Pin
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import Ironic
from gateway.telemetry.recent import LastHour
from tests.admin.testbed import AdminTestbed
from tests.admin.ui.visitor import FORM, NewVisitor, Page, Visitor, visited
from tests.kit.ironic import holder_of, learn, service, upto

SERVICE = "/ui/services/baremetal"
PIN = f"{SERVICE}/confirm?do=pin&version=1.58"
NAMES = ("api-1", "10.0.0.2:6385", "[::1]:6385")


def uniform(lowest: int = 1, highest: int = 90, **options: Any) -> SnapshotHolder:
    backends = tuple(Backend(name, "10.0.0.1", 6385 + port) for port, name in enumerate(NAMES))
    holder = holder_of(service(*backends, **options))
    for name in NAMES:
        learn(holder, name, upto(highest, lowest))
    return holder


@pytest.fixture
def bed() -> AdminTestbed:
    return AdminTestbed(uniform())


@pytest.fixture
async def visitors(bed: AdminTestbed) -> AsyncIterator[NewVisitor]:
    async with visited(bed) as visitor:
        yield visitor


@pytest.fixture
async def operator(visitors: NewVisitor) -> Visitor:
    return await signed_in(visitors)


async def signed_in(visitors: NewVisitor) -> Visitor:
    browser = visitors()
    assert (await browser.sign_in()).status == 303
    return browser


def pinned(bed: AdminTestbed) -> str | None:
    pin = bed.snapshot_holder.current.views["baremetal"].members.pin
    return None if pin is None else Ironic().scheme.format(pin)


def drained(bed: AdminTestbed) -> list[str]:
    members = bed.snapshot_holder.current.views["baremetal"].members.all
    return [member.backend.name for member in members if member.drained]


async def result_of(browser: Visitor, done: Page) -> str:
    """What the page says to which a command leads."""
    assert done.status == 303, done.text
    assert done.location.startswith(f"{SERVICE}?done=")
    page = await browser.get(done.location)
    assert page.status == 200
    return page.text.partition("Result of your command")[2].partition("</section>")[0]


# --- the way of a command


async def test_a_pin_is_confirmed_then_in_force(bed: AdminTestbed, operator: Visitor) -> None:
    bed.last_hour = {"baremetal": LastHour({"1.90": 14, "1.1": 86}, 3600.0)}
    service = await operator.get(SERVICE)
    [asked] = [form for form in service.forms if "version" in form.fields]
    page = await operator.submit(asked, version="1.58")

    assert page.status == 200
    assert "Pin baremetal to 1.58?" in page.text
    assert "1.59-1.90 will be refused" in page.text
    assert "14 % of the last hour&#39;s requests" in page.text
    assert pinned(bed) is None

    done = await operator.submit(page.form())
    assert pinned(bed) == "1.58"
    assert "baremetal is pinned to 1.58." in await result_of(operator, done)
    assert "What became" not in (await operator.get(SERVICE)).text


async def test_an_unpin_is_offered_where_there_is_a_pin(bed: AdminTestbed, operator: Visitor) -> None:
    assert not [form for form in (await operator.get(SERVICE)).forms if "Unpin" in form.button]
    bed.snapshot_holder.apply("baremetal", Pin(Version(1, 58)))
    [asked] = [form for form in (await operator.get(SERVICE)).forms if "Unpin 1.58" in form.button]

    page = await operator.submit(asked)
    assert "1.59-1.90 will be offered" in page.text
    assert pinned(bed) == "1.58"
    done = await operator.submit(page.form())
    assert pinned(bed) is None
    assert "baremetal is unpinned." in await result_of(operator, done)


@pytest.mark.parametrize("name", NAMES)
async def test_a_backend_is_drained_and_enabled(bed: AdminTestbed, operator: Visitor, name: str) -> None:
    for verb, done_word, after in (("drain", "drained", [name]), ("enable", "enabled", [])):
        link = f"{SERVICE}/confirm?do={verb}&amp;backend={quote(name)}"
        assert f'href="{link}"' in (await operator.get(SERVICE)).text
        page = await operator.get(link.replace("&amp;", "&"))
        assert page.status == 200
        assert drained(bed) != after
        done = await operator.submit(page.form())
        assert drained(bed) == after
        assert f"{name} is {done_word}." in await result_of(operator, done)


async def test_a_release_is_chosen_from_a_list(bed: AdminTestbed, operator: Visitor) -> None:
    service = await operator.get(SERVICE)
    [asked] = [form for form in service.forms if "release" in form.fields]
    assert "<option>2024.1</option>" in service.text
    page = await operator.submit(asked, release="2024.1")
    done = await operator.submit(page.form())
    assert pinned(bed) == "1.90"
    assert "baremetal is pinned to 2024.1." in await result_of(operator, done)


async def test_the_result_says_for_whom_it_waits_and_what_it_warns_of() -> None:
    bed = AdminTestbed(uniform(), pending=("worker 2", "<b>replica</b>"), state_saved=False)
    async with visited(bed) as visitors:
        operator = await signed_in(visitors)
        page = await operator.get(f"{SERVICE}/confirm?do=pin&version=1.95")
        assert "the ceiling 1.95 has no effect now" in page.text
        text = await result_of(operator, await operator.submit(page.form()))
    assert "Not acknowledged yet by: worker 2, &lt;b&gt;replica&lt;/b&gt;." in text
    assert "The ceiling 1.95 has no effect now: no known backend serves more than 1.90." in text
    assert "It is not in a state file: a restart forgets it." in text


async def test_a_result_is_shown_to_whoever_gave_the_command(visitors: NewVisitor, operator: Visitor) -> None:
    other = await signed_in(visitors)
    done = await operator.submit((await operator.get(PIN)).form())
    assert "What became" not in (await other.get(done.location)).text
    for number in ("", "-1", "7", "x", "9" * 5000, "%00", "\u0663"):
        assert "What became" not in (await operator.get(f"{SERVICE}?done={quote(number)}")).text


# --- what cannot be done is said, with what was typed


@pytest.mark.parametrize(
    "typed, status, sentence",
    [
        ("1.9O", 400, "is not a version of the form"),
        ("latest", 400, "is not a version of the form"),
        ("", 400, "Choose a version or a release"),
        ("1.19", 409, "The ceiling 1.19 is below the minimum 1.20 on offer"),
        ("x" * 4000, 400, "is not a version of the form"),
        ("<script>alert(1)</script>", 400, "is not a version of the form"),
        ("\x1b[31m\u202e", 400, "is not a version of the form"),
    ],
)
async def test_a_pin_that_cannot_be_is_a_page_with_what_was_typed(
    typed: str, status: int, sentence: str
) -> None:
    bed = AdminTestbed(uniform(lowest=20))
    async with visited(bed) as visitors:
        operator = await signed_in(visitors)
        page = await operator.get(f"{SERVICE}/confirm?do=pin&version={quote(typed)}")
        assert (page.status, sentence in page.text) == (status, True), page.text
        assert [form.method for form in page.forms] == ["get"]  # nothing to confirm, but to type again
        if typed.isprintable():
            assert page.forms[0].fields["version"] == typed[:80]
        assert "<script>alert" not in page.text
        assert "\x1b" not in page.text
        assert "\u202e" not in page.text

        again = await operator.submit(page.forms[0], version=" 1.58 ")
        assert (again.status, again.form().button) == (200, "Pin baremetal to 1.58")


async def test_a_version_and_a_release_are_not_both(operator: Visitor) -> None:
    page = await operator.get(f"{SERVICE}/confirm?do=pin&version=1.58&release=2024.1")
    assert (page.status, "Choose a version or a release" in page.text) == (400, True)


async def test_a_command_that_is_refused_in_the_end_is_a_page_with_what_was_typed(
    bed: AdminTestbed, operator: Visitor
) -> None:
    page = await operator.get(PIN)
    for changed, status in (({"version": "1.0"}, 409), ({"version": "x"}, 400), ({"version": ""}, 400)):
        refused = await operator.submit(page.form(), **changed)
        assert refused.status == status
        assert refused.form("get").fields["version"] == changed["version"]
    refused = await operator.submit(page.form(), version="", release="no-such")
    assert (refused.status, "knows" in refused.text) == (404, True)
    assert pinned(bed) is None


async def test_a_store_that_does_not_confirm_is_503_and_said() -> None:
    async def fails(service: str, command: OperatorCommand) -> None:
        raise StoreError("no <b>quorum</b>")

    async with visited(AdminTestbed(uniform(), command=fails)) as visitors:
        operator = await signed_in(visitors)
        page = await operator.submit((await operator.get(PIN)).form())
        assert page.status == 503
        assert "The store did not confirm the command" in page.text
        assert "no &lt;b&gt;quorum&lt;/b&gt;" in page.text
        assert page.form().button == "Pin baremetal to 1.58"


@pytest.mark.parametrize(
    "path, status",
    [
        ("/ui/services/metal/confirm?do=unpin", 404),
        ("/ui/services/%3Cscript%3Ealert%281%29%3C%2Fscript%3E/confirm?do=unpin", 404),
        ("/ui/services/bare%0Ametal/confirm?do=unpin", 404),
        ("/ui/services/bare%00metal/confirm?do=unpin", 404),
        ("/ui/services/..%2Fbaremetal/confirm?do=unpin", 404),
        ("/ui/services/%ff%fe/confirm?do=unpin", 404),
        ("/ui/services//confirm?do=unpin", 404),
        (f"{SERVICE}/confirm?do=drain&backend=api-9", 404),
        (f"{SERVICE}/confirm?do=drain&backend=%3Cscript%3Ealert%281%29%3C%2Fscript%3E", 404),
        (f"{SERVICE}/confirm?do=enable&backend=%00%1b", 404),
        (f"{SERVICE}/confirm?do=drain", 404),
        (f"{SERVICE}/confirm", 400),
        (f"{SERVICE}/confirm?do=stop", 400),
        (f"{SERVICE}/confirm?do=unpin&do=pin", 400),
        (f"{SERVICE}/confirm?do=drain&backend=api-1&backend=api-2", 400),
        (f"{SERVICE}/confirm?do=pin&version=1.58&version=1.90", 400),
        (f"{SERVICE}/confirm?do=unpin&version=1.58", 400),
        (f"{SERVICE}/confirm?do=pin&backend=api-1", 400),
    ],
)
async def test_what_no_link_of_ours_leads_to_is_a_page_that_says_so(
    operator: Visitor, path: str, status: int
) -> None:
    page = await operator.get(path)
    assert page.status == status
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<script>alert" not in page.text
    assert "\x1b" not in page.text
    assert page.forms == []


# --- two operators at once


@pytest.mark.parametrize(
    "command",
    [Pin(Version(1, 80)), Drain("api-1")],
    ids=["a pin", "a drain"],
)
async def test_what_another_operator_did_meanwhile_is_shown_before_anything_is_done(
    bed: AdminTestbed, operator: Visitor, command: OperatorCommand
) -> None:
    page = await operator.get(PIN)
    bed.snapshot_holder.apply("baremetal", command)
    before = bed.snapshot_holder.current

    again = await operator.submit(page.form())
    assert (again.status, "have changed since the page was made" in again.text) == (409, True)
    assert bed.snapshot_holder.current is before
    if isinstance(command, Pin):
        assert "1.59-1.80 will be refused" in again.text

    assert (await operator.submit(again.form())).status == 303
    assert pinned(bed) == "1.58"


@pytest.mark.parametrize("query", ["do=pin&version=1.58", "do=drain&backend=api-1"])
async def test_a_button_that_is_pressed_twice_is_no_change_by_somebody_else(
    bed: AdminTestbed, operator: Visitor, query: str
) -> None:
    """Until a command holds everywhere it may take seconds."""
    page = await operator.get(f"{SERVICE}/confirm?{query}")
    assert (await operator.submit(page.form())).status == 303
    before = (pinned(bed), drained(bed))
    assert "is " in await result_of(operator, await operator.submit(page.form()))
    assert (pinned(bed), drained(bed)) == before


async def test_an_offer_that_changed_meanwhile_is_shown_again(bed: AdminTestbed, operator: Visitor) -> None:
    page = await operator.get(PIN)
    for name in NAMES:
        learn(bed.snapshot_holder, name, upto(70), 2.0)

    again = await operator.submit(page.form())
    assert (again.status, "1.59-1.70 will be refused" in again.text) == (409, True)
    assert pinned(bed) is None


async def test_a_service_or_backend_that_went_meanwhile_is_404(bed: AdminTestbed, operator: Visitor) -> None:
    page = await operator.get(f"{SERVICE}/confirm?do=drain&backend=api-1")
    form = page.form()
    for action in (
        form.action.replace("baremetal", "metal"),
        form.action.replace("api-1", "api-9"),
        form.action.replace("api-1", "..%2Fapi-1"),
        form.action.replace("api-1", "api-1%00"),
        form.action.replace("api-1", "%3Cscript%3E"),
    ):
        gone = await operator.post(action, form.fields)
        assert (gone.status, "<script>" in gone.text) == (404, False), action
    assert drained(bed) == []


# --- what nobody else can do


async def test_without_the_csrf_token_of_the_session_nothing_is_done(
    bed: AdminTestbed, visitors: NewVisitor, operator: Visitor
) -> None:
    other = await signed_in(visitors)
    form, others = (await operator.get(PIN)).form(), (await other.get(PIN)).form()
    assert form.fields["csrf"] != others.fields["csrf"]
    before = bed.snapshot_holder.current

    fields = {name: value for name, value in form.fields.items() if name != "csrf"}
    for csrf in ("", "x", others.fields["csrf"], form.fields["csrf"][:-1], operator.cookie, "\u00e9"):
        refused = await operator.post(form.action, {**fields, "csrf": csrf})
        assert (refused.status, "not from a page of your session" in refused.text) == (403, True)
    assert (await operator.post(form.action, fields)).status == 403
    assert (await visitors().post(form.action, form.fields)).status == 401
    assert bed.snapshot_holder.current is before
    assert (await operator.submit(form)).status == 303


async def test_a_page_of_another_origin_cannot_command(bed: AdminTestbed, operator: Visitor) -> None:
    """Not even one that had found out the CSRF token."""
    form = (await operator.get(PIN)).form()
    before = bed.snapshot_holder.current
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{operator.port}", "http://127.0.0.1:1"):
        assert (await operator.post(form.action, form.fields, {"Origin": origin})).status == 403
    assert bed.snapshot_holder.current is before
    own = f"http://127.0.0.1:{operator.port}"
    assert (await operator.post(form.action, form.fields, {"Origin": own})).status == 303


async def test_only_post_does_anything(bed: AdminTestbed, operator: Visitor) -> None:
    csrf, seen = (
        (await operator.get(PIN)).form().fields["csrf"],
        (await operator.get(PIN)).form().fields["seen"],
    )
    before = bed.snapshot_holder.current
    query = f"csrf={csrf}&seen={seen}&version=1.58"
    overrides = ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override")
    for path in (
        f"{SERVICE}/pin",
        f"{SERVICE}/unpin",
        f"{SERVICE}/backends/api-1/drain",
        f"{SERVICE}/backends/api-1/enable",
    ):
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
            page = await operator.send(
                method, f"{path}?{query}&_method=POST", dict.fromkeys(overrides, "POST")
            )
            assert (page.status, page.headers["Allow"]) == (405, "POST"), (method, path)
    for path in (PIN, f"{SERVICE}/confirm?do=drain&backend=api-1", SERVICE, "/ui/"):
        assert (await operator.get(path, dict.fromkeys(overrides, "POST"))).status == 200
        assert (await operator.send("HEAD", path)).status == 200
    assert bed.snapshot_holder.current is before


@pytest.mark.parametrize(
    "content_type, more, status",
    [
        ("application/json", "", 415),
        ("text/plain", "", 415),
        ("multipart/form-data; boundary=x", "", 415),
        (FORM, "&version=1.90", 400),
        (FORM, "&csrf=x", 400),
        (FORM, "&backend=api-1", 400),
        (FORM, "&a=1&b=2&c=3&d=4&e=5", 400),
        (FORM, "&", 400),
        (FORM, "&release=%ff", 400),
        (FORM, f"&release={'x' * 9000}", 413),
    ],
)
async def test_what_no_form_of_ours_sends_does_nothing(
    bed: AdminTestbed, operator: Visitor, content_type: str, more: str, status: int
) -> None:
    form = (await operator.get(PIN)).form()
    before = bed.snapshot_holder.current
    body = "&".join(f"{name}={quote(form.fields[name])}" for name in ("csrf", "seen", "version"))
    page = await operator.post(form.action, body + more, {"Content-Type": content_type})
    assert page.status == status
    assert bed.snapshot_holder.current is before
    assert (await operator.post(form.action, body)).status == 303


async def test_a_session_that_ended_meanwhile_cannot_command(bed: AdminTestbed, operator: Visitor) -> None:
    form = (await operator.get(PIN)).form()
    await operator.submit((await operator.get("/ui/sign-out")).form())
    assert (await operator.submit(form)).status == 401
    assert pinned(bed) is None


async def test_a_gateway_that_is_taken_over_takes_no_command(
    bed: AdminTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = ""
    context = bed.context()
    context = replace(context, commands=replace(context.commands, frozen=lambda: frozen))
    monkeypatch.setattr(bed, "context", lambda: context)
    async with visited(bed) as visitors:
        operator = await signed_in(visitors)
        form = (await operator.get(f"{SERVICE}/confirm?do=drain&backend=api-1")).form()
        frozen = "another gateway is taking over"
        refused = await operator.submit(form)
        assert (refused.status, "Another gateway is taking over" in refused.text) == (503, True)
        assert drained(bed) == []


async def test_where_nobody_is_known_there_are_no_controls(bed: AdminTestbed) -> None:
    async with visited(bed, lambda: None) as visitors:
        page = await visitors().get(SERVICE)
        assert page.status == 200
        assert "To pin and drain from this page, set <code>admin.token</code>." in page.text
        assert "confirm" not in page.text
        assert {form.action for form in page.forms} == {"/ui/explain"}


async def test_pages_of_a_service_hold_no_secret_of_the_session(operator: Visitor) -> None:
    """What a stream sends may be the same for all who may command."""
    csrf = (await operator.get(PIN)).form().fields["csrf"]
    for path in (SERVICE, "/ui/", f"{SERVICE}?done=0"):
        assert csrf not in (await operator.get(path)).text
