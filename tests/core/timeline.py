"""The history of one service in one gateway: facts, commands, reloads and time."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.decision.decision import Decision, decide
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import Drain, Fact, Fleet, OperatorCommand, Pin, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.offer import Offer
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.service import AtLeast, Policy, Service
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.http.message import RequestHead
from gateway.core.versions.version import Version
from tests.core.builders import service, upto, v

STABILIZATION = 10.0
UPTO_5, UPTO_9 = upto(5), upto(9)
OLD, NEW = "1.1-1.5", "1.1-1.9"
"""The same as texts: what an old and a new release serve."""


class Timeline:
    """Time passes only with `wait`."""

    def __init__(self, one: Service, saved: SavedState | None = None) -> None:
        self.now = 0.0
        self.name = one.name
        self.snapshot = Snapshot.configured(
            [one], now=self.now, saved=None if saved is None else {one.name: saved}
        )

    # -- what happens

    def probe(self, results: Mapping[str, Advertisement | None]) -> str:
        """A probe of each backend: its advertisement, or None for a failed probe. Returns the offer."""
        for backend, advertisement in results.items():
            fact = (
                ProbeFailed("no connection", self.now)
                if advertisement is None
                else ProbeSucceeded(advertisement, self.now)
            )
            self.observe(backend, fact)
        return self.text

    def observe(self, backend: str, fact: Fact) -> None:
        self._take(self.snapshot.fleet.observe(self.name, backend, fact))

    def apply(self, command: OperatorCommand) -> str:
        self._take(self.snapshot.fleet.apply(self.name, command))
        return self.text

    def pin(self, version: str | None) -> str:
        return self.apply(Pin(None if version is None else v(version)))

    def drain(self, backend: str) -> str:
        return self.apply(Drain(backend))

    def enable(self, backend: str) -> str:
        return self.apply(Drain(backend, drained=False))

    def wait(self, seconds: float) -> str:
        self.now += seconds
        self.look()
        return self.text

    def look(self) -> None:
        """Let the time act that has passed."""
        self._take(self.snapshot.fleet)

    def reload(self, one: Service) -> str:
        self.snapshot = Snapshot.configured([one], now=self.now, after=self.snapshot)
        return self.text

    def restart(self, one: Service) -> str:
        """With a state file."""
        saved = self.snapshot.saved()
        self.snapshot = Snapshot.configured([one], now=self.now, saved=saved)
        return self.text

    def _take(self, fleet: Fleet) -> None:
        self.snapshot = self.snapshot.with_fleet(fleet, self.now)

    # -- what can be seen

    @property
    def view(self) -> ServiceView:
        return self.snapshot.views[self.name]

    @property
    def offer(self) -> Offer:
        return self.view.offer

    @property
    def text(self) -> str:
        """The versions on offer."""
        return self.offer.versions.format(self.view.service.dialect.scheme)

    def held(self) -> tuple[str, tuple[str, ...], str | None]:
        """The phase, and which backends hold the offer by which rule."""
        rule = self.offer.held.rule
        return self.offer.phase.value, self.offer.held.by, None if rule is None else rule.value

    def send(self, version: Version | None) -> Decision:
        """A request for exactly `version`, or for none."""
        scheme = self.view.service.dialect.scheme
        fields = () if version is None else (("x-version", scheme.format(version)),)
        return decide(self.snapshot, RequestHead("GET", "/x", "", fields), "api.test", {}, 0, {})


def timeline(*names: str, **more: object) -> Timeline:
    """Of a service with these backends."""
    return Timeline(service(*names, **{"stabilization": STABILIZATION, **more}))  # type: ignore[arg-type]  # fields of Service


def upgraded(**more: object) -> Timeline:
    """Of two backends of the new release, which is on offer."""
    it = timeline("a", "b", **more)
    assert it.probe({"a": UPTO_9, "b": UPTO_9}) == NEW
    return it


def policy_of(policy: Policy, at_least: AtLeast | None = None) -> dict[str, object]:
    """The keywords of a policy for `timeline`."""
    return {"policy": policy, **({} if at_least is None else {"at_least": at_least})}
