"""The description of the API: FastAPI describes its own routes, `/v1/predict` is described here, from its messages.

`/docs` shows it as a page that needs nothing from elsewhere, so that it works offline and under a strict policy.
"""

from __future__ import annotations

from html import escape
from typing import Any

import msgspec

from shortlist.serving.limits import WEIGHT_OF_EXPLAINED, Limits
from shortlist.serving.messages import PredictAnswer, PredictRequest
from shortlist.serving.problems import PROBLEM_TYPE, ProblemDocument

PREDICT = "/v1/predict"
METRICS = "/metrics"
_PLACE = "#/components/schemas/{name}"
_REFUSALS = {
    400: "The body is not JSON.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    415: "The body is of another kind than JSON.",
    422: "The JSON is not what was expected, or over a limit.",
    429: "Too many requests from this address are open.",
    503: "The server is busy, starting or stopping; Retry-After says when to come back.",
}
_DENIED = "The bearer token is missing or wrong."


def problem(what: str) -> dict[str, Any]:
    """A refusal, as OpenAPI describes a response."""
    content = {PROBLEM_TYPE.decode(): {"schema": {"$ref": _PLACE.format(name=ProblemDocument.__name__)}}}
    return {"description": what, "content": content}


def json_answer(what: str, schema: dict[str, Any]) -> dict[str, Any]:
    """An answer in JSON, as OpenAPI describes a response."""
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def complete(description: dict[str, Any], limits: Limits, with_token: bool) -> dict[str, Any]:
    """FastAPI's description with `/v1/predict`, its messages and the bearer token."""
    (request, answer, _), schemas = msgspec.json.schema_components(
        [PredictRequest, PredictAnswer, ProblemDocument], ref_template=_PLACE
    )
    body = schemas[PredictRequest.__name__]
    body["oneOf"] = [{"required": ["text"]}, {"required": ["texts"]}]
    body["properties"]["text"]["maxLength"] = limits.max_characters
    body["properties"]["texts"]["maxItems"] = limits.max_texts
    body["properties"]["texts"]["items"]["maxLength"] = limits.max_characters
    body["properties"]["k"] |= {"type": "integer", "multipleOf": 1}
    body["examples"] = [{"text": "chest pain", "k": 3}]
    explained = limits.most_texts(WEIGHT_OF_EXPLAINED)
    description["paths"][PREDICT] = {
        "post": {
            "operationId": "predict",
            "summary": "The best labels of one text or of many",
            "description": f"Up to {limits.max_texts:,} texts ({explained:,} with explanations) of up to "
            f"{limits.max_words:,} words each; a body of up to {limits.max_body:,} bytes.",
            "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
            "responses": {
                "200": json_answer("One list a text.", answer),
                **{str(status): problem(what) for status, what in _REFUSALS.items()},
            },
        }
    }
    components = description.setdefault("components", {})
    components.setdefault("schemas", {}).update(schemas)
    if with_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in description["paths"].items():
            if needs_token(path):
                for operation in methods.values():
                    operation["security"] = [{"token": []}]
                    operation["responses"]["401"] = problem(_DENIED)
    return description


def needs_token(path: str) -> bool:
    """Whether a server with a token asks for it here: for the API and its figures, not for the page or probes."""
    return path.startswith("/v1/") or path == METRICS


def docs_page(description: dict[str, Any]) -> str:
    """The description for people: what there is, and how to call it with curl."""
    parts = [_operation(path, method, facts) for path, methods in description["paths"].items()
             for method, facts in methods.items()]  # fmt: skip
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Shortlist API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="/style.css"></head><body><main><h1>Shortlist API</h1>'
        '<p>For machines: <a href="/openapi.json">/openapi.json</a>. Errors are problem documents (RFC 9457): '
        "<code>detail</code> says what was wrong and what to do.</p>" + "".join(parts) + "</main></body></html>"
    )


def _operation(path: str, method: str, facts: dict[str, Any]) -> str:
    url = f"http://127.0.0.1:8000{path}"
    token = '-H "Authorization: Bearer $SHORTLIST_TOKEN" ' if facts.get("security") else ""
    call = f"curl {token}{url}"
    if method == "post":
        call = f"""curl {token}-H 'Content-Type: application/json' -d '{{"text": "chest pain", "k": 3}}' {url}"""
    answers = "".join(f"<li>{status}: {escape(answer['description'])}</li>"
                      for status, answer in sorted(facts["responses"].items()))  # fmt: skip
    return (
        f"<section><h2>{method.upper()} {escape(path)}</h2><p>{escape(facts.get('summary', ''))}. "
        f"{escape(facts.get('description', ''))}</p><pre><code>{escape(call)}</code></pre><ul>{answers}</ul></section>"
    )
