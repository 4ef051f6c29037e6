"""What stands beside the labels: how far is searched, what scores mean, which words moved them, card and storage."""

from __future__ import annotations

import json
import logging
import mmap
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.test_models import put_file

import shortlist
from shortlist.arrays import Ragged
from shortlist.encoders.given_runtime import GivenRuntime
from shortlist.errors import ModelError, OptionError
from shortlist.heads.runtime import HeadRuntime
from shortlist.model import base
from shortlist.model.calibration import Calibration
from shortlist.model.deepxml import Blend, Pipeline
from shortlist.model.deepxml_recipes import SliceModel
from shortlist.model.folder import Strings, mapped_arrays, open_model
from shortlist.shortlisters.cells import CellIndex
from shortlist.shortlisters.centres import unit
from shortlist.shortlisters.merged import MergedShortlister
from shortlist.text import Vocabulary

N_LABELS, N_FEATURES = 3000, 64


def made_by_hand(seed=0):
    """A model over features whose labels stand at points in groups; the row of a label is its point."""
    rng = np.random.default_rng(seed)
    middles = rng.standard_normal((60, N_FEATURES))
    points = unit(np.repeat(middles, N_LABELS // 60, axis=0) + rng.standard_normal((N_LABELS, N_FEATURES))).astype("f4")
    arrays = {
        "encoder.scale": np.ones(N_FEATURES, np.float32),
        "extreme.weights": 10 * points,
        "extreme.biases": np.full(N_LABELS, -8, np.float32),
    }
    nothing = Ragged(np.zeros(1, np.int64), np.zeros(0, np.int32))
    owner = np.arange(N_LABELS, dtype=np.int32)
    shortlister = MergedShortlister(CellIndex.build(points), owner, None, nothing, 0, 0.0, N_LABELS)
    head = HeadRuntime({"weights": arrays["extreme.weights"], "biases": arrays["extreme.biases"]}, N_LABELS, N_FEATURES)
    pipeline = Pipeline(GivenRuntime({"scale": arrays["encoder.scale"]}), shortlister, head, 50)
    names = [f"label {i}" for i in range(N_LABELS)]
    options = {"max_words": 32, "neighbours": 0, "share": 0.0, "shortlist": 50}
    of_texts = {"vocabulary": Vocabulary([], np.zeros(0)), "records": []}
    model = SliceModel(pipeline, arrays, **of_texts, label_names=names, display_names={}, options=options)
    queries = unit(points[rng.integers(N_LABELS, size=100)] + unit(rng.standard_normal((100, N_FEATURES)))).astype("f4")
    return model, queries


@pytest.fixture(scope="module")
def by_hand():
    return made_by_hand()


def colours(n_texts=400, seed=0):
    """One word says it all."""
    rng = np.random.default_rng(seed)
    names = ["rot", "grün", "blau", "gelb"]
    chosen = [names[i] for i in rng.integers(4, size=n_texts)]
    return shortlist.read(
        [(f"ding{rng.integers(9)} {name} zeug{rng.integers(9)}", [f"code {name}"]) for name in chosen]
    )


@pytest.fixture
def centroid():
    return shortlist.train(colours(), recipe="centroid")


class TestEffort:
    def test_more_of_it_searches_more_cells(self, by_hand):
        model, queries = by_hand
        seen = []
        shortlister = model.pipeline.shortlister
        for searched, search_effort, expected in ((8, 1, 8), (8, 2, 16), (8, 0.5, 4), (8, 0.01, 1), (None, 1, None)):
            model._searched = searched
            ids, _ = model.rank(queries, 50, search_effort=search_effort)
            n_cells = expected or len(shortlister.centres.cells) // 2
            found = shortlister.centres.search(queries, 50, n_cells)[0]
            assert np.array_equal(np.sort(ids, axis=1), np.sort(found, axis=1))
            seen.append((ids >= 0).sum())
        assert seen[3] < seen[2] <= seen[0] <= seen[1]
        model._searched = None

    def test_a_little_is_enough_for_the_best_label(self, by_hand):
        model, queries = by_hand
        everything = model.rank(queries, 1, search_effort=100)[0]
        assert (model.rank(queries, 1)[0] == everything).mean() >= 0.97
        assert (model.rank(queries, 1, search_effort=1e-9)[0] == everything).mean() < 1

    @pytest.mark.parametrize(
        "classifier",
        [1.0, 0.0, -0.5],
    )
    @pytest.mark.filterwarnings("ignore:invalid value")
    def test_places_without_a_candidate_come_last_whatever_the_blend(self, by_hand, monkeypatch, classifier):
        """One cell holds fewer candidates than are asked for; a blend is learnt, and may come out at any sign."""
        model, queries = by_hand
        monkeypatch.setattr(model, "_searched", 1)
        monkeypatch.setattr(model.pipeline, "blend", Blend(classifier, 1.0, 0.0, 0.0))
        ids, scores = model.rank(queries, 50)
        assert (ids == -1).any()
        assert (ids[:, 0] >= 0).all()
        assert (np.diff((ids >= 0).astype(int), axis=1) <= 0).all()
        assert not scores[ids < 0].any()

    def test_is_kept_with_the_model(self, by_hand, tmp_path):
        model, queries = by_hand
        model.searched = 3
        model.save(tmp_path / "model", bits=32)
        again = shortlist.load(tmp_path / "model")
        assert again.searched == 3
        assert np.array_equal(again.rank(queries, 20)[0], model.rank(queries, 20)[0])
        model._searched = None

    @pytest.mark.parametrize("wrong", [0, -1, "8", 2.5, None, [3]])
    def test_a_senseless_number_of_cells_in_a_config_is_refused(self, by_hand, tmp_path, wrong):
        by_hand[0].save(tmp_path / "model")
        config = json.loads((tmp_path / "model" / "config.json").read_text())
        config["extra"]["searched"] = wrong
        (tmp_path / "model" / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match="cells are to be searched"):
            shortlist.load(tmp_path / "model")


class TestBits:
    def test_rows_in_8_bits_take_a_quarter(self, by_hand, tmp_path):
        model, queries = by_hand
        for bits in (8, 32):
            model.save(tmp_path / str(bits), bits=bits)
        small, large = (shortlist.load(tmp_path / str(bits)) for bits in (8, 32))
        assert (
            small.pipeline.head.rows.values.dtype == small.pipeline.shortlister.centres.vectors.values.dtype == np.int8
        )
        assert large.pipeline.head.rows.values.dtype == np.float32
        sizes = [sum(path.stat().st_size for path in (tmp_path / name).iterdir()) for name in ("8", "32")]
        assert 0.22 < sizes[0] / sizes[1] < 0.35
        for one, two in zip(large.rank(queries, 5), model.rank(queries, 5), strict=True):
            assert np.array_equal(one, two)
        ids, scores = small.rank(queries, 1)
        assert (ids == model.rank(queries, 1)[0]).mean() >= 0.97
        np.testing.assert_allclose(scores, model.rank(queries, 1)[1], atol=0.03)

    @pytest.mark.parametrize("bits", [4, 16, "8", None, 8.5])
    def test_others_are_refused_and_nothing_is_written(self, centroid, tmp_path, bits):
        with pytest.raises(OptionError, match="it can be 8 or 32"):
            centroid.save(tmp_path / "model", bits=bits)
        assert not list(tmp_path.iterdir())

    def test_what_is_in_8_bits_stays_so(self, by_hand, tmp_path):
        model, queries = by_hand
        model.save(tmp_path / "8")
        small = shortlist.load(tmp_path / "8")
        small.save(tmp_path / "again", bits=32)
        again = shortlist.load(tmp_path / "again")
        assert again.pipeline.head.rows.values.dtype == np.int8
        assert np.array_equal(again.rank(queries, 5)[1], small.rank(queries, 5)[1])
        assert again.card["storage"]["bits"] == 8

    def test_the_card_says_how_it_is_stored_now(self, by_hand, tmp_path):
        by_hand[0].save(tmp_path / "32", bits=32)
        shortlist.load(tmp_path / "32").save(tmp_path / "8", bits=8)
        again = shortlist.load(tmp_path / "8")
        assert again.pipeline.head.rows.values.dtype == np.int8
        assert again.card["storage"]["bits"] == 8

    def test_what_8_bits_cost_is_measured_on_held_out_texts(self, by_hand, tmp_path, caplog, monkeypatch):
        model, queries = by_hand
        right = model.rank(queries, 1)[0].ravel()
        monkeypatch.setattr(model, "held_out", (queries, Ragged(np.arange(101), right.astype(np.int32))))
        monkeypatch.setattr(type(model), "warm_up", lambda self: None)
        model.save(tmp_path / "32", bits=32)
        storage = shortlist.load(tmp_path / "32").card["storage"]
        assert storage == {"bits": 32, "P@1_as_learnt": 100.0, "P@1_as_stored": 100.0, "held_out_texts": 100}
        model.save(tmp_path / "8")
        found = (shortlist.load(tmp_path / "8").rank(queries, 1)[0].ravel() == right).mean()
        assert shortlist.load(tmp_path / "8").card["storage"]["P@1_as_stored"] == pytest.approx(100 * found)
        # A loss that matters is said aloud.
        monkeypatch.setattr(base, "LARGEST_LOSS", -1.0)
        with caplog.at_level(logging.WARNING, "shortlist"):
            model.save(tmp_path / "8")
        assert any("bits=32 keeps them" in line for line in caplog.messages)

    def test_a_model_over_features_with_held_out_rows_can_be_saved(self, by_hand, tmp_path, monkeypatch):
        model, queries = by_hand
        monkeypatch.setattr(model, "held_out", (queries, Ragged(np.arange(101), np.zeros(100, np.int32))))
        model.save(tmp_path / "model")

    def test_features_are_predicted_and_not_explained(self, by_hand):
        model, queries = by_hand
        assert model.predict(queries[:2], explain=True) == model.predict(queries[:2])


class TestMapped:
    def test_arrays_stay_in_the_file(self, by_hand, tmp_path):
        by_hand[0].save(tmp_path / "model")
        model = shortlist.load(tmp_path / "model")
        pipeline = model.pipeline
        for array in (
            pipeline.head.rows.values,
            pipeline.shortlister.centres.vectors.values,
            pipeline.shortlister.owner,
        ):
            assert not array.flags.writeable
            assert isinstance(root_of(array), mmap.mmap)

    def test_word_rows_too(self, tmp_path):
        shortlist.train(colours(60), recipe="centroid").save(tmp_path / "model")
        arrays = open_model(tmp_path / "model").arrays("arrays.safetensors")
        assert all(isinstance(root_of(array), mmap.mmap) for array in arrays.values())

    def test_are_what_safetensors_reads(self, by_hand, tmp_path):
        by_hand[0].save(tmp_path / "model")
        path = tmp_path / "model" / "arrays.safetensors"
        found, expected = mapped_arrays(path), load_file(path)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert found[name].dtype == array.dtype
            assert np.array_equal(found[name], array)
            assert found[name].flags.aligned

    def test_a_model_goes_on_when_its_folder_is_replaced_or_removed(self, by_hand, tmp_path):
        model, queries = by_hand
        model.save(tmp_path / "model")
        loaded = shortlist.load(tmp_path / "model")
        expected = loaded.rank(queries, 5)
        loaded.save(tmp_path / "model")  # over itself
        assert all(np.array_equal(a, b) for a, b in zip(loaded.rank(queries, 5), expected, strict=True))
        shutil.rmtree(tmp_path / "model")
        assert all(np.array_equal(a, b) for a, b in zip(loaded.rank(queries, 5), expected, strict=True))

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\x08",
            b"\xff" * 64,
            (2).to_bytes(8, "little") + b"[]",
            (1 << 40).to_bytes(8, "little") + b"{}",
            (60).to_bytes(8, "little") + b'{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}      ' + b"\0" * 4,
            (60).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}      ' + b"\0" * 4,
        ],
        ids=["empty", "short", "nonsense", "no object", "long header", "strange type", "strange shape"],
    )
    def test_files_that_make_no_sense_are_refused(self, tmp_path, content):
        shortlist.train(colours(60), recipe="centroid").save(tmp_path / "model")
        put_file(tmp_path / "model", "arrays.safetensors", content)
        with pytest.raises(ModelError):
            shortlist.load(tmp_path / "model")


