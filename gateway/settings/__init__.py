"""READS the configuration: YAML text in, frozen settings or every problem of the file out.

`load` is the entry point, `values.Settings` what comes out. Rooms:

- `yaml`: text to a tree with positions, and the tree read by the kinds of its keys. It knows no key.
- `sections`: one module for each noun of the file (`listen`, `admin`, `backend`, `offer`): its keys, how they
  become a value, and what is checked of them beside their own kinds.

Here at the top are the files themselves (`files`, `target_file`), what is made of the keys (`schema`,
`reference`), and the gateway's own addresses. How a single text is read belongs to `keys`; a section whose
value core uses as it is read is declared in `core.fleet`; the options of a dialect are its own. This package
decides what a configuration means and nothing else: it opens no socket, starts nothing, and reads the
environment only as it is given.
"""

from gateway.core.fleet.limits import Limits
from gateway.core.fleet.timeouts import Timeouts
from gateway.keys.secrets import MaskedText, Secret
from gateway.settings.load import Loaded, load, read_file
from gateway.settings.schema import schema_json, schema_text
from gateway.settings.sections.admin import Admin
from gateway.settings.sections.agreement import AgreementSettings, EtcdSettings
from gateway.settings.sections.file import AccessLogSettings, LogSettings
from gateway.settings.sections.listen import Listen
from gateway.settings.values import Settings
from gateway.settings.yaml.problem import Problem, Severity

__all__ = [
    "AccessLogSettings",
    "Admin",
    "AgreementSettings",
    "EtcdSettings",
    "Limits",
    "Listen",
    "Loaded",
    "LogSettings",
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
