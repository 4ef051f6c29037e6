"""The connection: uvicorn's protocol with limits on what a client can do before there is a request to answer.

uvicorn alone waits forever for a request that arrives byte by byte, stores headers of any size, and keeps forever a
response that the client does not read. Here each of these ends in a refusal or a closed connection.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from shortlist.serving.app import SECURITY_HEADERS
from shortlist.serving.problems import busy, problem_response

MAX_HEADER_BYTES = 1 << 16
TOO_MANY_CONNECTIONS = problem_response(busy("The server's limit of connections is reached. Retry in a second."))
TOO_MANY_CONNECTIONS.headers["connection"] = "close"


class LimitedProtocol(HttpToolsProtocol):
    """One connection. A subclass made by the server sets `max_connections`; the server calls `check_deadlines`."""

    max_connections: int
    request_seconds = 10.0
    response_seconds = 30.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._application = self.app
        self._in_headers, self._header_bytes = True, 0
        self._request_deadline: float | None = self.loop.time() + self.request_seconds
        self._response_deadline: float | None = None

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > MAX_HEADER_BYTES:
            detail = f"The headers are larger than {MAX_HEADER_BYTES:,} bytes. Send fewer."
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail)

    def on_message_begin(self) -> None:
        self._in_headers = True
        if self._request_deadline is None:
            self._request_deadline = self.loop.time() + self.request_seconds
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers, self._header_bytes = False, 0
        # Not uvicorn's own `limit_concurrency`: it answers without a problem document.
        full = len(self.connections) > self.max_connections
        self.app = TOO_MANY_CONNECTIONS if full else self._application
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._request_deadline = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._response_deadline = self._response_deadline or self.loop.time() + self.response_seconds

    def resume_writing(self) -> None:
        super().resume_writing()
        self._response_deadline = None

    def check_deadlines(self) -> None:
        """Close the connection if the client is too slow to send its request or to read its response."""
        now = self.loop.time()
        if self._response_deadline is not None and now > self._response_deadline:
            self.transport.abort()
        elif self._request_deadline is not None and now > self._request_deadline:
            detail = f"The request did not arrive within {self.request_seconds:g} seconds. Send it faster."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, detail)

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "This is not a valid HTTP request. Use an HTTP client.")

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answer without the application, unless it has started to answer, and close the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            response = problem_response(HTTPException(status, detail, {"connection": "close"}))
            headers = [b"%b: %b\r\n" % pair for pair in (*response.raw_headers, *SECURITY_HEADERS)]
            self.transport.write(b"".join([STATUS_LINE[status], *headers, b"\r\n", response.body]))
        self.transport.close()
