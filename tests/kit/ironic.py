"""Versions of Ironic as values, and what a gateway knows of one service of it."""

from __future__ import annotations

from typing import Final

from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import Ironic

NEW: Final = "1.1-1.90"
OLD: Final = "1.1-1.58"


def versions(text: str) -> VersionSet:
    """A set of Ironic versions: `1.1-1.58`."""
    return VersionSet.read(text, Ironic().scheme)


def highest_version(text: str = NEW) -> Version:
    return versions(text).highest
