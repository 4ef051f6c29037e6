"""Reports from end to end: what they say is what was measured, nothing is taken for markup, nothing is loaded."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import shortlist
from shortlist.cli import shortlist as command
from shortlist.data.dataset import Dataset
from shortlist.report import comparison_page, write_comparison
from shortlist.report.html import Page, Section, escape, grid, plain
from shortlist.report.measuring import measure_model
from shortlist.text import Tokenizer
from shortlist.text.disturbed import disturbed

COLOURS, THINGS = ("red", "blue", "green", "black"), ("shoes", "hat", "coat", "shirt")
NASTY = "<script>alert(1)</script> | **bold** & \x01"


def rows(count: int) -> list[tuple[str, list[str]]]:
    return [(f"{c} {t} number {i}", [t, c]) for i in range(count) for c in COLOURS for t in THINGS]


@pytest.fixture(scope="module")
def parts():
    return shortlist.read(rows(6)), shortlist.read(rows(2))


@pytest.fixture(scope="module")
def centroid(parts):
    return shortlist.train(parts[0], recipe="centroid")


VOID = {"meta", "br", "line", "rect", "circle", "path", "polygon"}


class Checker(HTMLParser):
    """Tags that do not match, ids that stand twice, and addresses of elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [value or "" for key, value in attrs if key in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert all(link.startswith("#") and link[1:] in checker.ids for link in checker.links)
    assert not checker.tags & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"https?://|@import|url\(", html)
    return checker


def row(name: str, p1: float, **more: Any) -> dict[str, Any]:
    scores = {"P@1": p1, "P@3": p1 / 2, "P@5": p1 / 3, "PSP@1": p1 / 1.5, "PSP@3": p1 / 1.4, "PSP@5": p1 / 1.3}
    scores |= {"N@5": p1 / 1.1, "PSN@1": p1 / 1.6, "R@5": 61.23}
    return {"name": name, "kind": "recipe", "status": "done", "note": None, "title": name, "scores": scores} | more


FULL = {
    "data": {
        "name": "shop",
        "train_texts": 12404,
        "test_texts": 3000,
        "test_texts_that_count": 2998,
        "labels": 735,
        "unseen_in_training": {"labels": 34, "pairs": 43, "texts": 2},
    },
    "machine": {"cores": 2, "versions": {"shortlist": "0.1.0"}, "peers_versions": {"omikuji": "0.5"}},
    "entries": [
        row(
            "astec",
            73.57,
            measured_with={"a": 0.55, "b": 1.5, "resamples": 1000, "seed": 0},
            intervals={"P@1": [71.91, 75.13]},
            by_quantile=[
                {"labels": 147, "from": 30, "to": 967, "P@5": 24.33},
                {"labels": 147, "from": 1, "to": 29, "P@5": 0.44},
            ],
            train_seconds=79.1,
            ms_p50=0.503,
            ms_p99=4.79,
            model_bytes=5.4e6,
            peak_memory_bytes=4e8,
            bulk_texts_per_second=2464.0,
            multiply_adds=123456.0,
            options={"epochs": 5, "rate": 0.002},
            curves=[
                {"epoch": 1, "loss": 5.0, "P@1": 41.2, "P@5": 17.5, "meta_recall": 91.25},
                {"epoch": 2, "loss": 3.0, "P@1": 58.9, "P@5": 23.1, "meta_recall": 95.5},
            ],
            calibration={
                "method": "isotonic",
                "errors": {"none": 0.094, "isotonic": 0.017},
                "table": [{"from": 0.1, "to": 0.2, "labels": 44, "mean_score": 0.151, "right": 0.148}],
            },
            robustness={"shuffled": {"P@1": 73.21}, "dropped": {"P@1": 66.17}, "misspelt": {"P@1": 65.58}},
        ),
        row(
            "bonsai",
            71.4,
            kind="peer",
            train_seconds=1.9,
            ms_p50=0.925,
            difference_to_best={"P@1": {"difference": -2.17, "low": -3.1, "high": -1.2, "p": 0.002}},
        ),
        row(
            "pecos",
            73.1,
            kind="peer",
            train_seconds=0.5,
            ms_p50=1.446,
            difference_to_best={"P@1": {"difference": -0.47, "low": -1.1, "high": 0.2, "p": 0.31}},
        ),
        row("popular", 9.6, train_seconds=0.2, ms_p50=0.037),
        {"name": "sklearn", "kind": "peer", "status": "failed", "note": "ran out of memory", "scores": None},
    ],
    "examples": [
        {
            "text": "boiling noodles",
            "labels": ["noodles"],
            "predictions": {"pecos": [["rice", "Rice", 0.4, False]], "astec": [["noodles", "Noodles", 0.69, True]]},
        }
    ],
    "words_per_text": {"histogram": [{"name": "1–2", "count": 40}, {"name": "3–4", "count": 60}], "mean": 2.5},
    "ablations": [
        {
            "title": "Fan-out",
            "question": "Do more clusters help?",
            "header": ["clusters", "P@1", "note"],
            "rows": [["64", 60.25, "small"], ["128", None, "large"], ["256", 61.5, ""]],
        },
        {
            "title": "Order",
            "header": ["vectors", "order", "P@1", "s"],
            "named": 2,
            "drawn": ["P@1"],
            "spread": True,
            "rows": [["learnt", 0, 59.0, 8], ["learnt", 1, 59.5, 7], ["given", 0, 60.0, 9], ["given", 1, None, None]],
            "notes": {"given, 1": "took too long"},
            "curves": [{"name": "one of them", "curves": [{"epoch": 1, "P@1": 41.25, "meta_P@1": 64.75}]}],
        },
    ],
}


