"""The verbs of the command, each with one sentence for the help, shells, docs/cli.md and the man page.

Each verb is a function of its own name, in the module of that name or the one in `MODULES`. Modules are
imported when their verb is called: `run` takes a third of a second to import, and `healthcheck` is called
every second. This module imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VERBS: Final[Mapping[str, str]] = {
    "run": "run the gateway in the foreground",
    "engine": "run a gateway beside HAProxy, which forwards plain requests itself",
    "check": "validate configurations: every problem with its position",
    "explain": "show what would happen to a request and why",
    "test": "compare a table of requests with the gateway's decisions",
    "status": "show services, offers, the phase of the upgrade, and backends",
    "usage": "show which client uses which version, and what may be missing",
    "simulate": "show which clients a change would refuse or move to another version",
    "rehearse": "send safe requests at two versions to one server, and compare the answers",
    "pin": "limit a service's offer to a version or a release",
    "unpin": "remove a service's pin",
    "raise": "raise the lowest version that a service offers, if nobody needs less",
    "lower": "remove a service's raised floor",
    "drain": "take a backend out of service; requests in flight are finished",
    "enable": "put a drained backend back into service",
    "wait": "wait until a version is offered, an upgrade is complete, or a backend is ready",
    "roll": "upgrade the members of a service one by one, each with a command",
    "forget": "end the registration of a replica that will not come back",
    "reload": "reload the configuration of a running gateway",
    "healthcheck": "check whether a running gateway is ready",
    "init": "write a commented configuration for a running API",
    "schema": "print the JSON Schema of the configuration",
    "completion": "print the completion script of a shell",
    "build": "compile the hot path with a C compiler",
    "demo": "run a demonstration: six servers, six kinds of clients, a rolling upgrade",
    "version": "print the versions of the program and its libraries",
}

MODULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("pin", "unpin", "enable", "forget", "reload"), "operator_commands"),
    **dict.fromkeys(("raise", "lower"), "floors"),
    **dict.fromkeys(("version", "schema", "completion"), "about"),
    "drain": "wait",
    "roll": "roll.command",
}
"""Modules that several verbs share, by verb. Every other verb is in the module of its own name."""

COMPILED: Final = frozenset({"run", "engine", "explain", "test", "demo", "version"})
"""Verbs that use or show the compiled build. The others skip the check of it, which takes 10 ms."""

SERVES: Final = "run"
"""The verb `run`, which runs for a long time. All others end soon."""
