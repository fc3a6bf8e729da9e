"""The real client libraries of other APIs: docker, elasticsearch (8 and 9), PyGithub and stripe.

What it does: it runs a session of one of them in an environment of its own. Meanwhile, the event loop of the
test continues, in which the gateway and the servers run. The rules of `Clients` hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.real.clients import Clients, Session
from tests.real.environments import Environment

OF_ALL = "client-libraries"
OF_ELASTICSEARCH_8 = "client-elasticsearch-8"


class Libraries:
    """Runs the client libraries of these environments."""

    def __init__(self, environments: Mapping[str, Environment]) -> None:
        self._clients = {name: Clients(environment) for name, environment in environments.items()}

    async def session(
        self,
        library: str,
        endpoint: str,
        *calls: str,
        version: str | None = None,
        environment: str = OF_ALL,
    ) -> Session:
        """Run one process of a library. `version` None: the library's own default. `calls`: those of
        `scripts/library_session.py`."""
        plan = {"library": library, "endpoint": endpoint, "version": version, "calls": calls}
        run = self._clients[environment]._session
        return await asyncio.to_thread(run, "library_session.py", plan)
