"""The stream of a page: what has changed, in small events, for as long as the client reads."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from gateway.admin import AdminSite, bind_site
from gateway.admin.ui import feed, stream
from gateway.admin.ui.feed import NOTHING, Feed, Shown
from gateway.admin.ui.fragments import Fragment, PageFragments
from gateway.admin.ui.rendering import Rendering
from gateway.admin.ui.stream import MAX_OF_SESSION, MAX_STREAMS, updates
from gateway.core.fleet.fleet import Drain, Pin
from gateway.core.fleet.service import Service
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import Ironic
from gateway.telemetry.worker_report import WorkerReport
from tests.admin.testbed import AdminTestbed, StartAdmin, mixed_fleet, on_site
from tests.admin.ui import pages_testbed as bed
from tests.admin.ui.pages_testbed import fleet, page, serves, two_services
from tests.admin.ui.test_pages import SIGNED, TOKEN
from tests.admin.ui.test_rendering import HOSTILE
from tests.kit.ironic import reconfigure
from tests.kit.waiting import PATIENCE

LONGEST_EVENT = 20_000


# --- what is sent


async def test_a_stream_begins_with_the_whole_page(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    shown = await page(testbed)

    async with bed.stream(testbed) as reader:
        hello = await reader.event()
        assert hello is not None
        assert hello.name == "hello"
        assert hello.data["stamp"] == shown.named("body")[0]["data-stamp"]
        first = await reader.until("id=")

    assert set(first) <= set(shown.ids)
    assert {"health", "offer", "controls", "traffic", "axis", "demand", "timeline"} <= set(first)


async def test_fragments_are_those_of_the_page(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    shown = await page(testbed)

    async with bed.stream(testbed) as reader:
        first = await reader.until("id=")

    assert all(html.strip() in shown.html for html in first.values())


async def test_only_what_has_changed_is_sent(admin: StartAdmin) -> None:
    holder = mixed_fleet()
    testbed = await admin(holder)
    async with bed.stream(testbed) as reader:
        await reader.until("id=")

        member = holder.current.views["baremetal"].members.all[1]
        testbed.report = WorkerReport(in_flight_by_member={member.key: 7})
        changed = await reader.until("7 in flight")

    assert set(changed) == {"traffic", next(id_ for id_ in changed if id_.startswith("backend-"))}
    assert len(changed) == 2


async def test_an_upgrade_is_seen(admin: StartAdmin) -> None:
    holder = mixed_fleet(stabilization=0.0)
    testbed = await admin(holder)
    async with bed.stream(testbed) as reader:
        await reader.until("id=")

        serves(holder, "api-1", 90, 2.0)
        changed = await reader.until("On offer: </span>1.1-1.90")

    assert "api-1" in "".join(changed.values())


async def test_two_operators_see_each_others_commands(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet(), TOKEN)
    async with bed.stream(testbed, headers=SIGNED) as one, bed.stream(testbed, headers=SIGNED) as other:
        await one.until("id=")
        await other.until("id=")

        response = await testbed.send("POST", "/services/baremetal/backends/api-1/drain", SIGNED)
        assert response.status == 200

        for reader in (one, other):
            changed = await reader.until("drained")
            assert "do=enable" in "".join(changed.values())


async def test_who_may_not_command_gets_no_controls(admin: StartAdmin) -> None:
    async with bed.stream(await admin(mixed_fleet())) as reader:
        first = await reader.until("id=")

    assert "do=drain" not in "".join(first.values())


async def test_rows_come_and_go(admin: StartAdmin) -> None:
    holder = fleet("api-1", "api-2")
    testbed = await admin(holder)
    async with bed.stream(testbed) as reader:
        hello, first = await reader.event(), await reader.event()
        assert hello is not None
        assert first is not None
        rows = first.data["lists"]["backend-rows"]
        more = fleet("api-3", "api-2").current.views["baremetal"].service
        holder.put_in_force(holder.configured([more]))
        while event := await reader.event():
            if event.name == "update" and "backend-rows" in event.data["lists"]:
                break

    assert event is not None
    new, stayed = event.data["lists"]["backend-rows"]
    assert stayed == rows[1]
    assert new not in rows
    assert new in event.data["set"]


async def test_the_overview_has_a_stream_of_its_own(admin: StartAdmin) -> None:
    holder = two_services()
    async with bed.stream(await admin(holder), "") as reader:
        await reader.until("staging/eu")

        serves(holder, "api-1", 90, 2.0)
        changed = await reader.until("1.1-1.90")

    assert any(id_.startswith("service-") for id_ in changed)


async def test_a_service_that_is_gone_ends_its_page(admin: StartAdmin) -> None:
    holder = two_services()
    testbed = await admin(holder)
    async with bed.stream(testbed) as reader:
        await reader.until("id=")

        backends = holder.current.views["staging/eu"].service.backends
        holder.put_in_force(holder.configured([Service("staging/eu", Ironic(), backends)]))
        while (event := await reader.event()) is not None and event.name != "reload":
            pass

        assert event is not None
        assert await reader.event() is None
    assert (await testbed.send("GET", "/ui/events?service=baremetal")).status == 404


async def test_hostile_texts_are_escaped(admin: StartAdmin) -> None:
    async with bed.stream(await admin(fleet(HOSTILE))) as reader:
        first = await reader.until("onerror")

    assert all("<img" not in html for html in first.values())
    assert any(r"\u202eevil" in html for html in first.values())


async def test_a_quiet_page_is_told_that_it_is_alive(
    admin: StartAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.0)
    monkeypatch.setattr(stream, "POLL", 0.05)
    async with bed.stream(await admin(mixed_fleet())) as reader:
        while (event := await reader.event()) is not None and event.name != "alive":
            pass

    assert event is not None
    assert event.data["now"] > 1_700_000_000.0


# --- how much


async def test_events_are_small_with_a_thousand_backends(admin: StartAdmin) -> None:
    holder = fleet(*(f"api-{number}" for number in range(1000)))
    async with bed.stream(await admin(holder)) as reader:
        sizes: list[int] = []
        rows: set[str] = set()
        lists: dict[str, list[str]] = {}
        while "event-rows" not in lists:
            event = await reader.event()
            assert event is not None
            sizes.append(event.size)
            if event.name == "update":
                rows |= {id_ for id_ in event.data["set"] if id_.startswith("backend-r-")}
                lists |= event.data.get("lists", {})

    assert len(rows) == 1000
    assert set(lists["backend-rows"]) == rows
    assert max(sizes) < LONGEST_EVENT


def test_one_fragment_of_any_size_is_sent_in_pieces() -> None:
    shown = Shown(PageFragments({}, {"rows": ("a",)}), {"a": "x" * 100_000, "b": "<\u20ac>"})

    events = [each.decode("ascii").split("\n") for each in updates(NOTHING, shown)]

    assert max(len(data) for _, data, *_ in events) < LONGEST_EVENT
    assert [name for name, *_ in events][-1] == "event: update"
    found: dict[str, str] = {}
    text = ""
    for name, data, *_ in events:
        text += data.removeprefix("data: ")
        if name == "event: update":
            found |= json.loads(text)["set"]
            text = ""
    assert found == dict(shown.html)


def test_equal_pages_need_no_event() -> None:
    shown = Shown(PageFragments({}, {"rows": ("a",)}), {"a": "x"})

    assert list(updates(shown, shown)) == []


async def test_streams_are_bounded_and_make_room(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet())
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(bed.stream(testbed)) for _ in range(MAX_STREAMS)]
        for reader in readers:
            await reader.event()

        refused = await testbed.send("GET", "/ui/events?service=baremetal", {"Accept": "text/event-stream"})
        assert refused.status == 503

        readers[3].response.close()
        async with asyncio.timeout(PATIENCE):
            while (await testbed.send("HEAD", "/ui/events?service=baremetal")).status == 503:
                pass
        async with bed.stream(testbed) as another:
            assert await another.event() is not None


async def signed_in(testbed: AdminTestbed) -> dict[str, str]:
    """The cookie of a new session."""
    form = {"token": TOKEN, "next": "/ui/"}
    signed = await testbed.send("POST", "/ui/sign-in", data=form, allow_redirects=False)
    assert signed.status == 303, await signed.text()
    return {"Cookie": signed.headers["Set-Cookie"].partition(";")[0]}


async def refused(testbed: AdminTestbed, headers: dict[str, str]) -> str:
    """What one page more is told; empty: it may follow."""
    asked = {"Accept": "text/event-stream", **headers}
    async with await testbed.send("GET", "/ui/events?service=baremetal", asked) as response:
        return "" if response.status == 200 else f"{response.status} {await response.text()}"


async def test_R3_T10_a_session_holds_four_streams_and_leaves_the_rest_to_others(admin: StartAdmin) -> None:
    holder = mixed_fleet()
    testbed = await admin(holder, TOKEN)
    one, other = await signed_in(testbed), await signed_in(testbed)
    async with AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(bed.stream(testbed, headers=one)) for _ in range(MAX_OF_SESSION)
        ]
        for reader in readers:
            await reader.until("id=")

        told = await refused(testbed, one)
        assert told.startswith("503 ")
        assert "4 live pages of this session are open" in told
        async with bed.stream(testbed, headers=other) as reader:
            assert await reader.event() is not None

        serves(holder, "api-1", 57, 2.0)  # those that follow go on
        for reader in readers:
            await reader.until("1.57")

        readers.pop(1).response.close()
        async with asyncio.timeout(PATIENCE):
            while await refused(testbed, one):
                pass


async def test_R3_T10_sessions_together_hold_all_streams(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet(), TOKEN)
    async with AsyncExitStack() as stack:
        for _ in range(MAX_STREAMS // MAX_OF_SESSION):
            session = await signed_in(testbed)
            for _ in range(MAX_OF_SESSION):
                reader = await stack.enter_async_context(bed.stream(testbed, headers=session))
                assert await reader.event() is not None
        assert "too many live pages are open" in await refused(testbed, await signed_in(testbed))


async def test_R3_T10_browsers_that_a_proxy_signs_in_are_not_one_session(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet(), TOKEN)
    async with AsyncExitStack() as stack:
        for _ in range(MAX_OF_SESSION + 1):
            reader = await stack.enter_async_context(bed.stream(testbed, headers=SIGNED))
            assert await reader.event() is not None


# --- the client


async def raw_stream(testbed: AdminTestbed) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that reads only when a test says so."""
    reader, writer = await asyncio.open_connection("127.0.0.1", testbed.port, limit=1 << 20)
    writer.write(
        f"GET /ui/events?service=baremetal HTTP/1.1\r\nHost: 127.0.0.1:{testbed.port}\r\n\r\n".encode()
    )
    return reader, writer


