"""What the server says when it cannot do what was asked: a problem document (RFC 9457) that says what to do."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

PROBLEM_TYPE = b"application/problem+json"
RETRY_SECONDS = 1


class ProblemDocument(msgspec.Struct, rename={"kind": "type"}):
    """An error: what was wrong, and what to do."""

    kind: str
    title: str
    status: int
    detail: str


class Problem(Exception):
    """A request that is refused. `detail` says what was wrong and what to do."""

    def __init__(self, status: HTTPStatus, detail: str, headers: dict[bytes, bytes] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers = headers or {}

    @property
    def body(self) -> bytes:
        # "about:blank" is the RFC's way to say that the status tells the kind of problem.
        return msgspec.json.encode(ProblemDocument("about:blank", self.status.phrase, self.status, self.detail))


def too_busy(detail: str, status: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE) -> Problem:
    """A request that may be sent again soon."""
    return Problem(status, detail, {b"retry-after": b"%d" % RETRY_SECONDS})


def our_fault() -> Problem:
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed; its log says how. Please report it.")


class ClientGone(Exception):
    """The client closed the connection before it had sent its request: nobody waits for an answer."""
