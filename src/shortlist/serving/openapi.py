"""The OpenAPI description, written from the types in `messages`, and the same as a page for people at /docs.

The page needs no script and nothing from elsewhere: it works offline and under a strict content security policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import msgspec

from shortlist import __version__
from shortlist.serving.limits import Limits
from shortlist.serving.messages import ModelCard, PredictRequest, PredictResponse, Status
from shortlist.serving.operations import JSON_TYPE, METRICS, PREDICT, PREDICT_PROBLEMS, PROBLEMS, Operation, needs_token
from shortlist.serving.problems import PROBLEM_TYPE, ProblemDocument

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OPERATIONS = (
    Operation("predict", "POST", PREDICT, "Predict the best labels of texts or of rows of features",
              "One list of labels per text.", PredictResponse, PREDICT_PROBLEMS, PredictRequest,
              example="""-H 'Content-Type: application/json' -d '{"text": "chest pain", "k": 3}'"""),
    Operation("model", "GET", "/v1/model", "The model card", "The model card.", ModelCard, (503,)),
    Operation("health", "GET", "/healthz", "Liveness: 200 while the process runs", "The process runs.", Status),
    Operation("ready", "GET", "/readyz", "Readiness: 200 when a model is loaded and warm, 503 before and when stopping",
              "The server is ready for requests.", Status, (503,)),
    Operation("prometheus", "GET", METRICS, "Metrics for Prometheus", "Metrics in Prometheus' text format."),
)  # fmt: skip


def describe(limits: Limits, operations: Iterable[Operation], with_token: bool) -> dict[str, Any]:
    """The OpenAPI document."""
    types = [type for o in operations for type in (o.request, o.response) if type] + [ProblemDocument]
    refs, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    ref_of = dict(zip(types, refs, strict=True))
    add_limits(schemas["PredictRequest"], limits)
    problem = {PROBLEM_TYPE: {"schema": ref_of[ProblemDocument]}}
    paths: dict[str, Any] = {}
    for o in operations:
        content = {METRICS_TYPE: {"schema": {"type": "string"}}}
        if o.response:
            content = {JSON_TYPE: {"schema": ref_of[o.response]}}
        responses = {"200": {"description": o.returns, "content": content}}
        described: dict[str, Any] = {"operationId": o.name, "summary": o.summary, "responses": responses}
        problems = o.problems
        if with_token and needs_token(o.path):
            described["security"] = [{"token": []}]
            problems += (401,)
        responses |= {str(status): {"description": PROBLEMS[status], "content": problem} for status in problems}
        if o.request:
            described["requestBody"] = {"required": True, "content": {o.media_type: {"schema": ref_of[o.request]}}}
        if o.example:
            described["x-curl"] = o.example
        paths.setdefault(quote(o.path), {})[o.method.lower()] = described
    paths[PREDICT]["post"]["description"] = (
        f"Up to {limits.max_texts:,} texts of up to {limits.max_words:,} words each, with explanations up to "
        f"{limits.max_texts:,} words in all; a body of up to {limits.max_body:,} bytes."
    )
    components: dict[str, Any] = {"schemas": schemas}
    if with_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    info = {"title": "Shortlist", "version": __version__, "summary": "A short text in, the best labels out."}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def add_limits(schema: dict[str, Any], limits: Limits) -> None:
    """Add to the schema of `PredictRequest` what its type does not say."""
    fields = schema["properties"]
    schema["oneOf"] = [{"required": [name]} for name in ("text", "texts", "fields", "features")]
    sparse_rows = {"features": [{"indices": [17, 4711], "values": [0.25, 1.5]}]}
    schema["examples"] = [{"text": "chest pain", "k": 3}, sparse_rows]
    fields["text"]["maxLength"] = fields["texts"]["items"]["maxLength"] = limits.max_characters
    for name in ("texts", "fields", "features"):
        fields[name]["maxItems"] = limits.max_texts
    fields["k"] |= {"type": "integer", "multipleOf": 1}


def docs_page(description: dict[str, Any], url: str) -> str:
    """The description as HTML, with examples for the server at this address."""
    return docs_template().render(description, url=url)


@cache
def docs_template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"type_name": type_name, "json": partial(json.dumps, ensure_ascii=False)}
    return environment.get_template("docs.html")


def type_name(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words, such as "list of Word" or "integer (1 to 100)"."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(f'"{value}"' for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(type_name(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {type_name(schema['items'])}"
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    bounds = f" ({'above ' if 'exclusiveMinimum' in schema else ''}{low:g} to {high:g})" if high is not None else ""
    return schema.get("type", "any") + bounds
