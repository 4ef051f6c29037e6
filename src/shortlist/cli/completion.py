"""`shortlist completion`: print the completion script for a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands in your shell.

    \b
    bash: echo 'eval "$(shortlist completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(shortlist completion zsh)"' >> ~/.zshrc
    fish: shortlist completion fish > ~/.config/fish/completions/shortlist.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "shortlist", "_SHORTLIST_COMPLETE").source())
