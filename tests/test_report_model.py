"""Reports on one model, from measuring to the command line."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist
from reports import NASTY, checked, rows
from shortlist.cli import shortlist as command
from shortlist.data.dataset import Dataset
from shortlist.report.measure import BadLabel, measure_model
from tiny_models import colours


@pytest.fixture(scope="module")
def parts():
    return shortlist.read(rows(6)), shortlist.read(rows(2))


@pytest.fixture(scope="module")
def centroid(parts):
    return shortlist.train(parts[0], recipe="centroid")


class TestOneModel:
    def test_numbers_are_those_of_evaluate(self, parts, centroid):
        train, test = parts
        found = measure_model(centroid, test, train, name="tiny")
        wanted = shortlist.evaluate(centroid.predict_dataset(test), test, train=train)
        assert found.entry.scores == wanted.values
        html = shortlist.model_report(centroid, test, train, name="tiny").to_html()
        text = checked(html).text
        assert f"{wanted['P@1']:.1f} %" in text and f"{wanted['PSP@5']:.2f}" in text
        assert "Report on tiny" in text and "Which words decide?" in text

    def test_thresholds_are_those_of_the_ranking(self):
        model, test = shortlist.train(colours(), recipe="centroid"), colours(300, seed=1)
        assert measure_model(model, test).threshold is None
        table = model.choose_threshold(test, coverage=0.5)
        found = measure_model(model, test)
        assert found.threshold.answered == table.chosen.answered and found.threshold.right == table.chosen.right
        assert [row.min_score for row in found.thresholds if row not in table.rows] == []
        page = shortlist.model_report(model, test)
        text = checked(page.to_html()).text
        assert "What does a minimum score cost?" in text and "stored in the model" in text
        assert f"{100 * table.chosen.right.value:.1f}" in page.to_markdown()
        assert found.examples["correct"] and all(one["predictions"] for one in found.examples["correct"])

    def test_same_seed_gives_the_same_examples_and_mistakes(self, parts, centroid):
        train, test = parts
        one, again, other = (measure_model(centroid, test, train, seed=seed) for seed in (1, 1, 2))
        assert (one.examples, one.confident_mistakes) == (again.examples, again.confident_mistakes)
        assert one.entry.robustness == again.entry.robustness
        assert one.examples != other.examples

    def test_states_leaks_and_can_drop_them(self, parts, centroid):
        train = parts[0]
        new = [(f"{text} again", parts[1].labels_of(row)) for row, text in enumerate(parts[1].texts)]
        test, leaky = shortlist.read(new), shortlist.read([*new, (train.texts[0].upper(), train.labels_of(0))])
        found = measure_model(centroid, leaky, train)
        assert f"WARNING, leaks: 1 of {len(leaky)} test texts" in " ".join(found.overlap_notes)
        page = shortlist.model_report(centroid, leaky, train).to_markdown()
        assert "WARNING, leaks" in page and "| at most |" in page
        dropped = measure_model(centroid, leaky, train, drop_leaks=True)
        assert (
            dropped.n_texts == len(test) and dropped.entry.scores == measure_model(centroid, test, train).entry.scores
        )
        assert "They were left out." in dropped.overlap_notes[1]
        assert "not known" in measure_model(centroid, leaky).overlap_notes[0]

    def test_finds_mistakes_and_bad_labels(self):
        data = [("red shoes", ["shoes"]), ("red shoes sale", ["shoes"]), ("blue hat", ["hats"])] * 4
        model = shortlist.train(data, recipe="centroid")
        test = shortlist.read([("blue hat", ["shoes"])] * 6 + [("red shoes", ["shoes"]), ("blue hat", ["caps"])])
        found = measure_model(model, test)
        assert found.confident_mistakes[0].predicted == "hats" and found.confident_mistakes[0].labels == "shoes"
        assert found.overpredicted_labels == [BadLabel("hats", None, total=7, n_counted=7, percentage="100 %")]
        assert found.missed_labels[0][:3] == ("shoes", None, 7)
        popular = shortlist.train(data, recipe="popular")
        assert measure_model(popular, test).entry.scores["P@1"] == pytest.approx(100 * 7 / 8)

    def test_confusions_count_pairs_of_labels(self):
        many = [(f"word{i} text", [f"label{i}"]) for i in range(9)]
        model = shortlist.train(many * 3, recipe="centroid")
        test = shortlist.read([("word1 word2 word3 word4 word5", ["label8"])] * 3)
        (confusion,) = measure_model(model, test).confusions
        assert confusion.label == "label8" and confusion.texts == 3

    def test_filter_pairs_are_neither_correct_nor_wrong(self):
        model = shortlist.train([("red shoes", ["shoes"]), ("blue hat", ["hats"])] * 4, recipe="centroid")
        test = shortlist.read([("red shoes", ["hats"]), ("blue hat", ["hats"])])
        shoes = shortlist.read([("red shoes", ["hats", "shoes"]), ("blue hat", ["hats"])])
        shoes.labels = test.labels
        shoes.filter_pairs = np.array([[0, shoes.label_index["shoes"]]])
        assert measure_model(model, test).confident_mistakes
        assert measure_model(model, shoes).confident_mistakes == []

    def test_hostile_texts_and_labels_are_shown_literally(self):
        data = [(f"{NASTY} {i}", [NASTY, f"<i>{i}</i>"]) for i in range(6)]
        model = shortlist.train(data, recipe="centroid")
        page = shortlist.model_report(model, shortlist.read(data[:3]), shortlist.read(data), name=NASTY)
        html = page.to_html()
        assert "<script>" not in checked(html).tags and "&lt;script&gt;" in html and "\x01" not in html
        assert "<script>" not in page.to_markdown()

    def test_features_instead_of_texts(self):
        features = np.eye(8, dtype=np.float32)
        labels = shortlist.read([("", [f"l{i % 4}"]) for i in range(8)])
        data = Dataset(labels.texts, labels.labels, labels.label_names, features=features)
        model = shortlist.train(data, recipe="centroid")
        page = shortlist.model_report(model, data, data)
        assert "Examples" not in checked(page.to_html()).sections

    def test_model_that_knows_none_of_the_labels(self, centroid):
        checked(shortlist.model_report(centroid, shortlist.read([("red shoes", ["elsewhere"])] * 3)).to_html())

    def test_refuses_test_data_without_labels(self, centroid):
        with pytest.raises(shortlist.DataError, match="no text with a label"):
            shortlist.model_report(centroid, shortlist.read([("red shoes", [])]))

    @pytest.mark.slow
    def test_a_deep_model_has_curves(self, parts, tmp_path):
        pytest.importorskip("torch", reason="needs the extra `train`")
        train, test = parts
        options = {
            "n_epochs": 2,
            "embedding_dim": 64,
            "validation_fraction": 0.2,
            "n_clusters": 4,
            "n_clusters_searched": 2,
        }
        shortlist.train(train, recipe="inceptionxml+", threads=1, **options).save(tmp_path / "model")
        page = shortlist.model_report(shortlist.load(tmp_path / "model"), test, train)
        html = page.to_html()
        assert {"Training", "Calibration", "Robustness"} <= set(checked(html).sections)
        assert "meta recall" in html


@pytest.fixture(scope="module")
def folder(tmp_path_factory, parts, centroid):
    folder = tmp_path_factory.mktemp("report")
    centroid.save(folder / "model")
    for name, part in zip(("train", "test"), parts, strict=True):
        part.write(folder / "parts" / f"{name}.jsonl")
    return folder


class TestCommand:
    def run(self, *arguments):
        return CliRunner().invoke(command, ["report", *map(str, arguments)])

    def test_writes_both_files(self, folder, tmp_path):
        done = self.run(folder / "model", folder / "parts", "--out", tmp_path / "out")
        assert done.exit_code == 0, done.output
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "report.md"]
        assert "PSP@1" in (tmp_path / "out" / "report.md").read_text()  # the folder's train part was used

    def test_without_the_training_part(self, folder, tmp_path):
        assert self.run(folder / "model", folder / "parts" / "test.jsonl", "--out", tmp_path).exit_code == 0
        assert "add it with --train" in (tmp_path / "report.html").read_text()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("parts", "parts"), "not a model folder"),
            (("nowhere", "parts"), "nowhere"),
            (("model", "nothing.jsonl"), "nothing.jsonl"),
            (("model", "model"), "Give the model first"),
            (("model", "parts/test.jsonl", "--unseen", "ignore"), "--train"),
            (("model", "parts", "--out", "parts/test.jsonl"), "is a file"),
        ],
    )
    def test_reports_errors(self, folder, monkeypatch, arguments, message):
        monkeypatch.chdir(folder)
        done = self.run(*arguments)
        assert done.exit_code == 2 and message in done.output
        assert not (folder / "report").exists()
