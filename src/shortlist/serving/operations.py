"""An operation of the HTTP API as data: routes, the OpenAPI description and the page /docs are made from these."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Meta

JSON_TYPE = "application/json"
PREDICT, METRICS = "/v1/predict", "/metrics"
NAME = "{name}"  # in a path: the name of the model
PREDICT_PROBLEMS = (400, 408, 413, 415, 422, 429, 503)
PROBLEMS = {
    400: "The body cannot be decoded.",
    401: "The bearer token is missing or wrong.",
    403: "A page of another site sent the request.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    415: "The body is of another type, or is compressed.",
    421: "The server listens on a local address, and the Host header names another one.",
    422: "The request does not match the schema, or exceeds a limit.",
    429: "Too many requests from this address are in flight.",
    503: "The server is busy, starting or stopping. Retry-After says when to retry.",
    507: "The feedback file has reached its limit, or the disk is full.",
}


class Operation(NamedTuple):
    """A method of a path. `name` is the method of the Python object that answers it."""

    name: str
    method: str
    path: str
    summary: str
    returns: str
    response: type | None = None
    problems: tuple[int, ...] = ()
    request: type | None = None
    media_type: str = JSON_TYPE
    example: str = ""  # arguments of curl


def field(description: str, example: Any, **bounds: Any) -> Meta:
    """Describes a field of a request or response."""
    return Meta(description=description, examples=[example], **bounds)


def needs_token(path: str) -> bool:
    """Whether a server with a token requires it for this path: for the API and metrics, not for the page and probes."""
    return (path.startswith(("/v1/", "/v2")) and not path.startswith("/v2/health/")) or path == METRICS
