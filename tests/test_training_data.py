"""The data set as training sees it: the names of labels as texts, and which of them are words."""

from __future__ import annotations

import pytest

import shortlist
from shortlist.recipes.options import Options
from shortlist.stages.evidence import taught_labels
from shortlist.text import Vocabulary
from shortlist.training.data import COPIES_OF_NAMES, TrainingData, names_of_labels
from shortlist.training.reranking import taught_texts


@pytest.mark.parametrize(
    ("labels", "display_names", "expected"),
    [
        (["gnd:4004927-9", "E11.9", "77"], {}, set()),
        (["red-hat", "blue-hat", "tricorne"], {}, {"red-hat", "blue-hat", "tricorne"}),  # most are words: all are
        (["red-hat", "x1", "x2"], {}, {"red-hat"}),
        (["x1", "x2", "x3"], {"x2": "tricorne"}, {"tricorne"}),  # display names are words
        (["x1", "x2", "x3"], {"x2": "–"}, set()),  # no word at all
        (["red-hat", "x1", "x2"], {"x1": "tricorne", "x2": "bowler"}, {"red-hat", "tricorne", "bowler"}),
    ],
)
def test_names_are_texts_if_they_are_words(labels, display_names, expected):
    data = shortlist.read([("a red hat", [labels[0]]), ("a blue hat", [labels[1]]), ("some other hat", [labels[2]])])
    data.display_names = display_names
    texts, label_ids = names_of_labels(data, Vocabulary.build_and_encode(data.texts)[0])
    assert len(texts) == len(label_ids) == len(expected)
    assert set(texts) == expected
    for text, label_id in zip(texts, label_ids, strict=True):
        assert data.display_name(data.label_names[label_id]) == text


@pytest.fixture
def hats():
    data = shortlist.read([(f"hat number {i}", ["hats" if i % 2 else "caps"]) for i in range(40)])
    data.display_names = {"hats": "tricorne"}
    return data


OPTIONS = Options({"min_count": 1, "label_texts": "always", "validation_fraction": 0.25})


def test_names_extend_the_vocabulary_and_are_never_held_out(hats):
    training_data = TrainingData(hats, OPTIONS)
    assert "tricorne" in training_data.vocabulary.words
    assert len(training_data.held_out_texts) == 10
    assert "tricorne" not in list(training_data.held_out_texts)
    assert list(training_data.texts).count("tricorne") == COPIES_OF_NAMES
    assert len(training_data.texts) == 30 + COPIES_OF_NAMES
    with_reranker = TrainingData(hats, OPTIONS.replace(reranker="words"))
    assert list(with_reranker.texts).count("tricorne") == 1
    assert training_data.label_frequencies.sum() == 30  # of texts, without names
    without = TrainingData(hats, OPTIONS.replace(label_texts="never"))
    assert "tricorne" not in without.vocabulary.words
    assert len(without.texts) == 30
    assert len(without.names) == len(without.named) == len(without.name_ids) == 0


def test_the_re_ranker_takes_names_also_where_they_are_no_texts(hats):
    data = TrainingData(hats, OPTIONS.replace(label_texts="never", reranker="words"))
    assert "tricorne" in data.vocabulary.words
    assert len(data.texts) == 30
    assert list(data.names) == ["tricorne"]
    assert [hats.label_names[label] for label in data.named] == ["hats"]
    assert [data.vocabulary.words[i] for i in data.name_ids.row(0)] == ["tricorne"]
    assert data.name_ids.counts.tolist() == [1]


@pytest.mark.parametrize("misleading", [False, True])
def test_held_out_texts_decide_whether_names_are_texts(misleading):
    """Names are the colours that texts are about, or those of other labels."""
    colours = ["red", "green", "blue", "black"]
    rows = [(f"{colour} thing{i % 5} {'hat' if i % 3 else 'cap'}", [f"x{n}"])
            for i in range(100) for n, colour in enumerate(colours) if n == i % 4]  # fmt: skip
    data = shortlist.read(rows * 10)
    names = colours if not misleading else ["green", "blue", "black", "red"]
    data.display_names = {f"x{n}": f"{name} {name}" for n, name in enumerate(names)}
    options = OPTIONS.replace(label_texts="auto")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shortlist.training.data.COPIES_OF_NAMES", 1000)  # so that they decide
        assert (len(TrainingData(data, options).texts) > 750) is not misleading


def test_words_of_held_out_texts_are_known_if_a_training_text_has_them(hats):
    """The vocabulary has all words, and says nothing of how many words of new texts will be unknown."""
    data = TrainingData(hats, OPTIONS)
    assert data.held_out_known_share().tolist() == pytest.approx([2 / 3] * 10)  # "hat", "number", and a number
    assert data.vocabulary.known_share(data.held_out_texts).tolist() == [1] * 10
    # As in a new text, the number has no id, and takes no weight from the other words.
    assert data.held_out_inputs.counts.tolist() == data.held_out_known_ids.counts.tolist() == [2] * 10
    assert data.held_out_ids.counts.tolist() == [3] * 10  # for what learns from these texts in the end
    assert TrainingData(hats, Options({"validation_fraction": 0.25})).held_out_known_share().tolist() == [1] * 10


def test_a_word_of_its_name_finds_a_label(tmp_path):
    data = shortlist.read([("red hat", ["l1"]), ("blue shoe", ["l2"]), ("green lamp", ["l3"])])
    data.display_names = {"l2": "tricorne", "l3": "lantern"}
    model = shortlist.train(data, recipe="centroid")
    assert model.predict("tricorne")[0].label == "l2"
    assert model.predict("lantern")[0].label == "l3"
    model.save(tmp_path / "model")
    assert shortlist.load(tmp_path / "model").predict("tricorne")[0].label == "l2"
    without = shortlist.train(data, recipe="centroid", label_texts=False)
    assert all(prediction.score == 0 for prediction in without.predict("tricorne"))


def vocabulary_of(data, **options):
    return TrainingData(data, Options({"min_count": 1, "validation_fraction": 0.0, **options})).vocabulary.words


def test_options_of_words():
    data = shortlist.read([("The state-of-the-art hat, don't!", ["a"]), ("a hat and a shoe", ["b"])])
    assert {"state", "of", "art", "hat", "don", "t"} <= set(vocabulary_of(data))
    assert set(vocabulary_of(data, split="whitespace", stop_words="english")) == {
        "stateoftheart",
        "hat",
        "dont",
        "shoe",
    }
    assert vocabulary_of(data, stop_words=["the", "a"], max_vocabulary=1) == ["hat"]


@pytest.mark.parametrize("itself", [True, False])
def test_a_name_is_a_text_unless_texts_like_it_have_other_labels(itself):
    """Terms of an ontology: each is a label and a text, and a text's label is the term itself, or the term above it."""
    terms = ["thing", *(f"thing{i}" for i in range(1, 40))]
    rows = [(f"{term}, the", [term if itself else terms[i // 2]]) for i, term in enumerate(terms)]
    dataset = shortlist.read(rows * 3)
    dataset.display_names = {term: f"the {term}" for term in terms}
    data = TrainingData(dataset, OPTIONS.replace(label_texts="auto"))
    assert data.names_answer is itself
    assert (len(data.texts) > data.n_train) is itself
    hashed = taught_labels(taught_texts(data), ["the thing9"], data.vocabulary.tokenizer)
    assert [dataset.label_names[label] for label in hashed.values] == ["thing9" if itself else "thing4"]
