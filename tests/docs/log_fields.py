"""What is in the two logs: every field of a line of JSON, in the order in which it stands there.

    python -m tests.docs.log_fields         the two tables of docs/logs.md

Tests hold these tables against the lines that are written, against the page, and against the examples for log
stores under deploy/. The same name means the same in both logs. The gateway itself has no need of them.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple, final


@final
class LogField(NamedTuple):
    """One key of a line."""

    name: str
    kind: str
    """`time`, `text`, `word` (a text out of few), `integer` or `seconds`."""
    meaning: str
    null: str = ""
    """When it is null; empty: never. In the process log and for client certificates: then it is not there."""


ACCESS_LOG: Final = (
    LogField("time", "time", "When the request ended: RFC 3339, UTC, milliseconds."),
    LogField(
        "client",
        "text",
        "The client's address, as a trusted proxy reports it or else the peer's; `unix:` for a Unix socket.",
    ),
    LogField("method", "text", "The method as the client wrote it."),
    LogField("host", "text", "`Host`, or the authority of the target, as the client wrote it.", "none came"),
    LogField("user_agent", "text", "What the client calls itself.", "it does not say"),
    LogField(
        "target",
        "text",
        "Path and query as received. `*` stands for each value in the query, unless `access_log.query` is "
        "`keep`.",
    ),
    LogField(
        "status", "integer", "The status that the client got; 0: the client left before a response began."
    ),
    LogField("service", "word", "The service, by its name in the configuration.", "none matched"),
    LogField("backend", "word", "The backend that answered; `none`: the gateway itself did."),
    LogField("attempts", "integer", "How many times the request was sent or tried to a backend."),
    LogField(
        "requested",
        "word",
        "How the request named its version: `exact`, `latest`, `none` or `malformed`.",
        "nothing was negotiated",
    ),
    LogField(
        "version",
        "word",
        "The version that was negotiated; of a refusal the one that was requested, but in a brown-out the "
        "one at which the request would have been executed.",
        "there is none",
    ),
    LogField(
        "served",
        "word",
        "The version at which it was served: the negotiated one, or the one that the response names instead.",
        "it was not served, or nobody knows",
    ),
    LogField(
        "result",
        "word",
        "What came of negotiating: `served`, `below_min`, `above_max`, `malformed`, `unavailable`, "
        "`bridged`, `brownout` or `transparent`.",
        "nothing was negotiated",
    ),
    LogField(
        "reason",
        "word",
        "Why it failed, or why the gateway answered itself; the same word as in `Proxy-Status`.",
        "it did not fail",
    ),
    LogField(
        "seconds", "seconds", "From the complete request head to the last byte of the response, or the end."
    ),
    LogField(
        "backend_seconds",
        "seconds",
        "From the first byte to the backend until the head of its response.",
        "no backend answered",
    ),
    LogField("bytes_in", "integer", "Bytes of the request body that came, without the framing of chunks."),
    LogField("bytes_out", "integer", "Bytes of the response body, without the framing of chunks."),
    LogField(
        "request_id", "text", "The id that came with the request, or the one that the gateway made.", "none"
    ),
    LogField(
        "response_request_id",
        "text",
        "The id that the response carries: the backend's own, or in an answer of the gateway the request's.",
        "it carries none",
    ),
    LogField(
        "trace_id", "text", "The trace (W3C Trace Context): 32 hexadecimal digits.", "there is no trace"
    ),
    LogField("client_name", "text", "The name that `clients` gives the client.", "no entry matches"),
    LogField(
        "client_subject", "text", "The subject of the client's certificate, verified.", "it showed none"
    ),
    LogField(
        "client_fingerprint", "text", "The SHA-256 of that certificate, in hexadecimal.", "it showed none"
    ),
)

PROCESS_LOG: Final = (
    LogField("time", "time", "When it happened: RFC 3339, UTC, milliseconds."),
    LogField("level", "word", "`debug`, `info`, `warning`, `error` or `critical`."),
    LogField(
        "logger", "word", "The part of the gateway: `skewgate.offer`; `stderr` for a line that was printed."
    ),
    LogField("message", "text", "One sentence for people. It is no interface: it may change in any release."),
    LogField("service", "word", "The service that it is about.", "it is about none"),
    LogField("backend", "word", "The backend that it is about.", "it is about none"),
    LogField(
        "worker",
        "word",
        "The worker process that says it: its slot.",
        "the main process does, or the only process",
    ),
    LogField("stack", "text", "A traceback, or the stack of a thread or a task.", "there is none"),
)

LEFT_OUT: Final = frozenset({"client_name", "client_subject", "client_fingerprint"})
"""Of the access log: where others are null, these are not in the line."""


def table(fields: tuple[LogField, ...]) -> str:
    """A table in Markdown."""
    rows = [
        f"| `{field.name}` | {field.kind} | {field.meaning} | {field.null or 'never'} |\n" for field in fields
    ]
    absent = "null when" if fields is ACCESS_LOG else "left out when"
    return f"| field | kind | meaning | {absent} |\n|---|---|---|---|\n{''.join(rows)}"


if __name__ == "__main__":
    sys.stdout.write(f"{table(ACCESS_LOG)}\n{table(PROCESS_LOG)}")
