"""Several text fields: read, trained on, predicted."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import shortlist
from shortlist.cli import shortlist as command_line
from shortlist.errors import DataError, OptionError
from shortlist.text.fields import TextFields

# What tells the label is whether "smith" is the author or in the title.
ROWS = [{"title": f"the smith book {i}", "author": f"jones w{i}", "labels": ["crafts"]} for i in range(20)]
ROWS += [{"title": f"a novel book {i}", "author": f"Smith w{i}", "labels": ["fiction"]} for i in range(20)]
FIELDS = {"text": ["title", "author"], "field_words": "own"}


def run(*arguments, exit_code=0):
    result = CliRunner().invoke(command_line, list(map(str, arguments)))
    assert result.exit_code == exit_code, result.output
    return result.output


@pytest.fixture(scope="module")
def model():
    return shortlist.train(shortlist.read(ROWS, **FIELDS), recipe="centroid")


def test_fields_are_joined():
    data = shortlist.read(ROWS[:1], text=["title", "author"])
    assert list(data.texts) == ["the smith book 0 jones w0"]
    assert list(shortlist.read(ROWS[:1], **FIELDS).texts) == ["the smith book 0 jones_author w0_author"]
    assert shortlist.read(ROWS[:1], text=["title"]).text_fields is None
    assert list(shortlist.read([(("a", "b"), ["x"]), ({"author": "c"}, ["y"])], **FIELDS).texts) == [
        "a b_author",
        "c_author",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.jsonl", '{"title": "a", "author": "b", "labels": ["x"]}\n{"author": "c", "labels": ["y"]}\n'
                     '{"title": "d", "author": null, "labels": ["x"]}\n'),
        ("in.csv", "title,author,labels\na,b,x\n,c,y\nd,,x\n"),
    ],
)  # fmt: skip
def test_some_fields_may_be_missing(put, name, content):
    data = shortlist.read(put(name, content), text=["title", "author"])
    assert list(data.texts) == ["a b", "c", "d"]


def test_bad_fields(put):
    lines = '{"title": "a", "labels": ["x"]}\n'
    with pytest.raises(DataError, match="no row has a text in the field 'autor'"):
        shortlist.read(put("in.jsonl", lines), text=["title", "autor"])
    with pytest.raises(DataError, match=r"line 1: there is no field 'name'.*expected the fields 'name', 'author'"):
        shortlist.read(put("in.jsonl", lines), text=["name", "author"])
    with pytest.raises(DataError, match="there is no column 'autor'"):
        shortlist.read(put("in.csv", "title,author,labels\na,b,x\n"), text=["title", "autor"])
    with pytest.raises(DataError, match="'author' is a number"):
        shortlist.read([{"title": "a", "author": 3, "labels": ["x"]}], text=["title", "author"])
    with pytest.raises(OptionError, match="names a field twice"):
        shortlist.read(ROWS, text=["title", "title"])
    with pytest.raises(OptionError, match="field_words is 'mine'"):
        shortlist.read(ROWS, text=["title", "author"], field_words="mine")
    with pytest.raises(OptionError, match="fasttext has one text per line"):
        shortlist.read(put("in.fasttext", "__label__x a\n"), text=["title", "author"])


def test_own_words_tell_fields_apart(model):
    assert model.predict({"title": "smith"})[0].label == "crafts"
    assert model.predict({"author": "Smith"})[0].label == "fiction"
    assert "smith_author" in model.vocabulary.words and "smith" in model.vocabulary.words
    shared = shortlist.train(shortlist.read(ROWS, text=["title", "author"]), recipe="centroid")
    assert shared.predict({"title": "smith"}) == shared.predict({"author": "Smith"})


def test_predictions_take_dicts_tuples_and_texts(model):
    fields = {"title": "a novel", "author": "jones"}
    expected = model.predict(fields)
    assert model.predict([fields, ("a novel", "jones"), "a novel jones_author"]) == [expected] * 3
    assert model.predict([("a novel", None)]) == [model.predict("a novel")]


def test_a_model_learns_on_from_the_same_fields(model):
    more = [{"title": "a smith", "author": "Miller", "labels": ["biography"]}]
    changed = model.update(more * 5)  # read with the model's fields
    assert changed.text_fields == model.text_fields and "biography" in changed.label_names
    with pytest.raises(OptionError, match="this model was trained on the text fields title, author"):
        model.update(shortlist.read(more, text=["title", "author"]))
    with pytest.raises(OptionError, match="trained on the text fields"):
        model.choose_threshold(shortlist.read(more, text=["title", "author"]), precision=0.5)


def test_unknown_fields_are_refused(model):
    with pytest.raises(OptionError, match="there is no text field 'autor'; the fields are title, author"):
        model.predict({"autor": "smith"})
    with pytest.raises(OptionError, match="there are 3 fields; expected 2"):
        model.predict([("a", "b", "c")])
    with pytest.raises(OptionError, match="the text field 'title' is of type int"):
        model.predict({"title": 3})
    plain = shortlist.train([("a", ["x"]), ("b", ["y"])], recipe="centroid")
    with pytest.raises(OptionError, match="this model was trained on one text field"):
        plain.predict({"title": "a"})
    with pytest.raises(OptionError, match=r"read from the fields title, author, with shared words.*with own words"):
        model.predict_dataset(shortlist.read(ROWS, text=["title", "author"]))


def test_a_model_remembers_its_fields(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = shortlist.load(tmp_path / "model")
    assert loaded.text_fields == model.text_fields and loaded.card["text_fields"] == ["title", "author"]
    assert loaded.predict({"author": "Smith"})[0].label == "fiction"


def test_models_without_fields_are_written_as_ever(tmp_path):
    shortlist.train([("a", ["x"]), ("b", ["y"])], recipe="centroid").save(tmp_path / "model")
    assert "text_fields" not in json.loads((tmp_path / "model" / "config.json").read_text())
    assert shortlist.load(tmp_path / "model").text_fields is None


def test_command_line(tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "in.jsonl").write_text(lines)
    fields = ("--text", "title", "--text", "author", "--field-words", "own")
    run("train", tmp_path / "in.jsonl", *fields, "--out", tmp_path / "model")
    run("predict", tmp_path / "model", tmp_path / "in.jsonl", "-k", 1, "--out", tmp_path / "out.jsonl")
    found = [json.loads(line)["labels"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found == [row["labels"] for row in ROWS]
    values = json.loads(run("evaluate", tmp_path / "model", tmp_path / "in.jsonl", "--json"))["values"]
    assert values["P@1"] == 100
    wrong = ("--text", "title", "--text", "autor")
    output = run("predict", tmp_path / "model", tmp_path / "in.jsonl", *wrong, exit_code=2)
    assert "this model was trained on the text fields title, author" in output


def test_tables(model):
    pyarrow = pytest.importorskip("pyarrow")
    from shortlist.batch.arrow import predict_arrow

    table = pyarrow.table({"title": ["smith", None, None], "author": [None, "Smith", None]})
    assert predict_arrow(model, table, k=1)["labels"].to_pylist() == [["crafts"], ["fiction"], []]


def test_http(model, tmp_path):
    pytest.importorskip("starlette")
    from serving import InProcess

    model.save(tmp_path / "model")
    server = InProcess(tmp_path / "model").ready()
    try:
        answer = server.predict(fields=[{"title": "smith"}, {"author": "Smith", "title": None}], k=1)
        assert [row[0]["label"] for row in answer.json()["predictions"]] == ["crafts", "fiction"]
        refused = server.predict(fields=[{"autor": "smith"}])
        assert refused.status_code == 422 and "no text field 'autor'" in refused.json()["detail"]
        assert server.predict(fields=[{"title": "a"}], text="a").status_code == 422
    finally:
        server.close()


def test_limits_of_a_server_count_fields_once_and_before_they_are_joined(tmp_path, monkeypatch):
    """Fields that have weights are longer when joined, and joining a megabyte takes 0.1 s."""
    from serving import InProcess
    from shortlist.serving.limits import Limits

    shortlist.train(shortlist.read(ROWS, text={"title": 9, "author": 1}), "centroid").save(tmp_path / "model")
    server = InProcess(tmp_path / "model", limits=Limits(max_words=4, max_texts=3)).ready()
    try:
        assert server.predict(fields=[{"title": "a b c", "author": "d"}]).status_code == 200
        monkeypatch.setattr(TextFields, "join", lambda *_: pytest.fail("joined"))
        for rows, says in (([{"title": "a b c", "author": "d e"}], "has 5 words"), ([{"title": "a"}] * 4, "4 texts")):
            refused = server.predict(fields=rows)
            assert refused.status_code == 422 and says in refused.json()["detail"]
    finally:
        server.close()


def test_weights_repeat_fields():
    rows = [{"title": "red", "author": "Jo", "labels": ["a"]}]
    assert list(shortlist.read(rows, text={"title": 2, "author": 1}).texts) == ["red red Jo"]
    own = shortlist.read(rows, text={"title": 1, "author": 3}, field_words="own")
    assert list(own.texts) == ["red Jo_author Jo_author Jo_author"]
    same = shortlist.read(rows, text={"title": 1, "author": 1})
    assert same.text_fields == shortlist.read(rows, text=["title", "author"]).text_fields


def test_weights_decide_between_fields_and_are_remembered(tmp_path):
    query = {"title": "smith", "author": "Smith"}
    for weights, label in (({"title": 9, "author": 1}, "crafts"), ({"title": 1, "author": 9}, "fiction")):
        model = shortlist.train(shortlist.read(ROWS, text=weights, field_words="own"), recipe="centroid")
        assert model.predict(query)[0].label == label
        model.save(tmp_path / label)
        loaded = shortlist.load(tmp_path / label)
        assert loaded.predict(query) == model.predict(query)
        assert loaded.reading == {"text": weights, "field_words": "own"}
        loaded.update(ROWS)  # read with the same weights
    with pytest.raises(OptionError, match=r"the text fields title, author \(weight 9\)"):
        model.predict_dataset(shortlist.read(ROWS, **FIELDS))


@pytest.mark.parametrize("weight", [0, -1, 11, 1.5, True, "2", None])
def test_bad_weights_of_fields(weight):
    with pytest.raises(OptionError, match=r"the weight of the text field 'title' is .*whole number from 1 to 10"):
        shortlist.read(ROWS, text={"title": weight, "author": 1})


def test_a_single_field_has_no_weight():
    with pytest.raises(OptionError, match="expected the names of several fields"):
        shortlist.read(ROWS, text={"title": 2})


def test_weights_of_fields_on_the_command_line(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    fields = ("--text", "title", "--text", "author", "--field-words", "own")
    for field, label in (("title", "crafts"), ("author", "fiction")):
        model = tmp_path / field
        train = ("train", tmp_path / "in.jsonl", *fields, "--recipe", "centroid", "--out", model)
        run(*train, "--field-weight", field, 9)
        (tmp_path / "new.jsonl").write_text('{"title": "smith", "author": "Smith"}\n')
        run("predict", model, tmp_path / "new.jsonl", "-k", 1, "--out", tmp_path / f"{field}.jsonl")
        assert json.loads((tmp_path / f"{field}.jsonl").read_text())["labels"] == [label]
    output = run(*train[:-1], tmp_path / "m", "--field-weight", "autor", 2, exit_code=2)
    assert "'autor' is no text field" in output and "title, author" in output
    twice = run(*train[:-1], tmp_path / "m", "--field-weight", "title", 2, "--field-weight", "title", 3, exit_code=2)
    assert "two weights" in twice
    assert "whole number from 1 to 10" in run(*train[:-1], tmp_path / "m", "--field-weight", "title", 0, exit_code=2)
    assert not (tmp_path / "m").exists()
