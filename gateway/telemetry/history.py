"""The last events of this process for the operations page, in bounded memory.

An event is a line of the process log of `info` and above, whatever level the log itself prints. Events are
kept as values and written nowhere. Those of one service never displace those of another, so that a flapping
backend does not hide other events.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple, final

from gateway.runtime.terminal import plain
from gateway.telemetry.process_log import BY_OPERATOR, GATEWAY, OUTAGE

EVENTS: Final = 100
"""Maximum events kept of each service, of those without a service, and of all together."""

MAX_SERVICES: Final = 100
"""Maximum services whose events are kept; those quiet for longest go. All events take at most 12 MB."""

MAX_TEXT: Final = 400
"""Maximum characters of one event's text; the rest is cut."""

MAX_NAME: Final = 200
"""Maximum characters of the name of a service or backend in an event."""


class Event(NamedTuple):
    """Event from the process log, as the operations page shows it."""

    number: int
    """Number of the event: unique, and rising from 1."""
    at: float
    """Wall-clock seconds at which the event was logged."""
    level: int
    logger: str
    service: str
    """Name of the service that the event is about; empty: none."""
    backend: str
    """Name of the backend that the event is about; empty: none."""
    text: str
    """Text of the event without control characters."""
    by_operator: bool
    """Whether the event is a command of an operator."""
    outage: bool | None = None
    """Whether an outage of the service begins (True) or ends (False) with the event; None: neither."""


@final
class History(logging.Handler):
    """Keeps the last log events of the gateway from `start` to `close`. Any thread may log and read."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.last = 0
        """Number of the newest event; 0: no event yet."""
        self._all: deque[Event] = deque(maxlen=EVENTS)
        self._about_none: deque[Event] = deque(maxlen=EVENTS)
        self._about: OrderedDict[str, deque[Event]] = OrderedDict()
        """Kept events by service, the service with the newest event last."""

    def start(self) -> None:
        logging.getLogger(GATEWAY).addHandler(self)

    def close(self) -> None:
        """Stops keeping events; those kept can still be read."""
        logging.getLogger(GATEWAY).removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one log record as an event, under the lock that `handle` holds. Never raises."""
        service, backend = _subject(record, "service"), _subject(record, "backend")
        self.last += 1
        event = Event(
            number=self.last,
            at=record.created,
            level=record.levelno,
            logger=record.name,
            service=service,
            backend=backend,
            text=_text(record),
            by_operator=getattr(record, BY_OPERATOR, False) is True,
            outage=getattr(record, OUTAGE, None),
        )
        self._all.append(event)
        self._events_of(service).append(event)

    def latest(self) -> tuple[Event, ...]:
        """Returns the last events of the process, the newest first."""
        return self._copied(self._all)[::-1]

    def about(self, service: str) -> tuple[Event, ...]:
        """Returns the last events about `service` or about no service, the newest first."""
        found = self._copied(self._about.get(service, ()), self._about_none)
        return tuple(sorted(found, key=attrgetter("number"), reverse=True)[:EVENTS])

    def _events_of(self, service: str) -> deque[Event]:
        if not service:
            return self._about_none
        events = self._about.get(service)
        if events is None:
            events = self._about[service] = deque(maxlen=EVENTS)
            if len(self._about) > MAX_SERVICES:
                self._about.popitem(last=False)
        self._about.move_to_end(service)
        return events

    def _copied(self, *parts: Iterable[Event]) -> tuple[Event, ...]:
        """Copies kept events under the lock that `logging` holds when it calls `emit`."""
        self.acquire()
        try:
            return tuple(chain.from_iterable(parts))
        finally:
            self.release()


def _subject(record: logging.LogRecord, name: str) -> str:
    return plain(getattr(record, name, ""))[:MAX_NAME]


def _text(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - whatever the arguments are, and however they are turned into text
        message = str(record.msg)
    text = plain(" ".join(message[: 2 * MAX_TEXT].split()))
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
