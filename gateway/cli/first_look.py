"""A first look at an API that nobody has described yet, for `init`: a few documents of each server.

It sends a handful of GETs to the addresses that the operator named, as probes are sent: no redirect, bounded
documents, one deadline for all. What the documents mean is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from gateway.controlplane.probe_client import ProbeClient
from gateway.controlplane.resolver import Resolver
from gateway.core.dialect import ProbeFault, ProbeResponse
from gateway.core.fleet.service import Service

DEADLINE: Final = 10.0
"""Seconds for all documents of all servers. What comes later is left out."""

Documents: TypeAlias = Mapping[str, ProbeResponse]
"""The responses of one server, by path; without those that failed."""


async def look(service: Service, paths: Sequence[str]) -> Sequence[Documents]:
    """What the backends of a service respond at these paths, in the order of the backends."""
    found: list[dict[str, ProbeResponse]] = [{} for _ in service.backends]
    async with Resolver() as resolver:
        resolver.retarget((service,))
        client = ProbeClient(resolver.resolve)

        async def request(number: int) -> None:
            for path in paths:
                response = await client.fetch(path, service, service.backends[number])
                if isinstance(response, ProbeFault):
                    if response.reason in {"connect", "tls"}:
                        return  # the other paths have the same address
                else:
                    found[number][path] = response

        try:
            async with asyncio.timeout(DEADLINE):
                await asyncio.gather(*map(request, range(len(found))))
        except TimeoutError:
            pass  # what has come by now is looked at
        finally:
            await client.close()
    return found
