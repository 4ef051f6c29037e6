"""Annif's REST API, as its `http` backend and its clients use it: the model is a project that suggests subjects."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from urllib.parse import parse_qsl

import msgspec

from shortlist.model import Prediction
from shortlist.serving.messages import MAX_K, PredictRequest, decoding
from shortlist.serving.operations import NAME, PREDICT_PROBLEMS, Operation, field
from shortlist.serving.predict import Decoded, Format, Headers, check_content_type, check_origin
from shortlist.serving.served_model import ServedModel

FORM_TYPE = "application/x-www-form-urlencoded"
MAX_FORM_FIELDS = 100


class SuggestForm(msgspec.Struct):
    """A text, as the fields of a form. Further fields, such as `language`, are ignored."""

    text: Annotated[str, field("The text.", "heart attack")]
    limit: Annotated[int, field(f"Maximum number of subjects. More than {MAX_K} are never returned.", 5, ge=0)] = 10
    threshold: Annotated[float, field("Subjects with a lower score are omitted.", 0.1, ge=0, le=1)] = 0.0


class Suggestion(msgspec.Struct):
    """A subject of a text."""

    uri: Annotated[str, field("The label, as in the training data.", "HP:0001658")]
    label: Annotated[str, field("Its display name; the label itself if it has none.", "Myocardial infarction")]
    notation: Annotated[str | None, field("Always null.", None)]
    score: Annotated[float, field("How likely the label is right, from 0 to 1.", 0.83)]


class Suggestions(msgspec.Struct):
    """The subjects of a text."""

    results: Annotated[list[Suggestion], field("The subjects, the best first.", [{"uri": "HP:0001658", "score": 0.83}])]


class Backend(msgspec.Struct):
    """What makes the suggestions."""

    backend_id: Annotated[str, field('Always "shortlist".', "shortlist")] = "shortlist"


class Project(msgspec.Struct):
    """The model, as a project of Annif."""

    project_id: Annotated[str, field("The name of the model.", "model")]
    name: Annotated[str, field("What the model is, for people.", "astec")]
    language: Annotated[str, field('Always "und": a model does not know its language.', "und")]
    backend: Annotated[Backend, field("What makes the suggestions.", {"backend_id": "shortlist"})]
    is_trained: Annotated[bool, field("Always true.", True)]
    modification_time: Annotated[str | None, field("When the model was saved.", "2026-11-18T12:00:00+00:00")]


class Projects(msgspec.Struct):
    """All projects of the server."""

    projects: Annotated[list[Project], field("One project: the model.", [{"project_id": "model", "name": "astec"}])]


class Annif:
    """Answers the operations below for one model."""

    OPERATIONS = (
        Operation("suggest", "POST", f"/v1/projects/{NAME}/suggest", "Annif: suggest subjects for a text",
                  "The subjects.", Suggestions, (*PREDICT_PROBLEMS, 403), SuggestForm, FORM_TYPE,
                  "-d limit=3 --data-urlencode 'text=heart attack'"),
        Operation("projects", "GET", "/v1/projects", "Annif: all projects", "The projects.", Projects, (503,)),
        Operation("project", "GET", f"/v1/projects/{NAME}", "Annif: the model as a project", "The project.", Project,
                  (503,)),
    )  # fmt: skip

    def __init__(self, served: ServedModel, name: str) -> None:
        self._served, self._name = served, name
        self.suggest = Format(check_headers, decode_form)

    def project(self) -> Project:
        card = self._served.model.card
        return Project(self._name, card["title"], "und", Backend(), True, card.get("created"))

    def projects(self) -> Projects:
        return Projects([self.project()])


def check_headers(headers: Headers) -> None:
    check_content_type(headers, FORM_TYPE)
    check_origin(headers)


def decode_form(headers: Headers, body: bytes) -> Decoded:
    with decoding("a form"):
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS))
        form = msgspec.convert(fields, SuggestForm, strict=False)
    options = PredictRequest(k=min(max(form.limit, 1), MAX_K), min_score=form.threshold)
    return Decoded([form.text], options, partial(encode_suggestions, form.limit))


def encode_suggestions(limit: int, predictions: list[list[Prediction]], took_ms: float) -> bytes:
    found = predictions[0][:limit]
    return msgspec.json.encode(Suggestions([Suggestion(p.label, p.name, None, p.score) for p in found]))
