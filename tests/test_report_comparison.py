"""Reports of comparisons: they show what was measured, data never acts as markup, and pages load nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reports import FULL, checked, entry
from shortlist.report import comparison_page, render, write_comparison
from shortlist.report.render import escape_markdown


class TestComparison:
    def test_shows_what_it_was_given(self, tmp_path):
        write_comparison(FULL, tmp_path)
        html, markdown = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
        checker = checked(html)
        numbers = ["73.57", "71.9 to 75.1", "24.33", "0.44", "1.3 min", "0.503 ms", "5.4 MB", "400.0 MB", "2,464"]
        numbers += ["91.25", "0.148", "9.4", "1.7", "73.21", "66.17", "−2.17", "p < 0.01", "0.69"]
        numbers += ["most frequent: 30–967", "rarest: 1–29", "ran out of memory", "735"]
        for number in numbers:
            assert number in checker.text, number
            if number != "0.69":  # the page alone shows the scores of examples
                assert escape_markdown(number) in markdown, number
        assert "astec has the highest P@1: 73.57" in checker.text
        assert "Not significantly worse (p ≥ 0.05): pecos. Significantly worse: bonsai." in checker.text
        assert "Not shown (not measured): pecos, bonsai, popular." in checker.text
        assert "popular ↓ 9.6" in checker.text and "far below the plot" in checker.text
        assert "nDCG @5" in checker.text and "PSnDCG @1" in checker.text and "recall @5" in checker.text
        assert (
            "61.23" in checker.text
            and "recall@k: fraction of the true labels among the k best-ranked labels" in checker.text
        )
        assert "34 of 735 test labels" in checker.text and "A = 0.55 and B = 1.5" in checker.text
        assert "shortlist 0.1.0" in checker.text and "omikuji 0.5" in checker.text
        assert "2,998 test texts" in checker.text

    def test_shows_the_curves_of_a_meta_classifier(self):
        curves = [{"epoch": 1, "P@1": 41.25, "meta_P@1": 64.75}]
        html = comparison_page({"entries": [entry("a", 50.0, curves=curves)]}).to_html()
        assert "P@1: from 41.25 to 41.25; meta P@1: from 64.75 to 64.75" in html

    @pytest.mark.parametrize("load, warned", [(3.0, True), (0.5, False), (None, False)])
    def test_warns_of_a_busy_machine(self, load, warned):
        page = comparison_page({"entries": [entry("a", 50.0)], "machine": {"cores": 2, "load": load}})
        assert ("load 3.0 on 2 cores" in page.to_html()) == warned

    def test_perturbed_texts_are_compared_with_the_original(self):
        assert "words dropped 66.2, compared with 73.6" in comparison_page(FULL).to_html()

    def test_names_missing_metrics(self):
        less = [entry("a", 50.0), entry("b", 40.0, scores={"P@1": 40.0})]
        assert "Missing values: b (P@3, P@5, PSP@1, PSP@3, PSP@5)." in comparison_page({"entries": less}).to_html()

    def test_every_plot_comes_with_its_numbers(self):
        html = comparison_page(FULL).to_html()
        assert html.count("<figure") == html.count("<summary>Show the numbers") == 8

    def test_examples_mark_correct_labels_and_start_with_the_best_system(self):
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
            {"entries": [entry("a", 50.0)], "examples": None, "words_per_text": None},
            {"entries": [entry("a", 50.0, curves=[], calibration={}, robustness={}, by_quantile=[], intervals=None)]},
            {"entries": [entry("a", 50.0, train_seconds=0.0, ms_p50=float("nan"))], "words_per_text": {}},
            {"entries": [{"name": "a", "status": "done", "scores": {}}, entry("b", 0.0, train_seconds=1)]},
            {"entries": [entry("a", 50.0)], "examples": [{"text": "t", "labels": None, "predictions": None}]},
        ],
    )
    def test_leaves_out_what_is_missing(self, summary):
        page = comparison_page(summary)
        checked(page.to_html())
        assert "nan" not in page.to_markdown().lower()

    @pytest.mark.slow
    def test_any_key_of_an_entry_may_be_missing(self):
        for key in FULL["entries"][0]:
            if key not in ("name", "status"):
                less = [{k: v for k, v in one.items() if k != key} for one in FULL["entries"]]
                checked(comparison_page(FULL | {"entries": less}).to_html())

    def test_data_never_acts_as_markup(self):
        text = (
            json.dumps(FULL).replace("astec", "<script>alert(1)</script>").replace("noodles", "<img src=x onerror=y>")
        )
        page = comparison_page(json.loads(text))
        assert "&lt;script&gt;alert(1)" in page.to_html()
        checked(page.to_html())
        assert "<script" not in page.to_markdown() and "<img" not in page.to_markdown()


class TestPage:
    def test_markdown_escapes_markup_and_line_breaks(self):
        assert escape_markdown("a|b *c* <d>\n`e`") == "a\\|b \\*c\\* &lt;d> \\`e\\`"

    def test_replaces_characters_that_html_forbids(self):
        html = comparison_page({"entries": [entry("\x0b", 50.0)], "data": {"name": "a\x00b\ud800"}}).to_html()
        assert "a\ufffdb\ufffd" in html and "<bdi>\ufffd</bdi>" in html
        html.encode()


def test_html_and_markdown_have_the_same_blocks():
    templates = Path(render.__file__).parent / "templates"
    html, markdown = (
        re.findall(r"macro (\w+)\(", (templates / f"blocks.{format}").read_text()) for format in ("html", "md")
    )
    assert sorted(html) == sorted(markdown)


@pytest.mark.slow
def test_jinja_loads_only_when_a_report_is_written():
    code = "import sys, shortlist.cli, shortlist.report; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
