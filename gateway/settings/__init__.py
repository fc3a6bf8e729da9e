"""The configuration: YAML text in, frozen settings or every problem of the file out.

`load` and `read_file` are the only entry points. Rooms: `yaml` (text and positions), `model` (the shape of a
file), `checks` (rules between keys, and what needs the dialect). This package decides what a configuration
means and nothing else. It opens no socket, starts nothing, and reads the environment only as it is given.
"""

from gateway.core.fleet.limits import Limits
from gateway.core.fleet.timeouts import Timeouts
from gateway.keys.secrets import MaskedText, Secret
from gateway.settings.load import Loaded, load, read_file
from gateway.settings.model.admin import Admin
from gateway.settings.model.document import AccessLog, Log
from gateway.settings.schema import schema_json, schema_text
from gateway.settings.values import AgreementSettings, EtcdSettings, Listen, Settings
from gateway.settings.yaml.problem import Problem, Severity

__all__ = [
    "AccessLog",
    "Admin",
    "AgreementSettings",
    "EtcdSettings",
    "Limits",
    "Listen",
    "Loaded",
    "Log",
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
