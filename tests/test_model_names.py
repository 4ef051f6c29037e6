"""Names of labels as texts: which are words, and what is learnt from them."""

from __future__ import annotations

import pytest
from shortlist.model.names import TIMES, LabelTexts
from shortlist.model.options import TextOptions
from shortlist.model.prepared import Prepared

import shortlist
from shortlist.text import Vocabulary


def names_of(rows, display_names=None):
    data = shortlist.read(rows)
    data.display_names = display_names or {}
    found = LabelTexts.of(data, Vocabulary.build_and_encode(data.texts)[0])
    assert len(found.texts) == len(found.labels)
    named = {(data.label_names[found.labels.row(i)[0]], found.texts[i]) for i in range(len(found))}
    assert len(found) == TIMES * len(named)
    return named


@pytest.mark.parametrize(
    "labels, display_names, wanted",
    [
        (["gnd:4004927-9", "E11.9", "77"], {}, set()),
        (["red-hat", "blue-hat", "tricorne"], {}, {"red-hat", "blue-hat", "tricorne"}),  # most are words: all are
        (["red-hat", "x1", "x2"], {}, {"red-hat"}),
        (["x1", "x2", "x3"], {"x2": "tricorne"}, {"tricorne"}),  # given beside the label
        (["x1", "x2", "x3"], {"x2": "–"}, set()),  # no word at all
        (["red-hat", "x1", "x2"], {"x1": "tricorne", "x2": "bowler"}, {"red-hat", "tricorne", "bowler"}),
    ],
)
def test_names_are_learnt_from_if_they_are_words(labels, display_names, wanted):
    rows = [("a red hat", [labels[0]]), ("a blue hat", [labels[1]]), ("some other hat", [labels[2]])]
    found = names_of(rows, display_names)
    assert {name for _, name in found} == wanted
    assert all(display_names.get(label, label) == name for label, name in found)


def test_words_of_names_are_known_and_names_are_never_held_out():
    rows = [(f"hat number {i}", ["hats" if i % 2 else "caps"]) for i in range(40)]
    data = shortlist.read(rows)
    data.display_names = {"hats": "tricorne"}
    prepared = Prepared(data, TextOptions(validation=0.25))
    assert "tricorne" in prepared.vocabulary.words
    assert len(prepared.validation_texts) == 10 and "tricorne" not in list(prepared.validation_texts)
    assert list(prepared.texts).count("tricorne") == TIMES and len(prepared.texts) == 30 + TIMES
    assert prepared.train_frequencies.sum() == 30  # what is counted are texts
    without = Prepared(data, TextOptions(validation=0.25, label_texts=False))
    assert "tricorne" not in without.vocabulary.words and len(without.texts) == 30


def test_a_label_is_found_by_a_word_of_its_name_alone(tmp_path):
    data = shortlist.read([("red hat", ["l1"]), ("blue shoe", ["l2"]), ("green lamp", ["l3"])])
    data.display_names = {"l2": "tricorne", "l3": "lantern"}
    model = shortlist.train(data, recipe="centroid")
    assert model.predict("tricorne")[0].label == "l2" and model.predict("lantern")[0].label == "l3"
    model.save(tmp_path / "model")
    assert shortlist.load(tmp_path / "model").predict("tricorne")[0].label == "l2"
    without = shortlist.train(data, recipe="centroid", label_texts=False)
    assert all(prediction.score == 0 for prediction in without.predict("tricorne"))
