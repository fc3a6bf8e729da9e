"""The helpers of the fault run do what they say: schedule, name server, frozen pipes, slow peers, table."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.messages import Message, read_message, request, response
from tests.kit.networks import LOOPBACK
from tests.kit.status import Offer, Sample
from tests.kit.waiting import wait_until
from tests.load import figures
from tests.load.backend import PacedReader
from tests.load.connection import fault_of
from tests.load.fault_testbed import FaultRecord
from tests.load.frozen_reader import PipedProcess
from tests.load.ledger import Ledger
from tests.load.names import Names
from tests.load.records import Delay, Execution, How, Outage, Request, Serving, Span
from tests.load.schedule import (
    APART,
    COURSES,
    OF_WORKERS,
    RESOLVER,
    Fault,
    Group,
    compact_schedule,
    overlapping_schedule,
    paired_schedule,
    schedule,
)
from tests.load.slow_peers import Errand
from tests.load.workload import DIGEST, SLOW_IMAGE, SLOW_INTAKE, digest, slow_pieces

SEEDS = range(40)

# -- the schedule


def test_a_seed_gives_one_schedule_and_seeds_give_many() -> None:
    assert all(schedule(seed) == schedule(seed) for seed in SEEDS)
    assert len({str(schedule(seed)) for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fault_comes_alone_and_then_together_with_others(seed: int) -> None:
    *alone, first, second = schedule(seed)
    again = Counter(act.fault for act in (*first, *second))

    assert [[act.fault for act in group] for group in alone] == [[fault] for fault in OF_ONE_PROCESS]
    assert min(len(first), len(second)) >= 3
    assert set(again.values()) == {1}
    assert set(OF_ONE_PROCESS) - set(again) < set(RESOLVER)
    assert len(set(RESOLVER) & set(again)) == 1
    for group in (first, second):
        assert len({act.fault for act in group} & set(APART)) == 1


OF_ONE_PROCESS = [fault for fault in Fault if fault not in OF_WORKERS]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "name, longest",
    [
        ("plain", 60),
        ("tls", 50),
        ("plain-2-workers", 35),
        ("tls-2-workers", 25),
    ],
)
def test_no_course_lasts_longer_than_it_says(name: str, longest: float, seed: int) -> None:
    groups = COURSES[name].schedule(seed)
    for act in (act for group in groups for act in group):
        assert act.fault.value.shortest <= act.seconds <= act.fault.value.longest

    assert COURSES[name].schedule(seed) == groups
    assert sum(max(act.begin + act.seconds for act in group) for group in groups) < longest


@pytest.mark.parametrize("seed", SEEDS)
def test_the_compact_schedule_has_every_fault_of_one_process(seed: int) -> None:
    *first, _, _ = groups = compact_schedule(seed)

    assert sorted(faults_of(first), key=str) == sorted(OF_ONE_PROCESS, key=str)
    assert groups[-2:] == schedule(seed)[-2:]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_courses_with_workers_have_every_fault_and_those_of_workers_too(seed: int) -> None:
    assert sorted(faults_of(paired_schedule(seed)), key=str) == sorted(Fault, key=str)
    assert set(Fault) - set(faults_of(overlapping_schedule(seed))) == {
        Fault.GATEWAY_STOPPED,
        Fault.PARENT_STOPPED,
        *({*RESOLVER} - set(faults_of(overlapping_schedule(seed)))),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_that_exclude_each_other_never_come_together(seed: int) -> None:
    for group in (group for course in COURSES.values() for group in course.schedule(seed)):
        faults = set(faults_of([group]))
        assert len(faults & set(RESOLVER)) <= 1
        assert len(faults & set(APART)) <= 1
        assert not faults & set(APART) or Fault.PARENT_STOPPED not in faults
        stops = sorted(
            (act.begin, act.begin + act.seconds)
            for act in group
            if act.fault in (Fault.GATEWAY_STOPPED, Fault.WORKER_STOPPED)
        )
        assert all(first[1] < second[0] for first, second in pairwise(stops))


def faults_of(groups: Iterable[Group]) -> list[Fault]:
    return [act.fault for group in groups for act in group]


# -- the name server


def answer_of(client: socket.socket, port: int, name: str) -> int | None:
    """The response code for this name; None: silence, since only the next query gets a response."""
    for ident, wanted in enumerate((name, MARKER)):
        labels = b"".join(bytes([len(label)]) + label.encode() for label in wanted.split("."))
        query = struct.pack("!6H", ident, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, 1, 1)
        client.sendto(query, (LOOPBACK, port))
    codes = {}
    while 1 not in codes:
        response = client.recv(512)
        codes[int.from_bytes(response[:2])] = response[3] & 15
    return codes.get(0)


MARKER = "marker.test"


def test_the_name_server_answers_ignores_and_denies() -> None:
    addresses = dict.fromkeys(("api-1.test", "other-1.test"), LOOPBACK)
    with Names(addresses, LOOPBACK, port=0) as names, socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(10)

        def answers() -> list[int | None]:
            return [answer_of(client, names.port, name) for name in addresses]

        assert answers() == [0, 0]
        with names.ignoring("some", frozenset({"other-1.test"})):
            assert answers() == [0, None]
        with names.ignoring("all"):
            assert answers() == [None, None]
        with names.denying("denied"):
            assert answers() == [3, 3]
        assert answers() == [0, 0]

    assert names.queries == {"some": 1, "all": 2, "denied": 2}


def test_a_name_server_that_cannot_start_says_so() -> None:
    with Names({}, LOOPBACK, port=0) as names:
        second = Names({}, LOOPBACK, port=names.port)
        with ExitStack() as stack, pytest.raises(OSError, match="in use"):
            stack.enter_context(second)


# -- the frozen pipes

WRITER = """
import sys
from pathlib import Path
Path(sys.argv[1]).touch()
for number in range(3):
    print(f"line {number}", flush=True)
