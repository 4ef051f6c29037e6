"""`shortlist serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from shortlist.errors import DataError, MissingExtraError, OptionError

TOKEN_VARIABLE = "SHORTLIST_TOKEN"
LOCAL = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.argument("model", type=click.Path())
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option("--threads", type=click.IntRange(1), help="Threads of a prediction; as many as cores by default.")
@click.option("--search-effort", default=1.0, show_default=True, type=click.FloatRange(0, min_open=True),
              help="How much to search where a request does not say; see `shortlist predict`.")  # fmt: skip
@click.option("--token-file", type=click.Path(), help=f"File with the bearer token (or set {TOKEN_VARIABLE}).")
@click.option("--watch", is_flag=True, help="Take up a new model in the folder by itself (SIGHUP always does).")
@click.option("--max-body", type=int, help="Bytes of a request.")
@click.option("--max-texts", type=int, help="Texts of a request.")
@click.option("--max-words", type=int, help="Words of a text.")
@click.option("--max-concurrent", type=int, help="Requests at a time.")
@click.option("--max-per-client", type=int, help="Requests at a time from one address.")
@click.option("--drain-delay", default=0.0, show_default=True, type=click.FloatRange(0, 600),
              help="Seconds to go on after SIGTERM while /readyz says no.")  # fmt: skip
@click.option("--log-texts", is_flag=True, help="Write the texts into the log, too.")
def serve(
    model: str,
    host: str,
    port: int,
    threads: int | None,
    search_effort: float,
    token_file: str | None,
    watch: bool,
    drain_delay: float,
    log_texts: bool,
    **limits: Any,
) -> None:
    """Serve MODEL over HTTP, with a page to try it. See docs/serving.md.

    \b
    shortlist serve model/
    shortlist serve model/ --port 9000 --watch
    curl -H 'Content-Type: application/json' -d '{"text": "red shoes"}' http://127.0.0.1:8000/v1/predict
    """
    try:
        from shortlist.serving.server import run
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "shortlist":
            raise
        raise MissingExtraError("serving over HTTP", "serve") from None
    from shortlist.serving.app import App
    from shortlist.serving.limits import Limits

    app = App(
        model,
        limits=Limits(**{name: value for name, value in limits.items() if value is not None}),
        token=read_token(token_file),
        threads=threads,
        search_effort=search_effort,
        watch=watch,
        log_texts=log_texts,
    )
    if host not in LOCAL and not app.has_token:
        app.log.event("anybody who can reach this address can use the server: set a token", "warning", host=host)
    run(app, host, port, drain_delay)


def read_token(path: str | None) -> str | None:
    """The token from a file or the environment: never from the command line, where every user can see it."""
    if path is None:
        token, where = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
        if token is None:
            return None
    else:
        where = path
        try:
            token = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: the token cannot be read: {getattr(error, 'strerror', error)}.") from None
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise OptionError(f"{where}: the token is empty or has other characters than ASCII without spaces.")
    return token
