"""The data of comparisons: training and test part, and the files for other tools."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from comparing import fake_entries, settings_of, write_data
from shortlist.cli.train import option_value
from shortlist.compare import compare
from shortlist.compare.peers.run_peer import Data
from shortlist.compare.plan import plan
from shortlist.compare.splits import Splits, write_peer_data
from shortlist.errors import DataError
from shortlist.text import TfIdf, Vocabulary


def test_parts_without_common_labels_are_refused(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "red hat", "labels": ["hat"]}\n')
    (tmp_path / "test.jsonl").write_text('{"text": "red shoe", "labels": ["shoe"]}\n')
    with pytest.raises(DataError, match="occurs in the train part"):
        Splits.read(str(tmp_path), 0)


def test_without_a_test_part_the_split_is_plain(tmp_path):
    rows = [f'{{"text": "text {i}", "labels": ["a", "only {i}"]}}\n' for i in range(50)]
    (tmp_path / "pairs.jsonl").write_text("".join(rows))
    splits = Splits.read(str(tmp_path / "pairs.jsonl"), 0)
    assert (len(splits.train), len(splits.test)) == (40, 10)
    assert splits.overlap.unseen_labels == 10 and splits.train.n_labels == 41
    assert "10 of 11 test labels (90.9 %)" in splits.facts()["notes"][0]


def test_leaks_are_stated_or_dropped(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "red hat", "labels": ["hat"]}\n')
    (tmp_path / "test.jsonl").write_text(
        '{"text": "Red hat!", "labels": ["hat"]}\n{"text": "a hat", "labels": ["hat"]}\n'
    )
    splits = Splits.read(str(tmp_path), 0)
    assert len(splits.test) == 2 and "WARNING, leaks: 1 of 2 test texts" in splits.facts()["notes"][1]
    dropped = Splits.read(str(tmp_path), 0, drop_leaks=True)
    assert list(dropped.test.texts) == ["a hat"] and "They were left out" in dropped.facts()["notes"][1]
    assert dropped.fingerprint() != splits.fingerprint()


@pytest.mark.slow
def test_peers_get_our_words(tmp_path):
    splits = Splits.read(str(write_data(tmp_path / "data")), 0)
    write_peer_data(tmp_path / "peers", splits, ("shuffled",), 5, seed=0)
    data = Data(tmp_path / "peers")
    vocabulary, ids = Vocabulary.build_and_encode(splits.train.texts)
    rows = TfIdf.fit(ids, len(vocabulary)).transform(ids)
    np.testing.assert_allclose(data.rows("train").toarray(), rows.toarray())
    assert data.lines("train")[3] == " ".join(vocabulary.tokenizer.words(splits.train.texts[3]))
    assert data.labels() == [sorted(splits.train.labels.row(i).tolist()) for i in range(len(splits.train))]
    assert [sorted(line.split()) for line in data.lines("test.shuffled")] == [
        sorted(line.split()) for line in data.lines("test")
    ]
    # A single text gets the same row as in bulk.
    vectors = data.vectorizer().transform(data.texts())
    np.testing.assert_allclose(vectors.toarray(), data.rows("test")[:5].toarray(), rtol=1e-5)


def test_peers_get_sorted_labels(tmp_path):

    (tmp_path / "data").mkdir()
    lines = '{"text": "red hat", "labels": ["hat", "red"]}\n{"text": "red red hat", "labels": ["red", "hat"]}\n'
    for part in ("train", "test"):
        (tmp_path / "data" / f"{part}.jsonl").write_text(lines)
    splits = Splits.read(str(tmp_path / "data"), 0)
    assert splits.train.labels.row(1).tolist() == [1, 0]
    write_peer_data(tmp_path / "peers", splits, (), 1, seed=0)
    assert Data(tmp_path / "peers").labels() == [[0, 1], [0, 1]]


@pytest.mark.slow  # starts processes
def test_data_with_features(tmp_path):
    """The repository's sparse files have no texts: entries that need texts are skipped, and nothing is perturbed."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 80), ("test", 20)):
        labels = rng.integers(4, size=count)
        rows = [f"{label} {label}:1.0 {4 + rng.integers(6)}:0.5" for label in labels]
        (tmp_path / f"{part}.txt").write_text(f"{count} 10 4\n" + "\n".join(rows) + "\n")
    entries = plan("centroid", "fasttext", option_value, "dimensions") + fake_entries(tmp_path / "peers", "works")
    entries[1] = replace(entries[1], peer=replace(entries[1].peer, package="numpy"))
    summary = compare(settings_of(tmp_path, tmp_path / "out", entries, robustness=True))
    centroid, fasttext, ablation, *_, works = summary["entries"]
    assert ablation["name"] == "dimensions:original" and ablation["note"] == "it needs texts, but the data has features"
    assert centroid["scores"]["P@1"] == 100 and centroid["ms_p50"] > 0 and centroid["robustness"] == {}
    assert fasttext["status"] == "skipped" and "needs texts" in fasttext["note"]
    assert works["status"] == "done" and summary["words_per_text"] == {}
