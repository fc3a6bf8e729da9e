"""Limits of each client: what a bucket lets through, that its table is bounded and cannot be emptied by many
addresses, and requests in flight."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.fleet.admission import ClientLimits
from gateway.dataplane.limits.client_limiter import ClientLimiter, client_key, neighbourhood
from gateway.dataplane.limits.rate_limiter import SHARED_BUCKETS, TokenBuckets

START = 1000.0


def admitted(buckets: TokenBuckets, key: object, requests: int, now: float) -> int:
    return sum(buckets.take(key, now) == 0.0 for _ in range(requests))


def key_of(address: str) -> int:
    return client_key(ip_address(address))


def test_a_burst_then_the_rate_and_how_long_to_wait() -> None:
    buckets = TokenBuckets(rate=10, burst=5)

    assert admitted(buckets, "a", 20, START) == 5
    assert buckets.take("a", START) == pytest.approx(0.1)
    assert admitted(buckets, "a", 20, START + 0.3) == 3
    assert admitted(buckets, "b", 20, START + 0.3) == 5
    assert admitted(buckets, "a", 20, START + 60) == 5


@given(
    st.sampled_from([(100.0, 200), (0.5, 1), (3.0, 7)]),
    st.lists(st.tuples(st.integers(0, 30), st.floats(0, 5)), max_size=20),
)
def test_never_more_than_the_burst_and_the_rate_and_never_less(
    limits: tuple[float, int], timeline: list[tuple[int, float]]
) -> None:
    rate, burst = limits
    buckets, tokens, now = TokenBuckets(rate, burst), float(burst), START
    for requests, pause in timeline:
        passed = admitted(buckets, "a", requests, now)
        assert tokens - 1.01 < passed or passed == requests
        assert passed <= tokens + 0.01
        tokens = min(burst, tokens - passed + pause * rate)
        now += pause


def test_idle_clients_are_forgotten() -> None:
    buckets = TokenBuckets(rate=10, burst=20)
    for number in range(1000):
        buckets.take(number, START)
    assert len(buckets) == 1000

    buckets.take("a", START + 2.5)
    buckets.take("a", START + 5.0)

    assert len(buckets) == 1


def test_many_addresses_neither_grow_the_table_nor_free_who_is_limited() -> None:
    buckets = TokenBuckets(rate=1, burst=10, max_buckets=100)
    assert admitted(buckets, "limited", 50, START) == 10

    for number in range(100_000):
        buckets.take(number, START + number / 100_000, number)

    assert len(buckets) <= 100 + SHARED_BUCKETS
    assert admitted(buckets, "limited", 50, START + 1.0) == 1
    assert admitted(buckets, "limited", 50, START + 3.0) == 2


def test_while_the_table_is_full_neighbours_share_a_bucket() -> None:
    """A flood from one network takes nothing from the clients of most others."""
    buckets = TokenBuckets(rate=1, burst=10, max_buckets=100)
    for number in range(100):
        buckets.take(f"filler {number}", START)

    assert sum(buckets.take(("flood", number), START, "their network") == 0.0 for number in range(1000)) == 10
    served = sum(buckets.take(("client", number), START, number) == 0.0 for number in range(100))
    assert served > 90


def test_a_client_of_ipv6_is_a_network_of_64_bits() -> None:
    assert key_of("2001:db8:1:2::1") == key_of("2001:db8:1:2:ffff::9") != key_of("2001:db8:1:3::1")
    assert key_of("192.0.2.1") != key_of("192.0.2.2")
    assert key_of("192.0.2.1") != key_of("0:0:0:0::192.0.2.1")
    assert neighbourhood(key_of("192.0.2.1")) == neighbourhood(key_of("192.0.2.200"))
    assert neighbourhood(key_of("192.0.2.1")) != neighbourhood(key_of("192.0.3.1"))
    assert neighbourhood(key_of("2001:db8:1:2::1")) == neighbourhood(key_of("2001:db8:1:3::1"))
    assert neighbourhood(key_of("2001:db8:1:2::1")) != neighbourhood(key_of("2001:db8:2:2::1"))


def test_requests_in_flight() -> None:
    limiter = ClientLimiter(ClientLimits(concurrency=2))
    one, two = limiter.hold(1), limiter.hold(1)
    assert one is not None
    assert two is not None

    assert not limiter.has_room(1)
    assert limiter.has_room(2)
    one.end()
    assert limiter.has_room(1)
    two.end()
    assert len(limiter) == 0


def test_what_was_used_stays_counted_under_new_limits() -> None:
    limiter = ClientLimiter(ClientLimits(rate=1.0, burst=3, concurrency=1))
    lease = limiter.hold(1)
    assert lease is not None
    for _ in range(3):
        limiter.wait(1, START)

    limiter.configure(ClientLimits(rate=1.0, burst=3, concurrency=2))

    assert limiter.has_room(1)
    assert limiter.wait(1, START) == pytest.approx(1.0)
    limiter.configure(ClientLimits(rate=2.0, burst=3))
    assert limiter.wait(1, START) == 0.0
    lease.end()
    assert limiter.hold(1) is None


def test_a_bucket_pays_what_it_owes_however_long_that_takes() -> None:
    """Debts are longer than the time after which a bucket is forgotten."""
    buckets = TokenBuckets(rate=1, burst=4)
    assert admitted(buckets, "a", 9, START) == 4
    buckets.debit("a", 12, START)
    buckets.debit("new", 5, START)
    assert buckets.take("a", START) == pytest.approx(13)
    for second in range(1, 13):
        buckets.take("other", START + second)
        assert buckets.wait("a", START + second) > 0, second
        assert (buckets.wait("new", START + second) == 0) is (second >= 2)

    assert admitted(buckets, "a", 9, START + 13) == 1
    assert admitted(buckets, "a", 9, START + 60) == 4
    for second in (61, 65, 69, 73, 77):
        buckets.take("other", START + second)
    assert len(buckets) == 1, "those that are full are forgotten"
