"""Errors over HTTP: every refusal is a problem document (RFC 9457) that says what was wrong and what to do.

The code raises Starlette's HTTPException; `App` turns it into the document.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.responses import Response

from shortlist.serving.operations import field

PROBLEM_TYPE = "application/problem+json"


class ProblemDocument(msgspec.Struct, rename={"uri": "type"}):
    """Why a request was refused."""

    uri: Annotated[str, field("Always `about:blank`: the status says which kind of problem it is.", "about:blank")]
    title: Annotated[str, field("The name of the status.", "Unprocessable Entity")]
    status: Annotated[int, field("The HTTP status.", 422)]
    detail: Annotated[str, field("What was wrong, and what to do.", 'Give one of "text" …')]
    error: (
        Annotated[str, field("Under /v2: as `detail`, for clients of this protocol.", "Give one of …")] | UnsetType
    ) = UNSET


def problem_response(error: HTTPException, path: str = "") -> Response:
    """
    >>> problem_response(HTTPException(413, "too large")).body
    b'{"type":"about:blank","title":"Request Entity Too Large","status":413,"detail":"too large"}'
    """
    status, detail = HTTPStatus(error.status_code), error.detail
    if status == HTTPStatus.NOT_FOUND:
        detail = f"There is nothing at {path:.60}; see /docs."
    elif status == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{path:.60} takes {(error.headers or {})['Allow']}; see /docs."
    document = ProblemDocument(
        "about:blank", status.phrase, status, detail, detail if path.startswith("/v2") else UNSET
    )
    return Response(msgspec.json.encode(document), status, error.headers, PROBLEM_TYPE)


def busy(detail: str, status: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE) -> HTTPException:
    """The error for a request that the client may send again soon."""
    return HTTPException(status, detail, {"retry-after": "1"})


BUG = HTTPException(HTTPStatus.INTERNAL_SERVER_ERROR, "The server failed; the error is in its log. Please report it.")
