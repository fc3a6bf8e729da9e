"""SHOWS the gateway to the people and machines that run it, and takes their commands.

Belongs here: the listener for operators and scrapers (`site`, `connection`), who may use it (`guard`), its
endpoints (`api`, `commands`), the form of every response, and the operations page (`ui`). All of it reads the
current snapshot and the status, and hands commands on. Only POST, PUT and DELETE change anything, and `guard`
checks token, Host and Origin before that.

Does not belong here: what a command means (`core.fleet.fleet`), what is counted or known (`telemetry`), how
the parts are put together (`assembly`), the command line that asks (`cli`), and whatever a client of a
service can reach: clients have other listeners.
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
