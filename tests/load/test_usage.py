"""A client that comes once is in the list, or the day says that it is incomplete: never neither.

Whatever happens between the request and the question: many others, invented user agents, a killed worker, a
killed main process, a take-over, a full disk. Counts are compared with a ledger of the clients.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.kit.processes import call, finish
from tests.kit.waiting import until
from tests.load.conftest import WORKERS
from tests.load.usage_testbed import (
    NOTHING,
    Ask,
    Ledger,
    Listed,
    UsageGateway,
    asks,
    breaches,
    listed,
    quick_ironic,
    read,
    send,
    shuffled,
)

LOUD: Final = 100_000
INVENTED: Final = 10_000
RARE: Final = asks("rare", "1.1", 1)
"""The client that breaks if 1.1 goes."""


def crowd(number: int) -> list[Ask]:
    """Returns requests of some programs as they are: each asks for its version again and again."""
    return shuffled(
        [
            asks("python-ironicclient", "1.58", number // 2),
            asks("openstacksdk", "1.72", number // 4),
            asks("gophercloud", "latest", number // 8),
            asks("curl", "", number // 16),
            asks("nightly", "1.31", number // 16, user_agent="nightly-report/2 (cron)"),
        ]
    )


def invented(path: str, client: str = "other") -> list[Ask]:
    """Returns one request of each of `INVENTED` user agents. `client`: as what they count."""
    return [Ask(client, "1.9", f"scanner-{number:x}/{number}", path) for number in range(INVENTED)]


def many_rows() -> list[Ask]:
    """Returns requests of so many operations that a database grows."""
    return [Ask("prober", "1.5", "prober/1", f"/v1/{'long' * 15}/x-{number:x}-") for number in range(400)]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[UsageGateway]:
    """A gateway with two workers, whose process is the test's to start."""
    async with quick_ironic() as backend:
        gateway = UsageGateway(tmp_path / "gateway", backend, WORKERS)
        yield gateway
        await gateway.kill()


async def killed(gateway: UsageGateway, pid: int) -> None:
    """Kills a worker, and returns when another one serves in its place."""
    os.kill(pid, signal.SIGKILL)

    async def is_replaced() -> bool:
        workers = (await gateway.status())["workers"]
        return all(each["state"] == "serving" and each["pid"] != pid for each in workers)

    await until(is_replaced, "another worker")


@pytest.mark.load
@pytest.mark.timeout(300)
async def test_a_client_that_comes_once_is_found_among_a_hundred_thousand_requests(
    gateway: UsageGateway,
) -> None:
    """User agents that were invented, and refused, take nobody's place: the list is exact and complete."""
    ledger = Ledger()
    await gateway.ready()
    await send(gateway.port, shuffled([crowd(LOUD), invented(NOTHING), RARE]), ledger)
    found = await gateway.listed()
    await gateway.end()

    assert breaches(found, ledger) == []
    assert not found.incomplete
    assert found.requests["rare", "1.1"] == 1
    assert found.requests == ledger.answered
    assert await listed("--db", str(gateway.database)) == found


@pytest.mark.load
@pytest.mark.timeout(300)
async def test_user_agents_that_were_answered_fill_the_list_and_the_day_says_so(
    gateway: UsageGateway,
) -> None:
    ledger = Ledger()
    await gateway.ready()
    await send(gateway.port, [*invented("/v1/nodes"), *RARE], ledger)
    found = await gateway.listed()
    await gateway.end()

    assert found.incomplete
    assert sum(found.requests.values()) == ledger.answered.total()
    assert len({client for client, _ in found.requests}) <= 201 + 1


