"""Predictions as columns of a table, for every kind of table."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pandas
import polars
import pyarrow
import pytest

import shortlist
from shortlist.batch.arrow import mlflow_model, predict_arrow, predict_pandas, predict_polars
from shortlist.errors import DataError, ShortlistError

ROWS = {"title": ["red shoes", None, "blue hat"], "sku": [7, 8, 9]}


@pytest.fixture(scope="module")
def model():
    return shortlist.train([("red shoes", ["shoes"]), ("blue hat", ["hats"])], "centroid")


@pytest.mark.parametrize("kind", [pyarrow.table, polars.DataFrame, pandas.DataFrame])
def test_arrow_in_arrow_out(model, kind):
    found = predict_arrow(model, kind(ROWS), "title", k=1)
    assert found.column_names == ["title", "sku", "labels", "scores"]
    assert found["labels"].to_pylist() == [["shoes"], [], ["hats"]]
    expected = [[p.score for p in model.predict(text, k=1)] if text else [] for text in ROWS["title"]]
    assert found["scores"].to_pylist() == [pytest.approx(scores) for scores in expected]


def test_polars_and_pandas(model):
    assert predict_polars(model, polars.DataFrame(ROWS), "title", k=1)["labels"].to_list() == [["shoes"], [], ["hats"]]
    frame = pandas.DataFrame(ROWS, index=[30, 20, 10])
    found = predict_pandas(model, frame, "title", k=1)
    assert found["labels"].tolist() == [["shoes"], [], ["hats"]]
    assert found.index.tolist() == [30, 20, 10] and "labels" not in frame


def test_empty_table_and_messages(model):
    empty = predict_arrow(model, pyarrow.table({"text": pyarrow.array([], pyarrow.string())}))
    assert empty.num_rows == 0 and empty.schema.field("labels").type == pyarrow.list_(pyarrow.string())
    with pytest.raises(DataError, match="no column 'text'; the columns are 'title', 'sku'"):
        predict_arrow(model, pyarrow.table(ROWS))
    with pytest.raises(DataError, match="already has a column 'labels'"):
        predict_arrow(model, pyarrow.table({"text": ["x"], "labels": ["y"]}))


@pytest.mark.parametrize("predict", [predict_pandas, predict_polars])
def test_fields_are_columns(predict):
    data = shortlist.read(
        [{"a": "red", "b": "shoes", "labels": ["x"]}, {"a": "blue", "labels": ["y"]}], text=["a", "b"]
    )
    model = shortlist.train(data, "centroid")
    frame = pandas.DataFrame if predict is predict_pandas else polars.DataFrame
    for text in ("text", ["a", "b"]):
        found = predict(model, frame({"b": ["shoes", None], "a": [None, "blue"]}), text=text, k=1)
        assert [list(one) for one in found["labels"]] == [["x"], ["y"]]
    with pytest.raises(DataError, match=r"no column 'b'; the columns are 'a'\. The model reads these fields: a, b"):
        predict(model, frame({"a": ["red"]}))
    with pytest.raises(DataError, match=r"text is \['b'\]; expected a column, or \['a', 'b'\]"):
        predict(model, frame({"b": ["red"]}), text=["b"])
    with pytest.raises(DataError, match="no column 'c'; the columns are 'a'"):
        predict(model, frame({"a": ["red"]}), text="c")


def test_mlflow(model, tmp_path, monkeypatch):
    """With a stand-in for MLflow, which calls these two methods."""
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ShortlistError, match="pip install mlflow"):
        mlflow_model()
    pyfunc = ModuleType("mlflow.pyfunc")
    pyfunc.PythonModel = object
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", pyfunc)
    model.save(tmp_path / "model")
    served = mlflow_model("title", k=2)
    served.load_context(SimpleNamespace(artifacts={"model": str(tmp_path / "model")}))
    assert served.predict(None, pandas.DataFrame(ROWS), {"k": 1})["labels"].tolist() == [["shoes"], [], ["hats"]]
