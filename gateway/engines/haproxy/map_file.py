"""The map of HAProxy: one line for each row of the table. Pure; nothing here writes a file.

A key holds the service and, for each header that may carry its version, how many lines of it there are and
the value, percent-encoded as HAProxy's `url_enc` does it: `ironic|1:1.58|0:`. So no two requests that differ
in them have one key, and a repeated header is in none. A value holds the version, the pool, and what the
range headers of the response say, with `|` between them: `1.58|sg-0123456789abcdef0123|1.1|1.90`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gateway.core.fleet.service import Service
from gateway.engines.table import Asked, Row, Table

VERSION_FIELD: Final = 1
"""Where the version stands in a value, counted as HAProxy's `field` does."""
POOL_FIELD: Final = 2
FIRST_RANGE_FIELD: Final = 3
"""The values of the range headers follow from here."""

_ENCODED: Final = re.compile(r"[^A-Za-z0-9._-]")


def map_lines(table: Table) -> Iterator[str]:
    """A key, a blank and a value for each row, those of one service together. Neither part holds blanks."""
    for service in table.services:
        for row in service.rows:
            yield f"{key_of(service.service, row.asked)} {value_of(row)}"


def map_text(table: Table) -> str:
    """The file that HAProxy reads when it starts."""
    return "".join(f"{line}\n" for line in map_lines(table))


def key_of(service: Service, asked: Asked) -> str:
    """The key of a request to `service` that asks so."""
    parts = ("0:" if value is None else f"1:{encoded(value)}" for value in asked)
    return "|".join((encoded(service.name), *parts))


def value_of(row: Row) -> str:
    """What a request that has the key of `row` leads to."""
    return "|".join((row.version, row.pool, *row.range))


def encoded(text: str) -> str:
    """As HAProxy's `url_enc` writes it."""
    return _ENCODED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)
