"""READS the configuration: YAML text in, frozen settings or every problem of the file out.

`load` is the entry point, `values.Settings` what comes out. Rooms:

- `yaml`: text to a tree with positions, and the tree read by the kinds of its keys. It knows no key.
- `sections`: one module for each noun of the file: its keys, how they become a value, and further checks.

At the top are the files themselves (`files`, `target_file`), the schema, and the gateway's own addresses.
`keys` reads single texts; `core.fleet` declares the sections that core uses as they are read. This package
opens no socket, starts nothing, and reads no environment but the one that it is given.
"""

from gateway.settings.load import Loaded, load, read_file
from gateway.settings.schema import schema_text
from gateway.settings.sections.agreement import AgreementSettings
from gateway.settings.sections.file import AccessLogSettings, LogSettings
from gateway.settings.values import Settings
from gateway.settings.yaml.problem import Problem

__all__ = [
    "AccessLogSettings",
    "AgreementSettings",
    "Loaded",
    "LogSettings",
    "Problem",
    "Settings",
    "load",
    "read_file",
    "schema_text",
]
