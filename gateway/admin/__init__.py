"""SHOWS the gateway to the people and machines that run it, and takes their commands.

It has its own listener; clients cannot reach it on theirs. It reads the current snapshot and decides nothing.
Only POST, PUT and DELETE change anything, and `guard` checks token, Host and Origin before that.
"""

from __future__ import annotations

from gateway.admin.api import create_app, create_metrics_app
from gateway.admin.context import Access, AdminContext, Commands, Explaining
from gateway.admin.site import AdminSite, bind_site

__all__ = [
    "Access",
    "AdminContext",
    "AdminSite",
    "Commands",
    "Explaining",
    "bind_site",
    "create_app",
    "create_metrics_app",
]
