"""A service with two backends of different releases, a snapshot holder, and request records to count."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.backend import Backend
from gateway.telemetry.collector import Collector
from gateway.telemetry.counters import Counters
from gateway.telemetry.request_record import ReceivedHead, RequestRecord
from gateway.telemetry.series.declaring import Counter, Gauge, Group, HistogramSeries
from gateway.telemetry.series.now import Now
from gateway.tls.values import ClientCertificate
from tests.kit.ironic import holder_of, learn, service, upto

OLD: Final = Backend("old", "10.0.0.1", 6385)
NEW: Final = Backend("new", "10.0.0.2", 6385)


def snapshot_holder(*, known: bool = True) -> SnapshotHolder:
    """What the gateway knows about both backends; nothing if not `known`."""
    holder = holder_of(service(OLD, NEW))
    if known:
        learn(holder, "old", upto(58))
        learn(holder, "new", upto(90))
    return holder


class Received(NamedTuple):
    """A request head, and the peer that sent it."""

    method: str
    target: bytes
    client: str
    forwarded_for: bytes | None = None
    certificate: ClientCertificate | None = None
    host: str = "ironic.example.org"
    user_agent: bytes = b""
    passthrough: bytes = b""
    minor: int = 1
    trace: bytes = b""
    scheme: str = "http"

    def client_address(self, request: ReceivedHead) -> str:
        return self.client


def record(
    *,
    method: str = "GET",
    target: str = "/v1/nodes",
    client: str = "192.0.2.7",
    host: str = "ironic.example.org",
    user_agent: bytes = b"curl/8.0",
    trace_id: str = "",
    **differing: object,
) -> RequestRecord:
    """A served request; every field may differ."""
    received = Received(method, target.encode("ascii"), client, None, None, host, user_agent)
    sample = RequestRecord(received, received)
    fields: dict[str, Any] = {
        "service": "baremetal",
        "backend": "old",
        "status": 200,
        "requested": RequestedKind.EXACT,
        "result": NegotiationResult.SERVED,
        "version": "1.31",
        "attempts": 1,
        "seconds": 0.004,
        "backend_seconds": 0.003,
        "negotiated": "",
        "bytes_in": 0,
        "bytes_out": 532,
        "reason": "",
        "request_id": "",
        "response_request_id": "",
    }
    if trace_id:
        sample.traceparent = f"00-{trace_id}-00f067aa0ba902b7-01".encode()
    fields |= differing
    sample.response_id = fields.pop("response_request_id").encode()
    for name, value in fields.items():
        setattr(sample, name, value)
    return sample


class NobodyCounts:
    """Stands in for the metrics where nothing is counted. Tests override what they want to know."""

    def count(self, series: Counter, *key: str, service: str = "", backend: str = "") -> None:
        pass

    def observe(
        self, series: HistogramSeries, seconds: float, *key: str, service: str = "", backend: str = ""
    ) -> None:
        pass

    def set(self, series: Gauge, value: float, *, service: str = "", backend: str = "") -> None:
        pass


def samples(group: type[Group], now: Now) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples of the series of a group, by name, of a gateway that has counted nothing."""
    names = {series.full_name: series.name for series in group.series}
    families = Collector(Counters()).collect(now)
    return {names[each.name]: dict(each.rows) for each in families if each.name in names}
