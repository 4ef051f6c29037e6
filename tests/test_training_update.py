"""Models that learn on: labels of new texts change, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist
from shortlist.arrays import Ragged
from shortlist.cli import shortlist as command_line
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.model.kept_texts import kept_after, kept_texts, texts_to_keep
from shortlist.stages.evidence import forget, remember_texts, taught_labels
from shortlist.stages.replacing import centres_of, words_of
from shortlist.text import Tokenizer
from shortlist.training.update import label_counts
from shortlist.training.word_weights import learn_word_weights
from test_training_word_weights import random_problem
from tiny_models import colours, model_over_features

THINGS = ["asthma", "cough", "fever", "fracture", "wrist", "ankle", "burn", "rash"]


def codes(n_texts=240, seed=0):
    """Texts about one thing each."""
    rng = np.random.default_rng(seed)
    words = [f"{THINGS[i % 8]} w{rng.integers(9)} w{rng.integers(9)} sneezing" for i in range(n_texts)]
    return shortlist.read([(text, [f"J4{i % 8}"]) for i, text in enumerate(words)])


@pytest.fixture(scope="module")
def centroid():
    return shortlist.train(codes(), recipe="centroid")


@pytest.fixture(scope="module")
def astec():
    return shortlist.train(codes(), recipe="astec", embedding_dim=16, n_epochs=3, n_surrogate_epochs=2)


NEW = [("zebra w2 sneezing cough", ["Z1"]), ("w3 zebra w5 cough w7", ["Z1"]), ("hay w1 pollen", ["J40"])]


@pytest.mark.parametrize("bits", [8, 32])
def test_only_labels_of_new_texts_change(bits):
    model, queries = model_over_features()
    model = model.quantized() if bits == 8 else model
    data = shortlist.read([("", ["label 7"]), ("", ["label 7"]), ("", ["label 2999"])]).with_features(queries[:3])
    before = model.scores(queries[:3], np.array([[7], [7], [2999]]))
    changed = model.update(data)
    assert (changed.scores(queries[:3], np.array([[7], [7], [2999]])) > before).all()
    others = np.setdiff1d(np.arange(3000), [7, 2999])
    old, new = (m.pipelines[0].classifier.arrays() for m in (model, changed))
    for name in old:  # with scales in 8 bits
        assert np.array_equal(old[name][others], new[name][others])
        assert not np.array_equal(old[name][[7, 2999]], new[name][[7, 2999]])
    old, new = (m.pipelines[0].candidates for m in (model, changed))
    assert np.array_equal(centres_of(old, others), centres_of(new, others))
    assert (np.einsum("ij,ij->i", centres_of(new, np.array([7, 2999])), centres_of(old, np.array([7, 2999]))) < 1).all()
    ids, _ = changed.rank(centres_of(new, np.arange(3000)), 1, search_effort=1e6)
    assert (ids[:, 0] == np.arange(3000))[others].mean() > 0.99  # every centre is found where it is


@pytest.mark.slow
def test_words_of_other_labels_stay(astec, tmp_path):
    astec.save(tmp_path / "model")
    model = shortlist.load(tmp_path / "model")
    changed = model.update(NEW)
    old, new = (m.pipelines[0].reranker for m in (model, changed))
    others = np.arange(1, 8)
    assert all(words_by_name(model, label) == words_by_name(changed, label) for label in model.label_names[1:])
    assert words_by_name(model, "J40") != words_by_name(changed, "J40")
    for name in ("scales", "biases", "frequencies"):
        assert np.array_equal(old.arrays()[name][others], new.arrays()[name][others])
    assert new.arrays()["frequencies"][0] > old.arrays()["frequencies"][0]
    assert new.arrays()["weights"].dtype == np.int8
    changed.save(tmp_path / "changed", bits=32)
    again = shortlist.load(tmp_path / "changed")  # which checks all arrays
    assert again.predict("fever w1") == changed.predict("fever w1")
    assert "| updates | 1, with 3 texts |" in (tmp_path / "changed" / "README.md").read_text()
    assert again.card["updates"] == [{"texts": 3, "pairs": 3, "new_labels": 1}]


@pytest.mark.parametrize("kind", ["centroid", pytest.param("astec", marks=pytest.mark.slow)])
def test_what_is_new_is_learnt(kind, request):
    model = request.getfixturevalue(kind)
    changed = model.update(NEW)
    assert changed.label_names == [*model.label_names, "Z1"]
    assert changed.predict("cough zebra w5 w7 w3")[0].label == "Z1"
    for number, thing in enumerate(THINGS):  # and it does not get in the way
        assert changed.predict(f"{thing} w1 w2 sneezing")[0].label == f"J4{number}"
    assert changed.update(NEW).n_labels == 9 and len(changed.update(NEW).facts["updates"]) == 2
    assert model.n_labels == 8 and "updates" not in model.facts
    assert label_counts(changed).tolist() == [31, *[30] * 7, 2]


def test_centroids_are_running_means():
    first, second = codes(80), codes(80, seed=1)
    model = shortlist.train(first, recipe="centroid").update(second)
    whole = shortlist.train(shortlist.read([*pairs(first), *pairs(second)]), recipe="centroid")
    texts = [f"{thing} w1 w2" for thing in THINGS]
    assert np.allclose(model.raw_rank(texts, 3)[1], whole.raw_rank(texts, 3)[1], atol=0.05)


def pairs(data):
    return [(data.texts[i], data.labels_of(i)) for i in range(len(data))]


@pytest.mark.slow
def test_wrong_labels_are_told_and_forgotten(astec):
    text = codes().texts[0]
    before = astec.predict(text)[0]
    assert before.label == "J40"
    changed = astec.update([(text, {"J40": 0, "J41": 1})])
    assert changed.predict(text)[0].label == "J41"
    assert next(p.score for p in changed.predict(text, k=9) if p.label == "J40") < before.score
    only_wrong = astec.update([(text, {"J40": 0})])
    assert only_wrong.predict(text)[0].score < before.score
    assert only_wrong.n_labels == 8


def test_labels_of_a_text_are_forgotten():
    tokenizer, texts = Tokenizer(), ["red shoes", "blue hat"]
    taught = remember_texts(texts, Ragged.from_lists([[0, 1], [1]]), tokenizer)
    taught = forget(taught, ["shoes red"], Ragged.from_lists([[1]]), tokenizer)
    known = taught_labels(taught, texts, tokenizer)
    assert known.row(0).tolist() == [0] and known.row(1).tolist() == [1]


def test_only_what_must_be_added_is_learnt():
    features, labels, _ = random_problem(0, 40, 30, 8, 1)
    every = np.tile(np.arange(8, dtype=np.int32), (40, 1))
    plain = learn_word_weights(features, labels, 8, every)
    same = learn_word_weights(features, labels, 8, every, before=np.zeros(every.shape, np.float32))
    assert all(np.array_equal(plain[name], same[name]) for name in plain)
    is_right = labels.to_csr(8).toarray() > 0
    settled = np.where(is_right, 1.5, -1.5).astype(np.float32)
    settled[3, 5] = -1.5 if not is_right[3, 5] else 1.5
    assert not len(learn_word_weights(features, labels, 8, every, before=settled)["weights"])
    settled[:, 2] *= -1  # one label is wrong everywhere
    learnt = learn_word_weights(features, labels, 8, every, before=settled)
    assert set(np.flatnonzero(np.diff(learnt["starts"]))) == {2}


@pytest.mark.slow
def test_new_words_are_learnt(astec, tmp_path):
    text = "zebra w2 sneezing cough"
    assert not {"zebra", "hay", "pollen"} & {*astec.vocabulary.words}
    changed = astec.update(NEW)
    assert [*changed.vocabulary.words][: len(astec.vocabulary)] == [*astec.vocabulary.words]
    assert {*changed.vocabulary.words} - {*astec.vocabulary.words} == {"zebra", "hay", "pollen", "z1"}
    assert changed.vocabulary.n_learnt == len(astec.vocabulary)
    assert changed.known_share(["pollen sneezing unheard"])[0] == pytest.approx(2 / 3)
    learnt, known = words_by_name(changed, "Z1"), words_by_name(changed, "J41")
    assert learnt["zebra"] > 0.1 and "zebr" not in known and not known.get("zebra")
    for number, model in enumerate([changed, changed.quantized(), changed.update(NEW[:1])]):
        model.save(tmp_path / f"{number}")
        again = shortlist.load(tmp_path / f"{number}")
        assert again.vocabulary.n_learnt == len(astec.vocabulary)
        assert again.predict(text, k=9) == model.quantized().predict(text, k=9)
    features = [m.pipelines[0].encoder.encode(m.pipelines[0]._read([text])[2]) for m in (astec, changed)]
    assert np.array_equal(*features)  # the encoder goes on without them


def words_by_name(model, label):
    """The weights that the re-ranker has for a label, by word or part of a word."""
    reranker = model.pipelines[0].reranker
    names = [*reranker.features.words.words, *reranker.subwords.words]
    row = words_of(reranker, np.array([model.labels.ids[label]]))
    return dict(zip((names[i] for i in row.indices), row.data.tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"max_vocabulary": 12}, {"subwords": "3-4", "min_count": 2}])
def test_the_vocabulary_keeps_to_its_limits(options):
    model = shortlist.train(codes(), recipe="astec", embedding_dim=16, n_epochs=2, n_surrogate_epochs=1, **options)
    changed = model.update(NEW)
    assert [*changed.vocabulary.words] == [*model.vocabulary.words]
    assert changed.predict("zebra w2 sneezing cough")[0].label == "Z1"


@pytest.mark.slow
def test_old_texts_hold_new_labels_back(astec):
    new = [(f"sneezing w{i % 9} zebra", ["Z1"]) for i in range(20)]
    texts, ids = [f"{thing} w1 w2 sneezing" for thing in THINGS], np.full((8, 1), 8)
    alone, beside = astec.update(new), astec.update(new, replay=codes(seed=1))
    assert beside.scores(texts, ids).mean() < alone.scores(texts, ids).mean()
    assert beside.predict("zebra w4")[0].label == "Z1"
    named = astec.add_labels(["Z1"])  # known by name only: as if it were new
    assert (
        named.update(new, replay=codes(seed=1)).scores(texts, ids).mean() < named.update(new).scores(texts, ids).mean()
    )
    others, before = np.arange(8), astec.pipelines[0].reranker.arrays()["biases"]
    assert np.array_equal(beside.pipelines[0].reranker.arrays()["biases"][others], before)


@pytest.mark.slow
def test_kept_texts_hold_new_labels_back(tmp_path):
    options = {"recipe": "astec", "embedding_dim": 16, "n_epochs": 3, "n_surrogate_epochs": 2, "keep_texts": 100}
    model = shortlist.train(codes(), **options)
    assert model.card["kept_texts"] == 100 and model.kept_texts == shortlist.train(codes(), **options).kept_texts
    model.save(tmp_path / "model")
    assert "| stores | 100 of these texts, with their labels" in (tmp_path / "model" / "README.md").read_text()
    model = shortlist.load(tmp_path / "model")
    kept = kept_texts(model)
    assert set(pairs_of(kept)) <= set(pairs_of(codes())) and len(set(kept.texts)) > 50
    new = [(f"sneezing w{i % 9} zebra", {"Z1": 1, "J40": 0}) for i in range(20)]
    texts, ids = [f"{thing} w1 w2 sneezing" for thing in THINGS], np.full((8, 1), 8)
    changed = model.update(new)
    same = model.update(new, replay=kept)
    assert np.array_equal(changed.scores(texts, ids), same.scores(texts, ids))
    model.kept_texts = b""
    assert changed.scores(texts, ids).mean() < model.update(new).scores(texts, ids).mean()
    kept = kept_texts(changed)
    assert (len(kept), sum("zebra" in text for text in kept.texts)) == (100, 8)  # 20 of 260 texts are new
    assert {label for text, label in pairs_of(kept) if "zebra" in text} == {"Z1"}
    without = changed.remove_labels(["Z1"])  # a later label of this name must not learn from them
    assert kept_texts(without).texts == [text for text in kept.texts if "zebra" not in text]
    assert kept_texts(changed).texts == kept.texts
    for damaged in (b'{"text": 5}', b'{"more": ' + b"[" * 10_000):
        model.kept_texts = damaged
        with pytest.raises(ModelError, match="texts that the model stores are damaged"):
            model.update(new)


@pytest.mark.parametrize(("n_stored", "n_new"), [(100, 50), (99, 50), (20, 80), (0, 99)])
def test_stored_texts_are_old_and_new_ones_by_their_shares(centroid, n_stored, n_new):
    """Also where there is room left: 99 texts are old and 99 are new."""
    model = centroid.update(NEW)  # a copy
    model.options = {**model.options, "keep_texts": 100}
    model.kept_texts = texts_to_keep(codes(n_stored), 100, 0)
    new = shortlist.read([(f"zebra {i}", {"Z1": 1, "J40": 0}) for i in range(99)])
    model.kept_texts = kept_after(model, new, 99, 0)
    kept = [labels for text, labels in pairs_of(kept_texts(model)) if "zebra" in text]
    assert kept == ["Z1"] * n_new
    assert len(kept_texts(model)) == min(100, n_stored + 99)


def test_wrong_labels_are_not_stored():
    data = shortlist.read([("zebra", {"Z1": 1, "J40": 0})])
    assert texts_to_keep(data, 5, 0) == b'{"text":"zebra","labels":["Z1"]}\n'


def pairs_of(data):
    return [(text, label) for i, text in enumerate(data.texts) for label in data.labels_of(i)]


def test_replay_without_new_labels_is_said_to_be_of_no_use(centroid, caplog):
    with caplog.at_level("WARNING", "shortlist"):
        centroid.update(NEW[2:], replay=codes())
    assert "it is not used" in caplog.text


@pytest.mark.slow
def test_calibration_and_threshold_follow(astec):
    model = astec.update(NEW)  # a copy
    model.choose_threshold(codes(seed=1), precision=0.5)
    rng = np.random.default_rng(0)
    noise = [(f"{THINGS[i % 8]} w{i % 9} w{i % 7}", [f"J4{rng.integers(8)}"]) for i in range(1500)]
    changed = model.update(noise)
    about = changed.facts["updates"][-1]
    assert about["held_out_texts"] == 300 and about["calibration"] == "refreshed" and "P@1_before" in about
    # The labels are random now: one in eight is right, and scores say so.
    assert changed.predict("cough w1 w9", min_score=0)[0].score < 0.5 < model.predict("cough w1 w9")[0].score
    assert about["threshold"] == "kept"  # a precision of 0.5 cannot be reached any more
    assert model.update(noise[:100]).facts["updates"][-1] == {"texts": 100, "pairs": 100, "new_labels": 0}


def test_what_cannot_be_learnt_is_refused(centroid):
    with pytest.raises(DataError, match="nothing to learn from: the new data has no text with a label"):
        centroid.update([("a", [])])
    with pytest.raises(DataError, match="nothing to learn from: replay"):
        centroid.update(NEW, replay=[("a", [])])
    with pytest.raises(OptionError, match="'prior', which cannot be updated"):
        shortlist.train(codes(), recipe="popular").update(NEW)
    model, queries = model_over_features()
    with pytest.raises(DataError, match="trained on dense features, and the new data has texts"):
        model.update(NEW)
    with pytest.raises(DataError, match="trained on texts, and the new data has dense features"):
        centroid.update(colours(3).with_features(queries[:3]))
    with pytest.raises(DataError, match=r"'code .*'\. New labels are added by name"):
        model.update(colours(3).with_features(queries[:3]))
    with pytest.raises(OptionError, match="64"):
        model.update(shortlist.read([("", ["label 7"])]).with_features(queries[:1, :5]))


def test_update_on_the_command_line(centroid, tmp_path):
    centroid.save(tmp_path / "model")
    new = tmp_path / "new.jsonl"
    new.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in NEW))
    run = CliRunner().invoke(command_line, ["update", f"{tmp_path}/model", str(new), "--out", f"{tmp_path}/next"])
    assert run.exit_code == 0 and "1 new labels, 9 in all" in run.stderr and "stay as they are" in run.stderr
    assert shortlist.load(tmp_path / "next").predict("w3 w5 cough w7")[0].label == "Z1"
    for content in ("", "nonsense\n", '{"text": "a", "labels": []}\n'):
        new.write_text(content)
        run = CliRunner().invoke(command_line, ["update", f"{tmp_path}/model", str(new), "--out", f"{tmp_path}/no"])
        assert run.exit_code == 2 and "shortlist: " in run.stderr and not (tmp_path / "no").exists()
