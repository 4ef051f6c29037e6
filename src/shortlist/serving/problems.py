"""Errors over HTTP: every refusal is a problem document (RFC 9457) that says what was wrong and what to do.

Handlers raise Starlette's HTTPException; `problem_response` turns it into the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

PROBLEM_TYPE = "application/problem+json"
RETRY_AFTER = {"retry-after": "1"}
SERVER_ERROR = "The server failed to answer; the error is in its log. Please report it."


class ProblemDocument(msgspec.Struct, rename={"uri": "type"}):
    """Why a request was refused."""

    uri: Annotated[str, Meta(description="Always `about:blank`: the status says which kind of problem it is.")]
    title: Annotated[str, Meta(description="The name of the status.")]
    status: Annotated[int, Meta(description="The HTTP status.")]
    detail: Annotated[str, Meta(description="What was wrong, and what to do.")]


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """
    >>> problem_response(404, "no such page").body
    b'{"type":"about:blank","title":"Not Found","status":404,"detail":"no such page"}'
    """
    document = ProblemDocument("about:blank", HTTPStatus(status).phrase, int(status), detail)
    return Response(msgspec.json.encode(document), status, headers, PROBLEM_TYPE)


def busy(detail: str, status: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE) -> HTTPException:
    """The error for a request that the client may send again soon."""
    return HTTPException(status, detail, RETRY_AFTER)


async def handle_http_exception(request: Request, error: HTTPException) -> Response:
    detail, path = error.detail, request.url.path[:60]
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"There is nothing at {path}; see /docs."
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{path} takes {(error.headers or {})['Allow']}; see /docs."
    return problem_response(error.status_code, detail, error.headers)


async def handle_bug(request: Request, error: Exception) -> Response:
    return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, SERVER_ERROR)
