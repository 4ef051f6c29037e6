"""Runs the application: a socket, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import uvicorn

from shortlist.errors import OptionError
from shortlist.serving.app import App
from shortlist.serving.logs import LogHandler
from shortlist.serving.protocol import BoundedProtocol

DRAIN_SECONDS = 30
OTHER_FILES = 100  # descriptors that are not connections


def run(app: App, host: str, port: int, drain_delay: float = 0.0) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP loads the model again."""
    listening = bind(host, port)
    handler = LogHandler(app.log)
    logging.getLogger("uvicorn.error").addHandler(handler)
    logging.getLogger("uvicorn.error").propagate = False
    try:
        Server(app, drain_delay).run(sockets=[listening])
    finally:
        logging.getLogger("uvicorn.error").removeHandler(handler)
        listening.close()
        app.log.close()
    if app.failure is not None:
        raise app.failure


class Server(uvicorn.Server):
    """uvicorn's server, with our application's beginning and end around it, and our own signals."""

    def __init__(self, app: App, drain_delay: float = 0.0) -> None:
        self.app, self.drain_delay = app, drain_delay

        class Protocol(BoundedProtocol):
            max_connections = min(app.limits.max_connections, _most_open_files() - OTHER_FILES)

        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.on_failure = self._stop
        async with self.app:
            host, port = (sockets or [])[0].getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            self.app.log.event("listening", url=url, folder=str(self.app.served.folder))
            await super().serve(sockets)
            self.app.log.event("stopped")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would end with the signal that stopped it; for us a stop that was asked for is a success."""
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGTERM: self.drain,
            signal.SIGINT: self.drain,
            signal.SIGHUP: self.app.served.reload_soon,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def drain(self) -> None:
        """Say that we are not ready any more, go on for `drain_delay` seconds, then stop. Asked twice: stop now."""
        if self.app.draining:
            self.force_exit = True
            self._stop()
            return
        self.app.draining = True
        self.app.log.event("stopping", open_requests=self.app.admission.requests)
        asyncio.get_running_loop().call_later(self.drain_delay, self._stop)

    def _stop(self) -> None:
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"cannot listen on {host} port {port}: {getattr(error, 'strerror', None) or error}. "
            "Choose another --host or --port, or stop what listens there."
        ) from None
    return listening


def _most_open_files() -> int:
    """How many files this process may have open, after asking for as many as the system lets it have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 16 if hard == resource.RLIM_INFINITY else min(hard, 1 << 16)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return 1 << 16 if soft == resource.RLIM_INFINITY else soft
