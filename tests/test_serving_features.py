"""Features over HTTP: sparse and dense rows, what does not fit the model, and the description of it all."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import shortlist
from serving import InProcess
from test_serving_app import problem_of

LABELS = [["shoes", "red"], ["hat", "blue"], ["hat", "red"]] * 4
MATRIX = np.random.default_rng(0).random((12, 6)) * np.tile(np.eye(3).repeat(2, axis=1), (4, 1))
ROWS = [{"indices": [i % 3 * 2, i % 3 * 2 + 1], "values": row[row > 0].tolist()} for i, row in enumerate(MATRIX)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    data = shortlist.Dataset.from_lists([""] * 12, LABELS)
    features = {"sparse": sparse.csr_array(MATRIX), "dense": MATRIX}
    models = {kind: shortlist.train(data.with_features(matrix), "centroid") for kind, matrix in features.items()}
    models["texts"] = shortlist.train([("red shoes", ["shoes"])], "centroid")
    models["anything"] = shortlist.train([("red shoes", ["shoes"])], "popular")
    folder = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        model.save(folder / name)
    return folder


@pytest.fixture
def serve(models):
    servers = []

    def start(name, **options):
        servers.append(InProcess(models / name, **options))
        return servers[-1].ready()

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_rows_are_predicted_as_in_python(serve, models, kind):
    server = serve(kind, log_texts=True)
    expected = [[p.label for p in row] for row in shortlist.load(models / kind).predict(MATRIX, k=2)]
    mixed = [ROWS[0], *MATRIX.tolist()[1:]]
    for features in (ROWS, MATRIX.tolist(), mixed):
        answer = server.predict(features=features, k=2)
        assert answer.status_code == 200
        assert [[p["label"] for p in row] for row in answer.json()["predictions"]] == expected
    assert server.predict(features=[]).json()["predictions"] == []
    assert server.predict(features=ROWS[:1], explain=True).json()["predictions"][0][0]["words"] == []
    card = server.get("/v1/model").json()
    assert (card["inputs"], card["n_columns"], card["n_words"]) == (f"{kind} features", 6, None)
    assert not any("texts" in line for line in server.logged())  # features are not written to the log


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([[1, 2]], "row 0 has 2 values; this model takes 6 features"),
        ([ROWS[0], {"indices": [1, 2], "values": [1]}], "row 1 has 2 indices but 1 values"),
        ([{"indices": [6], "values": [1]}], "row 0 has a column that is out of range: this model takes 6 features"),
        ([{"indices": [-1], "values": [1]}], "row 0 has a column that is out of range"),
        ([[1e300] * 6], "row 0 of the features contains NaN or infinity"),
        (["a text"], "Expected `object | array`"),
        ([{"indices": [1]}], "missing required field `values`"),
        ([{"indices": [1.5], "values": [1]}], "Expected `int`"),
        ([["a"] * 6], "Expected `float`"),
    ],
)
def test_rows_that_do_not_fit_are_refused(serve, features, message):
    assert message in problem_of(serve("sparse").predict(features=features), 422)


def test_texts_and_features_are_not_confused(serve):
    of_features, of_texts = serve("sparse"), serve("texts")
    assert "trained on features; give it a matrix of 6 columns" in problem_of(of_features.predict(text="red"), 422)
    assert 'Send "text" or "texts" instead' in problem_of(of_texts.predict(features=ROWS), 422)
    for fields in ({"text": "a", "features": ROWS}, {"texts": ["a"], "features": ROWS}):
        assert 'Give one of "text", "texts", "fields" and "features"' in problem_of(of_texts.predict(**fields), 422)
    assert len(serve("anything").predict(features=ROWS).json()["predictions"]) == 12


def test_the_number_of_rows_is_limited(serve):
    from shortlist.serving.limits import Limits

    server = serve("sparse", limits=Limits(max_texts=11, max_words=1))
    assert "has 12 texts; the limit is 11" in problem_of(server.predict(features=ROWS), 422)
    assert server.predict(features=ROWS[:11]).status_code == 200


def test_is_described(serve):
    server = serve("dense")
    schemas = server.get("/openapi.json").json()["components"]["schemas"]
    request = schemas["PredictRequest"]
    assert {"required": ["features"]} in request["oneOf"]
    assert request["properties"]["features"]["maxItems"] == 1000
    assert set(schemas["SparseRow"]["properties"]) == {"indices", "values"}
    assert "list of list of number or SparseRow" in server.get("/docs").text
