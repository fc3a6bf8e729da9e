"""SHOWS the gateway to people and machines that run it: health, status, reasons, orders.

On its own listener, never on the one that clients reach. It reads the current snapshot and decides nothing;
what changes anything is a POST, PUT or DELETE that somebody with the token sent from no foreign page
(`guard`).
"""

from __future__ import annotations

from gateway.admin.api import create_app
from gateway.admin.context import AdminContext
from gateway.admin.site import AdminSite

__all__ = ["AdminContext", "AdminSite", "create_app"]
