"""The JSON of the API: its types, from which OpenAPI is written, and strict decoding of requests."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.exceptions import HTTPException

from shortlist.model import Prediction

MAX_K = 100
MAX_SEARCH_EFFORT = 4  # a client may ask for more work, within reason


class SparseRow(msgspec.Struct, forbid_unknown_fields=True):
    """A row of features: the values of some columns. All other columns are 0."""

    indices: Annotated[list[int], Meta(description="Numbers of columns, from 0.")]
    values: Annotated[list[float], Meta(description="The value of each of these columns.")]


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Texts, or rows of features for a model that was trained on features, and how to predict their labels."""

    text: Annotated[
        str, Meta(description="One text. Give one of `text`, `texts`, `fields` and `features`.")
    ] | UnsetType = UNSET  # fmt: skip
    texts: Annotated[list[str], Meta(description="Several texts.")] | UnsetType = UNSET
    fields: Annotated[
        list[dict[str, str | None]],
        Meta(description="Several texts, each as the text fields that the model was trained on. Some may be missing."),
    ] | UnsetType = UNSET  # fmt: skip
    features: Annotated[
        list[list[float] | SparseRow],
        Meta(description="Rows of features, each as a list of all values or as a sparse row."),
    ] | UnsetType = UNSET  # fmt: skip
    # A float because 5.0 is a valid JSON integer.
    k: Annotated[float, Meta(ge=1, le=MAX_K, multiple_of=1, description="Maximum number of labels per text.")] = 5
    min_score: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(description="Labels with a lower score are omitted. Null uses the model's threshold; 0 omits none."),
    ] = None  # fmt: skip
    explain: Annotated[bool, Meta(description="Return how much each word changed the score of each label.")] = False
    search_effort: Annotated[
        Annotated[float, Meta(gt=0, le=MAX_SEARCH_EFFORT)] | None,
        Meta(description="How much of the candidate index to search, as a factor: 2 is slower and slightly more "
             "accurate. Null uses the server's setting."),
    ] = None  # fmt: skip
    tail: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | Literal["auto"],
        Meta(description="Above 0, rare labels are ranked higher; scores need not fall then. \"auto\" uses the value "
             "that training chose."),
    ] = 0.0  # fmt: skip
    allow: Annotated[
        list[str] | None,
        Meta(description='Only these labels may be predicted: labels, display names, prefixes such as "J45*", or '
             '"@name" for a list that is stored with the model. Null allows all.'),
    ] = None  # fmt: skip
    deny: Annotated[list[str] | None, Meta(description="These labels are not predicted; as `allow`.")] = None
    levels: Annotated[
        Literal["leaves", "roll-up", "back-off"] | None,
        Meta(description='For models with a hierarchy. "leaves": only labels without children. "roll-up": parents, '
             'too, with rolled-up scores. "back-off": the most specific labels that reach the threshold.'),
    ] = None  # fmt: skip


class Word(msgspec.Struct):
    """A word of the text and its effect on the score of a label."""

    start: Annotated[int, Meta(description="Where the word starts: `text[start:end]`, counted in characters.")]
    end: Annotated[int, Meta(description="Where the word ends.")]
    moved: Annotated[float, Meta(description="By how much the word changed the log-odds of the label.")]


class PredictedLabel(msgspec.Struct):
    """A label of a text."""

    label: Annotated[str, Meta(description="The label, as in the training data.")]
    name: Annotated[str, Meta(description="Its display name; the label itself if it has none.")]
    score: Annotated[float, Meta(description="How likely the label is right, from 0 to 1.")]
    words: Annotated[list[Word], Meta(description="Only with `explain`: the words of the text.")] | UnsetType = UNSET


class PredictResponse(msgspec.Struct):
    """The labels of all texts of a request."""

    predictions: Annotated[
        list[list[PredictedLabel]],
        Meta(description="One list per text, in order; the best label first. Empty: not sure."),
    ]
    took_ms: Annotated[float, Meta(description="Time the server took, in milliseconds.")]


class Status(msgspec.Struct):
    """The state of the server."""

    status: Annotated[str, Meta(description='"ok" or "ready".')]


class ModelCard(msgspec.Struct):
    """What is known about the model. A card may have more fields than these."""

    title: Annotated[str, Meta(description="What the model is, for people.")]
    recipe: Annotated[str, Meta(description="The recipe it was trained with.")]
    shortlist_version: Annotated[str, Meta(description="The version of Shortlist that serves it.")]
    n_labels: Annotated[int, Meta(description="The number of labels.")]
    inputs: Annotated[str, Meta(description="What it takes: texts, sparse features, dense features, or anything.")]
    n_words: Annotated[int | None, Meta(description="The size of the vocabulary, if the model has one.")]
    n_columns: Annotated[int | None, Meta(description="The number of features, if the model takes features.")]
    options: Annotated[dict[str, Any], Meta(description="The options of the recipe.")]
    min_score: Annotated[float, Meta(description="The model's threshold; 0 if it has none.")]
    hierarchy: Annotated[int | None, Meta(description="The number of labels in its hierarchy; null without one.")]
    tail: Annotated[float | None, Meta(description='What "auto" means for `tail`; null if nothing was chosen.')]
    created: Annotated[str, Meta(description="When it was saved.")] | UnsetType = UNSET
    size_bytes: Annotated[int, Meta(description="The size of the model folder.")] | UnsetType = UNSET
    data: Annotated[dict[str, Any], Meta(description="About the training data.")] | UnsetType = UNSET
    scores: Annotated[dict[str, Any], Meta(description="Metrics on the validation part.")] | UnsetType = UNSET
    calibration: Annotated[dict[str, Any], Meta(description="How scores became probabilities.")] | UnsetType = UNSET
    threshold: Annotated[dict[str, Any], Meta(description="How the threshold was chosen.")] | UnsetType = UNSET
    tail_choice: Annotated[dict[str, Any], Meta(description="How `tail` was chosen.")] | UnsetType = UNSET
    search_effort: Annotated[dict[str, Any], Meta(description="How far candidates are searched.")] | UnsetType = UNSET
    examples: Annotated[list[str], Meta(description="Texts to try; absent by default.")] | UnsetType = UNSET


Inputs = list[str] | list[dict[str, str | None]] | list[list[float] | SparseRow]

_decoder = msgspec.json.Decoder(PredictRequest)
_encoder = msgspec.json.Encoder()


def decode_request(body: bytes) -> tuple[Inputs, PredictRequest]:
    """Decode the body of a request: its texts or rows of features, and all of it."""
    try:
        request = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}. See /docs for the request format.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = f'The body is not JSON in UTF-8 ({error}). Send {{"text": "…"}}.'
        raise HTTPException(HTTPStatus.BAD_REQUEST, detail) from None
    ways = (request.text, request.texts, request.fields, request.features)
    given: list[Any] = [value for value in ways if value is not UNSET]
    if len(given) != 1:
        detail = f'Give one of "text", "texts", "fields" and "features"; the request has {len(given)} of them.'
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    return given if isinstance(given[0], str) else given[0], request


def encode_response(predictions: list[list[Prediction]], explain: bool, took_ms: float) -> bytes:
    rows = [
        [PredictedLabel(p.label, p.name, p.score, [Word(*word) for word in p.words] if explain else UNSET) for p in row]
        for row in predictions
    ]
    return _encoder.encode(PredictResponse(rows, took_ms))
