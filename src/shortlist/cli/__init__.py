"""The command line. Each command is imported when it is used, so that `--help` is fast."""

from __future__ import annotations

import difflib
import logging
import os
import sys
from typing import Any

import click

from shortlist import __version__
from shortlist.errors import ShortlistError, Stopped
from shortlist.printable import PrintableFormatter, printable, printable_line

COMMANDS = {
    "data": "shortlist.cli.data",
    "train": "shortlist.cli.train",
    "predict": "shortlist.cli.predict",
    "update": "shortlist.cli.update",
    "labels": "shortlist.cli.labels",
    "evaluate": "shortlist.cli.evaluate",
    "threshold": "shortlist.cli.threshold",
    "report": "shortlist.cli.report",
    "compare": "shortlist.cli.compare",
    "serve": "shortlist.cli.serve",
    "card": "shortlist.cli.card",
    "merge": "shortlist.cli.merge",
    "plan": "shortlist.cli.plan",
    "recipes": "shortlist.cli.recipes",
    "completion": "shortlist.cli.completion",
}


class Commands(click.Group):
    """Imports a command from its module, and turns errors into one message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        import importlib

        if cmd_name in ("describe", "convert", "split"):
            ctx.fail(f"No such command '{cmd_name}'. Did you mean 'shortlist data {cmd_name}'?")
        if cmd_name not in COMMANDS:
            close = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            if close and not ctx.resilient_parsing:  # completion in a shell asks for what is half typed
                ctx.fail(f"No such command '{cmd_name}'. Did you mean '{close[0]}'?")
            return None
        return getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise with_recipe_option(error) from None
        except ShortlistError as error:
            click.echo(f"shortlist: {printable(str(error))}", err=True)
            ctx.exit(2)
        except Stopped as stopped:
            click.echo(f"shortlist: {printable(str(stopped))}", err=True)
            ctx.exit(130)
        except MemoryError:
            click.echo("shortlist: out of memory. Close other programs, or use less data.", err=True)
            ctx.exit(2)
        except BrokenPipeError:
            # The reader of our output closed the pipe. Python would fail to flush standard output at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(141)
        except OSError as error:
            where = printable_line(str(error.filename or "a file"))
            click.echo(f"shortlist: {where}: {error.strerror or error}.", err=True)
            ctx.exit(2)


def with_recipe_option(error: click.NoSuchOption) -> click.NoSuchOption:
    """The error; if the command has `--set`, with the option of a recipe that was probably meant."""
    if error.ctx is not None and any("--set" in parameter.opts for parameter in error.ctx.command.params):
        from shortlist.recipes import list_recipes

        names = sorted({option.name for recipe in list_recipes().values() for option in recipe.options})
        name = error.option_name.lstrip("-").replace("-", "_")
        if close := difflib.get_close_matches(name, names, n=1):
            message = f"No such option '{error.option_name}'. Did you mean '--set {close[0]}=VALUE'?"
            return click.NoSuchOption(error.option_name, message, ctx=error.ctx)
    return error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command has its own --help, with examples.",
)
@click.version_option(__version__, "-V", "--version", message="shortlist %(version)s")
def shortlist() -> None:
    """Short-text extreme classification: a short text in, the best few of millions of labels out.

    \b
    shortlist data describe pairs.jsonl       look at the data
    shortlist data split pairs.jsonl parts/   make a training and a test part
    shortlist train parts/ --out model/       train a model
    shortlist evaluate model/ parts/          measure it on the test part
    shortlist report model/ parts/            see where it is right and where not
    shortlist predict model/ "red shoes"      predict labels
    shortlist serve model/                    predict over HTTP, with a web page
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def main() -> None:
    _open_standard_streams()
    shortlist(prog_name="shortlist")


def _open_standard_streams() -> None:
    """Open /dev/null for each standard stream that is closed: otherwise the next file would take its place.

    A closed standard input stays closed for Python, and reading it is an error.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            if name != "stdin":
                setattr(sys, name, os.fdopen(number, "w", closefd=False))
