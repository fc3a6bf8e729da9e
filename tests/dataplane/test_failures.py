"""The one table of failures, and the replies that the gateway makes itself."""

from __future__ import annotations

import re

import pytest

from gateway.core.message import METHODS, Reply
from gateway.dataplane import own_reply
from gateway.dataplane.failures import FAILURES, IDEMPOTENT, Blame, Failure, Retry, may_retry
from gateway.telemetry.book import MOST_CODE_REASONS


def test_every_failure_has_a_row_and_every_row_is_whole() -> None:
    assert set(FAILURES) == set(Failure)
    for failure, row in FAILURES.items():
        assert row.status == 0 or (row.title and row.sentence.endswith(".")), failure
        assert row.status in {0, 400, 408, 413, 502, 503, 504}


def test_the_gateway_says_502_and_504_only_after_bytes_were_sent() -> None:
    unsent = {Failure.CONNECT, Failure.CONNECT_TIMEOUT, Failure.VERSION_REFUSED}
    for failure, row in FAILURES.items():
        assert (row.status == 503) == (failure in unsent), failure
        assert row.blame is not Blame.CLIENT or row.status in {0, 400, 408, 413}


@pytest.mark.parametrize("failure", list(Failure))
@pytest.mark.parametrize("method", METHODS)
def test_what_may_have_been_executed_is_only_repeated_where_twice_is_as_good_as_once(
    failure: Failure, method: str
) -> None:
    unexecuted = failure in {Failure.CONNECT, Failure.CONNECT_TIMEOUT, Failure.VERSION_REFUSED}
    replied = failure in {Failure.BAD_REPLY, Failure.REPLY_CUT, Failure.REPLY_STALLED}
    allowed = may_retry(failure, method, body_held=True)

    assert not may_retry(failure, method, body_held=False)
    if unexecuted:
        assert allowed
    elif allowed:
        assert method in {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}
        assert not replied
        assert FAILURES[failure].retry is Retry.IF_IDEMPOTENT


def test_post_and_patch_are_not_idempotent() -> None:
    assert not {"POST", "PATCH"} & IDEMPOTENT


def test_reasons_of_failures_are_few_enough_to_be_labels() -> None:
    assert len(Failure) <= MOST_CODE_REASONS


@pytest.mark.parametrize("status", [400, 404, 405, 408, 413, 414, 417, 431, 501, 503, 505, 508, 599])
def test_plain_replies_are_short_and_fixed(status: int) -> None:
    reply = own_reply.plain(status)

    assert reply.status == status
    assert 0 < len(reply.body) < 100
    assert (status == 405) == ("Allow" in dict(reply.headers))


def test_an_own_reply_is_a_whole_message() -> None:
    data = own_reply.write(
        Reply(418, (("X", "y"),), b"short"), to_head=False, connection=b"Connection: close\r\n"
    )

    assert re.fullmatch(
        rb"HTTP/1\.1 418 [^\r\n]+\r\nX: y\r\nContent-Length: 5\r\n"
        rb"Date: [A-Z][^\r\n]+ GMT\r\nConnection: close\r\n\r\nshort",
        data,
    )
    to_head = own_reply.write(Reply(418, (("X", "y"),), b"short"), to_head=True, connection=b"")
    assert b"Content-Length: 5\r\n" in to_head
    assert to_head.endswith(b"\r\n\r\n")
