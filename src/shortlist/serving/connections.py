"""All open connections: how many there may be, how much they may leave unread, and when they are closed."""

from __future__ import annotations

import asyncio
from email.utils import formatdate

from shortlist.serving.connection import Connection
from shortlist.serving.limits import Limits
from shortlist.serving.logs import Log

GRACE_SECONDS = 1.0  # a new connection is about to send its request
MAX_UNSENT = 1 << 26  # bytes of responses that clients have not read, over all connections


class Connections:
    """The open connections of a server. One that is not in use makes way for a new one when there are too many."""

    def __init__(self, limits: Limits, max_open: int, log: Log) -> None:
        self.loop = asyncio.get_running_loop()
        self.stopping = False
        self.date = b""
        self._most = max_open
        self._max_open = min(max_open, limits.max_connections)
        self._max_per_address = min(self._max_open, limits.max_connections_per_client)
        self._log = log
        self._open: dict[str, int] = {}  # the number per address
        self._idle: dict[str, dict[Connection, None]] = {}  # per address, longest idle first
        self._stalled: dict[Connection, None] = {}  # clients that do not read, the slowest first
        self._all: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection) -> None:
        """Add a new connection. If there are too many, close one that is not in use, of the most frequent address."""
        address = connection.client[0]
        if self._open.get(address, 0) >= self._max_per_address:
            self._make_room(address)
        elif len(self._all) >= self._max_open:
            self._make_room(max(self._open, key=self._open.__getitem__))
        self._all.add(connection)
        self._open[address] = self._open.get(address, 0) + 1
        self._idle.setdefault(address, {})[connection] = None
        connection.idle_since = self.loop.time()

    def remove(self, connection: Connection) -> None:
        if connection not in self._all:
            return
        self._all.discard(connection)
        self._stalled.pop(connection, None)
        address = connection.client[0]
        self._idle[address].pop(connection, None)
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address], self._idle[address]

    def set_busy(self, connection: Connection) -> None:
        self._idle[connection.client[0]].pop(connection, None)

    def set_idle(self, connection: Connection) -> None:
        connection.idle_since = self.loop.time()
        self._idle[connection.client[0]][connection] = None

    def stall(self, connection: Connection) -> None:
        """A client does not read its response. If clients leave too much unread, the slowest are disconnected."""
        self._stalled.setdefault(connection)
        unsent = sum(stalled.transport.get_write_buffer_size() for stalled in self._stalled)
        while unsent > MAX_UNSENT and len(self._stalled) > 1:
            slowest = next(iter(self._stalled))
            unsent -= slowest.transport.get_write_buffer_size()
            self._cut_off(slowest)

    def unstall(self, connection: Connection) -> None:
        self._stalled.pop(connection, None)

    def stop(self) -> None:
        """Close all connections, busy ones after their response."""
        self.stopping = True
        for connection in list(self._all):
            connection.stop()

    def abort(self) -> None:
        for connection in list(self._all):
            connection.transport.abort()

    def tick(self) -> None:
        """Close the connections whose time is over. The server calls this several times a second."""
        self.date = b"date: %b\r\n" % formatdate(usegmt=True).encode()
        now = self.loop.time()
        for connection in list(self._all):
            if connection in self._stalled:
                if now > connection.stalled_since + connection.response_seconds:
                    self._cut_off(connection)
            elif connection.deadline is not None and now > connection.deadline:
                connection.expire()
            elif connection in self._idle[connection.client[0]] and (
                connection.deadline is None and now > connection.idle_since + connection.idle_seconds
            ):
                connection.close()

    def _make_room(self, address: str) -> None:
        """Close the connections of this address that have been idle for longest; or else the slowest readers'.

        Not connections that are newer than a second, as long as the system has room: their request is on its way.
        """
        candidates = (*self._idle[address], *(one for one in self._stalled if one.client[0] == address))
        for connection in candidates[:2]:  # two for one, so that their number falls
            if len(self._all) >= self._most or self.loop.time() > connection.idle_since + GRACE_SECONDS:
                connection.transport.abort()
                self.remove(connection)

    def _cut_off(self, connection: Connection) -> None:
        unsent = connection.transport.get_write_buffer_size()
        if unsent:
            fields = {"client": connection.client[0], "unsent_bytes": unsent}
            self._log.event("a client did not read its response and was disconnected", "warning", **fields)
        connection.transport.abort()
        self.remove(connection)
