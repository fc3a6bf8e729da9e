"""The last events: what is kept of the process log, how much of it, and that threads may log meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from gateway.telemetry.history import EVENTS, MAX_SERVICES, MAX_TEXT, History
from gateway.telemetry.process_log import about, by_operator

_log = logging.getLogger("skewgate.offer")


@pytest.fixture
def history(caplog: pytest.LogCaptureFixture) -> Iterator[History]:
    """One that keeps what is logged in this process, at the level of a running gateway."""
    caplog.set_level(logging.INFO, "skewgate")
    found = History()
    found.start()
    yield found
    found.close()


def texts(history: History, service: str | None = None) -> list[str]:
    events = history.latest() if service is None else history.about(service)
    return [event.text for event in events]


def test_an_event_has_what_the_log_says_of_it(history: History) -> None:
    _log.warning("%s: offer %s", "metal", "1.1-1.58", extra=about("metal"))
    logging.getLogger("skewgate.prober").info(
        "metal/api-1: in service again", extra=by_operator("metal/api-1")
    )
    newest, oldest = history.latest()
    assert (oldest.level, oldest.logger, oldest.service, oldest.backend, oldest.text, oldest.by_operator) == (
        *(logging.WARNING, "skewgate.offer", "metal", ""),
        *("metal: offer 1.1-1.58", False),
    )
    assert (newest.service, newest.backend, newest.by_operator) == ("metal", "api-1", True)
    assert newest.number == oldest.number + 1 == history.last
    assert newest.at >= oldest.at > 1_500_000_000


def test_what_is_below_info_and_what_libraries_say_is_not_kept(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "skewgate")
    _log.debug("noise")
    logging.getLogger("aiohttp.access").error("somebody else")
    assert history.latest() == ()
    assert history.last == 0


def test_after_the_end_nothing_is_kept_and_all_can_be_read(history: History) -> None:
    _log.info("before")
    history.close()
    _log.info("after")
    assert texts(history) == ["before"]


def test_a_service_that_flaps_displaces_only_its_own_events(history: History) -> None:
    _log.info("quiet", extra=about("quiet"))
    _log.info("reloaded")
    for number in range(3 * EVENTS):
        _log.info("flap %d", number, extra=about("busy"))
    assert texts(history, "quiet") == ["reloaded", "quiet"]
    assert texts(history, "busy") == [f"flap {number}" for number in range(299, 199, -1)]
    assert texts(history) == texts(history, "busy")


def test_a_service_shows_its_own_events_among_those_about_none_in_order(history: History) -> None:
    for number in range(4):
        _log.info("%d", number, extra=about("metal") if number % 2 else {})
    _log.info("other", extra=about("other"))
    assert texts(history, "metal") == ["3", "2", "1", "0"]
    assert texts(history, "unknown") == ["2", "0"]


def test_the_memory_is_bounded_and_the_service_that_was_quiet_for_longest_goes(history: History) -> None:
    for number in range(MAX_SERVICES):
        _log.info("first", extra=about(f"service-{number}"))
    _log.info("again", extra=about("service-0"))
    _log.info("one more", extra=about("new"))
    assert texts(history, "service-0") == ["again", "first"]
    assert texts(history, "service-1") == []
    assert texts(history, "service-2") == ["first"]
    assert texts(history, "new") == ["one more"]


@pytest.mark.parametrize(
    "written, kept",
    [
        ("a\nb\tc\r\n", "a b c"),
        ("\x1b[31mred\x00\x9b", "\ufffd[31mred\ufffd\ufffd"),
        ("left\u202eright", "left\ufffdright"),
        ("<b onclick='x'>&amp;</b>", "<b onclick='x'>&amp;</b>"),
        ("x" * MAX_TEXT, "x" * MAX_TEXT),
        ("x" * (MAX_TEXT + 1), "x" * (MAX_TEXT - 1) + "…"),
        ("x" * 10_000_000, "x" * (MAX_TEXT - 1) + "…"),
    ],
)
def test_a_text_is_one_line_of_bounded_length_without_control_characters(
    history: History, written: str, kept: str
) -> None:
    _log.error("%s", written, extra=about("metal"))
    assert texts(history) == [kept]


def test_control_characters_in_names_are_replaced_too(history: History) -> None:
    _log.error("lost", extra=about("metal/api\x1b[0m"))
    assert history.latest()[0].backend == "api\ufffd[0m"


def test_a_line_with_wrong_arguments_is_kept_as_it_is_written(
    history: History, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("skewgate"), "propagate", False)
    _log.info("%d of %d", "one")
    assert texts(history) == ["%d of %d"]
    assert capsys.readouterr().err == ""


def test_threads_log_while_others_read(history: History) -> None:
    def log(name: str) -> None:
        for number in range(500):
            _log.info("%d", number, extra=about(name))

    threads = [threading.Thread(target=log, args=(f"service-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        numbers = [event.number for event in history.about("service-0")]
        assert numbers == sorted(numbers, reverse=True)
        assert len(history.latest()) <= EVENTS
    for number in range(4):
        assert texts(history, f"service-{number}") == [f"{each}" for each in range(499, 399, -1)]
    assert history.last == 2000
    assert len({event.number for event in history.latest()}) == EVENTS