def root_of(array):
    """What a view of a view … was made of at first."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


LINES = ["a", "", "tab\there", "line\nbreak", "back\\slash", "back\\nslash", "ü" * 3, "\r", "\u2028", "😀"]


class TestStrings:
    @staticmethod
    def content(lines):
        return "".join(
            f"{line.replace(chr(92), chr(92) * 2).replace(chr(10), chr(92) + 'n')}\n" for line in lines
        ).encode()

    @pytest.mark.parametrize("lines", [LINES, ["only"], [""], []], ids=["many", "one", "an empty one", "none"])
    def test_are_the_lines_one_by_one_and_together(self, lines):
        strings = Strings(self.content(lines))
        assert len(strings) == len(lines)
        assert list(strings) == lines
        assert [strings[i] for i in range(len(lines))] == lines
        assert strings[1:3] == lines[1:3]
        assert strings[::-1] == lines[::-1]
        with pytest.raises(IndexError):
            strings[len(lines)]

    @pytest.mark.parametrize(
        "lines",
        [LINES, ["only"]],
    )
    def test_are_counted_from_the_end_as_a_list_is(self, lines):
        strings = Strings(self.content(lines))
        assert [strings[-i] for i in range(1, len(lines) + 1)] == lines[::-1]

    def test_labels_and_display_names_of_a_loaded_model(self, tmp_path):
        data = colours(60)
        data.display_names = {"code rot": "red\nand back\\slash"}
        model = shortlist.train(data, recipe="centroid")
        model.save(tmp_path / "model")
        again = shortlist.load(tmp_path / "model")
        assert again.label_names == model.label_names
        assert again.display_names == model.display_names
        assert (again.n_labels, repr(again)) == (4, "CentroidModel(4 labels)")
        assert again.predict("rot", k=1)[0].name == "red\nand back\\slash"
        assert again.predict("blau", k=1)[0].name == "code blau"
        assert len(again.vocabulary) == len(model.vocabulary)

    @pytest.mark.parametrize("name", ["labels.txt", "display_names.txt"])
    @pytest.mark.parametrize("content", [b"\xff\n" * 4, b"a\n", b"a\nb\nc\nd", b""], ids=str)
    def test_strange_files_of_labels_are_refused(self, tmp_path, name, content):
        data = colours(60)
        data.display_names = {"code rot": "red"}
        shortlist.train(data, recipe="popular").save(tmp_path / "model")
        put_file(tmp_path / "model", name, content)
        if (name, content) == ("display_names.txt", b""):  # as good as none
            assert shortlist.load(tmp_path / "model").display_names == {}
            return
        with pytest.raises(ModelError, match="is damaged"):
            shortlist.load(tmp_path / "model")


class TestCalibrated:
    CURVE = Calibration("curve", [0.0, 0.5, 1.0], [0.1, 0.2, 0.3])

    def test_scores_are_those_of_the_curve_and_survive_in_the_folder(self, centroid, tmp_path):
        centroid.calibration = None
        texts = list(colours(20, seed=1).texts)
        ids, before = centroid.rank(texts)
        centroid.calibration = self.CURVE
        after = centroid.rank(texts)
        assert np.array_equal(after[0], ids)
        np.testing.assert_allclose(after[1], self.CURVE.apply(before))
        assert centroid.scores(texts, np.maximum(ids, 0))[ids >= 0] == pytest.approx(after[1][ids >= 0])
        centroid.save(tmp_path / "model")
        again = shortlist.load(tmp_path / "model")
        assert again.calibration == self.CURVE
        assert again.predict(texts) == centroid.predict(texts)

    def test_least_scores_are_of_calibrated_scores(self, centroid):
        centroid.calibration = self.CURVE
        assert centroid.predict("rot", min_score=0.35) == []
        assert len(centroid.predict("rot", min_score=0.1)) >= 1

    @pytest.mark.parametrize(
        "damage",
        [
            None,
            3,
            {},
            {"method": "x"},
            {"method": "x", "scores": [0, 1], "probabilities": [1, 0]},
            {"method": "x", "scores": [0, 1], "probabilities": [0, 2]},
            {"method": "x", "scores": [0, 1], "probabilities": [0]},
            {"method": "x", "scores": ["a"], "probabilities": [0]},
            {"method": "x", "scores": {"a": 1}, "probabilities": [0]},
            {"method": "x", "scores": None, "probabilities": None},
            {"method": "x", "scores": [0, 1], "probabilities": [0, 1], "more": 1},
            {"method": "x", "scores": [0, 10**400], "probabilities": [0, 1]},
        ],
        ids=lambda damage: f"{damage!s:.60}",
    )
    def test_a_damaged_curve_is_refused(self, centroid, tmp_path, damage):
        centroid.calibration = self.CURVE
        centroid.save(tmp_path / "model")
        config = json.loads((tmp_path / "model" / "config.json").read_text())
        config["extra"]["calibration"] = damage
        (tmp_path / "model" / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match="damaged"):
            shortlist.load(tmp_path / "model")


class TestExplained:
    def test_the_word_that_decides_moves_the_score_most(self, centroid):
        centroid.calibration = None
        for text, word in (("ding1 rot zeug2", "rot"), ("grün", "grün"), ("—ding3, GRÜN!", "GRÜN")):
            best = centroid.predict(text, k=1, explain=True)[0]
            assert best.label == f"code {word.lower()}"
            share = max(best.words, key=lambda share: share.moved)
            assert text[share.start : share.end] == word
            assert share.moved > 0

    def test_a_flat_calibration_does_not_silence_the_words(self, centroid):
        centroid.calibration = Calibration("isotonic", [0.0, 0.05, 1.0], [0.0, 0.9, 0.9])
        (prediction,) = centroid.predict("ding1 rot zeug2", k=1, explain=True)
        moved = {("ding1 rot zeug2")[share.start : share.end]: share.moved for share in prediction.words}
        assert moved["rot"] > moved["ding1"]
        assert moved["ding1"] != 0

    def test_texts_without_known_words_and_without_words(self, centroid):
        assert centroid.predict(["", "  ", "unheard of"], explain=True) == [[], [], []]
        assert centroid.predict([], explain=True) == []

    def test_of_a_long_text_the_first_words_are_explained(self, centroid):
        text = " ".join(["rot", *(f"ding{i % 9}" for i in range(200))])
        (prediction,) = centroid.predict(text, k=1, explain=True)
        assert len(prediction.words) == base.MOST_EXPLAINED
        assert prediction.words[0][:2] == (0, 3)

    def test_with_a_least_score_only_what_is_left_is_explained(self, centroid):
        centroid.calibration = None
        everything = centroid.predict("ding1 rot zeug2", k=4, explain=True)
        least = everything[1].score
        assert centroid.predict("ding1 rot zeug2", k=4, min_score=least, explain=True) == everything[:2]

    def test_shares_are_those_of_the_text_without_the_word(self, centroid):
        centroid.calibration = None
        text = "ding1 rot zeug2"
        (prediction,) = centroid.predict(text, k=1, explain=True)
        label = centroid.label_names.index(prediction.label)
        for start, end, moved in prediction.words:
            both = centroid.scores([text, text[:start] + text[end:]], np.full((2, 1), label)).ravel().astype(float)
            odds = np.log(both / (1 - both))
            assert moved == pytest.approx(odds[0] - odds[1], abs=1e-3)


SMALL = {"epochs": 4, "surrogate_epochs": 4, "dimensions": 32, "batch_size": 32, "dropout": 0.2, "threads": 1}


@pytest.fixture(scope="module")
def trained():
    """Astec with more cells than one, and held-out pairs enough for a calibration."""
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    rows = []
    for topic in rng.integers(60, size=900).tolist():
        right = topic if rng.random() < 0.7 else int(rng.integers(60))
        rows.append((f"t{topic}w{rng.integers(4)} n{rng.integers(30)}", [f"label {right}"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shortlist.shortlisters.cells.FEW", 16)
        return shortlist.train(shortlist.read(rows), "astec", validation=0.2, **SMALL)


@pytest.mark.slow
class TestTrained:
    def test_card_says_what_validation_showed(self, trained):
        card = trained.card
        assert card["data"] == {"texts": 900, "labels": 60, "pairs": 900, "held_out_texts": len(trained.held_out[1])}
        assert {"P@1", "P@3", "P@5", "N@5", "PSP@1"} <= set(card["scores"])
        assert 50 < card["scores"]["P@1"] <= 100
        assert 1 <= len(card["examples"]) <= 8
        assert set(card["examples"]) <= set(trained.held_out[0])
        assert card["n_words"] == len(trained.vocabulary)
        assert json.loads(json.dumps(card)) == card

    def test_search_goes_as_far_as_it_has_to(self, trained):
        search_effort = trained.card["search_effort"]
        assert search_effort["of"] == trained.most_searched > 1
        assert search_effort["searched"] == trained.searched <= search_effort["of"]
        curve = search_effort["curve"]
        assert curve[0]["searched"] == search_effort["of"]
        assert [after["searched"] for after in curve[1:]] == [int(0.7 * before["searched"]) for before in curve[:-1]]
        chosen = next(point for point in curve if point["searched"] == search_effort["searched"])
        assert chosen["P@1"] >= curve[0]["P@1"] - search_effort["allowed_loss"] - 0.01

    def test_scores_mean_what_they_say(self, trained):
        facts = trained.card["calibration"]
        assert set(facts["errors"]) == {"none", "logistic", "isotonic"}
        method = "none" if trained.calibration is None else trained.calibration.method
        assert facts["method"] == method
        assert facts["errors"][method] == min(facts["errors"].values())
        assert sum(row["labels"] for row in facts["table"]) > 200
        assert all(row["from"] <= row["mean_score"] <= row["to"] for row in facts["table"])

    def test_private_texts_do_not_stand_in_the_card(self, tmp_path):
        pytest.importorskip("torch")
        model = shortlist.train(colours(), "astec", validation=0.2, examples=False, **SMALL)
        assert "examples" not in model.card
        model.save(tmp_path / "model")
        assert "zeug" not in (tmp_path / "model" / "card.json").read_text()
        assert "data" in shortlist.load(tmp_path / "model").card

    def test_without_anything_held_out_it_says_little(self, tmp_path):
        pytest.importorskip("torch")
        model = shortlist.train(colours(100), "astec", validation=0.0, **SMALL)
        assert model.calibration is None
        assert set(model.facts) == {"data"}
        model.save(tmp_path / "model")
        assert shortlist.load(tmp_path / "model").card["storage"] == {"bits": 8}

    def test_stored_and_loaded_it_says_the_same(self, trained, tmp_path):
        trained.save(tmp_path / "model")
        again = shortlist.load(tmp_path / "model")
        assert (again.calibration, again.searched) == (trained.calibration, trained.searched)
        for name, value in trained.card.items():
            assert again.card[name] == value
        storage = again.card["storage"]
        assert set(storage) == {"bits", "P@1_as_learnt", "P@1_as_stored", "held_out_texts"}
        assert abs(storage["P@1_as_learnt"] - storage["P@1_as_stored"]) < 3
        for name in ("arrays", "word_rows"):
            arrays = open_model(tmp_path / "model").arrays(f"{name}.safetensors")
            assert all(isinstance(root_of(array), mmap.mmap) for array in arrays.values() if array.size)

    def test_more_effort_searches_more_cells(self, trained, monkeypatch):
        asked = []
        search = CellIndex.search
        monkeypatch.setattr(
            CellIndex,
            "search",
            lambda self, q, k, n, *more, **named: asked.append(n) or search(self, q, k, n, *more, **named),
        )
        for search_effort in (1, 2, 0.5):
            trained.predict("t3w1", search_effort=search_effort)
        assert asked == [trained.searched, 2 * trained.searched, max(1, round(trained.searched / 2))]

    def test_after_a_warm_up_nothing_has_changed(self, trained):
        texts = list(trained.held_out[0][:10])
        before = trained.predict(texts)
        trained.warm_up()
        assert trained.predict(texts) == before


@pytest.fixture(scope="module")
def ensemble():
    pytest.importorskip("torch")
    return shortlist.train(colours(), "astec", ensemble=2, validation=0.2, **SMALL)


@pytest.mark.slow
class TestEnsemble:
    def test_explains(self, ensemble):
        text = "ding1 grün zeug2"
        best = ensemble.predict(text, k=1, explain=True)[0]
        assert best.label == "code grün"
        share = max(best.words, key=lambda share: share.moved)
        assert (text[share.start : share.end], share.moved > 0) == ("grün", True)

    def test_least_score_and_effort(self, ensemble):
        assert ensemble.predict("ding1 grün", min_score=1) in ([], ensemble.predict("ding1 grün", k=1))
        assert ensemble.predict("ding1 grün", k=1, search_effort=2)[0].label == "code grün"
        with pytest.raises(OptionError, match="search_effort"):
            ensemble.predict("x", search_effort=0)

    def test_its_members_are_calibrated_and_its_card_knows_the_data(self, ensemble, tmp_path):
        alone = shortlist.train(colours(), "astec", validation=0.2, **SMALL)
        assert ensemble.card["data"] == alone.card["data"]
        assert ensemble.members[0].calibration == alone.calibration
        ensemble.save(tmp_path / "model")
        assert shortlist.load(tmp_path / "model").card["data"] == alone.card["data"]
