"""Runs the application: a socket, signals, and a graceful stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from typing import Any

from shortlist.errors import OptionError
from shortlist.serving.app import App
from shortlist.serving.connection import Connection
from shortlist.serving.connections import Connections
from shortlist.serving.hosts import HostCheck, is_local

DRAIN_SECONDS = 30
TICK_SECONDS = 0.1
OTHER_FILES = 100  # descriptors that are not connections
MAX_OPEN_FILES = 1 << 16
BACKLOG = 2048
UNSENT_BYTES = 1 << 18  # in the system's buffer of a connection; its default is up to 4 MiB


def run(app: App, host: str, port: int, drain_delay: float = 0.0, allow_hosts: tuple[str, ...] = ()) -> None:
    """Serve until SIGTERM or SIGINT. SIGHUP reloads the model."""
    run_loop: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
    with suppress(ImportError):
        import uvloop

        run_loop = uvloop.run
    logging.getLogger("asyncio").addHandler(app.log)
    logging.getLogger("asyncio").propagate = False
    with closing(app.log), listen(host, port) as listening:
        if is_local(listening.getsockname()[0]) and app.token is None:
            app.host_check = HostCheck(allow_hosts)
        run_loop(Server(app, drain_delay).serve(listening))


class Server:
    """Serves an application until it is stopped."""

    def __init__(self, app: App, drain_delay: float = 0.0) -> None:
        self.app, self.drain_delay = app, drain_delay
        self._stopping, self._hurry = asyncio.Event(), False
        self._frozen_at = 0.0  # when the model that was frozen last was loaded

    async def serve(self, listening: socket.socket) -> None:
        loop, app = asyncio.get_running_loop(), self.app
        connections = Connections(app.limits, raise_open_files() - OTHER_FILES, app.log)
        signals = {signal.SIGTERM: self.drain, signal.SIGINT: self.drain, signal.SIGHUP: app.served.request_reload}
        for number, handler in signals.items():
            loop.add_signal_handler(number, handler)
        async with app:
            app.model_task.add_done_callback(self._stop)  # it ends only if the first model cannot be loaded
            host, port = listening.getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            app.log.event("listening", url=url, folder=str(app.served.folder))
            if not is_local(host) and app.token is None:
                app.log.event("no token is set: anyone who can reach this address can use the server", "warning")
            connections.tick()
            server = await loop.create_server(lambda: Connection(app, connections), sock=listening, backlog=BACKLOG)
            while not self._stopping.is_set():
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), TICK_SECONDS)
                connections.tick()
                self._freeze()
            server.close()
            connections.stop()
            give_up = loop.time() + DRAIN_SECONDS
            while len(connections) and loop.time() < give_up and not self._hurry:
                await asyncio.sleep(TICK_SECONDS / 2)
                connections.tick()
            connections.abort()
            app.log.event("stopped")

    def _freeze(self) -> None:
        """After a model is loaded, exempt all there is from garbage collection.

        A full collection looks at all of it and stops every thread for 50 ms and more. Models that are replaced need
        none: they have no cycles.
        """
        if self._frozen_at != self.app.served.loaded_at:
            self._frozen_at = self.app.served.loaded_at
            gc.collect()
            gc.freeze()

    def drain(self) -> None:
        """Report "not ready" for `drain_delay` seconds, then stop. A second signal stops at once."""
        if self.app.draining:
            self._hurry = True
            self._stop()
            return
        self.app.draining = True
        self.app.log.event("stopping", open_requests=self.app.admission.requests)
        asyncio.get_running_loop().call_later(self.drain_delay, self._stop)

    def _stop(self, *_: object) -> None:
        self._stopping.set()


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes any free port."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listening = socket.create_server((host, port), family=family, dualstack_ipv6=family == socket.AF_INET6)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"cannot listen on {host} port {port}: {getattr(error, 'strerror', None) or error}. "
            "Choose another --host or --port, or stop the program that uses it."
        ) from None
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT_BYTES)  # connections inherit it
    return listening


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
