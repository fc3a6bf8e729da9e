"""The access log: complete and harmless when it can be written, lost and counted when it cannot."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.errors import StartupError
from gateway.telemetry.access_log import (
    BATCH,
    MAX_REMEMBERED,
    MAX_REMEMBERED_LENGTH,
    MAX_VALUE,
    AccessLog,
    Format,
    printable,
    quoted,
    redacted,
)
from gateway.telemetry.request_record import RequestRecord
from gateway.tls.values import ClientCertificate
from tests.docs.log_fields import ACCESS_LOG, LEFT_OUT
from tests.kit.waiting import wait_until
from tests.telemetry.builders import Received, record


def lines(path: Path) -> list[str]:
    return path.read_text("ascii").splitlines()


def test_a_line_of_json_holds_everything(tmp_path: Path) -> None:
    log = AccessLog("json", str(tmp_path / "log"))
    ids: dict[str, Any] = {
        "request_id": "req-1",
        "response_request_id": "req-2",
        "trace_id": "0af7651916cd43dd" * 2,
    }
    log.record(record(**ids, bytes_in=7))
    nothing: dict[str, Any] = {"requested": None, "result": None, "version": "", "backend_seconds": -1.0}
    log.record(record(service="", backend="none", host="", user_agent=b"", **nothing))
    log.close()

    first, second = map(json.loads, lines(tmp_path / "log"))
    assert len(first.pop("time")) == len("2026-11-20T13:43:28.123Z")
    assert first == {
        "client": "192.0.2.7",
        "method": "GET",
        "host": "ironic.example.org",
        "user_agent": "curl/8.0",
        "target": "/v1/nodes",
        "status": 200,
        "service": "baremetal",
        "backend": "old",
        "attempts": 1,
        "requested": "exact",
        "version": "1.31",
        "served": "1.31",
        "result": "served",
        "reason": None,
        "seconds": 0.004,
        "backend_seconds": 0.003,
        "bytes_in": 7,
        "bytes_out": 532,
        **ids,
    }
    assert {name for name, value in second.items() if value is None} == {
        field.name for field in ACCESS_LOG if field.null and field.name not in LEFT_OUT
    }


KINDS: Final[dict[str, tuple[type, ...]]] = {
    "time": (str,),
    "text": (str,),
    "word": (str,),
    "integer": (int,),
    "seconds": (float, int),
}


def test_a_line_has_the_fields_of_the_table_in_its_order(tmp_path: Path) -> None:
    for form in ("json", "text"):
        log = AccessLog(form, str(tmp_path / form))
        certificate = ClientCertificate("CN=alice", "ab" * 32, b"")
        received = Received("GET", b"/v1/nodes", "192.0.2.7", certificate=certificate, user_agent=b"\t curl ")
        sample = RequestRecord(received, received)
        sample.reason, sample.version, sample.service = "connect", "1.31", "baremetal"
        sample.requested, sample.result = RequestedKind.EXACT, NegotiationResult.SERVED
        sample.backend_seconds, sample.status = 0.1, 200
        sample.client_name = "nova-cron"
        sample.request_id, sample.response_id = "req-1", b"req-1"
        sample.traceparent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        log.record(sample)
        log.close()

    (line,) = map(json.loads, lines(tmp_path / "json"))
    assert list(line) == [field.name for field in ACCESS_LOG]
    assert line["user_agent"] == "curl"
    for field in ACCESS_LOG:
        assert type(line[field.name]) in KINDS[field.kind], field.name
    (line,) = lines(tmp_path / "text")
    assert set(re.findall(r" ([a-z_]+)=", line)) == {field.name for field in ACCESS_LOG[1:]}


@pytest.mark.parametrize(
    "differing,version,served",
    [
        ({}, "1.31", "1.31"),
        ({"result": NegotiationResult.ABOVE_MAX}, "1.31", None),
        ({"result": NegotiationResult.BRIDGED}, "1.31", "1.31"),
        ({"result": NegotiationResult.UNAVAILABLE}, "1.31", None),
        ({"status": 0}, "1.31", None),
        ({"negotiated": "1.31", "version": "1.30"}, "1.31", "1.30"),
        ({"negotiated": "1.31", "version": ""}, "1.31", None),
    ],
)
def test_what_was_served_is_told_from_what_was_negotiated(
    differing: dict[str, Any], version: str, served: str | None
) -> None:
    log = AccessLog("json", os.devnull)
    line = json.loads(log._as_json(0.0, record(**differing)))
    assert (line["version"], line["served"]) == (version, served)
    log.close()


@pytest.mark.parametrize(
    "query,shown",
    [
        ("limit=10&marker=abc", "limit=*&marker=*"),
        ("token", "*"),
        ("a=b=c&d", "a=*&*"),
        ("a=&&b=1", "a=*&&b=*"),
        ("a=1;b=2", "a=*"),
        ("token%3Dsecret", "*"),
        ("a=1?b=2", "a=*"),
        ("", ""),
        ("=x", "=*"),
    ],
)
def test_the_values_of_a_query_are_not_logged(query: str, shown: str, tmp_path: Path) -> None:
    for form in ("json", "text"):
        log = AccessLog(form, str(tmp_path / form))
        kept = AccessLog(form, str(tmp_path / f"{form}-kept"), "keep")
        for each in (log, log, kept):  # the second time from what is remembered
            each.record(record(target=f"/v1/nodes?{query}"))
        log.close()
        kept.close()
        for line in lines(tmp_path / form):
            assert f'"/v1/nodes?{shown}"' in line
        assert f'"/v1/nodes?{query}"' in lines(tmp_path / f"{form}-kept")[0]


@given(st.text(st.sampled_from("ab=&?;%3D"), max_size=30))
def test_of_a_query_nothing_is_left_but_names(query: str) -> None:
    shown = redacted(query)
    names = [part.partition("=")[0] if "=" in part else "" for part in query.split("&")]
    assert [part.rpartition("=")[0] if part else "" for part in shown.split("&")] == names
    assert all(part == "" or part.rpartition("=")[2] == "*" for part in shown.split("&"))


def test_a_line_of_text_is_for_people(tmp_path: Path) -> None:
    log = AccessLog("text", str(tmp_path / "log"))
    log.record(record(requested=RequestedKind.LATEST, result=NegotiationResult.SERVED))
    log.close()

    (line,) = lines(tmp_path / "log")
    assert line.split(" ", 1)[1] == (
        'client=192.0.2.7 method=GET host=ironic.example.org target="/v1/nodes" status=200 service=baremetal '
        "backend=old attempts=1 requested=latest version=1.31 served=1.31 result=served reason=- "
        "seconds=0.004000 backend_seconds=0.003000 bytes_in=0 bytes_out=532 request_id=- "
        'response_request_id=- trace_id=- user_agent="curl/8.0"'
    )


def test_in_a_line_of_text_nobody_can_write_a_field(tmp_path: Path) -> None:
    log = AccessLog("text", str(tmp_path / "log"))
    forged = "x status=500"
    log.record(
        record(
            method=forged,
            client=forged,
            host=forged,
            user_agent=forged.encode(),
            response_request_id=forged,
            reason="-",
        )
    )
    log.close()

    (line,) = lines(tmp_path / "log")
    assert re.findall(r'status=(?:[^ "]+)(?!")', line.replace(f'"{forged}"', "")) == ["status=200"]
    assert ' reason="-" ' in line


def test_off_writes_nothing(tmp_path: Path) -> None:
    log = AccessLog("off", str(tmp_path / "log"))
    log.record(record())
    log.reopen()
    log.close()

    assert not (tmp_path / "log").exists()
    assert log.dropped == 0


HOSTILE = '/\r\n127.0.0.1 - - "GET /" \x1b[2J\x7f\x00\x85\u2028\u202e\U0001f600\ud800\\' + '"'


def in_ascii(text: str) -> str:
    """What of it may be in a target: another one never gets into a record."""
    return text.encode("ascii", "ignore").decode()


@pytest.mark.parametrize("form", ["json", "text"])
def test_o8_what_a_client_wrote_cannot_leave_its_place(form: str, tmp_path: Path) -> None:
    log = AccessLog(form, str(tmp_path / "log"))  # type: ignore[arg-type]
    target = in_ascii(HOSTILE)
    log.record(record(target=target, client=HOSTILE, version=HOSTILE, method=HOSTILE))
    log.record(record())
    log.close()

    written = (tmp_path / "log").read_bytes()
    assert written.count(b"\n") == 2
    assert all(0x20 <= byte < 0x7F for byte in written if byte != 0x0A)
    if form == "json":
        line = json.loads(lines(tmp_path / "log")[0])
        assert (line["target"], line["client"]) == (target, HOSTILE)


@pytest.mark.parametrize("character", ["a", "\x00", "é", "\U0001f600", "\\", '"', "\x7f"])
@pytest.mark.parametrize("length", [1, 84, 85, 510, 1021, 1024, 1025, 8192, 100_000])
def test_o8_long_texts_are_cut(character: str, length: int) -> None:
    text = character * length
    line = quoted(text)

    assert len(line) <= MAX_VALUE + 2
    assert printable(text) == line[1:-1]
    back = json.loads(line)
    assert back == text or (back.endswith("...") and text.startswith(back[:-3]))


def escaped_by_library(text: str) -> str:
    """A JSON string as the library writes it, cut: what every text of a line is."""
    value = json.dumps(text).replace("\x7f", "\\u007f")
    for kept in (MAX_VALUE - 3, (MAX_VALUE - 3) // 12):
        if len(value) > MAX_VALUE + 2:
            value = json.dumps(f"{text[:kept]}...").replace("\x7f", "\\u007f")
    return value


TEXTS = st.one_of(
    st.text(st.characters(), max_size=20),  # lone surrogates too
    st.text(st.sampled_from('ab /"\\\x7f\x1f\n\r\0é\u2028\ud800\U0001f600%{}'), max_size=12),
    st.builds(str.__mul__, st.characters(), st.sampled_from([84, 85, 1021, 1024, 1025, 9000])),
)
IDS: Final = ("request_id", "response_request_id")
RECORDS = st.fixed_dictionaries(
    dict.fromkeys(("client", "method", "host", "service", "backend", "version", "reason"), TEXTS)
    | {
        "target": TEXTS.map(in_ascii),
        "status": st.integers(0, 999),
        "requested": st.sampled_from([None, *RequestedKind]),
        "result": st.sampled_from([None, *NegotiationResult]),
        "attempts": st.integers(0, 9),
        "seconds": st.floats(0, 1e6),
        "backend_seconds": st.floats(-1, 1e6),
        "user_agent": st.binary(max_size=12).map(lambda value: value.replace(b"\n", b"")),
        "bytes_in": st.integers(0, 2**60),
        "bytes_out": st.integers(0, 2**60),
        "request_id": TEXTS,
        "response_request_id": st.sampled_from(["", "req-0f5e7a9c"]),
    }
)


@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_o8_a_line_says_what_the_record_says(records: list[dict[str, Any]]) -> None:
    log, text_log = AccessLog("json", os.devnull, "keep"), AccessLog("text", os.devnull, "keep")
    for fields in records * 2:  # the second time from what is remembered
        line = log._as_json(0.0, record(**fields))
        assert (line[-1], line.count("\n"), line[:-1].isprintable(), line.isascii()) == ("\n", 1, True, True)
        found = json.loads(line)
        for name in (*("client", "method", "host", "service", "version", "reason"), *IDS):
            assert found[name] == (json.loads(escaped_by_library(fields[name])) if fields[name] else None)
            assert quoted(fields[name]) == escaped_by_library(fields[name])
        for name in ("target", "backend"):
            assert found[name] == json.loads(escaped_by_library(fields[name]))
        user_agent = fields["user_agent"].strip(b" \t").decode("latin-1")
        assert found["user_agent"] == (user_agent or None)
        for name in ("requested", "result", "status", "attempts"):
            assert found[name] == fields[name]
        assert (found["bytes_in"], found["bytes_out"]) == (fields["bytes_in"], fields["bytes_out"])
        assert found["seconds"] == float(f"{fields['seconds']:.6f}")
        if fields["backend_seconds"] < 0:
            assert found["backend_seconds"] is None
        else:
            assert found["backend_seconds"] == float(f"{fields['backend_seconds']:.6f}")

        line = text_log._as_text(0.0, record(**fields))
        assert (line[-1], line.count("\n"), line[:-1].isprintable(), line.isascii()) == ("\n", 1, True, True)
        assert f" target={escaped_by_library(fields['target'])} " in line
        assert line.endswith(f" user_agent={escaped_by_library(user_agent)}\n")
    log.close()
    text_log.close()


SECONDS: Final = st.one_of(
    st.floats(0, 2),
    st.integers(0, 2_100_000).map(lambda number: number / 1e6),
    st.integers(0, 2_100_000).map(lambda number: (number + 0.5) / 1e6),  # halfway, as far as a float can be
)


@given(SECONDS, st.one_of(SECONDS, st.just(-1.0)))
@example(0.999_999_4, 0.999_999_4)
@example(0.999_999_5, 0.999_999_5)
@example(0.000_000_5, 0.000_000_5)
@example(0.000_002_5, 0.000_001_5)
def test_seconds_are_rounded_as_any_number_is(seconds: float, backend_seconds: float) -> None:
    log = AccessLog("json", os.devnull)
    line = log._as_json(0.0, record(seconds=seconds, backend_seconds=backend_seconds))
    shown = f"{backend_seconds:.6f}" if backend_seconds >= 0 else "null"
    assert f'"seconds": {seconds:.6f}, "backend_seconds": {shown}, "bytes_in": 0' in line
    log.close()


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_is_remembered_is_bounded(form: Format) -> None:
    log = AccessLog(form, os.devnull)
    for number in range(MAX_REMEMBERED * 2 + 1):
        target = f"/?{number}={'x' * (number % 999)}"
        log.record(record(client=f"{number}", target=target, reason="x" * (number % 999)))
        if number % 100 == 0:
            log.flush()
            assert max(len(log._senders), len(log._endings), len(log._queries)) <= MAX_REMEMBERED
    texts = (*log._queries, *log._senders.values(), *log._endings.values())
    assert max(map(len, texts)) <= MAX_REMEMBERED_LENGTH
    log.close()
    assert log.dropped == 0


@given(st.floats(0, 4e9))
@example(8.6)
def test_the_time_of_a_line_is_that_of_its_request(seconds: float) -> None:
    log = AccessLog("json", os.devnull)
    for ended_at in (seconds, seconds + 0.001, seconds + 1.0, seconds):
        text = json.loads(log._as_json(ended_at, record()))["time"]
        assert len(text) == len("2026-11-20T13:43:28.123Z")
        since = ended_at - datetime.fromisoformat(text).timestamp()
        assert -1e-6 < since < 0.002  # 8.600999999999999 times a thousand is 8601.0
    log.close()


def test_a_line_has_the_time_at_which_it_was_recorded(tmp_path: Path) -> None:
    log = AccessLog("json", str(tmp_path / "log"))
    before = time.time()
    log.record(record())
    after = time.time()
    wait_until(lambda: time.time() > after + 0.01)
    log.close()

    (line,) = map(json.loads, lines(tmp_path / "log"))
    assert (
        int(before * 1000) <= round(datetime.fromisoformat(line["time"]).timestamp() * 1000) <= after * 1000
    )


def test_the_thread_is_woken_once_for_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = os.write, 0

    def counted(fd: int, data: memoryview) -> int:
        nonlocal calls
        calls += 1
        return write(fd, data)

    monkeypatch.setattr("gateway.telemetry.line_writer.os.write", counted)
    log = AccessLog("json", str(tmp_path / "log"))
    for _ in range(BATCH * 10):
        log.record(record())
    log.close()
    assert len(lines(tmp_path / "log")) == BATCH * 10
    assert calls <= 10


async def test_a_line_is_written_within_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = AccessLog("json", str(path))
    log.record(record())
    assert path.read_bytes() == b"", "lines are written together"

    await asyncio.to_thread(wait_until, lambda: path.read_bytes() != b"")
    log.close()


def test_many_lines_are_written_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = AccessLog("json", str(path))
    for _ in range(BATCH):
        log.record(record())

    wait_until(lambda: path.read_bytes().count(b"\n") == BATCH)
    log.close()


def test_after_rotation_lines_go_to_the_new_file_and_none_is_lost(tmp_path: Path) -> None:
    path, old = tmp_path / "log", tmp_path / "log.1"
    log = AccessLog("json", str(path))
    for number in range(500):
        log.record(record(bytes_out=number))
    path.rename(old)
    log.reopen()
    for number in range(500, 1000):
        log.record(record(bytes_out=number))
    log.close()

    assert [json.loads(line)["bytes_out"] for line in (*lines(old), *lines(path))] == list(range(1000))
    assert json.loads(lines(path)[0])["bytes_out"] == 500
    assert log.dropped == 0


def test_a_rotation_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    folder, moved = tmp_path / "logs", tmp_path / "moved"
    folder.mkdir()
    log = AccessLog("json", str(folder / "log"))
    folder.rename(moved)
    log.reopen()
    log.record(record())
    log.close()

    assert len(lines(moved / "log")) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_costs_lines_but_no_request() -> None:
    log = AccessLog("json", "/dev/full")
    for _ in range(BATCH * 3 + 1):
        log.record(record())
    log.close()

    assert log.dropped == BATCH * 3 + 1


def test_a_reader_that_stopped_reading_blocks_nobody(tmp_path: Path) -> None:
    """A full pipe holds the thread; requests go on, and what does not fit is counted."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog("json", path)
    long = "/" + "x" * 1000
    for _ in range(10_000):
        log.record(record(target=long))  # would never return if it waited for the reader

    assert 0 < log.dropped < 10_000
    os.close(reader)
    log.close()
    assert log.dropped >= 9_000, "with the reader gone, what was waiting is lost and counted, too"


def test_a_line_that_was_cut_short_does_not_swallow_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log = AccessLog("json", str(path))
    write, calls = os.write, 0

    def full_in_the_middle(fd: int, data: memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            return write(fd, data[:10])
        if calls == 2:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr("gateway.telemetry.line_writer.os.write", full_in_the_middle)
    for number in range(2 * BATCH):
        log.record(record(bytes_out=number))
        if number == BATCH - 1:
            wait_until(lambda: log.dropped == BATCH)
    log.close()

    found = lines(path)
    assert found[0] == '{"time": "'
    assert [json.loads(line)["bytes_out"] for line in found[1:]] == list(range(BATCH, 2 * BATCH))
    assert log.dropped == BATCH


def test_a_record_that_cannot_be_formatted_is_a_lost_line_and_no_error(tmp_path: Path) -> None:
    log = AccessLog("json", str(tmp_path / "log"))
    received = Received("GET", b"/\xff", "192.0.2.7")  # no byte of a target
    log.record(RequestRecord(received, received))
    log.close()
    log.record(record())

    assert log.dropped == 1
    assert lines(tmp_path / "log") == []


def test_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    log = AccessLog("json")
    log.record(record())
    log.close()

    assert json.loads(capfd.readouterr().out)["target"] == "/v1/nodes"


def test_a_file_that_cannot_be_opened_is_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot open the access log .*: No such file or directory"):
        AccessLog("json", str(tmp_path / "nowhere" / "log"))


def test_R_D6_a_line_has_the_id_of_the_request(tmp_path: Path) -> None:
    request_id = "req-0f5e7a9c-1b2d-4c3e-8f40-5a6b7c8d9e0f"
    for form in ("json", "text"):
        log = AccessLog(form, str(tmp_path / form))
        log.record(record(request_id=request_id))
        log.record(record())
        log.close()

    first, second = map(json.loads, lines(tmp_path / "json"))
    assert (first.get("request_id"), second.get("request_id", "missing")) == (request_id, None)
    first, second = lines(tmp_path / "text")
    assert f" request_id={request_id} " in first
    assert " request_id=- " in second
