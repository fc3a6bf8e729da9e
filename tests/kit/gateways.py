"""A whole gateway in the loop of the test, assembled as by `run`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.assembly import Gateway
from gateway.settings import load


@asynccontextmanager
async def gateway_of(
    text: str, *, source: Path | None = None, environ: Mapping[str, str] | None = None, **parts: Any
) -> AsyncIterator[Gateway]:
    """One that runs with this configuration. `source`: the file that a reload reads; `parts`: further
    arguments of `Gateway`."""
    configured = load(text, filename="test.yaml", environ=environ or {}).require()
    async with Gateway(configured, source=source, **parts) as gateway:
        yield gateway
