"""What was served in the last hour, by samples a minute apart."""

from __future__ import annotations

import asyncio

from gateway.telemetry.recent import EVERY, SPAN, LastHour, Recent


class Counter:
    """Counts as a process does, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.counts: dict[str, dict[str, int]] = {"metal": {"1.58": 0}}
        self.recent = Recent(lambda: self.counts, lambda: self.now)

    def minutes(self, number: int, each: int = 0) -> None:
        """So many minutes, in each of which `each` requests at 1.58 are served."""
        for _ in range(number):
            self.counts["metal"]["1.58"] += each
            self.now += EVERY
            self.recent.sample()


def test_only_the_last_hour_counts() -> None:
    one = Counter()
    one.recent.sample()
    one.minutes(120, each=7)
    one.minutes(60, each=1)
    assert one.recent.last_hour("metal") == LastHour({"1.58": 60}, SPAN)
    one.minutes(180)
    assert one.recent.last_hour("metal") == LastHour({"1.58": 0}, SPAN)


def test_what_came_since_the_last_sample_counts() -> None:
    one = Counter()
    one.recent.sample()
    one.now += 30.0
    one.counts["metal"] = {"1.58": 3, "1.90": 4}
    assert one.recent.last_hour("metal") == LastHour({"1.58": 3, "1.90": 4}, 30.0)


def test_a_service_that_was_added_later_and_one_that_is_unknown() -> None:
    one = Counter()
    one.recent.sample()
    one.minutes(5)
    one.counts["other"] = {"2": 9}
    assert one.recent.last_hour("other") == LastHour({"2": 9}, 300.0)
    assert one.recent.last_hour("nobody").served == {}


def test_before_the_first_sample_everything_is_new() -> None:
    one = Counter()
    one.counts["metal"]["1.58"] = 2
    assert one.recent.last_hour("metal") == LastHour({"1.58": 2}, 0.0)


def test_an_idle_day_holds_one_copy() -> None:
    one = Counter()
    one.minutes(1440)
    copies = {id(counts["metal"]) for _, counts in one.recent._samples}
    assert (len(one.recent._samples), len(copies)) == (61, 1)


async def test_it_samples_by_itself_until_it_is_closed() -> None:
    one = Counter()
    one.recent.start()
    loop = asyncio.get_running_loop()
    timer = one.recent._timer
    assert timer is not None
    assert EVERY - 1 < timer.when() - loop.time() <= EVERY
    one.recent.close()
    assert timer.cancelled()
    one.recent.close()
