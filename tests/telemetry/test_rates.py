"""Requests per second lately, by samples of the counts since the start."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.runtime.parts import SMALL
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.recent import NO_RATES, Rates, RequestCounts, ServiceRates
from tests.kit import clocks
from tests.telemetry.builders import record, snapshot_holder

SERVED = (RequestedKind.EXACT, NegotiationResult.SERVED)
ABOVE = (RequestedKind.EXACT, NegotiationResult.ABOVE_MAX)


class SampledProcess:
    """The counts of a process, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.requests: dict[tuple[int, str], int] = {(200, "api-1"): 100}
        self.results = {SERVED: 100, ABOVE: 0}
        self.refused = {"access": 0}
        self.services: dict[str, RequestCounts] = {
            "metal": RequestCounts(self.requests, self.results, self.refused)
        }
        self.rates = Rates(lambda: self.services, lambda: self.now)
        self.rates.sample()

    def samples(self, number: int, requests: Mapping[tuple[int, str], int]) -> None:
        """Let so many samples be taken, with these requests before each."""
        for _ in range(number):
            for key, count in requests.items():
                self.requests[key] = self.requests.get(key, 0) + count
            self.now += Rates.every
            self.rates.sample()

    @property
    def metal(self) -> ServiceRates:
        return self.rates.of("metal")


def test_the_rate_is_that_of_the_last_seconds_by_backend() -> None:
    process = SampledProcess()
    process.samples(30, {(200, "api-1"): 1000})
    process.samples(5, {(200, "api-1"): 10, (404, "api-1"): 2, (200, "api-2"): 4})
    assert process.metal.by_backend == {"api-1": 6.0, "api-2": 2.0}
    assert process.metal.requests == 8.0
    process.samples(5, {})
    assert process.metal == NO_RATES


def test_what_came_since_the_last_sample_counts() -> None:
    process = SampledProcess()
    process.now += 1.0
    process.requests[200, "api-1"] += 7
    assert process.metal.requests == 7.0


def test_a_moment_after_the_start_nothing_is_claimed() -> None:
    process = SampledProcess()
    process.now += 0.01
    process.requests[200, "api-1"] += 7
    assert process.metal == NO_RATES
    assert Rates(lambda: process.services, lambda: process.now).of("metal") == NO_RATES


def test_results_and_refusals_have_rates_where_there_were_some() -> None:
    process = SampledProcess()
    process.now += 2.0
    process.results[ABOVE] += 3
    process.results[RequestedKind.NONE, NegotiationResult.ABOVE_MAX] = 1
    process.refused["access"] += 4
    assert process.metal == ServiceRates(0.0, {}, {NegotiationResult.ABOVE_MAX: 2.0}, {"access": 2.0})


def test_a_service_that_is_unknown_and_one_that_came_later() -> None:
    process = SampledProcess()
    process.samples(3, {})
    process.services = {**process.services, "new": RequestCounts({(503, "none"): 12}, {}, {})}
    assert process.rates.of("new").by_backend == {"none": 2.0}
    assert process.rates.of("nobody") == NO_RATES


def test_a_service_that_was_removed_and_came_back_counts_from_zero() -> None:
    process = SampledProcess()
    process.samples(5, {})
    process.services = {"metal": RequestCounts({(200, "api-1"): 20}, {}, {})}
    assert process.metal.requests == 2.0


def test_an_idle_process_holds_one_copy_and_a_bounded_number_of_samples() -> None:
    process = SampledProcess()
    process.samples(1000, {})
    found = list(process.rates._samples)
    assert len(found) == Rates.span / Rates.every + 1
    assert len({id(counts["metal"].requests) for _, counts in found}) == 1


def test_counts_of_a_worker_process_are_among_them() -> None:
    holder, now = snapshot_holder(), 10.0
    main, worker = Metrics(), Metrics()
    for metrics in (main, worker):
        metrics.watch(holder)
    rates = Rates(main.request_counts, lambda: now)
    rates.sample()
    for _ in range(6):
        worker.record(record(backend="old", status=200))
    main.add(worker.take())
    now += 2.0
    assert rates.of("baremetal").by_backend == {"old": 3.0}


def test_samples_are_taken_from_the_start_to_the_end() -> None:
    taken = 0

    def counts() -> dict[str, RequestCounts]:
        nonlocal taken
        taken += 1
        return {}

    async def course() -> None:
        rates = Rates(counts)
        rates.start()
        await asyncio.sleep(2.5 * Rates.every)
        rates.close()
        rates.close()
        await asyncio.sleep(10 * Rates.every)

    clocks.run(course())
    assert taken == 3


class ManyServices(dict[str, RequestCounts]):
    """The counts of a thousand services, and how many of them were looked at."""

    def __init__(self) -> None:
        super().__init__({f"s{number}": RequestCounts({(200, "b"): 0}, {}, {}) for number in range(1000)})
        self.looked_at = 0

    def get(self, name: str, default: Any = None) -> Any:
        self.looked_at += 1
        return super().get(name, default)


async def test_a_sample_of_a_thousand_services_lets_requests_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rates, "every", 0.001)
    services, looked_at = ManyServices(), []
    rates = Rates(lambda: services)
    rates.start()
    while len(rates._samples) < 2:
        before = services.looked_at
        await asyncio.sleep(0)
        looked_at.append(services.looked_at - before)
        if sum(looked_at):  # while the sample is taken
            services.pop("s999", None)
            services["new"] = RequestCounts({(200, "b"): 7}, {}, {})
    rates.close()
    assert max(looked_at) <= SMALL, "so many are looked at in one turn of the event loop"
    assert rates._samples[-1][1].keys() == {f"s{number}" for number in range(999)}
