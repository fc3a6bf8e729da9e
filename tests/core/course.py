"""One service through time as one gateway sees it: what is heard, ordered and configured."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.decision import Decision, decide
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered, Drain, Fact, Failed, Fleet, Order, Pin
from gateway.core.memory import Kept
from gateway.core.message import RequestHead
from gateway.core.offer import Offer
from gateway.core.service import Service
from gateway.core.snapshot import ServiceView, Snapshot
from gateway.core.version import Version
from tests.core.stage import v


class Course:
    """Time stands still unless it is told to go on (`wait`)."""

    def __init__(self, one: Service, kept: Kept | None = None) -> None:
        self.now = 0.0
        self.name = one.name
        self.snapshot = Snapshot.configured(
            [one], now=self.now, kept=None if kept is None else {one.name: kept}
        )

    # -- what happens

    def probe(self, told: Mapping[str, Advert | None]) -> str:
        """A probe of each: what it answered, or None for one that failed. What is offered then."""
        for backend, advert in told.items():
            fact = Failed("no connection", self.now) if advert is None else Answered(advert, self.now)
            self.observe(backend, fact)
        return self.text

    def observe(self, backend: str, fact: Fact) -> None:
        self._know(self.snapshot.fleet.observe(self.name, backend, fact))

    def obey(self, order: Order) -> str:
        self._know(self.snapshot.fleet.obey(self.name, order))
        return self.text

    def pin(self, version: str | None) -> str:
        return self.obey(Pin(None if version is None else v(version)))

    def drain(self, backend: str) -> str:
        return self.obey(Drain(backend))

    def enable(self, backend: str) -> str:
        return self.obey(Drain(backend, drained=False))

    def wait(self, seconds: float) -> str:
        self.now += seconds
        self.look()
        return self.text

    def look(self) -> None:
        """Let the time in that has gone by."""
        self._know(self.snapshot.fleet)

    def reload(self, one: Service) -> str:
        self.snapshot = Snapshot.configured([one], now=self.now, after=self.snapshot)
        return self.text

    def _know(self, fleet: Fleet) -> None:
        self.snapshot = self.snapshot.knowing(fleet, self.now)

    # -- what is to be seen

    @property
    def view(self) -> ServiceView:
        return self.snapshot.views[self.name]

    @property
    def offer(self) -> Offer:
        return self.view.offer

    @property
    def text(self) -> str:
        """What is offered."""
        return self.offer.versions.format(self.view.service.dialect.scheme)

    def held(self) -> tuple[str, tuple[str, ...], str | None]:
        """Phase, and what holds the offer by which rule."""
        rule = self.offer.held_rule
        return self.offer.phase.value, self.offer.held_by, None if rule is None else rule.value

    def ask(self, version: Version | None) -> Decision:
        """A request for exactly `version`, or for none."""
        scheme = self.view.service.dialect.scheme
        fields = () if version is None else (("x-version", scheme.format(version)),)
        return decide(self.snapshot, RequestHead("GET", "/x", "", fields), "api.test", {}, 0, {})
