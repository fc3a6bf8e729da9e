"""`GET /usage` and `GET /usage/export`: a question gets the answer that the copied database gives, too."""

from __future__ import annotations

import json
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import urlencode

import pytest

from gateway.controlplane.usage.reading import UsageError, read_files
from gateway.core.usage.record import Gap, RowKey, Scope
from gateway.core.usage.summary import Question, answer
from tests.admin.testbed import StartAdmin, mixed_fleet, on_site, usage_of

NOVA = RowKey(
    "baremetal", "nova", True, "exact", "1.31", "served", "1.31", "api", False, True, "GET /v1/nodes"
)
CURL = NOVA._replace(client="curl", named=False, requested="none", asked="", version="1.1")
NEWEST = NOVA._replace(requested="latest", asked="", version="1.58")


async def test_every_question_is_answered_as_from_the_copied_database(
    admin: StartAdmin, tmp_path: Path
) -> None:
    holder = mixed_fleet()
    gap = Gap(int(time() // 86_400), "baremetal", Scope.OPERATIONS, "operations are counted together")
    async with usage_of(holder, NOVA, CURL, NEWEST, gaps=(gap,)) as keeper:
        testbed = await admin(holder, usage=keeper)
        copy = tmp_path / "copy.usage"
        copy.write_bytes(await (await testbed.send("GET", "/usage/export")).read())
        for question in (
            Question(),
            Question("baremetal"),
            Question("baremetal", "7d", "operation"),
            Question("baremetal", by="version", below="1.58"),
            Question(client="nova", version="1.31"),
        ):
            given = {name: each for name, each in question._asdict().items() if each is not None}
            found = await testbed.json(f"/usage?{urlencode(given)}")
            read = read_files([copy], question.service, question.days())
            assert found == json.loads(json.dumps(answer(read, question)))
            assert found["complete"] == (question.by != "operation")


async def test_requests_that_came_just_now_are_in_the_answer(admin: StartAdmin) -> None:
    holder = mixed_fleet()
    async with usage_of(holder, NOVA, CURL, NEWEST) as keeper:
        testbed = await admin(holder, usage=keeper)
        found = await testbed.json("/usage?service=baremetal")
    rows = [(row["client"], row["named"], row["requested"]) for row in found["rows"]]
    assert rows == [("nova", True, "exact"), ("nova", True, "latest"), ("curl", False, "none")]


@pytest.mark.parametrize(
    "query, status, sentence",
    [
        ("service=compute", 404, "there is no service 'compute'; there are: baremetal"),
        ("since=7", 400, "`since` must be a number of days, such as 7d"),
        ("by=color", 400, "`by` must be one of client, version, operation"),
        ("below=1.31", 400, "`below` must be a version of one service, and this `service` must be given"),
        ("service=baremetal&below=new", 400, "`below` must be a version of one service, "),
        ("days=7", 400, "the only parameters are service, since, by, client, version, below"),
        ("by=client&by=version", 400, "a parameter is given more than once"),
    ],
)
async def test_a_question_without_a_meaning(
    admin: StartAdmin, query: str, status: int, sentence: str
) -> None:
    holder = mixed_fleet()
    async with usage_of(holder, NOVA) as keeper:
        response = await (await admin(holder, usage=keeper)).send("GET", f"/usage?{query}")
        assert response.status == status
        assert (await response.json())["error"].startswith(sentence)


@pytest.mark.parametrize("path", ["/usage", "/usage/export", "/simulate?service=baremetal&min=1.2"])
async def test_usage_is_behind_the_token_and_never_on_the_metrics_listener(
    admin: StartAdmin, path: str
) -> None:
    holder = mixed_fleet()
    async with usage_of(holder, NOVA) as keeper:
        testbed = await admin(holder, token="correct-horse-battery", usage=keeper)
        assert (await testbed.send("GET", path)).status == 401
        right = {"Authorization": "Bearer correct-horse-battery"}
        assert (await testbed.send("GET", path, headers=right)).status == 200
        async with on_site(holder, metrics_only=True, usage=keeper) as scraped:
            assert (await scraped.send("GET", path)).status == 404


@pytest.mark.parametrize("path", ["/usage", "/usage/export"])
async def test_usage_that_is_off_or_cannot_be_read(admin: StartAdmin, path: str) -> None:
    class Unreadable:
        async def read(self, *_: Any) -> None:
            raise UsageError("the record of usage cannot be read: disk I/O error")

        async def export(self) -> None:
            await self.read()

    off = await (await admin(mixed_fleet())).send("GET", path)
    assert (off.status, (await off.json())["error"]) == (
        404,
        "nothing is counted: `usage` is off in the configuration",
    )
    damaged = await (await admin(mixed_fleet(), usage=Unreadable())).send("GET", path)
    assert (damaged.status, (await damaged.json())["error"]) == (
        503,
        "the record of usage cannot be read: disk I/O error",
    )
