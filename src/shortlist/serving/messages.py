"""What goes over the wire to and from `/v1/predict`: read strictly, written quickly."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from shortlist.model.base import Prediction
from shortlist.serving.problems import Problem

MOST_LABELS = 100
MOST_EFFORT = 4  # a client may ask for more work, not for any amount of it
_EFFORT = (
    "How much to search for labels, as a factor: 2 is slower and a little more accurate. The server has a default."
)


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One text, or many."""

    text: Annotated[str, Meta(description="The text; either this or `texts`.")] | UnsetType = UNSET
    texts: Annotated[list[str], Meta(description="Many texts; either this or `text`.")] | UnsetType = UNSET
    # A float, as 5.0 is a whole number to JSON.
    k: Annotated[float, Meta(ge=1, le=MOST_LABELS, multiple_of=1, description="How many labels a text, at most.")] = 5
    min_score: Annotated[float, Meta(ge=0, le=1, description="Leave out labels with a smaller score.")] = 0.0
    explain: Annotated[bool, Meta(description="Say for each word how much it moved the score of each label.")] = False
    search_effort: Annotated[float, Meta(gt=0, le=MOST_EFFORT, description=_EFFORT)] | None = None


class Word(msgspec.Struct):
    """A word of the text, `text[start:end]`, and how much it moved the log-odds of a label."""

    start: int
    end: int
    moved: float


class PredictedLabel(msgspec.Struct):
    """A label that fits, its readable name (the label itself where it has no other) and how well it fits."""

    label: str
    name: str
    score: float
    words: Annotated[list[Word], Meta(description="With `explain` only.")] | UnsetType = UNSET


class PredictAnswer(msgspec.Struct):
    """For each text, its labels, best first."""

    predictions: list[list[PredictedLabel]]
    took_ms: Annotated[float, Meta(description="From the request's arrival to its answer.")]


_decoder = msgspec.json.Decoder(PredictRequest)
_encoder = msgspec.json.Encoder()


def read_request(body: bytes) -> tuple[list[str], PredictRequest]:
    """The texts and the rest of a request; a `Problem` where the body is not one."""
    try:
        request = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}. /docs says what a request looks like.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(
            HTTPStatus.BAD_REQUEST, f'the body is not JSON in UTF-8 ({error}). Send {{"text": "…"}}.'
        ) from None
    if isinstance(request.text, str) and request.texts is UNSET:
        return [request.text], request
    if isinstance(request.texts, list) and request.text is UNSET:
        return request.texts, request
    raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, 'give either "text" or "texts", one of them and not both.')


def write_answer(predictions: list[list[Prediction]], explain: bool, took_ms: float) -> bytes:
    return _encoder.encode(PredictAnswer([[_on_wire(p, explain) for p in row] for row in predictions], took_ms))


def _on_wire(prediction: Prediction, explain: bool) -> PredictedLabel:
    words: list[Word] | UnsetType = [Word(*word) for word in prediction.words] if explain else UNSET
    return PredictedLabel(prediction.label, prediction.name, prediction.score, words)
