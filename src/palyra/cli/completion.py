"""``palyra completion``: the script a shell sources to complete commands and options."""

from typing import TYPE_CHECKING, Final

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

INSTALL: Final = {
    "bash": "palyra completion bash > ~/.local/share/bash-completion/completions/palyra",
    "zsh": "palyra completion zsh > a file named _palyra in a folder of your $fpath",
    "fish": "palyra completion fish > ~/.config/fish/completions/palyra.fish",
}


@click.command(epilog="Install: " + INSTALL["bash"])
@click.argument("shell", type=click.Choice(tuple(INSTALL)))
@json_option
@pass_invocation
def completion(invocation: Invocation, shell: str) -> None:
    """Print the completion script of a shell."""
    script = script_for(shell)
    invocation.output.data({"shell": shell, "script": script, "install": INSTALL[shell]}, lambda _: script)


def script_for(shell: str) -> str:
    from click.shell_completion import get_completion_class

    from palyra.cli.main import root

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    completer: ShellComplete = kind(root, {}, "palyra", "_PALYRA_COMPLETE")
    # click's own source() starts bash to ask its version; the script is the same for every version we meet.
    return completer.source_template % completer.source_vars()
