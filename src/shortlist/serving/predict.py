"""Predictions over HTTP: from the bytes of a request to the bytes of its response.

`/v1/predict`, Annif's API and the Open Inference Protocol differ only in their format: the same checks, limits, batches
and metrics apply to all.
"""

from __future__ import annotations

import time
from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist.data.feature_rows import FeatureRow
from shortlist.errors import OptionError, ShortlistError
from shortlist.model import Model, Prediction
from shortlist.model.model import MAX_EXPLAINED_WORDS
from shortlist.serving.batching import Batcher
from shortlist.serving.limits import Admission
from shortlist.serving.messages import Inputs, PredictRequest, decode_request, encode_response
from shortlist.serving.operations import JSON_TYPE
from shortlist.serving.served_model import PredictCall, ServedModel
from shortlist.serving.slowdown import Slowdown
from shortlist.text.fields import joined

TEXTS = "shortlist.texts"  # where the scope keeps the texts for metrics and the log
# Larger requests, and the responses to them, are decoded and encoded by a thread, so that others do not wait for them.
LARGE_BYTES, LARGE_TEXTS = 1 << 14, 64

Result = TypeVar("Result")
Headers = dict[bytes, bytes]


class Decoded(NamedTuple):
    """The content of a request, and how to write its response: from predictions and milliseconds to bytes."""

    inputs: Inputs
    options: PredictRequest
    encode: Callable[[list[list[Prediction]], float], bytes]


class Format(NamedTuple):
    """How requests and responses are written. Both functions raise HTTPException for a request that is not valid."""

    check_headers: Callable[[Headers], None]  # before the body is read
    decode: Callable[[Headers, bytes], Decoded]


class Prepared(NamedTuple):
    """A request that has passed all checks: what is predicted, how, and how many texts have to be scored for it."""

    texts: list[Any]
    call: PredictCall
    n_scored: int
    encode: Callable[[list[list[Prediction]], float], bytes]


