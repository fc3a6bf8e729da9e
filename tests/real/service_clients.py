"""The real clients of Chef, and the client libraries of other APIs: docker, elasticsearch (8 and 9), PyGithub
and stripe, each in an environment of its own, beside the event loop of the test. The rules of `Clients` hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.real.clients import Call, Clients, Session
from tests.real.environments import Environment


class ChefClients:
    """pychef, and requests signed as Chef's own client signs them, as one user."""

    def __init__(self, pychef: Clients, signing: Clients, user: str) -> None:
        self._pychef = pychef
        self._signing = signing
        self._user = user

    def pychef(self, url: str, key: Path, calls: list[Call]) -> Session:
        """Run a session of pychef, which signs by protocol 1.0 and never sends a version."""
        return self._pychef.session("pychef_session.py", url, calls, user=self._user, key=str(key))

    def signed(self, url: str, key: Path, *calls: Mapping[str, str | None]) -> list[dict[str, Any]]:
        """Send requests with signatures, see `scripts/chef_signed.py`. Return the status, the version field
        and the body of each response."""
        return self._signing.session("chef_signed.py", url, calls, user=self._user, key=str(key)).values()


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
        run = partial(self._clients[environment].session, library=library, version=version)
        return await asyncio.to_thread(run, "library_session.py", endpoint, calls)
