"""The real clients of compute, placement, clustering and Chef.

What it does: it adds python-novaclient, openstacksdk for compute, the `openstack` command with osc-placement,
python-senlinclient and pychef to `Clients`. The rules of `Clients` hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.real.clients import Call, Clients, CommandResult, Session

TOKEN = "admin"


class ComputeClients(Clients):
    """python-novaclient, openstacksdk and the `openstack` command for a compute API. `url`: that of the
    gateway or of a server."""

    def nova(self, url: str, calls: list[Call], *, version: str) -> Session:
        """Run a session of python-novaclient at `2.N` or `2.latest`."""
        return self._session(
            "nova_session.py", {"endpoint": f"{url}/v2.1", "version": version, "calls": calls}
        )

    def compute_sdk(self, url: str, calls: list[Call], *, version: str | None = None) -> Session:
        """Run a session of openstacksdk. `version` None: it chooses one from the documents."""
        return self._session(
            "sdk_compute_session.py", {"endpoint": f"{url}/v2.1", "version": version, "calls": calls}
        )

    def openstack(self, url: str, *arguments: str, version: str | None = None) -> CommandResult:
        """Run one command of the `openstack` command line. `version` None: its own default."""
        options = ["--os-auth-type", "none", "--os-endpoint", f"{url}/v2.1"]
        if version is not None:
            options += ["--os-compute-api-version", version]
        return self._run(self._environment.command("openstack", *options, *arguments))


class PlacementClients(Clients):
    """osc-placement, inside the `openstack` command."""

    def openstack(self, url: str, *arguments: str, version: str | None = None) -> CommandResult:
        """Run one command. `version` None: the default of the plug-in."""
        options = ["--os-auth-type", "admin_token", "--os-token", TOKEN, "--os-endpoint", url]
        if version is not None:
            options += ["--os-placement-api-version", version]
        return self._run(self._environment.command("openstack", *options, *arguments))


class ClusteringClients(Clients):
    """python-senlinclient."""

    def senlin(self, url: str, calls: list[Call], *, version: str | None = None) -> Session:
        """Run a session. `version` None: the version that this release of the client is made for."""
        return self._session("senlin_session.py", {"endpoint": url, "version": version, "calls": calls})


class ChefClients:
    """pychef, and requests signed as Chef's own client signs them, as one user."""

    def __init__(self, pychef: Clients, signing: Clients, user: str) -> None:
        self._pychef = pychef
        self._signing = signing
        self._user = user

    def pychef(self, url: str, key: Path, calls: list[Call]) -> Session:
        """Run a session of pychef, which signs by protocol 1.0 and never sends a version."""
        plan = {"endpoint": url, "user": self._user, "key": str(key), "calls": calls}
        return self._pychef._session("pychef_session.py", plan)

    def signed(self, url: str, key: Path, *calls: Mapping[str, str | None]) -> list[dict[str, Any]]:
        """Send requests with signatures, see `scripts/chef_signed.py`. Return the status, the version field
        and the body of each response."""
        plan = {"endpoint": url, "user": self._user, "key": str(key), "calls": calls}
        return self._signing._session("chef_signed.py", plan).values()
