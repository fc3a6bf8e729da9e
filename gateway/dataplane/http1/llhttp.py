"""The second opinion on a head: llhttp, through httptools.

It gets whole heads only and never a body, because httptools can neither pause it nor report where a message
ended. Nothing of what it reads is used.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import httptools

from gateway.errors import FramingError

Parser: TypeAlias = httptools.HttpRequestParser | httptools.HttpResponseParser


class _NoCallbacks:
    """Parser callbacks, none of them set: llhttp only accepts a head or raises."""


_NO_CALLBACKS: Final = _NoCallbacks()


def check_head(parser: type[Parser], head: bytes) -> None:
    """Check a head with llhttp. Raises `FramingError`. That httptools raises on an `Upgrade` request is
    ignored, since the upgrade fields are not forwarded."""
    try:
        parser(_NO_CALLBACKS).feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        raise FramingError("head") from None
