"""SHOWS the gateway to people and machines that run it: health, metrics, status, explanations, reload.

On its own listener, never on the one that clients reach. It reads the current snapshot and decides nothing;
what changes anything is a POST that somebody with the token sent from no foreign page (`guard`).
"""

from __future__ import annotations

from gateway.admin.api import AdminContext, create_app
from gateway.admin.site import AdminSite

__all__ = ["AdminContext", "AdminSite", "create_app"]
