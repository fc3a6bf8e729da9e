"""What is masked before two scrapes are compared: numbers that depend on time or machine, no others."""

from __future__ import annotations

import pytest

from tests.before_and_after.scrapes import masked_metrics, masked_status


@pytest.mark.parametrize(
    "line, masked",
    [
        ('skewgate_requests_total{backend="a",code="200",service="s"} 3.0', None),
        ('skewgate_request_duration_seconds_count{service="s"} 3.0', None),
        ('skewgate_request_duration_seconds_bucket{le="+Inf",service="s"} 3.0', None),
        ('skewgate_request_duration_seconds_bucket{le="0.1",service="s"} 3.0', "~"),
        ('skewgate_request_duration_seconds_sum{service="s"} 0.25', "~"),
        ('skewgate_probe_duration_seconds_count{backend="a",service="s"} 1.0', None),
        ("skewgate_state_last_write_success_timestamp_seconds 1.7e+09", "~"),
        ('skewgate_certificate_expiry_timestamp_seconds{certificate="tls.crt"} 1.7e+09', None),
        ("process_open_fds 9.0", "~"),
        ("# HELP process_open_fds Number of open file descriptors.", None),
    ],
)
def test_numbers_of_time_or_machine_are_masked(line: str, masked: str | None) -> None:
    expected = line if masked is None else f"{line.rpartition(' ')[0]} {masked}"

    assert masked_metrics(f"{line}\n") == f"{expected}\n"


def test_workers_are_late_in_any_order() -> None:
    first, second = (f'skewgate_event_loop_lag_seconds_count{{worker="{slot}"}} 1.0\n' for slot in (0, 1))

    assert masked_metrics(first + second) == masked_metrics(second + first)
    assert "before\nskewgate" in masked_metrics(f"before\n{second}{first}after\n")


def test_times_and_processes_in_the_status_are_masked() -> None:
    text = '{"pid": 7, "slot": 0, "since": 1.5, "until": null, "error": "x", "max": "1.90"}'

    assert masked_status(text) == (
        '{"pid": ~,\n"slot": 0,\n"since": ~,\n"until": null,\n"error": "x",\n"max": "1.90"}'
    )
