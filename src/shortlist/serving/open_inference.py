"""The Open Inference Protocol, version 2, as clients of KServe, Triton and MLServer use it: texts in, tensors out.

Texts arrive as a tensor of strings (BYTES), in JSON or, as Triton's client sends them by default, after the JSON.
Responses are always JSON, which these clients read, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from math import prod
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.exceptions import HTTPException

from shortlist import __version__
from shortlist.model import Prediction
from shortlist.serving.messages import PredictRequest, decoding
from shortlist.serving.operations import NAME, PREDICT_PROBLEMS, Operation, field
from shortlist.serving.predict import Decoded, Format, Headers, check_not_compressed, check_origin

JSON_SIZE = b"inference-header-content-length"  # where binary data begin
OPTIONS = ("k", "min_score", "search_effort", "tail", "allow", "deny", "levels")
TEXTS = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["bee sting"]}  # examples
SCORES = {"name": "scores", "datatype": "FP32", "shape": [1, 3], "data": [0.83, 0.05, 0.0]}


class TextTensor(msgspec.Struct):
    """Texts."""

    name: Annotated[str, field("Any name.", "text")]
    shape: Annotated[
        list[Annotated[int, Meta(ge=0)]],
        field("The number of texts, n, as [n] or [n, 1].", [1], min_length=1, max_length=2),
    ]
    datatype: Annotated[Literal["BYTES"], field("The type of strings.", "BYTES")]
    data: (
        Annotated[list[str | list[str]], field("The texts; absent if they follow the JSON.", ["bee sting"])] | UnsetType
    ) = UNSET


class OutputName(msgspec.Struct):
    """A tensor to return."""

    name: Annotated[Literal["labels", "names", "scores"], field("Its name.", "labels")]


class InferRequest(msgspec.Struct):
    """Texts as a tensor, and how to predict their labels."""

    inputs: Annotated[list[TextTensor], field("One tensor.", [TEXTS], min_length=1, max_length=1)]
    parameters: Annotated[
        dict[str, Any], field("Options as in /v1/predict: " + ", ".join(OPTIONS) + ". Others are ignored.", {"k": 3})
    ] = {}
    outputs: Annotated[
        list[OutputName], field("Which tensors to return; all by default.", [{"name": "labels"}], max_length=3)
    ] = []
    id: Annotated[str, field("Returned in the response.", "1")] | UnsetType = UNSET


class OutputTensor(msgspec.Struct):
    """Labels, names or scores."""

    name: Annotated[str, field("`labels`, `names` or `scores`.", "labels")]
    datatype: Annotated[str, field("BYTES or FP32.", "BYTES")]
    shape: Annotated[list[int], field("[n, k]", [1, 3])]
    data: Annotated[
        list[str | float],
        field(
            "Row by row, the best label first. Rows with fewer labels are filled up with empty strings, "
            "or scores of 0.",
            ["I21.9", "I25.2", ""],
        ),
    ]


class InferResponse(msgspec.Struct):
    """The labels of all texts of a request."""

    model_name: Annotated[str, field("The name of the model.", "model")]
    outputs: Annotated[list[OutputTensor], field("Labels, display names and scores.", [SCORES])]
    id: Annotated[str, field("The id of the request.", "1")] | UnsetType = UNSET


class TensorMetadata(msgspec.Struct):
    """The type of a tensor."""

    name: Annotated[str, field("Its name.", "labels")]
    datatype: Annotated[str, field("BYTES or FP32.", "BYTES")]
    shape: Annotated[list[int], field("Its shape; -1 is any number.", [-1, -1])]


class ModelMetadata(msgspec.Struct):
    """The model's inputs and outputs."""

    name: Annotated[str, field("The name of the model.", "model")]
    platform: Annotated[str, field('Always "shortlist".', "shortlist")]
    inputs: Annotated[list[TensorMetadata], field("What it takes.", [{"name": "text"}])]
    outputs: Annotated[list[TensorMetadata], field("What it returns.", [{"name": "scores"}])]


class ServerMetadata(msgspec.Struct):
    """The server."""

    name: Annotated[str, field('Always "shortlist".', "shortlist")]
    version: Annotated[str, field("The version of Shortlist.", __version__)]
    extensions: Annotated[list[str], field("Extensions of the protocol.", ["binary_tensor_data"])]


class Live(msgspec.Struct):
    """Whether the process runs."""

    live: Annotated[bool, field("Always true.", True)]


class Ready(msgspec.Struct):
    """Whether a model is loaded. If not, the status is 503."""

    ready: Annotated[bool, field("Always true.", True)]
    name: Annotated[str, field("The name of the model.", "model")] | UnsetType = UNSET