@pytest.mark.load
@pytest.mark.timeout(300)
async def test_a_killed_worker_takes_no_client_with_it_in_silence(gateway: UsageGateway) -> None:
    """Each worker in turn, at the moment at which the rare client has its answer."""
    ledger = Ledger()
    await gateway.ready()
    for number in range(WORKERS):
        pid = (await gateway.status())["workers"][number]["pid"]
        rare = asks(f"rare-{number}", "1.1", 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(send(gateway.port, crowd(4000), ledger))
            await send(gateway.port, rare, ledger)
            await killed(gateway, pid)
    found = await gateway.listed()
    await gateway.end()

    assert breaches(found, ledger) == []
    assert found.incomplete


@pytest.mark.load
@pytest.mark.timeout(300)
async def test_a_killed_main_process_takes_no_client_with_it_in_silence(gateway: UsageGateway) -> None:
    ledger = Ledger()
    await gateway.ready()
    await send(gateway.port, crowd(4000), ledger)
    before = await gateway.listed()
    await send(gateway.port, RARE, ledger)
    await gateway.kill()
    offline = await listed("--db", str(gateway.database))
    await gateway.ready()
    after = await gateway.listed()
    await gateway.end()

    assert not before.incomplete
    for found in (before, offline, after):
        assert breaches(found, ledger) == [] or found is before
    assert offline.incomplete
    assert after.incomplete
    # What was committed is still there.
    for key, number in before.requests.items():
        assert after.requests[key] >= number


@pytest.mark.load
@pytest.mark.timeout(300)
async def test_a_take_over_loses_no_count_and_leaves_no_gap(gateway: UsageGateway) -> None:
    """Clients ask all the time; both processes add to one database."""
    ledger = Ledger()
    await gateway.ready()
    for number in range(2):
        before = gateway.process
        assert before is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(send(gateway.port, crowd(8000), ledger))
            await send(gateway.port, asks(f"before-{number}", "1.1", 1), ledger)
            await gateway.ready("--take-over")
            await send(gateway.port, asks(f"after-{number}", "1.1", 1), ledger)
        assert (await finish(before)).code == 0
    found = await gateway.listed()
    await gateway.end()

    assert breaches(found, ledger) == []
    assert not found.incomplete
    assert found.requests == ledger.answered


@pytest.mark.load
@pytest.mark.timeout(300)
async def test_a_full_disk_costs_no_request_and_is_said(gateway: UsageGateway) -> None:
    """The folder of the state is a file system of its own, full before the start and once more later. What
    was counted meanwhile is written when there is space."""
    ledger = Ledger()
    folder = gateway.state.parent
    script = f"mount -t tmpfs -o size=1m none {folder} && cat >{gateway.file} <<'END'\n"
    script += f"{gateway.file.read_text()}END\n"
    script += f'dd if=/dev/zero of={folder}/filler bs=4k 2>{folder}/ended; exec "$@"'
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    await gateway.ready(within=["unshare", *user, "--mount", "sh", "-c", script, "sh"])
    assert gateway.process is not None
    filler = Path(f"/proc/{gateway.process.pid}/root{folder}/filler")

    await send(gateway.port, shuffled([crowd(2000), RARE]), ledger)
    unreadable = await call("usage", "baremetal", "--admin", gateway.admin)
    empty(filler)
    first = await complete(gateway)
    assert first.requests == ledger.answered

    fill(filler)
    await send(gateway.port, [*many_rows(), *asks("late", "1.1", 1)], ledger)
    full = await gateway.listed()
    empty(filler)
    second = await complete(gateway)
    await gateway.end()

    assert ledger.answered == ledger.sent
    assert unreadable.code == 1
    assert "full" in unreadable.err
    assert full.incomplete
    assert breaches(full, ledger) == []
    assert second.requests == ledger.answered


def fill(file: Path) -> None:
    """Writes until nothing is left."""
    with suppress(OSError), file.open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass


def empty(file: Path) -> None:
    """Gives the space back."""
    file.unlink()


async def complete(gateway: UsageGateway) -> Listed:
    """Returns what a gateway lists as soon as it calls no day incomplete."""
    found = Listed({}, True)

    async def is_complete() -> bool:
        nonlocal found
        ended = await call("usage", "baremetal", "-o", "json", "--admin", gateway.admin)
        found = read(json.loads(ended.out)) if ended.code == 0 else found
        return not found.incomplete

    await until(is_complete, "a complete list")
    return found


@pytest.mark.processes
async def test_the_databases_of_three_replicas_add_up_to_the_ledger(tmp_path: Path) -> None:
    """The same one twice would count requests twice, so that is an error."""
    ledger = Ledger()
    async with quick_ironic() as backend:
        replicas = [UsageGateway(tmp_path / name, backend, 1) for name in ("one", "two", "three")]
        await asyncio.gather(*(replica.ready() for replica in replicas))
        shares = [[*crowd(320 * share), *asks(f"only-{share}", "1.1", 1)] for share in (1, 2, 3)]
        for replica, share in zip(replicas, shares, strict=True):
            await send(replica.port, share, ledger, connections=2)
        exported = tmp_path / "exported"
        ended = await call("usage", "--export", str(exported), "--admin", replicas[0].admin)
        assert ended.code == 0, ended.err
        await asyncio.gather(*(replica.end() for replica in replicas))

    def options(*files: Path) -> list[str]:
        return [word for file in files for word in ("--db", str(file))]

    databases = [replica.database for replica in replicas]
    found = await listed(*options(*databases))
    twice = await call("usage", *options(databases[0], databases[1], databases[0]))
    copied = await call("usage", *options(databases[0], exported))

    assert not found.incomplete
    assert found.requests == ledger.answered
    assert await listed(*options(exported, *databases[1:])) == found
    assert twice.code == copied.code == 1
    assert "twice" in twice.err


@pytest.mark.parametrize(
    "requests, incomplete, expected",
    [
        ({("rare", "1.1"): 1}, False, []),
        ({}, True, []),
        ({}, False, ["rare at 1.1: 1 answered, 0 counted, no day is incomplete"]),
        ({("rare", "1.1"): 3}, True, ["rare at 1.1: 2 sent, 3 counted", "2 sent, 3 counted"]),
        ({("other", "1.1"): 3}, True, ["2 sent, 3 counted"]),
    ],
)
def test_the_judge_finds_what_is_neither_listed_nor_said(
    requests: dict[tuple[str, str], int], incomplete: bool, expected: Sequence[str]
) -> None:
    ledger = Ledger()
    ledger.sent["rare", "1.1"] = 2
    ledger.answered["rare", "1.1"] = 1

    assert breaches(Listed(requests, incomplete), ledger) == expected