Path(sys.argv[2]).touch()
"""


def test_nobody_reads_a_frozen_pipe_and_nothing_in_it_is_lost(tmp_path: Path) -> None:
    begun, done = tmp_path / "begun", tmp_path / "done"
    writer = PipedProcess("writer", [sys.executable, "-c", WRITER, str(begun), str(done)], tmp_path)
    try:
        with writer.out.frozen(), writer.err.frozen():
            writer.start()
            wait_until(begun.exists, "the process writes")
            for pipe in (writer.out, writer.err):
                assert select.select((), (pipe.write_end,), (), 0)[1] == []
            assert not done.exists()
        wait_until(done.exists, "the process goes on")
    finally:
        writer.stop()
        writer.end_reading()

    assert writer.written().strip().split(b"\n") == [b"line 0", b"line 1", b"line 2"]


# -- slow peers


async def test_a_body_is_taken_at_the_rate_of_its_path_and_only_on_such_a_path() -> None:
    """A rate of 200 kB a second: 20 kB take a tenth of a second."""
    loop = asyncio.get_running_loop()
    durations = {}
    for path in (f"{SLOW_INTAKE}/200000?load=a-1", "/v1/image?load=a-1"):
        reader = PacedReader()
        reader.feed_data(request("PUT", path, body=b"x" * 20_000))
        began = loop.time()
        message = await read_message(reader)
        durations[path] = loop.time() - began
        assert len(message.body) == 20_000

    slow, fast = durations.values()
    assert slow >= 0.09 > fast


@pytest.mark.parametrize(
    "errand",
    [
        Errand("slow response", "GET", f"{SLOW_IMAGE}/20000"),
        Errand("slow upload", "PUT", "/v1/image", 20_000),
    ],
)
def test_a_slow_client_notices_a_wrong_byte(errand: Errand) -> None:
    sent = b"".join(slow_pieces("a-1", 20_000))
    got = sent if errand.method == "GET" else b'{"received": "%s"}' % digest(sent).encode()
    whole = Message(response(200, f"{DIGEST}: {digest(sent)}"), got, "length")

    due = errand.body_due("a-1"), {"received": digest(sent)}

    assert fault_of(whole, *due) == ""
    assert fault_of(whole._replace(body=got[:-1]), *due)
    assert fault_of(whole._replace(body=got.replace(got[20:21], b"?", 1)), *due)


# -- record and table

RANGE = Offer("1.1", "1.58")
GET = Request("get-1", "pinned", "GET", "1.58", 10.0, 10.1, 200, "1.58", *RANGE, answered="get-1")
GOT = Execution("get-1", "api-1", "1.58", 10.05)
RECORD = FaultRecord(
    faults=[
        ("PARTITION", Span(10.0, 12.0)),
        ("SLOW_PEERS", Span(11.0, 13.0)),
        ("FROZEN_READER", Span(20.0, 21.0)),
    ],
    outages=[Outage("api-1", How.PARTITIONED, Span(10.0, 11.0))],
    serving=[Serving("api-1", "1.58", Span(9.0, 99.0))],
    crowds=[Span(11.0, 12.0)],
    delays=[Delay(Span(10.0, 11.0), 4.5)],
    samples=[Sample(9.0, 9.1, RANGE, "uniform")],
    executions=[GOT],
    queries={"RESOLVER_SILENT": 3},
    facts={"newcomers closed": 2.0},
)


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    RECORD.save(tmp_path / "record")

    assert FaultRecord.load(tmp_path / "record") == RECORD


def test_the_table_counts_a_request_in_every_fault_of_its_time() -> None:
    late = replace(GET, ident="get-2", answered="get-2", began=11.5, ended=14.5)
    lost = replace(GET, ident="get-3", answered="", began=15.0, ended=15.1, status=500)
    requests = [GET, late, lost]
    executions = [GOT, replace(GOT, ident="get-2")]
    judgement = Ledger(requests, executions, RECORD.samples, prompt=2.0).judge()
    rows = {row[""]: row for row in figures.by_fault(requests, RECORD, judgement)}

    assert [(title, *(rows[title][name] for name in ("requests", "lost", "late"))) for title in rows][:4] == [
        ("half of the fleet partitioned +", "2", "0", "1"),
        ("slow peers +", "1", "0", "1"),
        ("log reader frozen", "0", "0", "0"),
        (figures.AT_REST, "1", "1", "0"),
    ]
    assert rows["half of the fleet partitioned +"]["p100 ms"] == "3000"
