"""The verbs that describe the program itself: `version`, `schema` and `completion`.

They need neither a gateway nor a configuration. A completion script calls the command for every completion,
so it never goes out of date.
"""

from __future__ import annotations

from typing import Final

import click

from gateway import __version__
from gateway.cli import COMPLETE_VARIABLE, NAME, skewgate
from gateway.cli.command import output_option, verb
from gateway.runtime import compiled

LIBRARIES: Final = (
    "aiohttp",
    "click",
    "dnspython",
    "httptools",
    "multidict",
    "prometheus_client",
    "PyYAML",
    "uvloop",
)
SHELLS: Final = ("bash", "zsh", "fish")
SCRIPTS: Final = """\
bash: skewgate completion bash > ~/.local/share/bash-completion/completions/skewgate

zsh: skewgate completion zsh > "${fpath[1]}/_skewgate"

fish: skewgate completion fish > ~/.config/fish/completions/skewgate.fish"""


@verb("version")
@output_option
def version(*, output: str) -> int:
    """Print the versions of the program and its libraries. Raises `SettingsError` for a bad SKEWGATE_LOOP."""
    import json  # noqa: PLC0415 - a shell asks the other verbs of this module with each key
    import platform  # noqa: PLC0415
    from importlib.metadata import PackageNotFoundError  # noqa: PLC0415
    from importlib.metadata import version as installed  # noqa: PLC0415

    found: dict[str, str | None] = {
        "skewgate": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "loop": compiled.chosen_loop(),
        "compiled": compiled.note() or str(compiled.is_compiled()).lower(),
        "matcher": str(compiled.has_matcher()).lower(),
    }
    for name in LIBRARIES:
        try:
            found[name.lower()] = installed(name)
        except PackageNotFoundError:
            found[name.lower()] = None
    if output == "json":
        print(json.dumps(found))
    else:
        width = max(map(len, found))
        print("\n".join(f"{name:<{width}}  {text or 'not installed'}" for name, text in found.items()))
    return 0


@verb("schema")
def schema() -> int:
    """Print the JSON Schema of the configuration."""
    from gateway.settings import schema_text  # noqa: PLC0415 - costs more than the other verbs together

    print(schema_text(), end="")
    return 0


@verb("completion", SCRIPTS)
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(SHELLS))
def completion(*, shell: str) -> int:
    """Print the completion script of a shell."""
    from click.shell_completion import ShellComplete, get_completion_class  # noqa: PLC0415 - only here

    kind = get_completion_class(shell)
    assert kind is not None
    # Not its own `source`: that of bash starts bash to see its version.
    print(ShellComplete.source(kind(skewgate, {}, NAME, COMPLETE_VARIABLE)), end="")
    return 0
