"""Errors of the admin listener: counted for `/metrics`, and logged in one line a minute.

Unauthorised clients cause most of them, so the log must not grow with what they send (threats R-B7). No text
of a client gets here: a reason is one of `series.process.ADMIN_ERRORS`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, final

LOG_INTERVAL: Final = 60.0
"""Seconds between two lines about errors, and between two tracebacks."""

GATHER: Final = 0.25
"""Seconds for which the first line waits for more errors."""

_log = logging.getLogger("skewgate.admin")


@final
class ErrorLog:
    """Counter and log of errors. `count_error` is called with the reason of each."""

    def __init__(self, count_error: Callable[[str], None]) -> None:
        self._count_error = count_error
        self._not_logged: Counter[str] = Counter()
        self._logged_at = float("-inf")
        self._traceback_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def count(self, reason: str) -> None:
        """Counts one error, which is logged soon, together with others."""
        self._count_error(reason)
        self._not_logged[reason] += 1
        if self._timer is None:
            loop = asyncio.get_running_loop()
            due = max(loop.time() + GATHER, self._logged_at + LOG_INTERVAL)
            self._timer = loop.call_at(due, self._write_line)

    def bug(self, error: BaseException | None) -> None:
        """Logs an exception that no client should be able to cause, with at most one traceback a minute."""
        now = asyncio.get_running_loop().time()
        if now >= self._traceback_at + LOG_INTERVAL:
            self._traceback_at = now
            _log.error(
                "a request to the admin listener failed because of a bug in the gateway", exc_info=error
            )

    def close(self) -> None:
        """Logs the errors that are not in the log yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._write_line()

    def _write_line(self) -> None:
        self._timer = None
        self._logged_at = asyncio.get_running_loop().time()
        _log.warning(
            "the admin listener refused or closed %d requests and connections: %s "
            "(counted in skewgate_admin_errors_total)",
            self._not_logged.total(),
            ", ".join(f"{reason} {count}" for reason, count in sorted(self._not_logged.items())),
        )
        self._not_logged.clear()