class TestComparison:
    def test_says_what_it_was_given(self, tmp_path):
        write_comparison(FULL, tmp_path)
        html, markdown = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
        checker = checked(html)
        numbers = ["73.57", "71.9 to 75.1", "24.33", "0.44", "1.3 min", "0.503 ms", "5.4 MB", "400.0 MB", "2,464"]
        numbers += ["91.25", "0.148", "9.4", "1.7", "73.21", "66.17", "−2.17", "p below 0.01", "60.25", "61.50", "0.69"]
        numbers += ["commonest: 30 to 967 texts", "rarest: 1 to 29 texts", "ran out of memory", "735"]
        for number in numbers:
            assert number in checker.text, number
            if number not in ("0.69",):  # scores of examples are in the page only
                assert number in markdown, number
        assert "astec has the highest P@1: 73.57" in checker.text
        assert "Not clearly behind (p of 0.05 or more): pecos. Clearly behind: bonsai." in checker.text
        assert "Not shown, because not measured: pecos, bonsai, popular." in checker.text
        assert "popular ↓ 9.6" in checker.text and "far below the plot" in checker.text
        assert "nDCG @5" in checker.text and "PSnDCG @1" in checker.text and "recall @5" in checker.text
        assert "61.23" in checker.text and "recall@k: of the true labels, the share among the first k" in checker.text
        assert "labels: 34, pairs: 43" in checker.text and "A = 0.55 and B = 1.5" in checker.text
        assert "shortlist 0.1.0" in checker.text and "omikuji 0.5" in checker.text
        assert "measured on 2,998 texts" in checker.text
        assert "Do more clusters help?" in checker.text
        assert "Without a value: 128 (P@1)." in checker.text
        assert "Without a value: given, 1 (P@1, s)." in checker.text and "given, 1: took too long" in checker.text
        assert "P@1: 59.50, from 59.00 to 60.00" in html
        assert "P@1: from 41.25 to 41.25; meta P@1: from 64.75 to 64.75" in html

    @pytest.mark.parametrize("load, said", [(3.0, True), (0.5, False), (None, False)])
    def test_a_busy_machine_is_told_of(self, load, said):
        page = comparison_page({"entries": [row("a", 50.0)], "machine": {"cores": 2, "load": load}})
        assert ("a load of 3.0 on 2 cores" in page.to_html()) == said

    def test_disturbed_texts_are_told_with_what_was(self):
        html = comparison_page(FULL).to_html()
        assert "astec 66.2, instead of 73.6" in html or "words left out 66.2, instead of 73.6" in html

    def test_a_metric_that_a_row_lacks_is_named(self):
        less = [row("a", 50.0), row("b", 40.0, scores={"P@1": 40.0})]
        assert "Without a value: b (P@3, P@5, PSP@1, PSP@3, PSP@5)." in comparison_page({"entries": less}).to_html()

    def test_every_plot_has_its_numbers_below_it(self):
        html = comparison_page(FULL).to_html()
        assert html.count("<figure") == html.count("<summary>The numbers") == 11

    def test_examples_mark_what_is_right_and_start_with_the_best(self):
        html = comparison_page(FULL).to_html()
        example = html[html.index('<article class="example"') :]
        assert example.index("astec") < example.index("pecos")
        assert re.search(r'<li class="right"><span[^>]*aria-label="right">✓</span><span><bdi>Noodles', example)
        assert re.search(r'<li class="wrong"><span[^>]*aria-label="wrong"></span><span><bdi>Rice', example)

    @pytest.mark.parametrize(
        "summary",
        [
            {},
            {"entries": []},
            {"entries": [{"name": "a", "status": "failed", "note": None}], "data": None, "machine": None},
            {"entries": [row("a", 50.0)], "examples": None, "words_per_text": None, "ablations": None},
            {"entries": [row("a", 50.0, curves=[], calibration={}, robustness={}, by_quantile=[], intervals=None)]},
            {"entries": [row("a", 50.0, train_seconds=0.0, ms_p50=float("nan"))], "words_per_text": {}},
            {"entries": [{"name": "a", "status": "done", "scores": {}}, row("b", 0.0, train_seconds=1)]},
            {"entries": [row("a", 50.0)], "examples": [{"text": "t", "labels": None, "predictions": None}]},
        ],
    )
    def test_what_is_missing_is_left_out(self, summary):
        page = comparison_page(summary)
        checked(page.to_html())
        assert "nan" not in page.to_markdown().lower()

    def test_every_single_key_of_a_row_may_be_missing(self):
        for key in FULL["entries"][0]:
            if key not in ("name", "status"):
                less = [{k: v for k, v in one.items() if k != key} for one in FULL["entries"]]
                checked(comparison_page(FULL | {"entries": less}).to_html())

    def test_nothing_given_is_taken_for_markup(self):
        text = (
            json.dumps(FULL).replace("astec", "<script>alert(1)</script>").replace("noodles", "<img src=x onerror=y>")
        )
        page = comparison_page(json.loads(text))
        assert "&lt;script&gt;alert(1)" in page.to_html()
        checked(page.to_html())
        assert "<script" not in page.to_markdown() and "<img" not in page.to_markdown()


