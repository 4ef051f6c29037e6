"""The server as an ASGI application: Starlette's routes, with the token before them and metrics and logs after them."""

from __future__ import annotations

import asyncio
import hmac
import time
import traceback
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from shortlist.errors import ShortlistError
from shortlist.serving.batching import Batcher
from shortlist.serving.hosts import HostCheck
from shortlist.serving.limits import Admission, Limits
from shortlist.serving.logs import Log
from shortlist.serving.metrics import Metrics
from shortlist.serving.openapi import METRICS, METRICS_TYPE, OPERATIONS, PREDICT, describe, docs_page, needs_token
from shortlist.serving.predict import JSON_TYPE, TEXTS, PredictEndpoint
from shortlist.serving.problems import BUG, busy, problem_response
from shortlist.serving.served_model import ServedModel

PAGE = Path(__file__).parent / "page"
PROBES = ("/healthz", "/readyz", METRICS)
CLIENT_CLOSED = 499  # nginx's status for a client that disconnected
MAX_LOGGED_PATH = 100
# The page runs no script from elsewhere, cannot be framed, and no response is mistaken for a page.
SECURITY_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
API_HEADERS = [*SECURITY_HEADERS, (b"cache-control", b"no-store")]
PAGE_HEADERS = [*SECURITY_HEADERS, (b"cache-control", b"no-cache")]  # browsers keep the page but ask if it changed


class App:
    """Serves a model folder. Use it as `async with App(folder) as app`, which loads the model in the background.

    If the first model cannot be loaded, `model_task` ends, and leaving the context raises the error.
    """

    def __init__(
        self,
        folder: str | Path,
        limits: Limits | None = None,
        token: str | None = None,
        threads: int | None = None,
        search_effort: float = 1.0,
        watch: bool = False,
        log_texts: bool = False,
        log: Log | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.log = log or Log()
        self.metrics = Metrics()
        self.admission = Admission(self.limits)
        self.served = ServedModel(folder, threads, search_effort, self._on_model_load)
        self.predict = PredictEndpoint(self.served, self.admission)
        self.token = token.encode() if token else None
        self.draining = False
        self.host_check: HostCheck | None = None  # set by a server that only this machine reaches
        self._watch, self._log_texts = watch, log_texts
        description = describe(self.limits, with_token=token is not None)
        self._openapi, self._docs = msgspec.json.encode(description), docs_page(description)
        routes = [Route(o.path, getattr(self, o.name), methods=[o.method]) for o in OPERATIONS]
        routes += [Route("/openapi.json", self.openapi), Route("/docs", self.docs)]
        # Not the Starlette class: its two layers of middleware catch errors, which `__call__` does anyway.
        self._router = Router(routes, redirect_slashes=False, default=StaticFiles(directory=PAGE, html=True))
        self._api_paths = {route.path for route in routes}
        self._known_paths = {"/", *self._api_paths, *(f"/{file.name}" for file in PAGE.iterdir())}
        gauge = self.metrics.gauge
        gauge("shortlist_open_requests", "Predict requests in flight.", lambda: self.admission.requests)
        gauge("shortlist_open_texts", "Texts of requests in flight.", lambda: self.admission.texts)
        gauge("shortlist_waiting_requests", "Requests waiting for a batch.", lambda: self.predict.batcher.n_waiting)

    async def __aenter__(self) -> App:
        self.predict.batcher = Batcher(on_batch=self.metrics.batch_texts.observe)
        self.model_task = asyncio.create_task(self.served.load_and_follow(self._watch))
        return self

    async def __aexit__(self, *error: object) -> None:
        self.predict.batcher.close()
        self.model_task.cancel()
        with suppress(asyncio.CancelledError):
            await self.model_task

    @property
    def state(self) -> str:
        """ "starting", "ready" or "stopping"."""
        if self.draining:
            return "stopping"
        return "starting" if self.served.current is None else "ready"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        path, status = scope["path"], CLIENT_CLOSED
        more_headers = API_HEADERS if path in self._api_paths else PAGE_HEADERS

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *more_headers]
            await send(message)

        scope["app"] = self  # makes Starlette raise errors instead of answering in plain text
        try:
            if self.host_check is not None and path not in PROBES:
                for name, value in scope["headers"]:
                    if name == b"host":
                        self.host_check(value)
            if self.token is not None and needs_token(path):
                self._check_token(scope)
            await self._router(scope, receive, send_with_headers)
        except HTTPException as error:
            await problem_response(error, path)(scope, receive, send_with_headers)
        except ClientDisconnect:
            pass
        except Exception:  # noqa: BLE001 - a bug must not stop the server
            self.log.event("request failed: this is a bug", "error", traceback=traceback.format_exc())
            if status == CLIENT_CLOSED:
                await problem_response(BUG, path)(scope, receive, send_with_headers)
        finally:
            self._record(scope, path, status, time.perf_counter() - start)

    def _check_token(self, scope: Scope) -> None:
        scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.token or b""):
            detail = "This server requires a token. Send it as a header: Authorization: Bearer TOKEN."
            raise HTTPException(HTTPStatus.UNAUTHORIZED, detail, {"www-authenticate": 'Bearer realm="shortlist"'})

    def _record(self, scope: Scope, path: str, status: int, seconds: float) -> None:
        """Count and log a request."""
        texts = scope.get(TEXTS, ())
        self.metrics.count_request(path if path in self._known_paths else "other", status)
        if path == PREDICT:
            self.metrics.seconds.observe(seconds)
            if status == 200:
                self.metrics.texts.inc(len(texts))
        if status == 200 and path in PROBES:
            return  # frequent, and of no interest
        fields = {"method": scope["method"], "path": path[:MAX_LOGGED_PATH], "status": status}
        fields["ms"] = round(1000 * seconds, 2)
        if texts:
            fields["n_texts"] = len(texts)
            if self._log_texts and isinstance(texts[0], str):
                fields["texts"] = texts
        self.log.event("request", "error" if status == 500 else "info", **fields)

    async def model(self, request: Request) -> Response:
        return Response(msgspec.json.encode(self.served.model.card), media_type=JSON_TYPE)

    async def health(self, request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type=JSON_TYPE)

    async def ready(self, request: Request) -> Response:
        if self.state != "ready":
            raise busy(f"The server is {self.state}. Send requests elsewhere, or retry soon.")
        return Response(b'{"status":"ready"}', media_type=JSON_TYPE)

    async def prometheus(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type=METRICS_TYPE)

    async def openapi(self, request: Request) -> Response:
        return Response(self._openapi, media_type=JSON_TYPE)

    async def docs(self, request: Request) -> Response:
        return HTMLResponse(self._docs)

    def _on_model_load(self, error: Exception | None) -> None:
        self.metrics.reloads.labels("failure" if error else "success").inc()
        model = self.served.current
        if error is not None:
            kept = "" if model is None else "; the current model stays in use"
            text = str(error) if isinstance(error, ShortlistError) else f"{type(error).__name__}: {error}"
            self.log.event(f"the model could not be loaded{kept}", "error", error=text)
        elif model is not None:
            self.metrics.model_loaded(model.recipe, model.n_labels, self.served.loaded_at)
            self.log.event("model loaded", folder=str(self.served.folder), model=model.title)
