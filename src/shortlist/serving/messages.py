"""The JSON of the API: its types, from which OpenAPI is written, and strict decoding of requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.exceptions import HTTPException

from shortlist.model import Prediction
from shortlist.serving.operations import field

MAX_K = 100
MAX_SEARCH_EFFORT = 4  # a client may ask for more work, within reason
WORD = {"start": 0, "end": 5, "moved": 1.7}  # examples
LABEL = {"label": "R07.9", "name": "Chest pain, unspecified", "score": 0.83}


class SparseRow(msgspec.Struct, forbid_unknown_fields=True):
    """A row of features: the values of some columns. All other columns are 0."""

    indices: Annotated[list[int], field("Numbers of columns, from 0.", [17, 4711])]
    values: Annotated[list[float], field("The value of each of these columns.", [0.25, 1.5])]


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Texts, or rows of features for a model that was trained on features, and how to predict their labels."""

    text: Annotated[str, field("One text. Or give `texts`, `fields` or `features`.", "chest pain")] | UnsetType = UNSET
    texts: Annotated[list[str], field("Several texts.", ["chest pain", "bee sting"])] | UnsetType = UNSET
    fields: (
        Annotated[
            list[dict[str, str | None]],
            field("Texts, each as the text fields that the model was trained on.", [{"title": "chest pain"}]),
        ]
        | UnsetType
    ) = UNSET
    features: (
        Annotated[
            list[list[float] | SparseRow],
            field(
                "Rows of features, each as a list of all values or as a sparse row.",
                [{"indices": [17], "values": [0.25]}],
            ),
        ]
        | UnsetType
    ) = UNSET
    # A float because 5.0 is a valid JSON integer.
    k: Annotated[float, field("Maximum number of labels per text.", 3, ge=1, le=MAX_K, multiple_of=1)] = 5
    min_score: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        field("Labels with a lower score are omitted. Null uses the model's threshold; 0 omits none.", 0.1),
    ] = None
    explain: Annotated[bool, field("Return how much each word changed the score of each label.", True)] = False
    search_effort: Annotated[
        Annotated[float, Meta(gt=0, le=MAX_SEARCH_EFFORT)] | None,
        field(
            "How much of the candidate index to search, as a factor: 2 is slower and slightly more accurate. "
            "Null uses the server's setting.",
            2,
        ),
    ] = None
    tail: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | Literal["auto"],
        field(
            "Above 0, rare labels are ranked higher; scores need not fall then. "
            '"auto" uses the value that training chose.',
            0.5,
        ),
    ] = 0.0
    allow: Annotated[
        list[str] | None,
        field(
            'Only these labels may be predicted: labels, display names, prefixes such as "J45*", or "@name" for a '
            "list that is stored with the model. Null allows all.",
            ["J45*", "@billable"],
        ),
    ] = None
    deny: Annotated[list[str] | None, field("These labels are not predicted; as `allow`.", ["R69"])] = None
    levels: Annotated[
        Literal["leaves", "roll-up", "back-off"] | None,
        field(
            'For models with a hierarchy. "leaves": only labels without children. "roll-up": parents, too, with '
            'rolled-up scores. "back-off": the most specific labels that reach the threshold.',
            "roll-up",
        ),
    ] = None


class Word(msgspec.Struct):
    """A word of the text and its effect on the score of a label."""

    start: Annotated[int, field("Where the word starts: `text[start:end]`, counted in characters.", 0)]
    end: Annotated[int, field("Where the word ends.", 5)]
    moved: Annotated[float, field("By how much the word changed the log-odds of the label.", 1.7)]


class PredictedLabel(msgspec.Struct):
    """A label of a text."""

    label: Annotated[str, field("The label, as in the training data.", "R07.9")]
    name: Annotated[str, field("Its display name; the label itself if it has none.", "Chest pain, unspecified")]
    score: Annotated[float, field("How likely the label is right, from 0 to 1.", 0.83)]
    words: Annotated[list[Word], field("Only with `explain`: the words of the text.", [WORD])] | UnsetType = UNSET


