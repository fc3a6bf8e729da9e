"""The document of `/status`, made service by service, so that those of a thousand do not stall requests."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.admin import views
from gateway.runtime.parts import in_parts
from gateway.telemetry.status import GatewayStatus


async def status_document(gateway: GatewayStatus) -> dict[str, Any]:
    """Makes the JSON values of `GET /status`, in parts, of the snapshot that `gateway` has."""
    services = {}
    for part in in_parts(gateway.snapshot.views.values()):
        for view in part:
            services[view.service.name] = views.service(gateway.of(view))
        await asyncio.sleep(0)
    return views.status(gateway, services)