def without_end(*_: object) -> Iterator[bytes]:
    """Much more than the buffers of the kernel hold."""
    while True:
        yield b": much\n" * 8_000


async def test_a_client_that_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.admin.connection.RESPONSE_TIME", 0.3)
    monkeypatch.setattr(stream, "updates", without_end)
    async with on_site(mixed_fleet()) as testbed:
        _, writer = await raw_stream(testbed)
        async with asyncio.timeout(PATIENCE):
            while not await timed_out(testbed):
                pass
        writer.close()


async def timed_out(testbed: AdminTestbed) -> bool:
    """Whether the admin listener has cut a client."""
    text = await (await testbed.send("GET", "/metrics")).text()
    return 'skewgate_admin_errors_total{reason="timeout"} 1' in text


async def test_a_client_that_reads_slowly_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream has waited for it again and again, all in all for longer than a response may take."""
    monkeypatch.setattr("gateway.admin.connection.RESPONSE_TIME", 1.5)
    monkeypatch.setattr(stream, "updates", without_end)
    async with on_site(mixed_fleet()) as testbed:
        reader, writer = await raw_stream(testbed)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while loop.time() < begun + 3.2:
            async with asyncio.timeout(PATIENCE):
                assert await reader.read(1 << 20), "the stream was cut"
            await asyncio.sleep(0.005)
        assert not await timed_out(testbed)
        writer.close()


async def test_streams_end_at_once_with_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits until the time for responses under way is over."""
    monkeypatch.setattr("gateway.admin.site.SHUTDOWN_TIMEOUT", 10 * PATIENCE)
    testbed = AdminTestbed(mixed_fleet())
    site = AdminSite(testbed.app(), await bind_site("127.0.0.1", 0), testbed.count_admin_error)
    await site.start()
    testbed.port = site.address[1]
    reader, writer = await raw_stream(testbed)
    await reader.readuntil(b"event: update")

    following = {"Feed._run", "_follow"}
    assert {each for each in following if each in tasks_now()} == following

    async with asyncio.timeout(PATIENCE):
        await site.stop()
        await reader.read()

    assert not {each for each in following if each in tasks_now()}
    writer.close()


