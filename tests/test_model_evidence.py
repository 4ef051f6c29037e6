"""What a user sees of the re-ranker's evidence: texts that were taught, names of labels, unknown words."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist
from model_files import put_arrays
from shortlist.errors import ModelError
from shortlist.stages.evidence import hashes_of

N_TOPICS = 40
SMALL = {
    "n_epochs": 4,
    "n_surrogate_epochs": 4,
    "embedding_dim": 32,
    "batch_size": 32,
    "threads": 1,
    "validation_fraction": 0.3,
    # So few candidates that names and taught texts must find further ones; and the classifier knows no names.
    "n_reranked": 2,
    "label_texts": False,
}
# Words that tell topic 3, and the label of another topic.
CONTRARY = "Topic3word0: topic3word1, topic3word4 noise1!"
RARE = "tricorne hat"
LETTERS = np.random.default_rng(1).choice(list("abcdefghijklmnopqrstuvwxyz"), (N_TOPICS, 6, 5))
NAMES = {f"l{topic}": " ".join("".join(word) for word in LETTERS[topic]) for topic in range(N_TOPICS)}


def topics():
    """Most texts have words of their topic; some have only words of their label's name, some only new words.

    One in ten has any label.
    """
    rng = np.random.default_rng(0)
    rows = []
    for i, topic in enumerate(rng.integers(N_TOPICS, size=600).tolist()):
        words = [f"noise{j}" for j in rng.integers(50, size=3)]
        kind = rng.choice(["topic", "name", "new"], p=[0.6, 0.25, 0.15])
        if kind == "topic":
            words += [f"topic{topic}word{j}" for j in rng.integers(6, size=2)]
        elif kind == "name":
            words += rng.choice(NAMES[f"l{topic}"].split(), 2).tolist()
        else:
            words += [f"new{i}", f"newer{i}"]
        label = topic if rng.random() < 0.9 else rng.integers(N_TOPICS)
        rows.append((" ".join(rng.permutation(words)), [f"l{label}"]))
    data = shortlist.read([*rows, (CONTRARY, ["l7"]), ("noise2 noise3", ["rare"])])
    data.display_names = {**NAMES, "rare": RARE}
    return data


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("torch")
    return shortlist.train(topics(), "astec", **SMALL)


@pytest.fixture
def folder(model, tmp_path):
    model.save(tmp_path / "model", bits=32)
    return tmp_path / "model"


@pytest.mark.slow
class TestTaughtTexts:
    def test_get_their_own_label_first_in_any_order_and_case(self, model):
        """Whatever the classifier and the words say."""
        same = [CONTRARY, CONTRARY.upper(), "noise1 topic3word4 (topic3word1) topic3word0"]
        other = ["topic3word0 topic3word1 topic3word4", CONTRARY + " topic3word0"]
        classifier_says, _ = model.pipelines[0].first_rank(model.vocabulary.encode(same), 1, 99)
        assert {model.label_names[label] for label in classifier_says.ravel()} == {"l3"}
        assert [best.label for (best,) in model.predict([*same, *other], k=1)] == ["l7"] * 3 + ["l3"] * 2

    def test_held_out_texts_are_taught_too(self, model):
        data = topics()
        hashes, counts = np.unique(hashes_of(data.texts, model.tokenizer), return_counts=True)
        once = np.isin(hashes_of(data.texts, model.tokenizer), hashes[counts == 1])
        assert once.sum() > 500
        assert np.array_equal(model.rank(data.texts, 1)[0].ravel()[once], data.labels.values[once])

    def test_are_not_stored(self, model, folder):
        """Their words are, in the vocabulary, and hashes of them."""
        hashed = taught_hash(model).tobytes()
        stored = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert [name for name, content in stored.items() if hashed in content] == ["reranker.safetensors"]
        for text in topics().texts:
            assert not any(text.encode() in content or text.lower().encode() in content for content in stored.values())


def taught_hash(model):
    return hashes_of([CONTRARY], model.tokenizer)


@pytest.mark.slow
class TestNames:
    def test_a_name_finds_its_label(self, model):
        for label, name in {**NAMES, "rare": RARE}.items():
            for text in (name, name.upper(), " ".join(reversed(name.split()))):
                assert model.predict(text)[0].label == label

    def test_a_text_with_a_name_finds_a_label_that_the_classifier_does_not_propose(self, model):
        """Its only text has other words."""
        text, rare = f"a {RARE}", model.label_names.index("rare")
        proposed, _ = model.pipelines[0].first_rank(model.vocabulary.encode([text]), 10, 99)
        assert rare not in proposed
        (best,) = model.predict(text, k=1)
        assert best.label == "rare"
        assert model.scores([text], np.array([[rare]])) == pytest.approx(best.score, rel=1e-3)

    def test_held_out_texts_decide_what_names_count(self, model):
        """Where each label has the name of the next one, they count for nothing, or against it."""
        assert model.pipelines[0].reranker.mixture.names > 2.5
        data = topics()
        data.display_names = {f"l{topic}": NAMES[f"l{(topic + 1) % N_TOPICS}"] for topic in range(N_TOPICS)}
        usual = {**SMALL, "n_reranked": 100, "label_texts": True}
        mixture = shortlist.train(data, "astec", **usual).pipelines[0].reranker.mixture
        assert mixture.names < 0.2
        assert mixture.same_name < 0.2


@pytest.mark.slow
class TestScores:
    texts = [
        "topic3word1 topic3word2",
        f"topic3word1 {NAMES['l4'][:5]}",
        "a tricorne",
        CONTRARY,
        "new words",
        "",
        "noise1",
    ]

    def test_unknown_words_lower_them(self, model):
        assert model.calibration is not None
        texts = [f"topic{i}word{i % 6} noise{i}" for i in range(N_TOPICS)]
        ids, scores = model.rank(texts, 3)
        lower = model.scores([f"{text} quux zap frob" for text in texts], ids)
        assert (lower <= scores).mean() > 0.9
        assert lower[:, 0].mean() < 0.9 * scores[:, 0].mean()

    def test_calibration_does_not_change_the_order(self, model):
        ids, scores = model.rank(self.texts, 10)
        assert np.array_equal(ids, model.raw_rank(self.texts, 10)[0])
        assert (np.diff(scores, axis=1) <= 0).all()

    def test_given_labels_have_those_of_the_ranking(self, model):
        ids, scores = model.rank(self.texts, 10)
        given = model.scores(self.texts, np.maximum(ids, 0))
        np.testing.assert_allclose(given[ids >= 0], scores[ids >= 0], rtol=1e-3, atol=1e-5)

    def test_saving_changes_nothing_and_8_bits_next_to_nothing(self, model, folder):
        ids, scores = model.rank(self.texts, 10)
        again = shortlist.load(folder).rank(self.texts, 10)
        assert np.array_equal(again[0], ids) and np.array_equal(again[1], scores)
        in_8_bits = model.quantized()
        in_8_bits.save(folder)
        assert shortlist.load(folder).predict(self.texts) == in_8_bits.predict(self.texts)
        assert (in_8_bits.rank(self.texts, 1)[0] == ids[:, :1]).mean() > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("names.labels", lambda a: a + 1),
        ("names.indptr", lambda a: a[::-1]),
        ("names.weights", lambda a: a.astype(np.float32)),
        ("taught.hashes", lambda a: a[::-1]),
        ("taught.indptr", lambda a: a + 1),
        ("taught.labels", lambda a: -a),
        ("frequencies", None),
    ],
)
def test_damaged_evidence_is_refused(folder, name, change):
    put_arrays(folder, "reranker.safetensors", {name: change})
    with pytest.raises(ModelError, match="is damaged; train or fetch it again"):
        shortlist.load(folder)
