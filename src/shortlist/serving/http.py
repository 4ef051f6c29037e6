"""The little of HTTP that the server does itself, on plain ASGI: reading a body within bounds, sending an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any

from shortlist.serving.problems import PROBLEM_TYPE, ClientGone, Problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON_TYPE = b"application/json"
PIECE = 1 << 16

# Nothing from elsewhere runs in the page, nothing frames it, and the server's answers are never taken for a page.
COMMON_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


async def respond(
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = JSON_TYPE,
    headers: Iterable[tuple[bytes, bytes]] = ((b"cache-control", b"no-store"),),
) -> None:
    """Send an answer; a large one piece by piece, as fast as the client takes it, so that it does not pile up."""
    own = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": own})
    for at in range(PIECE, len(body), PIECE):
        await send({"type": "http.response.body", "body": body[at - PIECE : at], "more_body": True})
    rest = body if len(body) <= PIECE else body[(len(body) - 1) // PIECE * PIECE :]
    await send({"type": "http.response.body", "body": rest})


async def respond_with_problem(send: Send, problem: Problem) -> None:
    headers = [(b"cache-control", b"no-store"), *problem.headers.items()]
    await respond(send, problem.status, problem.body, PROBLEM_TYPE, headers)


async def read_body(headers: dict[bytes, bytes], receive: Receive, most: int) -> bytes:
    """The body of a request; a `Problem` as soon as it is known to be too large."""
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit() or int(declared[:20]) > most:
        raise _too_large(most)
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body") and message["type"] == "http.request":
        if len(body) > most:
            break
        message = await receive()
        body += message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise ClientGone
    if len(body) > most:
        raise _too_large(most)
    return body


def _too_large(most: int) -> Problem:
    return Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is larger than {most:,} bytes, the most this server takes. Send the texts in several requests.",
    )


def check_json(headers: dict[bytes, bytes]) -> None:
    """Refuse bodies of other kinds. (That also keeps other sites' pages from sending any: browsers ask first.)"""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the body's Content-Type is {kind.decode('ascii', 'replace') or 'missing'!r:.60}. "
            "Send JSON with Content-Type: application/json.",
            {b"accept": JSON_TYPE},
        )
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body is compressed (Content-Encoding). Send it as it is.")