def tasks_now() -> str:
    return " ".join(map(repr, asyncio.all_tasks()))


async def test_a_stream_ends_with_the_session(admin: StartAdmin) -> None:
    testbed = await admin(mixed_fleet(), TOKEN)
    cookie = await signed_in(testbed)
    async with bed.stream(testbed, headers=cookie) as reader:
        await reader.until("id=")
        shown = await testbed.send("GET", "/ui/sign-out", cookie)
        csrf = (await shown.text()).partition('name="csrf" value="')[2].partition('"')[0]
        await testbed.send("POST", "/ui/sign-out", cookie, data={"csrf": csrf}, allow_redirects=False)

        while await reader.event() is not None:
            pass


# --- the feed


class Source:
    """What a feed reads."""

    def __init__(self) -> None:
        self.reads = 0
        self.text = "first"
        self.error: Exception | None = None

    async def read(self) -> PageFragments | None:
        self.reads += 1
        if self.error is not None:
            raise self.error
        if not self.text:
            return None
        return PageFragments({"traffic": Fragment("traffic", (self.reads, 0.0, 0))}, {})


async def test_a_feed_works_only_while_it_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PERIOD", 3600.0)
    source = Source()
    watched = Feed(source.read, lambda: source.text, Rendering())
    with watched.followed(), watched.followed():
        first = await watched.after(NOTHING, PATIENCE)
        assert first is not None
        assert await watched.after(first, 0.01) is None
        source.text = "second"
        second = await watched.after(first, PATIENCE)
        assert second is not None
        assert second is not first
        assert watched.followers == 2
        assert source.reads == 2, "one look serves all"

    assert watched.followers == 0
    before = source.reads
    source.text = "third"
    await asyncio.sleep(2 * feed.POLL)
    assert source.reads == before


