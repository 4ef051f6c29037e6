"""Ray Serve answers as `shortlist serve` does, with replicas of a model and with label shards."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time

import pytest

import shortlist as library
from ray_cluster import two_nodes
from shortlist.cluster import deployment, save_label_shards, sharded_deployment
from shortlist.cluster.serve import ServerApp
from shortlist.serving.app import App

pytest.importorskip("ray", reason="needs Ray: pip install 'shortlist[ray]'")
pytestmark = pytest.mark.slow

TEXTS = [f"w{i} w{i + 1}" for i in range(12)]
PAIRS = [(text, [f"label {i % 7}"]) for i, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    model = library.train(PAIRS, "centroid")
    model.save(folder / "model")
    save_label_shards(folder / "model", folder / "shards", 2)
    return folder


@pytest.fixture(scope="module")
def port():
    """Ray Serve on 127.0.0.1."""
    from ray import serve

    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    with two_nodes(num_cpus=3):
        serve.start(http_options={"host": "127.0.0.1", "port": number})
        yield number
        serve.shutdown()


def request(port, method, path, body=None, headers=None):
    """The status and the answer. Ray's proxy learns of an application's route a little after it is ready."""
    for _ in range(100):
        status, content = request_once(port, method, path, body, headers)
        if not (status == 404 and content.startswith(b"Path")):
            break
        time.sleep(0.1)
    return status, json.loads(content)


def request_once(port, method, path, body, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def run_lifespan(app):
    """Start and stop an application as an ASGI server does: the messages that it sends."""
    sent, todo = [], [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive():
        return todo.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(ServerApp(app())({"type": "lifespan"}, receive, send))
    return sent


def test_starts_when_the_model_is_loaded_or_says_why_not(folder, tmp_path):
    assert [message["type"] for message in run_lifespan(lambda: App(folder / "model"))] == ["lifespan.startup.complete"]
    (failed,) = run_lifespan(lambda: App(tmp_path))
    assert failed["type"] == "lifespan.startup.failed" and "not a model folder" in failed["message"]


def test_answers_are_those_of_the_model(folder, port):
    from ray import serve

    serve.run(deployment(folder / "model", token="secret", num_replicas=2), name="whole", route_prefix="/")
    body = {"texts": TEXTS, "k": 3}
    assert request(port, "POST", "/v1/predict", body)[0] == 401
    status, answer = request(port, "POST", "/v1/predict", body, {"authorization": "Bearer secret"})
    expected = library.load(folder / "model").predict(TEXTS, k=3)
    assert status == 200
    found = [[(one["label"], one["score"]) for one in row] for row in answer["predictions"]]
    assert found == [[(one.label, pytest.approx(one.score, abs=1e-6)) for one in row] for row in expected]
    assert request(port, "GET", "/readyz")[1] == {"status": "ready"}
    serve.delete("whole")


def test_label_shards_answer_as_one_model(folder, port):
    from ray import serve

    serve.run(sharded_deployment(folder / "shards"), name="shards", route_prefix="/")
    status, answer = request(port, "POST", "/v1/predict", {"texts": TEXTS, "k": 1})
    expected = library.load(folder / "model").predict(TEXTS, k=1)
    assert status == 200
    scores = [row[0]["score"] for row in answer["predictions"]]
    assert scores == pytest.approx([row[0].score for row in expected], abs=1e-6)
    serve.delete("shards")
