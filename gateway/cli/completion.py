"""`skewgate completion SHELL`: prints the script by which a shell completes verbs, options and names.

The script calls the command itself, which knows them all; there is nothing to keep up to date.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

from gateway.cli import COMPLETE_VARIABLE, NAME, skewgate
from gateway.cli.command import verb

SHELLS: Final = ("bash", "zsh", "fish")
DETAILS: Final = """\
bash: skewgate completion bash > ~/.local/share/bash-completion/completions/skewgate

zsh: skewgate completion zsh > "${fpath[1]}/_skewgate"

fish: skewgate completion fish > ~/.config/fish/completions/skewgate.fish"""


@verb("completion", DETAILS)
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(SHELLS))
def completion(*, shell: str) -> int:
    """Print the script."""
    kind = get_completion_class(shell)
    assert kind is not None
    # Not its own `source`: that of bash starts bash to see its version.
    print(ShellComplete.source(kind(skewgate, {}, NAME, COMPLETE_VARIABLE)), end="")
    return 0
