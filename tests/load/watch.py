"""Looking at the gateway without a pause: /status again and again, in a thread, from its start to its end.

What it does: keeps a `Sample` of every reading, and lets the story wait for what it is to look like.

Rules: it never sleeps in order to let something happen; it only looks, and says what it has been waiting for
when that does not come.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from itertools import groupby
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from tests.load.records import Offer, Sample
from tests.real.processes import LOOPBACK

LOOK: Final = 0.02
"""Seconds between two readings: the shortest phase of the story lasts fifty times as long."""
PATIENCE: Final = 20.0
"""Seconds after which something that should happen has not happened."""

State: TypeAlias = dict[str, Any]
"""What /status says of the service."""


class Watch:
    """Of one service at the admin listener on `port`. Use as a context manager."""

    def __init__(self, port: int, service: str) -> None:
        self.samples: list[Sample] = []
        self._port = port
        self._service = service
        self._document: dict[str, Any] = {}
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._looked = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def until(self, holds: Callable[[State], bool], what: str) -> State:
        """Wait for a reading of the service that was asked for after this call and of which it holds."""
        document = self.until_document(lambda document: holds(self._of(document)), what)
        return self._of(document)

    def until_document(self, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The same for all of /status."""
        since, limit = monotonic(), monotonic() + PATIENCE
        with self._looked:
            while True:
                if self._error is not None:
                    raise AssertionError(f"/status could not be read: {self._error}")
                if self.samples and self.samples[-1].sent >= since and holds(self._document):
                    return self._document
                assert monotonic() < limit, f"never came: {what}\n{json.dumps(self._document, indent=1)}"
                self._looked.wait(PATIENCE)

    def phases(self, since: float) -> list[str]:
        """The phases since then, each with the highest version on offer, in their order: `mixed 1.58`."""
        with self._looked:
            seen = [f"{each.phase} {each.offer.highest}" for each in self.samples if each.sent >= since]
        return [phase for phase, _ in groupby(seen)]

    def _run(self) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=PATIENCE)
        try:
            while not self._ended.wait(LOOK):
                sent = monotonic()
                connection.request("GET", "/status")
                text = connection.getresponse().read()
                self._keep(sent, monotonic(), json.loads(text))
        except Exception as error:  # noqa: BLE001 - told to whoever waits, in its own thread
            with self._looked:
                self._error = error
                self._looked.notify_all()
        finally:
            connection.close()

    def _keep(self, sent: float, came: float, document: dict[str, Any]) -> None:
        state = self._of(document)
        offer = Offer(state["offer"]["min"], state["offer"]["max"])
        with self._looked:
            self._document = document
            self.samples.append(Sample(sent, came, offer, state["phase"]))
            self._looked.notify_all()

    def _of(self, document: dict[str, Any]) -> State:
        state: State = document["services"][self._service]
        return state