class PredictResponse(msgspec.Struct):
    """The labels of all texts of a request."""

    predictions: Annotated[
        list[list[PredictedLabel]],
        field(
            "One list per text, in order; the best label first. Empty: not sure.",
            [[{"label": "R07.9", "name": "Chest pain, unspecified", "score": 0.83}]],
        ),
    ]
    took_ms: Annotated[float, field("Time the server took, in milliseconds.", 0.61)]


class Status(msgspec.Struct):
    """The state of the server."""

    status: Annotated[str, field('"ok", "ready" or "stored".', "ready")]


class ModelCard(msgspec.Struct):
    """What is known about the model. A card may have more fields than these."""

    title: Annotated[str, field("What the model is, for people.", "astec")]
    recipe: Annotated[str, field("The recipe it was trained with.", "astec")]
    shortlist_version: Annotated[str, field("The version of Shortlist that serves it.", "0.2.0")]
    n_labels: Annotated[int, field("The number of labels.", 9473)]
    inputs: Annotated[str, field("What it takes: texts, sparse features, dense features, or anything.", "texts")]
    n_words: Annotated[int | None, field("The size of the vocabulary, if the model has one.", 51200)]
    n_columns: Annotated[int | None, field("The number of features, if the model takes features.", 768)]
    options: Annotated[dict[str, Any], field("The options of the recipe.", {"n_epochs": 10})]
    min_score: Annotated[float, field("The model's threshold; 0 if it has none.", 0.25)]
    lists: Annotated[
        dict[str, int], field("Lists of labels for `allow` and `deny`, and their sizes.", {"billable": 71})
    ]
    hierarchy: Annotated[int | None, field("The number of labels in its hierarchy; null without one.", None)]
    tail: Annotated[float | None, field('What "auto" means for `tail`; null if nothing was chosen.', 0.3)]
    created: Annotated[str, field("When it was saved.", "2026-11-18T12:00:00+00:00")] | UnsetType = UNSET
    size_bytes: Annotated[int, field("The size of the model folder.", 12_500_000)] | UnsetType = UNSET
    data: Annotated[dict[str, Any], field("About the training data.", {"n_texts": 5000})] | UnsetType = UNSET
    scores: Annotated[dict[str, Any], field("Metrics on the validation part.", {"P@1": 58.2})] | UnsetType = UNSET
    calibration: Annotated[dict[str, Any], field("How scores became probabilities.", {"method": "…"})] | UnsetType = (
        UNSET
    )
    threshold: Annotated[dict[str, Any], field("How the threshold was chosen.", {"goal": "…"})] | UnsetType = UNSET
    tail_choice: Annotated[dict[str, Any], field("How `tail` was chosen.", {"tail": 0.3})] | UnsetType = UNSET
    search_effort: Annotated[dict[str, Any], field("How far candidates are searched.", {"of": 490})] | UnsetType = UNSET
    feedback: Annotated[bool, field("Whether the server takes feedback.", True)] | UnsetType = UNSET
    examples: Annotated[list[str], field("Texts to try; absent by default.", ["chest pain"])] | UnsetType = UNSET


Inputs = list[str] | list[dict[str, str | None]] | list[list[float] | SparseRow]

_decoder = msgspec.json.Decoder(PredictRequest)
_encoder = msgspec.json.Encoder()


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Refuse a body that is not `what`, or does not match its type."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}. See /docs for the request format.") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or too many form fields
        detail = f"The body is not {what} in UTF-8 ({error}). See /docs for the request format."
        raise HTTPException(HTTPStatus.BAD_REQUEST, detail) from None


def decode_request(body: bytes) -> tuple[Inputs, PredictRequest]:
    """Decode the body of a request: its texts or rows of features, and all of it."""
    with decoding("JSON"):
        request = _decoder.decode(body)
    ways = (request.text, request.texts, request.fields, request.features)
    given: list[Any] = [value for value in ways if value is not UNSET]
    if len(given) != 1:
        detail = f'Give one of "text", "texts", "fields" and "features"; the request has {len(given)} of them.'
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    return given if isinstance(given[0], str) else given[0], request


def encode_response(predictions: list[list[Prediction]], took_ms: float, explain: bool) -> bytes:
    rows = [
        [PredictedLabel(p.label, p.name, p.score, [Word(*word) for word in p.words] if explain else UNSET) for p in row]
        for row in predictions
    ]
    return _encoder.encode(PredictResponse(rows, took_ms))
