"""`POST /v1/predict`: from the bytes of a request to the bytes of its response.

An ASGI endpoint rather than a function from Request to Response, which costs 20 µs more.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from shortlist.data.feature_rows import FeatureRow
from shortlist.errors import OptionError, ShortlistError
from shortlist.model import Model
from shortlist.model.model import MAX_EXPLAINED_WORDS
from shortlist.serving.batching import Batcher
from shortlist.serving.limits import Admission
from shortlist.serving.messages import Inputs, decode_request, encode_response
from shortlist.serving.served_model import PredictCall, ServedModel
from shortlist.text.fields import joined

JSON_TYPE = "application/json"
TEXTS = "shortlist.texts"  # where the scope keeps the texts for metrics and the log


class PredictEndpoint:
    """Predicts the texts, or features, of requests. `batcher` is set when the server starts."""

    batcher: Batcher

    def __init__(self, served: ServedModel, admission: Admission) -> None:
        self.served, self.admission, self.limits = served, admission, admission.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        headers = dict(scope["headers"])
        check_content_type(headers)
        client = scope["client"][0] if scope.get("client") else ""
        self.admission.add_request(client)
        work = 0
        try:
            inputs, request = decode_request(await read_body(headers, receive, self.limits.max_body))
            texts = fitting(inputs, self.served.model)
            effort = self.served.search_effort if request.search_effort is None else request.search_effort
            allow, deny = (None if labels is None else tuple(labels) for labels in (request.allow, request.deny))
            options = request.min_score, request.explain, effort, request.tail, allow, deny, request.levels
            call = PredictCall(self.served.model, self.served.threads, int(request.k), *options)
            self.limits.check_texts(texts)
            n_scored = len(texts)
            if request.explain:
                n_scored = words_to_explain(texts, call.model)
                self.limits.check_explained(len(texts), n_scored)
            self.admission.add_texts(n_scored)
            work = n_scored
            scope[TEXTS] = texts
            predictions = await self.batcher.predict(texts, call, -(-work // max(len(texts), 1)))
            took_ms = round(1000 * (time.perf_counter() - start), 3)
            body = encode_response(predictions, request.explain, took_ms)
        except ShortlistError as error:
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
        finally:
            self.admission.release(client, work)  # before the response is sent: its client may not read it
        await send_json(send, body)


def words_to_explain(texts: list[Any], model: Model) -> int:
    """How many words are left out in turn to explain these texts, at least one per text."""
    if model.tokenizer is None:
        return len(texts)
    return sum(min(max(len(model.tokenizer.spans(text)), 1), MAX_EXPLAINED_WORDS) for text in texts)


def fitting(inputs: Inputs, model: Model) -> list[Any]:
    """The inputs of a request as texts, or as rows of the features that the model takes."""
    if all(isinstance(one, str) for one in inputs):
        return inputs
    if all(isinstance(one, dict) for one in inputs):
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


def check_content_type(headers: dict[bytes, bytes]) -> None:
    """Refuse bodies that are not JSON. This also stops other sites' pages from posting without a preflight request."""
    content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
    if content_type != JSON_TYPE:
        detail = f"The Content-Type of the body is {content_type or 'missing'!r:.60}. Send application/json."
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, {"accept": JSON_TYPE})
    if headers.get(b"content-encoding", b"identity") != b"identity":
        detail = "The body is compressed (Content-Encoding). Send it uncompressed."
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)


async def read_body(headers: dict[bytes, bytes], receive: Receive, max_bytes: int) -> bytes:
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
