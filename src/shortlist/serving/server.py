"""Runs the application: a socket, signals, and a graceful stop."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import uvicorn

from shortlist.errors import OptionError
from shortlist.serving.app import App
from shortlist.serving.protocol import LimitedProtocol

DRAIN_SECONDS = 30
OTHER_FILES = 100  # descriptors that are not connections
MAX_OPEN_FILES = 1 << 16
LOOPBACK = ("127.0.0.1", "::1")


def run(app: App, host: str, port: int, drain_delay: float = 0.0) -> None:
    """Serve until SIGTERM or SIGINT. SIGHUP reloads the model."""
    logging.getLogger("uvicorn.error").addHandler(app.log)
    logging.getLogger("uvicorn.error").propagate = False
    with closing(app.log), listen(host, port) as listening:
        Server(app, drain_delay).run(sockets=[listening])


class Server(uvicorn.Server):
    """uvicorn's server, with the application's start and stop around it and its own signal handlers."""

    def __init__(self, app: App, drain_delay: float = 0.0) -> None:
        self.app, self.drain_delay = app, drain_delay

        class Protocol(LimitedProtocol):
            max_connections = min(app.limits.max_connections, raise_open_files() - OTHER_FILES)

        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        host, port = sockets[0].getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        async with self.app:
            self.app.model_task.add_done_callback(self._stop)  # it ends only if the first model cannot be loaded
            self.app.log.event("listening", url=url, folder=str(self.app.served.folder))
            if host not in LOOPBACK and self.app.token is None:
                self.app.log.event("no token is set: anyone who can reach this address can use the server", "warning")
            await super().serve(sockets)
            self.app.log.event("stopped")

    async def on_tick(self, counter: int) -> bool:
        for connection in list(self.server_state.connections):
            connection.check_deadlines()  # type: ignore[union-attr]
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Replace uvicorn's handlers, after which the process would die of the signal; ours exits with 0."""
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGTERM: self.drain,
            signal.SIGINT: self.drain,
            signal.SIGHUP: self.app.served.request_reload,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def drain(self) -> None:
        """Report "not ready" for `drain_delay` seconds, then stop. A second signal stops at once."""
        if self.app.draining:
            self.force_exit = True
            self._stop()
            return
        self.app.draining = True
        self.app.log.event("stopping", open_requests=self.app.admission.requests)
        asyncio.get_running_loop().call_later(self.drain_delay, self._stop)

    def _stop(self, *_: object) -> None:
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes any free port."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, dualstack_ipv6=family == socket.AF_INET6)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"cannot listen on {host} port {port}: {getattr(error, 'strerror', None) or error}. "
            "Choose another --host or --port, or stop the program that uses it."
        ) from None


def raise_open_files() -> int:
    """Raise this process's limit of open files as far as the system allows, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft
