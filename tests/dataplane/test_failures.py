"""The table of failures, and local responses."""

from __future__ import annotations

import re
from typing import Final

import pytest

from gateway.core.http.message import METHODS, Response
from gateway.dataplane.local_responses import answers
from gateway.dataplane.local_responses.failures import FAILURES, IDEMPOTENT, Failure, Resend, may_retry
from gateway.dataplane.local_responses.proxy_status import LocalReason

UNSENT: Final = {
    Failure.CONNECT,
    Failure.CONNECT_TIMEOUT,
    Failure.NOT_SENT,
    Failure.VERSION_REFUSED,
    Failure.QUEUE_FULL,
    Failure.QUEUE_TIMEOUT,
    Failure.TLS,
}
"""Nothing was executed."""


def test_every_failure_has_a_complete_rule() -> None:
    assert set(FAILURES) == set(Failure)
    for failure, rule in FAILURES.items():
        assert rule.status == 0 or (rule.error_type and rule.detail.endswith(".")), failure
        assert rule.status in {0, 400, 408, 413, 502, 503, 504}


def test_the_status_is_502_or_504_only_after_bytes_were_sent() -> None:
    for failure, rule in FAILURES.items():
        assert (rule.status == 503) == (failure in {*UNSENT, Failure.VERSION_UNKNOWN}), failure
        assert rule.is_of_client == (rule.status in {0, 400, 408, 413})


@pytest.mark.parametrize("failure", list(Failure))
@pytest.mark.parametrize("method", METHODS)
def test_possibly_executed_requests_are_repeated_only_if_idempotent(failure: Failure, method: str) -> None:
    not_executed = failure in UNSENT
    executed = failure is Failure.VERSION_UNKNOWN
    response_begun = failure in {
        Failure.BAD_REPLY,
        Failure.MISPLACED,
        Failure.REPLY_CUT,
        Failure.REPLY_STALLED,
    }
    allowed = may_retry(failure, (method,), body_held=True)

    assert not may_retry(failure, (method,), body_held=False)
    if not_executed:
        assert allowed
    elif executed:
        assert allowed == (method in {"GET", "HEAD", "OPTIONS"})
    elif allowed:
        assert method in {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}
        assert not response_begun
        assert FAILURES[failure].retry is Resend.IF_IDEMPOTENT


def test_post_and_patch_are_not_idempotent() -> None:
    assert not {"POST", "PATCH"} & IDEMPOTENT


def test_reasons_of_failures_are_few_enough_to_be_labels() -> None:
    assert len(Failure) <= 64


@pytest.mark.parametrize("status", [400, 404, 405, 408, 413, 414, 417, 431, 501, 503, 505, 508, 599])
def test_plain_errors_are_short_and_fixed(status: int) -> None:
    response = answers.plain_error(status)

    assert response.status == status
    assert 0 < len(response.body) < 100
    assert (status == 405) == ("Allow" in dict(response.headers))


def test_a_local_response_is_a_whole_message() -> None:
    data = answers.encode(
        Response(418, (("X", "y"),), b"short"),
        LocalReason.MAINTENANCE,
        is_head_request=False,
        connection=b"Connection: close\r\n",
    )

    assert re.fullmatch(
        rb"HTTP/1\.1 418 [^\r\n]+\r\nX: y\r\n"
        rb'Proxy-Status: skewgate; error=proxy_internal_response; details="maintenance"\r\n'
        rb"Content-Length: 5\r\n"
        rb"Date: [A-Z][^\r\n]+ GMT\r\nConnection: close\r\n\r\nshort",
        data,
    )
    without_body = answers.encode(
        Response(418, (("X", "y"),), b"short"), LocalReason.ACCESS, is_head_request=True, connection=b""
    )
    assert b"Content-Length: 5\r\n" in without_body
    assert without_body.endswith(b"\r\n\r\n")
