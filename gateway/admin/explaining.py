"""Explanation of a request that is described as text: method, target and header lines.

Shared by the endpoint `/explain` and the form of the operations page. Nothing is sent, and nothing is decided
here: `core.decision.explanation` calls what a request would call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import time
from typing import Any, Final

from gateway.admin.context import AdminContext
from gateway.core.decision.explanation import Load, explain
from gateway.core.http.message import METHOD, Header, method_of_text
from gateway.dataplane.http1.forwarding import described_peer, read_ip
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import read_described, refusal_sentence
from gateway.errors import FramingError

MAX_TARGET: Final = 4096
"""Maximum characters of the described request's target."""

MAX_HEADERS: Final = 100

_TARGET: Final = re.compile(r"/[\x21-\x22\x24-\x7e]*")  # printable ASCII but blank and `#`
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")


class DescriptionError(ValueError):
    """Error for a description that is not that of a valid request; the message says why."""


def explain_described(
    context: AdminContext, method: str, target: str, header_lines: Sequence[str], address: str = ""
) -> dict[str, Any]:
    """Explains how the gateway decides on a request given as text, from a client that is no trusted proxy.
    Raises `DescriptionError`."""
    method = method_of_text(method)
    if not METHOD.fullmatch(method):
        raise DescriptionError("`method` must be a method, such as GET")
    if len(target) > MAX_TARGET or not _TARGET.fullmatch(target):
        raise DescriptionError("`path` must begin with / and hold printable ASCII without blanks")
    if address and read_ip(address) is None:
        raise DescriptionError("`from` must be an IP address")
    headers = [_header(line) for line in header_lines]
    if len(headers) > MAX_HEADERS:
        raise DescriptionError(f"`header` can be given at most {MAX_HEADERS} times")
    status, facts = context.status(), context.explaining()
    snapshot = status.snapshot
    table = NameTable.for_requests(snapshot.selected_names, dropped=snapshot.untrusted_headers)
    try:
        head = read_described(method, target, headers, table, facts.limits)
    except FramingError as refusal:
        raise DescriptionError(refusal_sentence(refusal)) from None
    report = status.report  # without an engine: the gateway chooses by what it has in flight itself
    ejected = {key: each.reason for key, each in report.ejected.items()}
    load = Load(report.in_flight_by_member, facts.held_back, ejected)
    name = described_peer(address).client_name(snapshot.clients, head)
    return explain(
        snapshot, head, head.host, load, facts.cached_documents, client_name=name, wall_time=time()
    )


def _header(line: str) -> Header:
    """Reads a header line `Name: value`, in characters that a request may have."""
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise DescriptionError("each `header` must be `Name: value`, as in a request")
    return name, value
