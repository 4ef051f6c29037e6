"""The interfaces of other tools: Annif's REST API and the Open Inference Protocol."""

from __future__ import annotations

import struct
import threading

import pytest

import shortlist
from serving import SECONDS, InProcess, save_model
from shortlist.serving import served_model
from shortlist.serving.limits import Limits

SUGGEST, INFER = "/v1/projects/model/suggest", "/v2/models/model/infer"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("interfaces") / "model")


@pytest.fixture(scope="module")
def model(folder):
    return shortlist.load(folder)


@pytest.fixture(scope="module")
def server(folder):
    server = InProcess(folder, limits=Limits(max_body=20_000, max_texts=20, max_words=8)).ready()
    yield server
    server.close()


def infer(server, texts=("red shoes",), headers=None, **fields):
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": list(texts)}
    return server.request("POST", INFER, json={"inputs": [tensor], **fields}, headers=headers or {})


def suggest(server, headers=None, **fields):
    return server.request("POST", SUGGEST, data=fields, headers=headers or {})


def test_annif_suggestions(server, model):
    answer = suggest(server, text="red shoes", limit=2, language="en", metadata_year="1999")
    expected = [
        {"uri": p.label, "label": p.name, "notation": None, "score": p.score} for p in model.predict("red shoes", 2)
    ]
    assert answer.status_code == 200 and answer.json() == {"results": expected}
    scores = [hit["score"] for hit in suggest(server, text="red shoes").json()["results"]]
    assert len(scores) == model.n_labels  # up to 10 by default
    least = (scores[1] + scores[2]) / 2
    assert len(suggest(server, text="red shoes", threshold=least).json()["results"]) == 2
    assert len(suggest(server, text="grün & blue hat", limit=1000).json()["results"]) == model.n_labels
    assert suggest(server, text="red", limit=0).json() == {"results": []}
    assert suggest(server, text="").status_code == 200


def test_annif_projects(server):
    project = server.get("/v1/projects/model").json()
    assert server.get("/v1/projects").json() == {"projects": [project]}
    assert project["project_id"] == "model" and project["is_trained"] is True
    assert project["backend"] == {"backend_id": "shortlist"} and project["modification_time"].startswith("20")
    assert server.get("/v1/projects/other").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"limit=3", 422, "`text`"),
        (b"text=a&limit=-1", 422, "limit"),
        (b"text=a&limit=many", 422, "limit"),
        (b"text=a&threshold=2", 422, "threshold"),
        (b"text=%ff", 400, "UTF-8"),
        (b"text=\xff", 400, "UTF-8"),
        (b"&".join([b"text=a"] * 200), 400, "fields"),
        (b"text=" + b"a+" * 9, 422, "limits are 8 words"),
        (b"text=" + b"a" * 30_000, 413, "20,000 bytes"),
    ],
)
def test_annif_refusals(server, body, status, says):
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = server.request("POST", SUGGEST, content=body, headers=headers)
    assert answer.status_code == status and says in answer.json()["detail"]
    assert server.app.admission.requests == server.app.admission.texts == 0


def test_pages_of_other_sites_are_refused(server):
    for call in (suggest, infer):
        fields = {"text": "red"} if call is suggest else {}
        assert call(server, headers={"origin": "http://server"}, **fields).status_code == 200
        for origin in ("http://elsewhere", "null", "http://server.elsewhere", "http://server:81"):
            answer = call(server, headers={"origin": origin}, **fields)
            assert answer.status_code == 403 and "another site" in answer.json()["detail"]
    assert server.request("POST", SUGGEST, json={"text": "red"}).status_code == 415
    assert infer(server, headers={"content-encoding": "gzip"}).status_code == 415


def test_inference_pads_rows(server, model):
    texts = ["red shoes", "nothing that is known"]
    answer = infer(server, texts, parameters={"k": 8, "min_score": 0.2, "binary_data_output": True}, id="7").json()
    assert answer["model_name"] == "model" and answer["id"] == "7"
    tensors = {output["name"]: output for output in answer["outputs"]}
    assert {name: tensor["datatype"] for name, tensor in tensors.items()} == {
        "labels": "BYTES", "names": "BYTES", "scores": "FP32"}  # fmt: skip
    expected = model.predict(texts, 8, min_score=0.2)
    assert 0 < len(expected[0]) < 8
    for name, empty, attribute in (("labels", "", "label"), ("names", "", "name"), ("scores", 0.0, "score")):
        assert tensors[name]["shape"] == [2, 8]
        rows = [[getattr(p, attribute) for p in row] + [empty] * (8 - len(row)) for row in expected]
        assert tensors[name]["data"] == [value for row in rows for value in row]


