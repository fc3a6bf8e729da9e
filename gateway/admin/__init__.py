"""SHOWS the gateway to operators and scrapers, and takes operators' commands: the admin listener.

Belongs here: the listener (`site`, `connection`), access to it (`guard`), its endpoints (`api`, `commands`),
the form of every response, and the operations page (`ui`). All of it reads the current snapshot and the
status, and passes commands on. Only POST, PUT and DELETE change anything, and `guard` checks token, Host and
Origin before that.

Does not belong here: the meaning of a command (`core.fleet.fleet`), counts and status (`telemetry`), the
composition of the parts (`assembly`), the command line (`cli`), and anything that clients of a service can
reach: they have other listeners.
"""

from __future__ import annotations

from gateway.admin.api import create_app, create_metrics_app
from gateway.admin.context import AdminAccess, AdminContext, Commands, Explaining
from gateway.admin.site import AdminSite, bind_site

__all__ = [
    "AdminAccess",
    "AdminContext",
    "AdminSite",
    "Commands",
    "Explaining",
    "bind_site",
    "create_app",
    "create_metrics_app",
]
