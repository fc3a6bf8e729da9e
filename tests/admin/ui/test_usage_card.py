"""The card "Who uses what": clients as rows, versions on the axis, and every reason to doubt it in words."""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any

from gateway.admin.ui.contents import MAX_CLIENTS, PageContents
from gateway.admin.ui.fragments import service_fragments
from gateway.admin.ui.model import ServicePage
from gateway.admin.ui.rendering import Rendering
from gateway.controlplane.usage.reading import UsageError
from gateway.core.usage.record import Gap, RowKey, Scope, UsageRecord
from tests.admin.testbed import AdminTestbed, mixed_fleet, usage_of
from tests.admin.ui.pages_testbed import Page

NOVA = RowKey(
    "baremetal", "nova", True, "exact", "1.31", "served", "1.31", "api", False, True, "GET /v1/nodes"
)
CURL = NOVA._replace(client="curl", named=False, requested="none", asked="", version="1.1")
OLD = NOVA._replace(client="old", asked="0.9", version="", result="below_min")


async def page_of(keys: Sequence[RowKey], **options: Any) -> ServicePage:
    holder = mixed_fleet()
    async with usage_of(holder, *keys, **options) as keeper:
        found = await PageContents(AdminTestbed(holder, usage=keeper).context()).service_page("baremetal")
    assert found is not None
    return found


def shown(page: ServicePage) -> Page:
    return Page(str(Rendering().fragment(service_fragments(page).fragments["usage"])))


async def test_clients_stand_on_the_axis_of_the_versions() -> None:
    page = await page_of((NOVA, NOVA._replace(asked="1.32", version="1.32"), CURL, OLD))
    assert page.usage is not None
    texts = {row["client"]: [bar.text for bar in bars] for row, bars in drawn(page)}
    assert texts == {"nova": ["1.31-1.32"], "old": [], "curl": ["1.1"]}
    text = shown(page).text
    assert "(curl)" in text
    assert "no version -> 1.1" in text
    assert "0.9" in text
    assert "Incomplete" not in text


def drawn(page: ServicePage) -> list[tuple[dict[str, Any], tuple[Any, ...]]]:
    assert page.usage is not None
    return list(zip(page.usage.answer["rows"], page.usage.bars, strict=True))


async def test_why_it_is_incomplete() -> None:
    gap = Gap(int(time() // 86_400), "", Scope.ALL, "a worker was killed")
    assert "a worker was killed" in shown(await page_of((NOVA,), gaps=(gap,))).text
    assert "No request was counted yet" in shown(await page_of(())).text


async def test_text_of_a_client_is_text() -> None:
    hostile = "<img src=x onerror=alert(1)>\u202e\x1b"
    page = shown(await page_of((NOVA._replace(client=hostile, named=False, asked=hostile, version=hostile),)))
    assert "img" not in {tag for tag, _ in page.tags}
    assert r"(<img src=x onerror=alert(1)>\u202e\x1b)" in page.text


async def test_clients_that_are_not_shown_are_counted() -> None:
    keys = [NOVA._replace(client=f"client {number}") for number in range(MAX_CLIENTS + 7)]
    page = await page_of(keys)
    assert page.usage is not None
    assert len(page.usage.bars) == MAX_CLIENTS
    assert "7 more rows" in shown(page).text


async def test_the_record_is_not_read_for_every_update_of_the_page() -> None:
    class Once:
        reads = 0

        async def read(self, service: str | None, days: int | None) -> UsageRecord:
            self.reads += 1
            raise UsageError("the record of usage cannot be read: disk I/O error")

    once = Once()
    contents = PageContents(AdminTestbed(mixed_fleet(), usage=once).context())
    first, second = await contents.service_page("baremetal"), await contents.service_page("baremetal")
    assert first is not None
    assert second is not None
    assert first.usage == second.usage
    assert once.reads == 1
    assert "cannot be read: disk I/O error" in shown(first).text


async def test_no_card_if_usage_is_off() -> None:
    page = await PageContents(AdminTestbed(mixed_fleet()).context()).service_page("baremetal")
    assert page is not None
    assert shown(page).text.strip() == ""
