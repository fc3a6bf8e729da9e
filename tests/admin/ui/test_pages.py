"""The pages as a browser without JavaScript gets them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from urllib.parse import quote

import pytest

from gateway.admin.ui import pages
from gateway.core.clients import Client, Clients
from gateway.core.fleet.fleet import Drain, Pin, ProbeFailed
from gateway.core.versions.version import Version
from gateway.telemetry.recent import LastHour
from tests.admin.testbed import StartAdmin, mixed_fleet, unknown_fleet
from tests.admin.ui.pages_testbed import fleet, page, two_services
from tests.admin.ui.test_rendering import HOSTILE

TOKEN = "open-sesame-0123456789"
SIGNED = {"Authorization": f"Bearer {TOKEN}"}


# --- what the page says


async def test_one_service_is_the_first_page(admin: StartAdmin) -> None:
    found = await page(await admin(mixed_fleet()))

    assert "baremetal ironic" in found.text
    assert "On offer now On offer: 1.1-1.58" in found.text
    assert "1.59-1.90 is held back by api-1 (1.1-1.58): upgrade or drain" in found.text
    assert "Held by api-1" in found.text
    assert "Next 1.1-1.90 will be on offer." in found.text
    assert "All services" not in found.text


async def test_the_page_of_a_service_is_the_same(admin: StartAdmin) -> None:
    bed = await admin(mixed_fleet())

    home, service = await page(bed), await page(bed, "/ui/services/baremetal")

    assert home.ids == service.ids


async def test_the_order_is_that_of_an_operators_questions(admin: StartAdmin) -> None:
    found = await page(await admin(mixed_fleet()))

    assert [
        each for each in found.ids if each in {"health", "offer", "backend-rows", "demand", "processes"}
    ] == [
        "health",
        "offer",
        "backend-rows",
        "demand",
        "processes",
    ]
    assert found.ids.index("refusals") < found.ids.index("processes") < found.ids.index("event-rows")
    assert found.ids.index("event-rows") < found.ids.index("explain")


async def test_bars_share_one_axis(admin: StartAdmin) -> None:
    found = await page(await admin(mixed_fleet()))

    served = [each for each in found.named("rect") if (each.get("class"), each["y"]) == ("served", "30%")]
    assert [(each["x"], each["width"]) for each in served] == [("0.00%", "64.44%"), ("0.00%", "100.00%")]
    assert [each["aria-label"] for each in found.named("svg") if each.get("class") == "bars"] == [
        "1.1-1.58",
        "1.1-1.90",
    ]


async def test_several_services_have_an_overview(admin: StartAdmin) -> None:
    bed = await admin(two_services())

    found = await page(bed)

    links = [str(each["href"]) for each in found.named("a")]
    assert "/ui/services/baremetal" in links
    assert "/ui/services/staging%2Feu" in links
    assert "staging/eu" in (await page(bed, "/ui/services/staging%2Feu")).text


async def test_an_unknown_service_is_a_page_too(admin: StartAdmin) -> None:
    found = await page(await admin(mixed_fleet()), f"/ui/services/{quote(HOSTILE, safe='')}", status=404)

    assert "there is no service" in found.text
    assert "img" not in {tag for tag, _ in found.tags}


async def test_what_is_asked_for_and_refused(admin: StartAdmin) -> None:
    bed = await admin(
        mixed_fleet(), last_hour={"baremetal": LastHour(Counter({"1.58": 3, "1.10": 1}), 3600.0)}
    )

    found = await page(bed)

    assert "Last hour" in found.text
    assert "1.58 75 % 3 1.10 25 % 1" in found.text


async def test_pins_drains_and_errors_are_shown(admin: StartAdmin) -> None:
    holder = mixed_fleet()
    holder.apply("baremetal", Pin(Version(1, 40)))
    holder.apply("baremetal", Drain("api-2"))
    holder.observe("baremetal", "api-1", ProbeFailed("connection refused", 2.0))

    found = await page(await admin(holder))

    for text in ("pinned to 1.40", "drained", "stale", "connection refused"):
        assert text in found.text


async def test_nothing_known_yet(admin: StartAdmin) -> None:
    found = await page(await admin(unknown_fleet()))

    assert "Not healthy" in found.text
    assert "nothing known" in found.text


async def test_hostile_names_and_errors_are_text(admin: StartAdmin) -> None:
    holder = fleet(HOSTILE, "api-2")
    holder.observe("baremetal", HOSTILE, ProbeFailed(HOSTILE, 2.0))

    found = await page(await admin(holder, last_hour={"baremetal": LastHour({HOSTILE: 1}, 60.0)}))

    assert "img" not in {tag for tag, _ in found.tags}
    assert not any(name.startswith("on") for _, each in found.tags for name in each)
    assert found.text.count(r"\u202eevil") >= 3
    assert found.html.replace("\n", "").replace("\u202f", "").isprintable()


# --- the form of the page


async def test_nothing_comes_from_elsewhere_and_nothing_is_inline(admin: StartAdmin) -> None:
    bed = await admin(mixed_fleet())
    for path in ("/ui/", "/ui/explain?path=/v1/nodes"):
        response = await bed.send("GET", path)
        found = await page(bed, path)

        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"
        assert "Referrer-Policy" in response.headers
        assert found.named("style") == []
        assert all(each.get("src") == "/ui/static/page.js" for each in found.named("script"))
        assert not any("style" in each for _, each in found.tags)
        assert not any(name.startswith("on") for _, each in found.tags for name in each)
        addresses = [
            str(each[name]) for _, each in found.tags for name in ("href", "src", "action") if name in each
        ]
        assert [each for each in addresses if not each.startswith(("/", "#"))] == []


async def test_headings_go_down_by_one(admin: StartAdmin) -> None:
    bed = await admin(two_services())
    for path in ("/ui/", "/ui/services/baremetal", "/ui/explain?path=/v1/nodes"):
        found = await page(bed, path)
        levels = [int(tag[1]) for tag, _ in found.tags if tag in {"h1", "h2", "h3", "h4"}]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert all(each.get("scope") for each in found.named("th"))
        assert len(found.named("main")) == 1


async def test_labels_lead_to_what_they_name(admin: StartAdmin) -> None:
    found = await page(await admin(mixed_fleet(), TOKEN), headers=SIGNED)

    fields = [each for tag in ("input", "textarea", "select") for each in found.named(tag)]
    named = {each["for"] for each in found.named("label")}
    assert {each.get("id") for each in fields if each.get("type") != "hidden"} == named
    pointed = [
        each[name]
        for _, each in found.tags
        for name in ("aria-labelledby", "aria-describedby")
        if name in each
    ]
    assert set(pointed) <= set(found.ids)


async def test_without_javascript_the_page_may_be_reloaded(admin: StartAdmin) -> None:
    bed = await admin(mixed_fleet())

    still, again = await page(bed), await page(bed, "/ui/?reload")

    assert 'http-equiv="refresh"' not in still.html
    assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in again.html


async def test_heads_have_no_body(admin: StartAdmin) -> None:
    bed = await admin(mixed_fleet())
    for path in ("/ui/", "/ui/events", "/ui/static/page.css", "/ui/explain"):
        response = await bed.send("HEAD", path)
        assert response.status == 200
        assert await response.read() == b""


async def test_the_address_without_a_slash_leads_on(admin: StartAdmin) -> None:
    response = await (await admin(mixed_fleet())).send("GET", "/ui", allow_redirects=False)

    assert (response.status, response.headers["Location"]) == (303, "/ui/")


@pytest.mark.parametrize("name", sorted(pages.STATIC))
async def test_files_are_fetched_once(admin: StartAdmin, name: str) -> None:
    bed = await admin(mixed_fleet(), TOKEN)  # who signs in has no token yet

    first = await bed.send("GET", f"/ui/static/{name}")
    again = await bed.send("GET", f"/ui/static/{name}", {"If-None-Match": first.headers["ETag"]})

    assert (first.status, first.content_type) == (200, pages.STATIC[name])
    assert len(await first.read()) > 100
    assert (again.status, await again.read()) == (304, b"")
    assert first.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("name", ["..%2fmodel.py", "page.html", "page.css%00"])
async def test_other_files_are_not_served(admin: StartAdmin, name: str) -> None:
    assert (await (await admin(mixed_fleet())).send("GET", f"/ui/static/{name}")).status == 404


# --- who may look


async def test_the_token_guards_pages_and_streams(admin: StartAdmin) -> None:
    bed = await admin(mixed_fleet(), TOKEN)

    refused = await bed.send("GET", "/ui/", allow_redirects=False)
    stream = await bed.send("GET", "/ui/events", {"Accept": "text/event-stream"}, allow_redirects=False)

    assert (refused.status, refused.headers["Location"]) == (303, "/ui/sign-in")
    assert stream.status == 401


async def test_controls_are_for_those_who_may_command(admin: StartAdmin) -> None:
    looking = await page(await admin(mixed_fleet()))
    commanding = await page(await admin(mixed_fleet(), TOKEN), headers=SIGNED)

    assert "To pin and drain from this page" in looking.text
    assert "Drain" not in looking.text
    assert commanding.text.count("Drain") == 2


# --- the explain form


async def test_an_answer_has_an_address(admin: StartAdmin) -> None:
    bed = await admin(mixed_fleet())
    headers = quote("X-OpenStack-Ironic-API-Version: 1.80\r\nAccept: text/plain\r\n")

    found = await page(bed, f"/ui/explain?method=get&path=/v1/nodes&headers={headers}")

    assert "Refused with 406 : the requested version (1.80) is not in the offer 1.1-1.58" in found.text
    assert "X-OpenStack-Ironic-API-Version: 1.80 Accept: text/plain" in found.text
    [path] = [each for each in found.named("input") if each["name"] == "path"]
    assert path["value"] == "/v1/nodes"


async def test_the_form_and_the_api_explain_the_same(admin: StartAdmin) -> None:
    bed = await admin(mixed_fleet())

    told = await bed.json("/explain?path=/v1/nodes")
    found = await page(bed, "/ui/explain?path=/v1/nodes")

    assert told["because"] in found.text
    assert told["version"] in found.text


async def test_the_form_says_the_name_of_the_client_that_is_described(admin: StartAdmin) -> None:
    holder = mixed_fleet()
    holder.update(replace(holder.current, clients=Clients([Client("nova-cron", "curl")])))
    bed = await admin(holder)

    for user_agent, is_named in (("curl/8", True), ("wget/1", False)):
        headers = quote(f"User-Agent: {user_agent}")
        found = await page(bed, f"/ui/explain?path=/v1/nodes&headers={headers}")
        assert ("nova-cron" in found.text) is is_named


@pytest.mark.parametrize(
    "query, sentence",
    [
        ("path=nodes", "must begin with /"),
        ("path=", "must begin with /"),
        ("method=G%20T&path=/", "must be a method"),
        ("path=/&headers=nonsense", "must be `Name: value`"),
        ("path=/&headers=" + quote("Host: a\nHost: b"), "Host"),
        ("path=/%3Cimg%3E%E2%80%AE", "printable ASCII"),
    ],
)
async def test_what_is_no_request_is_said_and_kept(admin: StartAdmin, query: str, sentence: str) -> None:
    found = await page(await admin(mixed_fleet()), f"/ui/explain?{query}", status=400)

    assert sentence in found.text
    assert "img" not in {tag for tag, _ in found.tags}
    [path] = [each for each in found.named("input") if each["name"] == "path"]
    assert path["aria-describedby"] == "explain-problem"


async def test_the_form_alone_asks_nothing(admin: StartAdmin) -> None:
    found = await page(await admin(mixed_fleet()), "/ui/explain")

    assert "aria-invalid" not in found.html


# --- what it costs


async def test_a_thousand_backends_leave_the_loop_to_others(admin: StartAdmin) -> None:
    """Others run again and again while the page is made: between two turns there is a piece of it at most."""
    bed = await admin(fleet(*(f"api-{number}" for number in range(1000))))
    await page(bed)  # the templates are loaded
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.get_running_loop().create_task(count())
    before = turns
    found = await page(bed)
    counting.cancel()

    rows = [each for each in found.ids if each.startswith("backend-r-")]
    assert len(rows) == 1000
    assert turns - before > len(found.html) / pages.PIECE / 2


@pytest.mark.processes
def test_starting_does_not_load_the_templates() -> None:
    code = "import sys, gateway.assembly, gateway.cli.run; assert 'jinja2' not in sys.modules"

    subprocess.run([sys.executable, "-P", "-c", code], check=True)
