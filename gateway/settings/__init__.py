"""YAML with positions -> frozen settings; every problem at once.

`load` and `read_file` are the only doors. This package decides what a configuration means and nothing else:
it opens no socket, starts nothing, and reads the environment only from what it is given.
"""

from gateway.settings.load import Loaded, load, read_file
from gateway.settings.model import AccessLog, Limits, Timeouts
from gateway.settings.problem import Problem, Severity
from gateway.settings.schema import schema_json, schema_text
from gateway.settings.secret import MaskedText, Secret
from gateway.settings.values import AdminSettings, Listen, Settings

__all__ = [
    "AccessLog",
    "AdminSettings",
    "Limits",
    "Listen",
    "Loaded",
    "MaskedText",
    "Problem",
    "Secret",
    "Settings",
    "Severity",
    "Timeouts",
    "load",
    "read_file",
    "schema_json",
    "schema_text",
]
