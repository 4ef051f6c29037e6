"""Nothing that is written or logged contains a training text, unless it was asked for (docs/reliability.md)."""

from __future__ import annotations

import json
import logging

import pytest

import shortlist
from shortlist.errors import DataError
from shortlist.report import model_report

N_TEXTS = 120
# Words of a text may be stored, as the vocabulary, but not which words came together.
FIRST = ["amber", "birch", "cedar", "denim", "ember"]
SECOND = ["lamp", "desk", "chair", "shelf"]


def secret(i: int) -> str:
    return f"{FIRST[i % 5]} {SECOND[i % 4]} for secret{i % 30} person"


@pytest.fixture(scope="module")
def data():
    return shortlist.read([(secret(i), [SECOND[i % 4], FIRST[i % 5]]) for i in range(N_TEXTS)])


def texts_in(content: str) -> list[str]:
    found = [secret(i) for i in range(N_TEXTS)]
    return [text for text in found if text in content or text.replace(" ", "\n") in content]


def content_of(folder) -> str:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return "\n".join(path.read_bytes().decode("latin-1") for path in files)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["centroid", "astec"])
def test_models_logs_and_checkpoints(data, recipe, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    options = (
        {} if recipe == "centroid" else {"n_epochs": 2, "checkpoint_dir": str(tmp_path / "c"), "checkpoint_minutes": 0}
    )
    model = shortlist.train(data, recipe=recipe, **options)
    model.save(tmp_path / "model")
    assert texts_in(content_of(tmp_path / "model")) == []
    assert texts_in(caplog.text) == []
    if (tmp_path / "c").exists():
        assert texts_in(content_of(tmp_path / "c")) == []


@pytest.mark.slow
def test_examples_are_stored_if_asked_for(data, tmp_path):
    shortlist.train(data, recipe="mach", n_epochs=1, store_examples=True).save(tmp_path / "model")
    assert len(texts_in(content_of(tmp_path / "model"))) >= 1


@pytest.mark.slow
def test_training_texts_are_stored_if_asked_for(data, tmp_path):
    shortlist.train(data, recipe="astec", n_epochs=1, embedding_dim=8, keep_texts=5).save(tmp_path / "model")
    assert len(texts_in((tmp_path / "model" / "texts.jsonl").read_text())) >= 1


def test_reports_show_test_texts_and_no_training_texts(data, tmp_path):
    test = shortlist.read([(f"an ordinary {SECOND[i % 4]} {i}", [SECOND[i % 4]]) for i in range(20)])
    model = shortlist.train(data, recipe="centroid")
    model_report(model, test, train=data).write(tmp_path / "report.html", tmp_path / "report.md")
    assert texts_in((tmp_path / "report.md").read_text() + (tmp_path / "report.html").read_text()) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"text": ["TEXT"], "labels": 5}'),
        ("a.jsonl", '{"text": "TEXT", "labels": ["a"}'),
        ("a.jsonl", '{"TEXT": "TEXT"}'),
        ("a.csv", "text,labels\nTEXT,with,commas"),
        ("a.csv", 'text,labels\n"TEXT'),
        ("a.csv", "TEXT\n1\n"),
        ("a.tsv", "TEXT\tTEXT\n"),
        ("a.txt", "1 1 1\nTEXT"),
    ],
)
def test_error_messages_contain_little_of_a_text(name, content, tmp_path):
    text = " ".join(f"word{i:04}" for i in range(40))
    (tmp_path / name).write_text(content.replace("TEXT", text) + "\n")
    with pytest.raises(DataError) as caught:
        shortlist.read(tmp_path / name)
    assert not any(text[i : i + 61] in str(caught.value) for i in range(len(text) - 60))


def test_the_server_logs_no_texts(data, tmp_path):
    from serving import InProcess

    shortlist.train(data, recipe="centroid").save(tmp_path / "model")
    server = InProcess(tmp_path / "model").ready()
    assert server.predict(texts=[secret(3)]).status_code == 200
    assert server.predict(texts=[secret(3)], k=-1).status_code == 422
    logged = json.dumps(server.logged())
    server.close()
    assert texts_in(logged) == []