class OpenInference:
    """Answers the operations below for one model. `check_ready` raises if the server is not ready."""

    OPERATIONS = (
        Operation("infer", "POST", f"/v2/models/{NAME}/infer", "V2 protocol: predict the labels of texts",
                  "Tensors of labels, names and scores.", InferResponse, (*PREDICT_PROBLEMS, 403), InferRequest,
                  example="""-H 'Content-Type: application/json' -d '{"inputs": [{"name": "text", "datatype": "BYTES",
  "shape": [1], "data": ["chest pain"]}], "parameters": {"k": 3}}'"""),
        Operation("model_metadata", "GET", f"/v2/models/{NAME}", "V2 protocol: inputs and outputs of the model",
                  "The tensors.", ModelMetadata),
        Operation("model_ready", "GET", f"/v2/models/{NAME}/ready", "V2 protocol: readiness of the model",
                  "The model is loaded.", Ready, (503,)),
        Operation("server_metadata", "GET", "/v2", "V2 protocol: the server", "The server.", ServerMetadata),
        Operation("server_live", "GET", "/v2/health/live", "V2 protocol: liveness", "The process runs.", Live),
        Operation("server_ready", "GET", "/v2/health/ready", "V2 protocol: readiness", "The server is ready.",
                  Ready, (503,)),
    )  # fmt: skip

    def __init__(self, name: str, check_ready: Callable[[], object]) -> None:
        self._name, self._check_ready = name, check_ready
        self.infer = Format(check_headers, partial(decode_infer, name))

    def server_metadata(self) -> ServerMetadata:
        return ServerMetadata("shortlist", __version__, ["binary_tensor_data"])

    def server_live(self) -> Live:
        return Live(True)

    def server_ready(self) -> Ready:
        self._check_ready()
        return Ready(True)

    def model_ready(self) -> Ready:
        self._check_ready()
        return Ready(True, self._name)

    def model_metadata(self) -> ModelMetadata:
        outputs = [TensorMetadata(name, type_of(name), [-1, -1]) for name in VALUES]
        return ModelMetadata(self._name, "shortlist", [TensorMetadata("text", "BYTES", [-1])], outputs)


def check_headers(headers: Headers) -> None:
    check_origin(headers)  # Triton's client sends no Content-Type
    check_not_compressed(headers)


def decode_infer(model_name: str, headers: Headers, body: bytes) -> Decoded:
    size = headers.get(JSON_SIZE, b"%d" % len(body))
    if not size.isdigit() or int(size[:20]) > len(body):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "Inference-Header-Content-Length is not the length of the JSON.")
    with decoding("JSON"):
        request = _decoder.decode(body[: int(size)])
        given = {name: value for name, value in request.parameters.items() if name in OPTIONS}
        options = msgspec.convert(given, PredictRequest)
    texts = texts_of(request.inputs[0], body[int(size) :])
    wanted: list[str] = [output.name for output in request.outputs]
    return Decoded(
        texts, options, partial(encode_infer, model_name, request.id, wanted or list(VALUES), int(options.k))
    )


def texts_of(tensor: TextTensor, binary: bytes) -> list[str]:
    """The texts of a tensor, from its `data` or from the binary data of the request."""
    if tensor.data is UNSET:
        texts = split_strings(binary)
    else:
        texts = [text for row in tensor.data for text in ([row] if isinstance(row, str) else row)]
    if prod(tensor.shape) != len(texts):
        detail = f"The shape of the input is {tensor.shape}, but there are {len(texts):,} texts."
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    return texts


def split_strings(binary: bytes) -> list[str]:
    """Strings, each after its length in 4 bytes.

    >>> split_strings(bytes([2, 0, 0, 0]) + b"ab" + bytes(4))
    ['ab', '']
    """
    texts, start = [], 0
    while start < len(binary):
        end = start + 4 + int.from_bytes(binary[start : start + 4], "little")
        if end > len(binary):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "The binary data of the input end within a string.")
        try:
            texts.append(binary[start + 4 : end].decode())
        except UnicodeDecodeError as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"Text {len(texts)} is not UTF-8 ({error}).") from None
        start = end
    return texts


def encode_infer(
    model_name: str,
    request_id: str | UnsetType,
    wanted: list[str],
    k: int,
    predictions: list[list[Prediction]],
    took_ms: float,
) -> bytes:
    shape = [len(predictions), k]
    outputs = []
    for name in wanted:
        value_of, missing = VALUES[name]
        data = [value for row in predictions for value in [*map(value_of, row), *[missing] * (k - len(row))]]
        outputs.append(OutputTensor(name, type_of(name), shape, data))
    return msgspec.json.encode(InferResponse(model_name, outputs, request_id))


def type_of(output: str) -> str:
    return "FP32" if output == "scores" else "BYTES"


# How to get each output from a prediction, and what fills up rows with fewer labels.
VALUES: dict[str, tuple[Callable[[Prediction], Any], Any]] = {
    "labels": (lambda p: p.label, ""),
    "names": (lambda p: p.name, ""),
    "scores": (lambda p: p.score, 0.0),
}
_decoder = msgspec.json.Decoder(InferRequest)
