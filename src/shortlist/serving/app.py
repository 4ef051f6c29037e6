"""The server as an ASGI application.

Requests for predictions are by far the most, and the model needs a fraction of a millisecond for one: so they do not
go through a framework but straight to `App._predict`. FastAPI serves everything else.
"""

from __future__ import annotations

import asyncio
import hmac
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

from shortlist.errors import ShortlistError
from shortlist.serving.batching import Batcher
from shortlist.serving.http import (
    COMMON_HEADERS,
    Message,
    Receive,
    Scope,
    Send,
    check_json,
    read_body,
    respond,
    respond_with_problem,
)
from shortlist.serving.limits import Admission, Limits
from shortlist.serving.logs import Log
from shortlist.serving.messages import read_request, write_answer
from shortlist.serving.metrics import Metrics
from shortlist.serving.openapi import PREDICT, needs_token
from shortlist.serving.problems import ClientGone, Problem, our_fault, too_busy
from shortlist.serving.routes import PROBES, other_routes
from shortlist.serving.served_model import Ask, ServedModel, said

CLIENT_CLOSED = 499  # nginx's number for a client that did not wait; no client ever sees it
_TEXTS = "shortlist.texts"


class App:
    """A model folder behind HTTP. Use it as `async with App(folder) as app`: that loads the model, and lets go of it.

    `on_failure` is called when the first model cannot be loaded; `failure` is then the error.
    """

    def __init__(
        self,
        folder: str | Path,
        limits: Limits | None = None,
        token: str | None = None,
        threads: int | None = None,
        search_effort: float = 1.0,
        watch: bool = False,
        log: Log | None = None,
        log_texts: bool = False,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits = limits or Limits()
        self.log = log or Log()
        self.metrics = Metrics()
        self.admission = Admission(self.limits)
        self.served = ServedModel(folder, threads, search_effort, self._model_changed)
        self.draining = False
        self.failure: Exception | None = None
        self._token = token.encode() if token else None
        self._watch, self._log_texts, self.on_failure = watch, log_texts, on_failure
        self._rest, self._known_paths = other_routes(self, with_token=token is not None)
        self._known_paths.add(PREDICT)
        self.metrics.gauge("shortlist_open_requests", "Open requests for predictions.", lambda: self.admission.requests)
        self.metrics.gauge("shortlist_open_texts", "Texts of open requests.", lambda: self.admission.texts)
        self.metrics.gauge("shortlist_waiting_requests", "Requests that wait for a batch.", self._waiting)

    async def __aenter__(self) -> App:
        self._batcher = Batcher(on_batch=self.metrics.batch_texts.observe)
        self._model_task = asyncio.create_task(self._load_and_keep_up())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._model_task.cancel()
        with suppress(asyncio.CancelledError):
            await self._model_task
        self._batcher.close()

    @property
    def has_token(self) -> bool:
        return self._token is not None

    @property
    def state(self) -> str:
        """What it is doing: "starting", "ready" or "stopping"."""
        if self.draining:
            return "stopping"
        return "starting" if self.served.current is None else "ready"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        path, status = scope["path"], 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *COMMON_HEADERS]
            await send(message)

        try:
            headers = dict(scope["headers"])
            if self._token is not None and needs_token(path):
                self._check_token(headers)
            if path == PREDICT:
                await self._predict(start, scope, headers, receive, send_and_note)
            else:
                await self._rest(scope, receive, send_and_note)
        except Problem as problem:
            await respond_with_problem(send_and_note, problem)
        except ClientGone:
            pass
        except Exception:  # noqa: BLE001 - a bug of ours must not take the server down; it is logged whole
            self.log.event("a request failed: this is a bug", "error", traceback=traceback.format_exc())
            if not status:
                await respond_with_problem(send_and_note, our_fault())
        finally:
            self._note(scope, path, status or CLIENT_CLOSED, time.perf_counter() - start)

    async def _predict(
        self, start: float, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        if scope["method"] != "POST":
            raise Problem(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{PREDICT} takes POST with a JSON body; see /docs.", {b"allow": b"POST"}
            )
        check_json(headers)
        client = scope.get("client")
        with self.admission.request(client[0] if client else ""):
            texts, request = read_request(await read_body(headers, receive, self.limits.max_body))
            model = self.served.current
            if model is None:
                raise too_busy("the model is still being loaded. Try again soon; /readyz says when it is ready.")
            search_effort = self.served.search_effort if request.search_effort is None else request.search_effort
            ask = Ask(model, self.served.threads, int(request.k), request.min_score, request.explain, search_effort)
            self.limits.check_texts(texts, ask.weight)
            with self.admission.texts_of_request(len(texts) * ask.weight):
                scope[_TEXTS] = texts
                try:
                    predictions = await self._batcher.predict(texts, ask)
                except ShortlistError as error:
                    raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
                took_ms = round(1000 * (time.perf_counter() - start), 3)
                await respond(send, 200, write_answer(predictions, request.explain, took_ms))

    def _check_token(self, headers: dict[bytes, bytes]) -> None:
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        assert self._token is not None
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
            raise Problem(
                HTTPStatus.UNAUTHORIZED,
                "this server asks for its token. Send it in a header: Authorization: Bearer TOKEN.",
                {b"www-authenticate": b'Bearer realm="shortlist"'},
            )

    def _note(self, scope: Scope, path: str, status: int, seconds: float) -> None:
        texts = scope.get(_TEXTS, [])
        self.metrics.count_request(path if path in self._known_paths else "other", status)
        if path == PREDICT:
            self.metrics.seconds.observe(seconds)
            if status == HTTPStatus.OK:
                self.metrics.texts.inc(len(texts))
        if status == HTTPStatus.OK and path in PROBES:
            return  # they come every few seconds and say nothing
        content = texts if self._log_texts else None
        self.log.request(scope["method"], path, status, 1000 * seconds, len(texts), content)

    def _waiting(self) -> float:
        return self._batcher.waiting

    async def _load_and_keep_up(self) -> None:
        try:
            await self.served.load()
        except Exception as error:  # noqa: BLE001 - whoever started the server decides what to do
            self.failure = error
            self.on_failure()
            return
        await self.served.keep_up(self._watch)

    def _model_changed(self, error: Exception | None) -> None:
        self.metrics.reloads.labels("failure" if error else "success").inc()
        if error:
            stays = "" if self.served.current is None else "; the model in use stays"
            self.log.event(f"the model could not be loaded{stays}", "error", error=said(error))
            return
        model = self.served.current
        assert model is not None
        self.metrics.model_loaded(model.recipe, model.n_labels, self.served.loaded_at)
        self.log.event("model loaded", folder=str(self.served.folder), model=model.title)