def test_inference_returns_the_outputs_asked_for(server):
    answer = infer(server, outputs=[{"name": "scores", "parameters": {"binary_data": True}}]).json()
    assert [output["name"] for output in answer["outputs"]] == ["scores"] and answer["outputs"][0]["shape"] == [1, 5]
    assert "id" not in answer
    allowed = infer(server, parameters={"allow": ["red"], "k": 1}).json()["outputs"][0]
    assert allowed["data"] == ["red"]
    assert infer(server, []).json()["outputs"][0] == {
        "name": "labels",
        "datatype": "BYTES",
        "shape": [0, 5],
        "data": [],
    }


def test_inference_takes_nested_and_binary_texts(server):
    texts = ["red shoes", "grün hat", ""]
    expected = infer(server, texts).json()["outputs"]
    nested = {"name": "x", "datatype": "BYTES", "shape": [3, 1], "data": [[text] for text in texts]}
    assert server.request("POST", INFER, json={"inputs": [nested]}).json()["outputs"] == expected
    head = b'{"inputs":[{"name":"x","datatype":"BYTES","shape":[3],"parameters":{"binary_data_size":99}}]}'
    data = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)
    headers = {"inference-header-content-length": str(len(head))}
    answer = server.request("POST", INFER, content=head + data, headers=headers)
    assert answer.json()["outputs"] == expected
    for body, length, says in (
        (head + data[:-5], len(head), "end within"),
        (head + data + b"\x01\0\0\0\xff", len(head), "not UTF-8"),
        (head + data, 9999, "Inference-Header-Content-Length"),
        (head + data, "x", "Inference-Header-Content-Length"),
    ):
        answer = server.request("POST", INFER, content=body, headers={"inference-header-content-length": str(length)})
        assert answer.status_code == 400 and says in answer.json()["detail"]
        assert answer.json()["error"] == answer.json()["detail"]  # where clients of this protocol look


@pytest.mark.parametrize(
    ("tensor", "fields", "says"),
    [
        ({"shape": [2]}, {}, "2"),
        ({"shape": [1, 1, 1]}, {}, "shape"),
        ({"shape": []}, {}, "shape"),
        ({"datatype": "FP32"}, {}, "FP32"),
        ({"data": [1]}, {}, "inputs[0].data"),
        ({"data": ["a " * 9]}, {}, "limits are 8 words"),
        ({"data": ["a"] * 21, "shape": [21]}, {}, "the limit is 20"),
        ({}, {"parameters": {"k": 0}}, "k"),
        ({}, {"parameters": {"allow": ["nobody"]}}, "nobody"),
        ({}, {"outputs": [{"name": "probabilities"}]}, "outputs[0].name"),
        ({}, {"inputs": []}, "inputs"),
        ({}, {"outputs": [{"name": "names"}] * 4}, "outputs"),  # 50,000 of them in 1 MB, times 100 labels each
    ],
)
def test_inference_refusals(server, tensor, fields, says):
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["red"], **tensor}
    answer = server.request("POST", INFER, json={"inputs": [tensor], **fields})
    assert answer.status_code == 422 and says in answer.json()["error"]
    assert server.app.admission.requests == server.app.admission.texts == 0


@pytest.mark.parametrize("body", [b'{"more": ' + b"[" * 10_000, b'{"inputs": [{"more": ' + b'{"a":' * 3000])
def test_inference_of_json_that_is_nested_too_deeply(server, body):
    """Fields that nobody knows are allowed in this protocol."""
    answer = server.request("POST", INFER, content=body)
    assert answer.status_code == 400 and "recursion" in answer.json()["error"]


def test_inference_metadata_and_probes(server, folder, monkeypatch):
    assert server.get("/v2").json()["name"] == "shortlist"
    about = server.get("/v2/models/model").json()
    assert about["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert [output["name"] for output in about["outputs"]] == ["labels", "names", "scores"]
    assert server.get("/v2/health/live").json() == {"live": True}
    assert server.get("/v2/health/ready").json() == {"ready": True}
    assert server.get("/v2/models/model/ready").json() == {"ready": True, "name": "model"}
    assert "nothing at" in server.get("/v2/models/other").json()["error"]
    may_load = threading.Event()
    monkeypatch.setattr(served_model, "load", lambda folder: may_load.wait(SECONDS) and shortlist.load(folder))
    starting = InProcess(folder)
    assert starting.get("/v2/health/live").status_code == 200
    for path in ("/v2/health/ready", "/v2/models/model/ready"):
        assert starting.get(path).status_code == 503
    may_load.set()
    starting.close()


def test_interfaces_share_limits_and_metrics(folder):
    server = InProcess(folder, limits=Limits(max_concurrent=1)).ready()
    server.app.admission.add_request("elsewhere")
    assert suggest(server, text="red").status_code == infer(server).status_code == 503
    server.app.admission.release("elsewhere", 0)
    assert suggest(server, text="red").status_code == infer(server, ["red", "blue"]).status_code == 200
    lines = server.get("/metrics").text.splitlines()
    assert "shortlist_texts_total 3.0" in lines and "shortlist_predict_seconds_count 4.0" in lines
    assert f'shortlist_requests_total{{path="{INFER}",status="200"}} 1.0' in lines
    server.close()
