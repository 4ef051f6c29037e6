"""The server as an ASGI application: Starlette's routes, with checks before them and logs and metrics after them."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from shortlist.errors import ShortlistError
from shortlist.serving.batching import Batcher
from shortlist.serving.limits import EXPLAIN_WEIGHT, Admission, Limits
from shortlist.serving.messages import decode_request, encode_response
from shortlist.serving.metrics import Metrics
from shortlist.serving.openapi import METRICS, METRICS_TYPE, OPERATIONS, PREDICT, describe, docs_page, needs_token
from shortlist.serving.problems import busy, handle_bug, handle_http_exception, problem_response
from shortlist.serving.served_model import PredictCall, ServedModel

JSON_TYPE = "application/json"
PAGE = Path(__file__).parent / "page"
PROBES = ("/healthz", "/readyz", METRICS)
CLIENT_CLOSED = 499  # nginx's status for a client that disconnected
STREAMED_BYTES = 1 << 16
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
    """Serves a model folder. Use it as `async with App(folder) as app`, which starts and stops loading the model.

    The context manager raises on exit if the first model could not be loaded.
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
        log: logging.Logger | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.log = log or logging.getLogger("shortlist.serving")
        self.metrics = Metrics()
        self.admission = Admission(self.limits)
        self.served = ServedModel(folder, threads, search_effort, self._on_model_load)
        self.draining = False
        self.token = token.encode() if token else None
        self._watch, self._log_texts = watch, log_texts
        description = describe(self.limits, with_token=token is not None)
        self._openapi, self._docs = msgspec.json.encode(description), docs_page(description)
        handlers: dict[Any, Any] = {
            HTTPException: handle_http_exception,
            ClientDisconnect: handle_disconnect,
            Exception: handle_bug,
        }
        routes = [Route(o.path, getattr(self, o.name), methods=[o.method]) for o in OPERATIONS]
        routes += [Route("/openapi.json", self.openapi), Route("/docs", self.docs)]
        self._starlette = Starlette(routes=routes, exception_handlers=handlers)
        self._starlette.router.redirect_slashes = False
        self._starlette.router.default = StaticFiles(directory=PAGE, html=True)
        self._api_paths = {route.path for route in routes}
        self._known_paths = {"/", *self._api_paths, *(f"/{file.name}" for file in PAGE.iterdir())}
        self.metrics.gauge("shortlist_open_requests", "Predict requests in flight.", lambda: self.admission.requests)
        self.metrics.gauge("shortlist_open_texts", "Texts of requests in flight.", lambda: self.admission.texts)
        self.metrics.gauge(
            "shortlist_waiting_requests", "Requests waiting for a batch.", lambda: self._batcher.n_waiting
        )

    async def __aenter__(self) -> App:
        self._batcher = Batcher(on_batch=self.metrics.batch_texts.observe)
        self.model_task = asyncio.create_task(self._load_and_follow())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._batcher.close()
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
        extra_headers = API_HEADERS if path in self._api_paths else PAGE_HEADERS

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *extra_headers]
            await send(message)

        try:
            with self._admit(scope, path):
                await self._starlette(scope, receive, send_with_headers)
        except HTTPException as error:
            response = problem_response(error.status_code, error.detail, error.headers)
            await response(scope, receive, send_with_headers)
        except Exception:  # the client has its problem document
            self.log.exception("request failed; this is a bug, please report it")
        finally:
            self._record(scope, path, status, time.perf_counter() - start)

    @contextmanager
    def _admit(self, scope: Scope, path: str) -> Iterator[None]:
        """Refuse a request without the token or over the limits, before anything of it is read."""
        if self.token is not None and needs_token(path):
            self._check_token(Headers(scope=scope).get("authorization", "").encode("latin-1"))
        if path != PREDICT:
            yield
            return
        client = scope.get("client")
        with self.admission.admit_request(client[0] if client else ""):
            yield

    def _check_token(self, authorization: bytes) -> None:
        scheme, _, given = authorization.partition(b" ")
        assert self.token is not None
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.token):
            raise HTTPException(
                HTTPStatus.UNAUTHORIZED,
                "This server requires a token. Send it as a header: Authorization: Bearer TOKEN.",
                {"www-authenticate": 'Bearer realm="shortlist"'},
            )

    async def predict(self, request: Request) -> Response:
        start = time.perf_counter()
        check_content_type(request.headers)
        texts, asked = decode_request(await read_body(request, self.limits.max_body))
        model, effort = self.served.current, asked.search_effort
        if model is None:
            raise busy("The model is still being loaded. Retry soon; /readyz says when it is ready.")
        if effort is None:
            effort = self.served.search_effort
        call = PredictCall(model, self.served.threads, int(asked.k), asked.min_score, asked.explain, effort)
        self.limits.check_texts(texts, asked.explain)
        with self.admission.admit_texts(len(texts) * (EXPLAIN_WEIGHT if asked.explain else 1)):
            request.scope["texts"] = texts
            try:
                predictions = await self._batcher.predict(texts, call)
            except ShortlistError as error:
                raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
        body = encode_response(predictions, asked.explain, round(1000 * (time.perf_counter() - start), 3))
        if len(body) <= STREAMED_BYTES:
            return Response(body, media_type=JSON_TYPE)
        return StreamingResponse(in_pieces(body), headers={"content-length": str(len(body))}, media_type=JSON_TYPE)

    async def model(self, request: Request) -> Response:
        if self.served.current is None:
            raise busy("The model is still being loaded. Retry soon; /readyz says when it is ready.")
        return Response(self.served.card, media_type=JSON_TYPE)

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

    def _record(self, scope: Scope, path: str, status: int, seconds: float) -> None:
        """Count and log a request."""
        self.metrics.count_request(path if path in self._known_paths else "other", status)
        texts = scope.get("texts", [])
        if path == PREDICT:
            self.metrics.seconds.observe(seconds)
            if status == HTTPStatus.OK:
                self.metrics.texts.inc(len(texts))
        if status == HTTPStatus.OK and path in PROBES:
            return  # frequent, and of no interest
        fields = {"method": scope["method"], "path": path[:MAX_LOGGED_PATH], "status": status}
        fields["ms"] = round(1000 * seconds, 2)
        if texts:
            fields["n_texts"] = len(texts)
            if self._log_texts:
                fields["texts"] = texts
        level = logging.ERROR if status == HTTPStatus.INTERNAL_SERVER_ERROR else logging.INFO
        self.log.log(level, "request", extra={"fields": fields})

    async def _load_and_follow(self) -> None:
        await self.served.load()
        await self.served.follow(self._watch)

    def _on_model_load(self, error: Exception | None) -> None:
        self.metrics.reloads.labels("failure" if error else "success").inc()
        model = self.served.current
        if error is not None:
            kept = "" if model is None else "; the current model stays in use"
            text = str(error) if isinstance(error, ShortlistError) else f"{type(error).__name__}: {error}"
            self.log.error("the model could not be loaded%s", kept, extra={"fields": {"error": text}})
        elif model is not None:
            self.metrics.model_loaded(model.recipe, model.n_labels, self.served.loaded_at)
            fields = {"folder": str(self.served.folder), "model": model.title}
            self.log.info("model loaded", extra={"fields": fields})


async def handle_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)  # goes nowhere; metrics and the log see the status


def check_content_type(headers: Headers) -> None:
    """Refuse bodies that are not JSON. This also stops other sites' pages from posting without a preflight request."""
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON_TYPE:
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"The Content-Type of the body is {content_type or 'missing'!r:.60}. Send application/json.",
            {"accept": JSON_TYPE},
        )
    if headers.get("content-encoding", "identity") != "identity":
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body is compressed (Content-Encoding). Send it uncompressed."
        )


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read the body of a request, but not more than `max_bytes`."""
    length = request.headers.get("content-length", "0")
    too_large = not length.isdecimal() or int(length[:20]) > max_bytes
    body = b""
    if not too_large:
        async for piece in request.stream():
            body += piece
            too_large = len(body) > max_bytes
            if too_large:
                break
    if too_large:
        raise HTTPException(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body is larger than {max_bytes:,} bytes, the limit. Split the texts into several requests.",
        )
    return body


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    """Send a large response only as fast as the client reads it, so that it is not copied into a send buffer."""
    for start in range(0, len(body), STREAMED_BYTES):
        yield body[start : start + STREAMED_BYTES]
