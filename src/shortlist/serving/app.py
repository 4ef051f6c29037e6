"""The server as an ASGI application: its routes, with the token before them and metrics and logs after them.

A dictionary finds the route: Starlette's router tries one regular expression after the other.
"""

from __future__ import annotations

import asyncio
import hmac
import time
import traceback
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, cast

from msgspec.json import encode as to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shortlist.errors import OptionError, ShortlistError
from shortlist.model import Model
from shortlist.serving.annif import Annif
from shortlist.serving.batching import Batcher
from shortlist.serving.feedback import FEEDBACK, Feedback, FeedbackFile
from shortlist.serving.hosts import HostCheck
from shortlist.serving.limits import Admission, Limits
from shortlist.serving.logs import Log
from shortlist.serving.messages import Status
from shortlist.serving.metrics import Metrics
from shortlist.serving.open_inference import OpenInference
from shortlist.serving.openapi import METRICS_TYPE, OPERATIONS, describe, docs_page
from shortlist.serving.operations import JSON_TYPE, METRICS, NAME, Operation, needs_token
from shortlist.serving.predict import JSON_FORMAT, TEXTS, Format, Predictor
from shortlist.serving.problems import BUG, busy, problem_response
from shortlist.serving.served_model import ServedModel

PAGE = Path(__file__).parent / "page"
PROBES = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", METRICS)
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

    OPERATIONS = OPERATIONS
    predict = JSON_FORMAT

    def __init__(
        self,
        folder: str | Path,
        name: str | None = None,
        limits: Limits | None = None,
        token: str | None = None,
        threads: int | None = None,
        search_effort: float = 1.0,
        watch: bool = False,
        log_texts: bool = False,
        log: Log | None = None,
        load_model: Callable[[Path], Model] | None = None,
        feedback: str | Path | None = None,
    ) -> None:
        """`name`: of the model, where requests name it; by default, that of the folder. `feedback`: a file for it."""
        name = name or Path(folder).absolute().name
        if "/" in name:
            raise OptionError(f"the name of the model is {name!r}; it is part of a URL and must not contain a slash.")
        if feedback is not None and not token:
            raise OptionError(
                "a server that takes feedback needs a token, so that not everybody can teach the model: set "
                "SHORTLIST_TOKEN, or use --token-file"
            )
        self.limits = limits or Limits()
        self.log = log or Log()
        self.metrics = Metrics()
        self.admission = Admission(self.limits)
        self.served = ServedModel(folder, threads, search_effort, self._on_model_load, load_model)
        self.predictor = Predictor(self.served, self.admission)
        self.token = token.encode() if token else None
        self.draining = False
        self.host_check: HostCheck | None = None  # set by a server that only this machine reaches
        self._watch, self._log_texts = watch, log_texts
        self._routes: dict[str, tuple[str, ASGIApp]] = {}  # by path: its method and what answers it
        operations: list[Operation] = []
        interfaces: list[Any] = [self, Annif(self.served, name), OpenInference(name, self.ready)]
        if feedback is not None:
            interfaces.append(Feedback(self.served, self.admission, FeedbackFile(feedback)))
        self._takes_feedback = feedback is not None
        for interface in interfaces:
            for template in interface.OPERATIONS:
                operation = template._replace(path=template.path.replace(NAME, name))
                operations.append(operation)
                self._routes[operation.path] = operation.method, self._endpoint(getattr(interface, operation.name))
        posts = {path for path, (method, _) in self._routes.items() if method == "POST"}
        self._predict_paths = posts - {FEEDBACK}
        self._openapi = describe(self.limits, operations, with_token=token is not None)
        self._openapi_json = to_json(self._openapi)  # large: encoded once
        self._routes |= {"/openapi.json": ("GET", self._endpoint(self.openapi)), "/docs": ("GET", self._docs)}
        self._page = StaticFiles(directory=PAGE, html=True)
        self._known_paths = {"/", *self._routes, *(f"/{file.name}" for file in PAGE.iterdir())}
        gauge = self.metrics.gauge
        gauge("shortlist_open_requests", "Predict requests in flight.", lambda: self.admission.requests)
        gauge("shortlist_open_texts", "Texts of requests in flight.", lambda: self.admission.texts)
        gauge("shortlist_waiting_requests", "Requests waiting for a batch.", lambda: self.predictor.batcher.n_waiting)

    async def __aenter__(self) -> App:
        self.predictor.batcher = Batcher(on_batch=self.metrics.batch_texts.observe)
        self.model_task = asyncio.create_task(self.served.load_and_follow(self._watch))
        return self

    async def __aexit__(self, *error: object) -> None:
        self.predictor.close()
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
        more_headers = API_HEADERS if path in self._routes else PAGE_HEADERS

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *more_headers]
            await send(message)

        try:
            if self.host_check is not None and path not in PROBES:
                for name, value in scope["headers"]:
                    if name == b"host":
                        self.host_check(value)
            if self.token is not None and needs_token(path):
                self._check_token(scope)
            await self._endpoint_of(path, scope["method"])(scope, receive, send_with_headers)
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

    def _endpoint_of(self, path: str, method: str) -> ASGIApp:
        if path not in self._known_paths:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        allowed, endpoint = self._routes.get(path, ("GET", self._page))
        if method != allowed and (method, allowed) != ("HEAD", "GET"):
            methods = "GET, HEAD" if allowed == "GET" else allowed
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": methods})
        return endpoint

    def _endpoint(self, answer: Format | Callable[[], object]) -> ASGIApp:
        """Answers with predictions in a format, or with what a function returns; an ASGI application as it is."""
        if isinstance(answer, Format):
            return self.predictor.endpoint(answer)
        if iscoroutinefunction(answer):
            return cast(ASGIApp, answer)

        async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
            content = answer()
            response = content if isinstance(content, Response) else Response(to_json(content), media_type=JSON_TYPE)
            await response(scope, receive, send)

        return endpoint

    def _check_token(self, scope: Scope) -> None:
        """Accept the token as a bearer token, or as the password of http://user:TOKEN@host, as Annif sends it."""
        scheme, _, value = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        given = value.strip() if scheme.lower() == b"bearer" else b""
        if scheme.lower() == b"basic":
            with suppress(ValueError):
                given = b64decode(value, validate=True).partition(b":")[2]
        if not hmac.compare_digest(given, self.token or b""):
            detail = "This server requires a token. Send it as a header: Authorization: Bearer TOKEN."
            raise HTTPException(HTTPStatus.UNAUTHORIZED, detail, {"www-authenticate": 'Bearer realm="shortlist"'})

    def _record(self, scope: Scope, path: str, status: int, seconds: float) -> None:
        """Count and log a request."""
        texts = scope.get(TEXTS, ())
        self.metrics.count_request(path if path in self._known_paths else "other", status)
        if path in self._predict_paths:
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

    def model(self) -> dict[str, object]:
        return self.served.model.card | ({"feedback": True} if self._takes_feedback else {})

    def health(self) -> Status:
        return Status("ok")

    def ready(self) -> Status:
        if self.state != "ready":
            raise busy(f"The server is {self.state}. Send requests elsewhere, or retry soon.")
        return Status("ready")

    def prometheus(self) -> Response:
        return Response(self.metrics.text(), media_type=METRICS_TYPE)

    def openapi(self) -> Response:
        return Response(self._openapi_json, media_type=JSON_TYPE)

    async def _docs(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = dict(scope["headers"]).get(b"host", b"127.0.0.1:8000").decode("latin-1")
        await HTMLResponse(docs_page(self._openapi, f"http://{host}"))(scope, receive, send)

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
