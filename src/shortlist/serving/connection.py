"""One connection: HTTP/1.1 requests from httptools' parser, answered by an ASGI application, one after the other.

Not uvicorn's protocol: it parses all pipelined requests of a read at once, stores trailers of any size, and waits
forever for a request that arrives byte by byte and for a client that does not read. Here each of these is bounded.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING

import httptools
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Scope

from shortlist.serving.problems import problem_response

if TYPE_CHECKING:
    from shortlist.serving.connections import Connections

MAX_HEADER_BYTES = 1 << 16  # of the headers, and of the trailers
MAX_HEADERS = 100
PIECE_BYTES = 1 << 10  # parsed at once; requests that follow in the same piece have to be kept
MAX_BODY_BYTES = 1 << 16  # of a body that arrive before the application takes them
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
ASGI = {"version": "3.0", "spec_version": "2.3"}


class Connection(asyncio.Protocol):
    """Parses requests and runs the application for one at a time; the others wait, in the end in the client's socket.

    A request must arrive within `request_seconds`, an unused connection is closed after `idle_seconds`, and a client
    that does not read is cut off after `response_seconds`; `Connections` looks after this.
    """

    request_seconds = 10.0
    idle_seconds = 15.0
    response_seconds = 30.0

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        self.app, self.connections, self.loop = app, connections, connections.loop
        self.closing = self.write_paused = False
        self.deadline: float | None = self.loop.time() + self.request_seconds  # for the request that is arriving
        self.idle_since = self.stalled_since = 0.0
        self._parser = httptools.HttpRequestParser(self)
        self._unparsed = memoryview(b"")
        self._read_paused = False
        self._headers_done = True
        self._bytes_without_body = self._body_left = 0
        self._arriving: Exchange | None = None  # the last request of which headers have arrived
        self._waiting: deque[Exchange] = deque()  # requests that arrived together; the first is being answered
        self._problem: HTTPException | None = None
        self._writable: asyncio.Future[None] | None = None

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.server, self.client = (transport.get_extra_info(name) for name in ("sockname", "peername"))
        self.server, self.client = self.server[:2], self.client[:2]
        self.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self.connections.remove(self)
        wake(self._writable)
        for exchange in self._waiting:
            exchange.abandon()
        self._waiting.clear()
        self._unparsed = memoryview(b"")

    def data_received(self, data: bytes) -> None:
        self._unparsed = memoryview(bytes(self._unparsed) + data if self._unparsed else data)
        self.parse()

    def pause_writing(self) -> None:
        self.write_paused = True
        self.stalled_since = self.loop.time()
        self.connections.stall(self)

    def resume_writing(self) -> None:
        self.write_paused = False
        wake(self._writable)
        if not self.closing:
            self.connections.unstall(self)
            self._next_request()

    # Parsing

    @property
    def _must_wait(self) -> bool:
        """Whether the request that has arrived must be answered, or its body be taken, before more is parsed."""
        request = self._arriving
        return request is not None and (request.complete or len(request.body) >= MAX_BODY_BYTES)

    def parse(self) -> None:
        """Parse what was received, up to the end of the next request; then read no more until it is answered."""
        while self._unparsed and not self._must_wait and not self.closing and self._problem is None:
            size = max(PIECE_BYTES, min(self._body_left, MAX_BODY_BYTES))
            piece, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            self._bytes_without_body += len(piece)
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade:  # the request is answered as if it asked for none
                assert self._arriving is not None
                self._arriving.last = True
            except httptools.HttpParserError:
                request = self._arriving
                if request is None or not (request.last and request.complete):  # anything may follow the last request
                    detail = "This is not a valid HTTP request. Use an HTTP client."
                    self.refuse(self._problem or HTTPException(HTTPStatus.BAD_REQUEST, detail))
            if self._bytes_without_body > MAX_HEADER_BYTES:
                detail = f"The headers are larger than {MAX_HEADER_BYTES:,} bytes. Send fewer."
                self.refuse(HTTPException(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail))
        if bool(self._unparsed) != self._read_paused and not self.closing:
            self._read_paused = not self._read_paused
            (self.transport.pause_reading if self._read_paused else self.transport.resume_reading)()

    def on_message_begin(self) -> None:
        self._url, self._headers, self._headers_done = b"", [], False  # type: ignore[var-annotated]
        self.deadline = self.deadline or self.loop.time() + self.request_seconds

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headers_done:
            return  # a trailer: nobody needs it
        if len(self._headers) == MAX_HEADERS:
            detail = f"The request has more than {MAX_HEADERS} headers. Send fewer."
            self._problem = HTTPException(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
            raise self._problem
        name = name.lower()
        if name == b"content-length":
            self._body_left = int(value)
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._headers_done = True
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        version = self._parser.get_http_version()
        scope = {
            "type": "http",
            "asgi": ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": "http",
            "root_path": "",
            "headers": self._headers,
            "method": self._parser.get_method().decode("ascii"),
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
        }
        last = version != "1.1" or not self._parser.should_keep_alive()
        self._arriving = Exchange(self, scope, last)
        self._waiting.append(self._arriving)
        if len(self._waiting) == 1:
            self._arriving.start()

    def on_body(self, body: bytes) -> None:
        self._bytes_without_body = 0
        self._body_left -= len(body)
        assert self._arriving is not None
        self._arriving.add_body(body)

    def on_message_complete(self) -> None:
        self._bytes_without_body = self._body_left = 0
        self.deadline = None
        assert self._arriving is not None
        self._arriving.add_body(b"", complete=True)
        self._next_request()

    # Answering

    def _next_request(self) -> None:
        """Go on if the first of the waiting requests is over: answered, arrived as a whole, and its response read."""
        if not self._waiting or not self._waiting[0].over or self.write_paused or self.closing:
            return
        done = self._waiting.popleft()
        if done is self._arriving:
            self._arriving = None
        if done.last or self.connections.stopping:
            self.close()
        elif self._waiting:
            self._waiting[0].start()
        elif self._problem is not None:
            self.refuse(self._problem)
        elif self._unparsed:
            self.deadline = self.loop.time() + self.request_seconds
            self.loop.call_soon(self.parse)  # not now, so that others have their turn
        else:
            self.connections.set_idle(self)

    def refuse(self, error: HTTPException) -> None:
        """Answer without the application, after the responses to earlier requests, and close the connection."""
        self._problem, self._unparsed = error, memoryview(b"")
        request = self._arriving
        if request is not None and not request.complete and request in self._waiting:
            self._waiting.remove(request)
            request.abandon()
            if request.started:  # it is too late for another response
                self.close()
                return
        if self._waiting or self.closing:
            return
        response = problem_response(error)
        self.transport.write(self.head(error.status_code, response.raw_headers, last=True) + bytes(response.body))
        self.close()

    def expire(self) -> None:
        """Refuse a request that did not arrive in time."""
        detail = f"The request did not arrive within {self.request_seconds:g} seconds. Send it faster."
        self.refuse(HTTPException(HTTPStatus.REQUEST_TIMEOUT, detail))

    def head(self, status: int, headers: list[tuple[bytes, bytes]], last: bool) -> bytes:
        lines = [b"%b: %b\r\n" % header for header in headers]
        return b"".join(
            [STATUS_LINES[status], self.connections.date, *lines, b"connection: close\r\n\r\n" if last else b"\r\n"]
        )

    async def drain(self) -> None:
        """Wait until the client has read most of what was written."""
        if self.write_paused and not self.closing:
            self._writable = self.loop.create_future()
            await self._writable

    def close(self) -> None:
        """Close the connection when everything has been sent."""
        self.closing, self.stalled_since = True, self.loop.time()
        self.connections.stall(self)
        self.transport.close()

    def stop(self) -> None:
        """Close the connection after the responses to the requests that have arrived."""
        if not self._waiting:
            self.close()


class Exchange:
    """A request and its response: `receive` and `send` of ASGI."""

    __slots__ = ("_arrived", "_connection", "_continued", "_finished", "_head", "_scope", "_taken", "_task",
                 "body", "complete", "last", "started")  # fmt: skip

    def __init__(self, connection: Connection, scope: Scope, last: bool) -> None:
        self._connection, self._scope, self.last = connection, scope, last
        self.body, self.complete = b"", False
        self.started = self._finished = self._continued = self._taken = False
        self._head: Message
        self._arrived: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        return self._finished and self.complete

    def start(self) -> None:
        self._connection.connections.set_busy(self._connection)
        self._task = self._connection.loop.create_task(self._run())

    async def _run(self) -> None:
        await self._connection.app(self._scope, self.receive, self.send)
        if not self._finished and not self._connection.closing:  # it failed half-way, and has logged that
            self._connection.close()

    def abandon(self) -> None:
        """Stop the application: nobody waits for its response any more."""
        if self._task is not None and not self._finished:
            self._task.cancel()

    def add_body(self, body: bytes, complete: bool = False) -> None:
        if not self._finished:  # otherwise nobody needs it
            self.body += body
        self.complete = complete
        wake(self._arrived)

    async def receive(self) -> Message:
        connection = self._connection
        if not connection.closing and not self._finished and (self._taken or not (self.body or self.complete)):
            if (b"expect", b"100-continue") in self._scope["headers"] and not self._continued:
                self._continued = True
                connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._arrived = connection.loop.create_future()
            await self._arrived
        if connection.closing or self._finished:
            return {"type": "http.disconnect"}
        body, self.body, self._taken = self.body, b"", self.complete
        if len(body) >= MAX_BODY_BYTES:
            connection.loop.call_soon(connection.parse)
        return {"type": "http.request", "body": body, "more_body": not self.complete}

    async def send(self, message: Message) -> None:
        connection = self._connection
        if connection.closing:
            return
        if message["type"] == "http.response.start":
            self._head = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._scope["method"] == "HEAD":
            body = b""
        if not self.started:
            self.started = True
            head = self._first_bytes()
            if len(body) > PIECE_BYTES:
                connection.transport.write(head)
            else:
                body = head + body
        connection.transport.write(body)
        if more:
            await connection.drain()
        else:
            self._finished, self.body = True, b""
            wake(self._arrived)
            if not self.complete:  # refused before the body was taken: read past it, for the next request
                connection.loop.call_soon(connection.parse)
            connection._next_request()

    def _first_bytes(self) -> bytes:
        """The head of the response. Without a length, its end is the end of the connection."""
        status, headers = self._head["status"], self._head["headers"]
        has_length = any(name == b"content-length" for name, _ in headers)
        self.last = self.last or not (has_length or status in (204, 304)) or self._connection.connections.stopping
        return self._connection.head(status, headers, self.last)


def wake(waiting: asyncio.Future[None] | None) -> None:
    """Let a coroutine go on, unless it was cancelled."""
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
