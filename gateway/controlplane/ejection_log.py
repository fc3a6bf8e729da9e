"""Writes one log line when a backend is ejected, and one when it gets requests again.

`dataplane.backends.ejection` reports each change. Frequent changes are summarized
(`controlplane.flap_damping`). An ejection is no fact about a backend, so `controlplane.change_log` does not
know it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import final

from gateway.controlplane.flap_damping import Damped, FlapDamping
from gateway.core.fleet.snapshot import Snapshot
from gateway.runtime.timer import Timer
from gateway.telemetry.process_log import about

_log = logging.getLogger("skewgate.ejection")


@final
class EjectionLog:
    """Log of backends' ejections and of their ends. `clock`: monotonic seconds. For one event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._damping = FlapDamping()
        self._last: dict[str, tuple[bool, str]] = {}
        """Newest state of each backend, logged or not: (ejected, text) by `service/backend`."""
        self._timer = Timer()
        self._closed = False

    def changed(self, key: str, text: str, ejected: bool) -> None:  # noqa: FBT001
        """Log that a backend was ejected, or is ejected no longer. `key`: `service/backend`."""
        self._last[key] = (ejected, text)
        if self._damping.change(key, self._clock()):
            _write(key, text, ejected=ejected)
        else:
            self._set_timer()

    def on_change(self, before: Snapshot, after: Snapshot) -> None:
        """Forget the ejections of removed backends; a subscriber of the snapshot holder."""
        if self._last and (
            after.routes is not before.routes
            or any(old is None or old.service is not view.service for old, view in after.news_since(before))
        ):
            member_sets = after.fleet.member_sets.values()
            for key in self._last.keys() - {member.key for members in member_sets for member in members.all}:
                del self._last[key]
                self._damping.forget(key)

    def close(self) -> None:
        """Log the changes that were only counted, so that the last line about every backend is true."""
        self._closed = True
        self._set_timer()
        self._log_damped(self._damping.take_due(self._clock(), everything=True))

    def _set_timer(self) -> None:
        self._timer.cancel()
        due = self._damping.next_due
        if due is not None and not self._closed:
            self._timer.set(due - self._clock(), self._on_timer)

    def _on_timer(self) -> None:
        self._log_damped(self._damping.take_due(self._clock()))
        self._set_timer()

    def _log_damped(self, damped: Iterable[Damped]) -> None:
        for each in damped:
            ejected, text = self._last[each.key]
            _write(each.key, f"{each}, now {text}", ejected=ejected)


def _write(key: str, text: str, *, ejected: bool) -> None:
    _log.log(logging.WARNING if ejected else logging.INFO, "%s: %s", key, text, extra=about(key))
