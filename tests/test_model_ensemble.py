"""Ensembles: the mean of their members' scores, and one folder for all of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model_files import change_config
from tests.training_processes import OPTIONS, files_of, noisy_topics

import shortlist
from shortlist.errors import ModelError
from shortlist.model.ensemble import best_of_means

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def data():
    return noisy_topics(300, seed=1)


@pytest.fixture(scope="module")
def ensemble(data):
    return shortlist.train(data, "astec", ensemble=3, **OPTIONS)


@pytest.fixture(scope="module")
def saved(ensemble, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble") / "model"
    ensemble.save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(saved, tmp_path / "model")


def slow_means(rankings, k):
    """The slow twin of `best_of_means`, for one text."""
    sums = {}
    for ids, scores in rankings:
        for label, score in zip(ids, scores, strict=True):
            if label >= 0:
                sums[label] = sums.get(label, 0.0) + float(score)
    means = {label: np.float32(total / len(rankings)) for label, total in sums.items()}
    return sorted(means.items(), key=lambda item: (-item[1], item[0]))[:k]


@st.composite
def rankings_of_texts(draw):
    n_texts, widths = draw(st.integers(0, 3)), draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    n_labels = draw(st.integers(5, 12))
    members = []
    for width in widths:
        ids = np.array([rng.permutation(n_labels)[:width] for _ in range(n_texts)], np.int32).reshape(n_texts, width)
        scores = (rng.integers(4, size=ids.shape) / 4).astype(np.float32)  # many of them equal
        members.append((np.where(rng.random(ids.shape) < 0.2, -1, ids).astype(np.int32), scores))
    return members


class TestMeans:
    @given(rankings_of_texts(), st.integers(1, 8))
    def test_equal_their_slow_twin(self, members, k):
        ids, scores = (np.concatenate(parts, axis=1) for parts in zip(*members, strict=True))
        best, means = best_of_means(ids, scores, len(members), k)
        assert best.shape == means.shape == (len(ids), min(k, ids.shape[1]))
        for row in range(len(ids)):
            expected = slow_means([(ids[row], scores[row]) for ids, scores in members], k)
            present = best[row] >= 0
            assert list(zip(best[row][present].tolist(), means[row][present], strict=True)) == expected
            assert not present[len(expected) :].any()

    @pytest.mark.slow
    def test_of_real_members(self, ensemble, data):
        texts = data.texts[:30]
        ids, scores = ensemble.raw_rank(texts, 5)
        ranked = [pipeline.rank(texts, 50) for pipeline in ensemble.pipelines]
        for row in range(len(texts)):
            expected = slow_means([(ids[row], scores[row]) for ids, scores in ranked], 5)
            assert list(zip(ids[row].tolist(), scores[row], strict=True)) == expected

    @pytest.mark.slow
    def test_of_more_texts_than_one_block(self, ensemble, data, monkeypatch):
        before = ensemble.rank(data.texts, 5)
        monkeypatch.setattr("shortlist.stages.pipeline.TEXTS_PER_BLOCK", 7)
        after = ensemble.rank(data.texts, 5)
        np.testing.assert_array_equal(before[0], after[0])
        np.testing.assert_allclose(before[1], after[1], rtol=1e-5)  # products of other shapes round differently


@pytest.mark.slow
class TestModel:
    def test_its_members_are_plain_models_with_consecutive_seeds(self, ensemble, data):
        texts = data.texts[:20]
        for number, pipeline in enumerate(ensemble.pipelines):
            alone = shortlist.train(data, "astec", **{**OPTIONS, "seed": 5 + number})
            for found, expected in zip(pipeline.rank(texts, 5), alone.raw_rank(texts, 5), strict=True):
                assert np.array_equal(found, expected)
        first, second = (pipeline.rank(texts, 5)[1] for pipeline in ensemble.pipelines[:2])
        assert not np.array_equal(first, second)

    def test_says_what_it_is(self, ensemble):
        assert (ensemble.recipe, ensemble.title) == ("astec", "astec × 3")
        assert repr(ensemble) == "Model(astec × 3, 24 labels)"
        assert ensemble.card["options"]["ensemble"] == 3

    def test_its_options_train_it_again(self, ensemble, saved, data, tmp_path):
        shortlist.train(data, ensemble.recipe, **ensemble.options, threads=1).save(tmp_path / "again")
        assert files_of(tmp_path / "again") == files_of(saved)

    def test_is_at_least_as_good_as_its_worst_member(self, ensemble):
        test = noisy_topics(3000, seed=2)
        alone = [
            shortlist.evaluate(pipeline.rank(test.texts, 5)[0], test.labels, k=(1,))["P@1"]
            for pipeline in ensemble.pipelines
        ]
        assert shortlist.evaluate(ensemble.rank(test.texts, 5)[0], test.labels, k=(1,))["P@1"] >= min(alone)

    def test_save_and_load_change_nothing(self, ensemble, data, tmp_path):
        ensemble.save(tmp_path / "as learnt", bits=32)
        again, texts = shortlist.load(tmp_path / "as learnt"), list(data.texts[:50])
        assert again.predict(texts) == ensemble.predict(texts)
        assert (again.title, again.options) == (ensemble.title, ensemble.options)
        assert "the third topic" in {p.name for row in again.predict(texts, k=24) for p in row}

    def test_empty_texts_and_large_k(self, ensemble):
        assert ensemble.predict([]) == []
        assert isinstance(ensemble.predict(""), list)
        assert 1 <= len(ensemble.predict("t3w1", k=10_000)) <= 24

    def test_explains(self, ensemble):
        best = ensemble.predict("t3w1 n7", k=1, explain=True)[0]
        assert [("t3w1 n7"[word.start : word.end]) for word in best.words] == ["t3w1", "n7"]

    def test_costs_as_much_as_its_members(self, ensemble, data):
        texts = data.texts[:10]
        costs = [pipeline.multiply_adds(texts) for pipeline in ensemble.pipelines]
        assert ensemble.multiply_adds(texts) == sum(costs) > 0

    def test_predicts_without_torch(self, saved):
        code = "import sys; sys.modules['torch'] = None; import shortlist; shortlist.load(sys.argv[1]).predict('t3w1')"
        done = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_one_member_is_the_plain_model(self, data, tmp_path):
        shortlist.train(data, "astec", **OPTIONS).save(tmp_path / "plain")
        shortlist.train(data, "astec", ensemble=1, parallel=4, **OPTIONS).save(tmp_path / "one")
        assert files_of(tmp_path / "one") == files_of(tmp_path / "plain")


@pytest.mark.slow
class TestFolder:
    def test_has_the_files_of_each_member_and_the_labels_once(self, saved):
        names = {path.name for path in saved.iterdir()}
        shared = {"config.json", "card.json", "labels.txt", "display_names.txt", "metrics.jsonl", "README.md"}
        of_members = {name for name in names if name[:2] in ("0.", "1.", "2.")}
        assert shared <= names <= shared | of_members | {"calibration.safetensors", "tail.safetensors"}
        members = [{name[2:] for name in names if name.startswith(f"{i}.")} for i in range(3)]
        assert members[0] == members[1] == members[2] >= {"vocabulary.txt", "encoder.safetensors"}
        assert json.loads((saved / "config.json").read_text())["recipe"] == "astec"

    def test_damage_to_a_member_is_noticed(self, folder):
        path = folder / "1.classifier.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"1\.classifier\.safetensors is not the file that was saved"):
            shortlist.load(folder)
        path.unlink()
        with pytest.raises(ModelError, match=r"1\.classifier\.safetensors is missing"):
            shortlist.load(folder)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda config: config["files"].pop("2.classifier.safetensors"), r"array '.*' is missing"),
            (lambda config: config["files"].pop("2.vocabulary.txt"), r"no file 2\.vocabulary\.txt"),
            (lambda config: config["members"].clear(), "damaged.*it has no stages"),
            (lambda config: config["members"][1].clear(), "damaged.*'encoder'"),
            (
                lambda config: config["members"][1][1].update(kind="magic"),
                "model: its encoder 'magic' is not known",
            ),
            (lambda config: config["members"][1][3].update(kind="magic"), "damaged.*'magic'"),
            (lambda config: config["members"][1][1]["config"].clear(), "damaged.*max_words is None"),
        ],
        ids=["arrays", "vocabulary", "members", "stages", "encoder", "classifier", "max_words"],
    )
    def test_a_wrong_config_is_refused(self, folder, change, message):
        change_config(folder, change)
        with pytest.raises(ModelError, match=message):
            shortlist.load(folder)

    def test_a_changed_config_is_noticed(self, folder):
        config = json.loads((folder / "config.json").read_text())
        config["options"]["ensemble"] = 2
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match=r"config\.json is not the file that was saved"):
            shortlist.load(folder)

    def test_replaces_a_single_model_and_the_other_way_round(self, ensemble, folder):
        shortlist.train([("blue hat", ["hats"])], recipe="popular").save(folder)
        assert "1.classifier.safetensors" not in files_of(folder)
        ensemble.save(folder)
        assert "classifier.safetensors" not in files_of(folder)