class Predictor:
    """Predicts the texts, or features, of requests. `batcher` is set when the server starts."""

    batcher: Batcher

    def __init__(self, served: ServedModel, admission: Admission) -> None:
        self.served, self.admission, self.limits = served, admission, admission.limits
        self.slowdown = Slowdown(self.limits.max_slowdown)
        self._thread = ThreadPoolExecutor(1, "large")

    def close(self) -> None:
        self.batcher.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def endpoint(self, format: Format) -> ASGIApp:
        return partial(self._answer, format)

    async def _answer(self, format: Format, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        headers = dict(scope["headers"])
        format.check_headers(headers)
        client = scope["client"][0] if scope.get("client") else ""
        self.admission.add_request(client)
        work = 0
        try:
            received = await read_body(headers, receive, self.limits.max_body)
            is_large = len(received) > LARGE_BYTES
            texts, call, n_scored, encode = await self._run(is_large, self._prepare, format, headers, received)
            self.admission.add_texts(n_scored)
            work = n_scored
            scope[TEXTS] = texts
            entered = self.slowdown.enter(work, may_refuse=not self.served.loading)
            finished = False
            try:
                predictions = await self.batcher.predict(texts, call, -(-work // max(len(texts), 1)))
                finished = True
            finally:
                self.slowdown.leave(work, entered, finished)
            is_large = is_large or call.explain or len(texts) > LARGE_TEXTS
            body = await self._run(is_large, encode, predictions, round(1000 * (time.perf_counter() - start), 3))
        except ShortlistError as error:
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
        finally:
            self.admission.release(client, work)  # before the response is sent: its client may not read it
        await send_json(send, body)

    async def _run(self, is_large: bool, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function, in the thread if its work is large."""
        if not is_large:
            return function(*arguments)
        return await get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _prepare(self, format: Format, headers: Headers, body: bytes) -> Prepared:
        """Decode a request and check it."""
        inputs, request, encode = format.decode(headers, body)
        self.limits.check_texts(inputs)
        model = self.served.model
        texts = model_inputs(inputs, model)
        effort = self.served.search_effort if request.search_effort is None else request.search_effort
        allow = None if request.allow is None else tuple(request.allow)
        deny = None if request.deny is None else tuple(request.deny)
        options = request.min_score, request.explain, effort, request.tail, allow, deny, request.levels
        n_scored = len(texts)
        if request.explain:
            n_scored = words_to_explain(texts, model)
            self.limits.check_explained(len(texts), n_scored)
        return Prepared(texts, PredictCall(model, self.served.threads, int(request.k), *options), n_scored, encode)


def words_to_explain(texts: list[Any], model: Model) -> int:
    """How many words are left out in turn to explain these texts, at least one per text."""
    if model.tokenizer is None:
        return len(texts)
    return sum(min(max(len(model.tokenizer.spans(text)), 1), MAX_EXPLAINED_WORDS) for text in texts)


def model_inputs(inputs: Inputs, model: Model) -> list[Any]:
    """The inputs of a request as texts, or as rows of the features that the model takes."""
    if not inputs or isinstance(inputs[0], str):  # all are of one kind
        return inputs
    if isinstance(inputs[0], dict):
        return [joined(one, model.text_fields) for one in inputs]
    if model.inputs == "anything":
        return [""] * len(inputs)  # it does not look at them
    if model.columns is None:
        raise OptionError('this model takes texts. Send "text" or "texts" instead of "features".')
    return [feature_row(row, i, len(model.columns)) for i, row in enumerate(inputs)]


def feature_row(row: Any, number: int, n_columns: int) -> FeatureRow:
    if isinstance(row, list):
        if len(row) != n_columns:
            raise OptionError(f"row {number} has {len(row):,} values; this model takes {n_columns:,} features")
        return FeatureRow(range(n_columns), row, n_columns)
    if len(row.indices) != len(row.values):
        raise OptionError(f"row {number} has {len(row.indices):,} indices but {len(row.values):,} values")
    if row.indices and not 0 <= min(row.indices) <= max(row.indices) < n_columns:
        raise OptionError(f"row {number} has a column that is out of range: this model takes {n_columns:,} features")
    return FeatureRow(row.indices, row.values, n_columns)


async def send_json(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def check_content_type(headers: Headers, expected: str = JSON_TYPE) -> None:
    """Refuse bodies of another type. For JSON, this also stops other sites' pages: they cannot send it unasked."""
    content_type = headers.get(b"content-type", b"").decode("latin-1")
    if content_type != expected:  # it may have parameters
        content_type = content_type.partition(";")[0].strip().lower()
    if content_type != expected:
        detail = f"The Content-Type of the body is {content_type or 'missing'!r:.60}. Send {expected}."
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, {"accept": expected})
    check_not_compressed(headers)


def check_not_compressed(headers: Headers) -> None:
    if headers.get(b"content-encoding", b"identity") != b"identity":
        detail = "The body is compressed (Content-Encoding). Send it uncompressed."
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)


def check_origin(headers: Headers) -> None:
    """Refuse what a page of another site sent. Needed where browsers send the body's type without asking first."""
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower():
        detail = f"The request comes from a page of another site, {origin.decode('latin-1')!r:.80}. Use a program."
        raise HTTPException(HTTPStatus.FORBIDDEN, detail)


async def read_body(headers: Headers, receive: Receive, max_bytes: int) -> bytes:
    """Read the body of a request, but not much more than `max_bytes` of it."""
    length = headers.get(b"content-length", b"0")
    too_large = not length.isdigit() or int(length[:20]) > max_bytes
    body, more = b"", not too_large
    while more and not too_large:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more, too_large = message.get("more_body", False), len(body) > max_bytes
    if too_large:
        detail = f"The body is larger than {max_bytes:,} bytes, the limit. Split the texts into several requests."
        raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    return body


def _decode_json(headers: Headers, body: bytes) -> Decoded:
    inputs, request = decode_request(body)
    return Decoded(inputs, request, partial(encode_response, explain=request.explain))


JSON_FORMAT = Format(check_content_type, _decode_json)