async def test_a_bug_ends_the_streams_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    source.error = RuntimeError("a bug")
    watched = Feed(source.read, lambda: 0, Rendering())
    with watched.followed():
        assert await watched.after(NOTHING, PATIENCE) is None
        assert watched.is_gone

    assert "a bug" in caplog.text


async def test_what_looks_the_same_is_not_sent_again() -> None:
    source = Source()

    async def same() -> PageFragments | None:
        await source.read()
        return PageFragments({"traffic": Fragment("traffic", (2, 0.01 * source.reads / 100.0, 0))}, {})

    watched = Feed(same, lambda: source.reads, Rendering())
    with watched.followed():
        first = await watched.after(NOTHING, PATIENCE)
        assert first is not None
        second = await watched.after(first, PATIENCE)

    assert second is not None
    assert first.html["traffic"] is second.html["traffic"]


async def test_pins_show_who_may_unpin(admin: StartAdmin) -> None:
    holder = mixed_fleet()
    testbed = await admin(holder, TOKEN)
    async with bed.stream(testbed, headers=SIGNED) as reader:
        await reader.until("id=")
        holder.apply("baremetal", Pin(Version(1, 40)))
        changed = await reader.until("Unpin 1.40")

        assert "controls" in changed
        holder.apply("baremetal", Drain("api-2"))
        assert "controls" not in await reader.until("drained")


async def test_a_reload_shows_new_release_names(admin: StartAdmin) -> None:
    holder = mixed_fleet()
    testbed = await admin(holder, TOKEN)
    async with bed.stream(testbed, headers=SIGNED) as reader:
        await reader.until("id=")
        service = holder.current.views["baremetal"].service
        reconfigure(holder, [replace(service, releases={"our-build-7": Version(1, 31)})])

        assert "controls" in await reader.until("our-build-7")
