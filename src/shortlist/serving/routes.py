"""Everything but predictions: the model's card, probes, figures, documentation and the page."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from shortlist import __version__
from shortlist.serving.openapi import METRICS, complete, docs_page, json_answer, problem
from shortlist.serving.page import page_files
from shortlist.serving.problems import PROBLEM_TYPE, Problem, our_fault, too_busy

if TYPE_CHECKING:
    from shortlist.serving.app import App

Responses = dict[int | str, dict[str, Any]]
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PROBES = ("/healthz", "/readyz", METRICS)
_NOT_KEPT = {"cache-control": "no-store"}
_STATUS = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
_NOT_READY = problem("The model is being loaded, or the server is stopping.")
_CARD: Responses = {200: json_answer("The card.", {"type": "object"}), 503: _NOT_READY}
_ALIVE: Responses = {200: json_answer("It lives.", _STATUS)}
_READY: Responses = {200: json_answer("Send requests.", _STATUS), 503: _NOT_READY}
_FIGURES: Responses = {200: {"description": "Prometheus' text format."}}


def other_routes(app: App, with_token: bool) -> tuple[FastAPI, set[str]]:
    """The application for all other paths, and those paths."""
    api = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)

    @api.get("/v1/model", summary="The model's card", response_class=JsonBytes, responses=_CARD)
    async def model() -> Response:
        """What the model is: recipe, options, labels, data and scores."""
        if app.served.current is None:
            raise too_busy("the model is still being loaded. Try again soon; /readyz says when it is ready.")
        return JsonBytes(app.served.card, headers=_NOT_KEPT)

    @api.get("/healthz", summary="Whether the process lives", response_class=JsonBytes, responses=_ALIVE)
    async def health() -> Response:
        """Answers as long as the server runs at all."""
        return JsonBytes(b'{"status":"ok"}', headers=_NOT_KEPT)

    @api.get("/readyz", summary="Whether requests can be sent here", response_class=JsonBytes, responses=_READY)
    async def ready() -> Response:
        """Ready when a model is loaded and has made its first predictions; not any more when stopping."""
        if app.state != "ready":
            raise too_busy(f"the server is {app.state}. Send requests elsewhere, or try again soon.")
        return JsonBytes(b'{"status":"ready"}', headers=_NOT_KEPT)

    @api.get(METRICS, summary="Figures for Prometheus", response_class=MetricsText, responses=_FIGURES)
    async def metrics() -> Response:
        """Requests by path and status, times, texts, batches, what waits, loads of the model."""
        return MetricsText(app.metrics.text(), headers=_NOT_KEPT)

    for path, file in page_files().items():
        api.add_route(path, file.answer, include_in_schema=False)

    description = complete(
        get_openapi(title="Shortlist", version=__version__, summary="A short text in, the best labels out.",
                    routes=api.routes),
        app.limits,
        with_token,
    )  # fmt: skip
    described, page = msgspec.json.encode(description), docs_page(description)

    async def openapi(request: Request) -> Response:
        return JsonBytes(described)

    async def docs(request: Request) -> Response:
        return HTMLResponse(page)

    api.add_route("/openapi.json", openapi, include_in_schema=False)
    api.add_route("/docs", docs, include_in_schema=False)
    api.add_exception_handler(Problem, _problem)
    api.add_exception_handler(HTTPException, _framework_problem)
    api.add_exception_handler(Exception, _bug)
    return api, {route.path for route in api.routes}  # type: ignore[attr-defined]


class JsonBytes(Response):
    """JSON that is bytes already."""

    media_type = "application/json"


class MetricsText(Response):
    media_type = METRICS_TYPE


async def _problem(request: Request, error: Any) -> Response:
    headers = {name.decode(): value.decode() for name, value in error.headers.items()}
    return Response(error.body, error.status, _NOT_KEPT | headers, PROBLEM_TYPE.decode())


async def _bug(request: Request, error: Exception) -> Response:
    return await _problem(request, our_fault())


async def _framework_problem(request: Request, error: Any) -> Response:
    """What Starlette refuses (no such path, another method), in our form."""
    status = HTTPStatus(error.status_code)
    headers = {name.lower().encode(): value.encode() for name, value in (error.headers or {}).items()}
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.url.path:.60} takes {headers.get(b'allow', b'GET').decode()}; see /docs."
    else:
        detail = f"there is nothing at {request.url.path:.60}; /docs lists what there is."
    return await _problem(request, Problem(status, detail, headers))