class TestOneModel:
    def test_the_numbers_are_those_of_evaluate(self, parts, centroid):
        train, test = parts
        found = measure_model(centroid, test, train, name="tiny")
        wanted = shortlist.evaluate(centroid.predict_dataset(test), test, train=train)
        assert found.row["scores"] == wanted.values
        html = shortlist.model_report(centroid, test, train, name="tiny").to_html()
        text = checked(html).text
        assert f"{wanted['P@1']:.1f} %" in text and f"{wanted['PSP@5']:.2f}" in text
        assert "Report on tiny" in text and "What does it look at?" in text

    def test_same_seed_same_examples_and_mistakes(self, parts, centroid):
        train, test = parts
        one, again, other = (measure_model(centroid, test, train, seed=seed) for seed in (1, 1, 2))
        assert (one.examples, one.mistakes, one.row["robustness"]) == (
            again.examples,
            again.mistakes,
            again.row["robustness"],
        )
        assert one.examples != other.examples

    def test_what_goes_wrong_is_named(self):
        data = [("red shoes", ["shoes"]), ("red shoes sale", ["shoes"]), ("blue hat", ["hats"])] * 4
        model = shortlist.train(data, recipe="centroid")
        test = shortlist.read([("blue hat", ["shoes"])] * 6 + [("red shoes", ["shoes"]), ("blue hat", ["caps"])])
        found = measure_model(model, test)
        assert found.mistakes[0]["said"] == "hats" and found.mistakes[0]["labels"] == ["shoes"]
        assert found.wrong_labels == [{"label": "hats", "training": None, "first": 7, "wrong": 7}]
        assert found.worst_labels[0] | {"training": None} == {
            "label": "shoes",
            "training": None,
            "texts": 7,
            "found": found.worst_labels[0]["found"],
        }
        only_first = shortlist.train(data, recipe="popular")
        assert measure_model(only_first, test).row["scores"]["P@1"] == pytest.approx(100 * 7 / 8)

    def test_confusions_count_what_was_said_instead(self):
        many = [(f"word{i} text", [f"label{i}"]) for i in range(9)]
        model = shortlist.train(many * 3, recipe="centroid")
        test = shortlist.read([("word1 word2 word3 word4 word5", ["label8"])] * 3)
        (confusion,) = measure_model(model, test).confusions
        assert confusion["true"] == "label8" and confusion["texts"] == 3

    def test_filter_pairs_are_neither_right_nor_wrong(self):
        model = shortlist.train([("red shoes", ["shoes"]), ("blue hat", ["hats"])] * 4, recipe="centroid")
        test = shortlist.read([("red shoes", ["hats"]), ("blue hat", ["hats"])])
        shoes = shortlist.read([("red shoes", ["hats", "shoes"]), ("blue hat", ["hats"])])
        shoes.labels = test.labels
        shoes.filter_pairs = np.array([[0, shoes.label_index["shoes"]]])
        assert measure_model(model, test).mistakes
        assert measure_model(model, shoes).mistakes == []

    def test_texts_and_labels_are_shown_as_they_are(self):
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
        assert "Examples" not in [section.short for section in page.sections]
        checked(page.to_html())

    def test_a_model_that_knows_none_of_the_labels(self, centroid):
        checked(shortlist.model_report(centroid, shortlist.read([("red shoes", ["elsewhere"])] * 3)).to_html())

    def test_nothing_to_measure_on(self, centroid):
        with pytest.raises(shortlist.DataError, match="no text with a label"):
            shortlist.model_report(centroid, shortlist.read([("red shoes", [])]))

    @pytest.mark.slow
    def test_a_deep_model_has_curves(self, parts, tmp_path):
        pytest.importorskip("torch", reason="needs the extra `train`")
        train, test = parts
        options = {"epochs": 2, "dimensions": 64, "validation": 0.2, "clusters": 4, "top": 2}
        shortlist.train(train, recipe="inceptionxml+", threads=1, **options).save(tmp_path / "model")
        page = shortlist.model_report(shortlist.load(tmp_path / "model"), test, train)
        html = page.to_html()
        checked(html)
        assert {"Training", "Calibration", "Robustness"} <= {section.short for section in page.sections}
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
        assert "give it with --train" in (tmp_path / "report.html").read_text()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("parts", "parts"), "not a model folder"),
            (("nowhere", "parts"), "nowhere"),
            (("model", "nothing.jsonl"), "nothing.jsonl"),
            (("model", "model"), "give the model first"),
            (("model", "parts/test.jsonl", "--unseen", "ignore"), "--train"),
            (("model", "parts", "--out", "parts/test.jsonl"), "is a file"),
        ],
    )
    def test_errors_are_told(self, folder, monkeypatch, arguments, message):
        monkeypatch.chdir(folder)
        done = self.run(*arguments)
        assert done.exit_code == 2 and message in done.output
        assert not (folder / "report").exists()


