"""Backends for worker processes."""

from __future__ import annotations

from tests.dataplane.conftest import testbed

__all__ = ["testbed"]
