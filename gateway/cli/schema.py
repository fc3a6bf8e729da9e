"""`skewgate schema`: prints the JSON Schema of the configuration, for editors. The settings make it."""

from __future__ import annotations

from gateway.cli.command import verb
from gateway.settings import schema_text


@verb("schema")
def schema() -> int:
    """Print the schema."""
    print(schema_text(), end="")
    return 0