class TestBlocks:
    def test_plain_text_has_no_meaning_in_markdown(self):
        assert plain("a|b *c* <d>\n`e`") == "a\\|b \\*c\\* &lt;d> \\`e\\`"

    def test_characters_that_no_page_may_hold(self):
        assert escape("a\x00b\ud800") == "a\ufffdb\ufffd"
        Page("t\ud800", "", [Section("s", "t", "l", [grid(["a"], [["\x0b"]])])]).to_html().encode()

    def test_sections_of_one_name_have_anchors_of_their_own(self):
        checked(Page("t", "", [Section("日本", "a", "b"), Section("日本", "a", "b")]).to_html())


class TestDisturbed:
    TEXTS = ("A red-hot, spicy soup!", "soup", "", "…", "日本語 text")

    @pytest.mark.parametrize("how", ["shuffled", "dropped", "misspelt"])
    def test_same_seed_same_texts(self, how):
        texts = [*self.TEXTS] * 20
        assert list(disturbed(texts, how, 1)) == list(disturbed(texts, how, 1))
        assert list(disturbed(texts, how, 1)) != list(disturbed(texts, how, 2))

    def test_shuffling_keeps_words_and_what_is_between_them(self):
        (one,) = disturbed(["A red-hot, spicy soup!"], "shuffled", 3)
        assert sorted(re.findall(r"\w+", one)) == ["A", "hot", "red", "soup", "spicy"]
        assert re.sub(r"\w+", "", one) == " -,  !"

    def test_a_word_is_left(self):
        assert all(text.strip() for text in disturbed(["one two three"] * 200, "dropped"))
        assert set(disturbed(["soup"] * 50, "dropped")) == {"soup"}

    def test_about_a_quarter_of_the_words_is_misspelt(self):
        found = " ".join(disturbed(["abcdefgh"] * 1000, "misspelt")).split()
        assert 0.17 < np.mean([word != "abcdefgh" for word in found]) < 0.3

    @given(st.lists(st.text(st.sampled_from("ab cdé1,"), max_size=20), max_size=5), st.integers(0, 3))
    def test_words_are_kept_in_number_or_in_order(self, texts, seed):
        words = Tokenizer().words
        for before, after in zip(texts, disturbed(texts, "shuffled", seed), strict=True):
            assert sorted(words(after)) == sorted(words(before))
        for before, after in zip(texts, disturbed(texts, "dropped", seed), strict=True):
            rest = iter(words(before))
            assert all(word in rest for word in words(after))
            assert bool(words(after)) == bool(words(before))
        for before, after in zip(texts, disturbed(texts, "misspelt", seed), strict=True):
            changes = zip(words(before), words(after), strict=True)
            assert all(abs(len(one) - len(other)) <= 1 for one, other in changes)

    def test_other_ways_are_refused(self):
        with pytest.raises(shortlist.OptionError, match="shuffled, dropped, misspelt"):
            disturbed(["a"], "burnt")
