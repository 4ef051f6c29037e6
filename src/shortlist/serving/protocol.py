"""The connection: uvicorn's protocol with bounds on what a client may do before there is a request to answer.

uvicorn waits for ever for a request that comes byte by byte, keeps headers of any size, and holds an answer for ever
that a client does not fetch. Here each of these ends in a refusal or a closed connection.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from shortlist.serving.http import COMMON_HEADERS, Receive, Scope, Send, respond_with_problem
from shortlist.serving.problems import PROBLEM_TYPE, Problem, too_busy

MOST_HEADER_BYTES = 1 << 16
SECONDS_TO_SEND_A_REQUEST = 10.0
SECONDS_TO_FETCH_AN_ANSWER = 30.0


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    problem = too_busy("as many connections are open as this server takes. Try again in a second.")
    problem.headers[b"connection"] = b"close"
    await respond_with_problem(send, problem)


class BoundedProtocol(HttpToolsProtocol):
    """One client's connection. `max_connections` is set on a subclass by whoever runs the server."""

    max_connections: int
    seconds_to_send = SECONDS_TO_SEND_A_REQUEST
    seconds_to_fetch = SECONDS_TO_FETCH_AN_ANSWER

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._application = self.app
        self._header_bytes = 0
        self._reading = True  # a request is expected, or has come in part
        self._in_headers = True
        self._fetch_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = self.loop.call_later(self.seconds_to_send, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._send_timer, self._fetch_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > MOST_HEADER_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                         f"the headers are larger than {MOST_HEADER_BYTES:,} bytes. Send fewer.")  # fmt: skip
        elif self._reading and self._send_timer is None:
            self._send_timer = self.loop.call_later(self.seconds_to_send, self._too_slow)

    def on_message_begin(self) -> None:
        self._reading = self._in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        # uvicorn counts here, too, but its refusal is no problem document.
        full = len(self.connections) > self.max_connections
        self.app = _full if full else self._application
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._reading = False
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._fetch_timer is None:
            self._fetch_timer = self.loop.call_later(self.seconds_to_fetch, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._fetch_timer is not None:
            self._fetch_timer.cancel()
            self._fetch_timer = None

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "this is not HTTP as it should be. Use an HTTP client.")

    def _too_slow(self) -> None:
        self._send_timer = None
        self._refuse(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the request did not arrive within {self.seconds_to_send:g} seconds. Send it in one go.",
        )

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answer without the application, unless it has begun to, and close."""
        if self.transport.is_closing():
            return
        waiting = self.cycle is None or self.cycle.response_complete or not self.cycle.response_started
        if waiting:
            body = Problem(status, detail).body
            headers: list[tuple[bytes, bytes]] = [
                (b"content-type", PROBLEM_TYPE),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
                *COMMON_HEADERS,
            ]
            lines: list[Any] = [b"%b: %b\r\n" % pair for pair in headers]
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        self.transport.close()
