"""`shortlist serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from shortlist.cli.reading import POSITIVE, FloatRange
from shortlist.errors import DataError, MissingExtraError, OptionError

TOKEN_VARIABLE = "SHORTLIST_TOKEN"


@click.command()
@click.argument("model", type=click.Path())
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes any free port.")
@click.option("--name", help="Name of the model for clients of Annif and KServe.  [default: the name of the folder]")
@click.option("--threads", type=click.IntRange(1), help="Threads per prediction.  [default: all cores]")
@click.option("--search-effort", default=1.0, show_default=True, type=POSITIVE,
              help="How much to search unless a request says otherwise; see `shortlist predict`.")  # fmt: skip
@click.option("--token-file", type=click.Path(), help=f"File with the bearer token (or set {TOKEN_VARIABLE}).")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME",
              help="On a local address without a token: answer to this host name, too. May be repeated.")  # fmt: skip
@click.option("--watch", is_flag=True, help="Reload the model when its files change (SIGHUP always reloads it).")
@click.option("--max-body", type=int, help="Maximum bytes per request.")
@click.option("--max-texts", type=int, help="Maximum texts per request.")
@click.option("--max-words", type=int, help="Maximum words per text.")
@click.option("--max-concurrent", type=int, help="Maximum requests in flight.")
@click.option("--max-per-client", type=int, help="Maximum requests in flight from one address.")
@click.option(
    "--max-slowdown", type=int, help="Refuse short requests while they take this many times as long as alone."
)
@click.option("--drain-delay", default=0.0, show_default=True, type=FloatRange(0, 600),
              help="Seconds to keep serving after SIGTERM while /readyz reports 503.")  # fmt: skip
@click.option("--feedback", type=click.Path(), metavar="FILE",
              help="Append feedback (POST /v1/feedback, needs a token) to FILE, for `shortlist update`.")  # fmt: skip
@click.option("--log-texts", is_flag=True, help="Include the texts in the log.")
def serve(
    model: str,
    host: str,
    port: int,
    token_file: str | None,
    allow_hosts: tuple[str, ...],
    drain_delay: float,
    **options: Any,
) -> None:
    """Serve MODEL over HTTP, with a page to try it. See docs/serving.md.

    \b
    shortlist serve model/
    shortlist serve model/ --port 9000 --watch
    curl http://127.0.0.1:8000/v1/predict --json '{"text": "red shoes"}'
    """
    try:
        from shortlist.serving.server import run
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "shortlist":
            raise
        raise MissingExtraError("serving over HTTP", "serve") from None
    from shortlist.serving.app import App
    from shortlist.serving.limits import Limits

    limits = {name: options.pop(name) for name in list(options) if name.startswith("max_")}
    limits = {name: value for name, value in limits.items() if value is not None}
    app = App(model, limits=Limits(**limits), token=read_token(token_file), **options)
    run(app, host, port, drain_delay, allow_hosts)


def read_token(path: str | None) -> str | None:
    """The token from a file or the environment; never from the command line, which other users can see."""
    if path is None:
        token, source = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
        if token is None:
            return None
    else:
        source = path
        try:
            token = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: the token cannot be read: {getattr(error, 'strerror', error)}.") from None
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise OptionError(f"{source}: the token is empty or contains characters other than printable ASCII.")
    return token
