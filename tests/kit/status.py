"""Readings of /status of a gateway, which a thread takes all the time, and waits for a state in them."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from time import monotonic
from typing import Any, Final, NamedTuple, Self, TypeAlias

from tests.kit.networks import LOOPBACK

INTERVAL: Final = 0.02
"""Seconds between two readings. The shortest phase of the scenario lasts fifty times as long."""
TIMEOUT: Final = 20.0
"""Seconds after which an expected state counts as missing."""

State: TypeAlias = dict[str, Any]
"""The service in /status."""


def number(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparisons."""
    return tuple(int(part) for part in version.split("."))


class Offer(NamedTuple):
    """A range that clients see."""

    lowest: str
    highest: str

    def holds(self, version: str) -> bool:
        return number(self.lowest) <= number(version) <= number(self.highest)


class Sample(NamedTuple):
    """One reading of /status. Its content was true at some moment between `sent` and `received`."""

    sent: float
    received: float
    offer: Offer
    phase: str


class StatusPoller:
    """Polls one service at the admin listener on `port`. Use it as a context manager."""

    def __init__(self, port: int, service: str) -> None:
        self.samples: list[Sample] = []
        self._port = port
        self._service = service
        self._document: dict[str, Any] = {}
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._tolerant = False
        self._read = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="status-poller", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def until(self, holds: Callable[[State], bool], description: str) -> State:
        """Wait for a reading that began after this call and for whose service `holds` is true."""
        document = self.until_document(lambda document: holds(self._of(document)), description)
        return self._of(document)

    def until_document(self, holds: Callable[[dict[str, Any]], bool], description: str) -> dict[str, Any]:
        """The same for the whole document."""
        since, limit = monotonic(), monotonic() + TIMEOUT
        with self._read:
            while True:
                if self._error is not None:
                    raise AssertionError(f"/status could not be read: {self._error}")
                if self.samples and self.samples[-1].sent >= since and holds(self._document):
                    return self._document
                assert monotonic() < limit, (
                    f"did not happen: {description}\n{json.dumps(self._document, indent=1)}"
                )
                self._read.wait(TIMEOUT)

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """In it, /status may not answer, and may be another process's."""
        self._tolerant = True
        try:
            yield
        finally:
            self._tolerant = False

    def changes(self, since: float = 0.0) -> list[Sample]:
        """The first sample of every phase and highest version of the offer, since this time."""
        with self._read:
            seen = [sample for sample in self.samples if sample.sent >= since]
        return [next(same) for _, same in groupby(seen, lambda each: (each.phase, each.offer.highest))]

    def _run(self) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=TIMEOUT)
        try:
            while not self._ended.wait(INTERVAL):
                sent = monotonic()
                try:
                    connection.request("GET", "/status")
                    text = connection.getresponse().read()
                except (OSError, http.client.HTTPException):
                    if not self._tolerant:
                        raise
                    connection.close()  # the next request connects anew
                    continue
                self._keep(sent, monotonic(), json.loads(text))
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
            with self._read:
                self._error = error
                self._read.notify_all()
        finally:
            connection.close()

    def _keep(self, sent: float, received: float, document: dict[str, Any]) -> None:
        state = self._of(document)
        if self._tolerant and state["offer"]["min"] is None:
            return  # a gateway that has just begun
        offer = Offer(state["offer"]["min"], state["offer"]["max"])
        with self._read:
            self._document = document
            self.samples.append(Sample(sent, received, offer, state["phase"]))
            self._read.notify_all()

    def _of(self, document: dict[str, Any]) -> State:
        state: State = document["services"][self._service]
        return state
