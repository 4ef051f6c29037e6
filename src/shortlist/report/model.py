"""The report of one model: how good it is, whether its scores can be trusted, and where it goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shortlist.model.base import Prediction
from shortlist.report import sections
from shortlist.report.entry import Entry
from shortlist.report.measure import Measurements
from shortlist.report.page import Answer, Block, Example, Examples, Figure, Page, Section, Table, Text, Word
from shortlist.report.plots import Bar, Line, bars, lines
from shortlist.report.sections import MEANINGS, NO_VALUE, file_size, fixed, score_cell

KS = (1, 3, 5)
MIN_STRENGTH = 0.15  # of the strongest word; weaker words are not coloured


def model_page(found: Measurements) -> Page:
    entry, card = found.entry, found.card
    return Page(
        f"Report on {entry.name}",
        f"{card['title']}, {card['n_labels']:,} labels, measured on {found.n_texts:,} texts.",
        [
            _overview(found),
            _accuracy(entry),
            sections.rare_labels([entry]),
            sections.calibration([entry]),
            sections.robustness([entry]),
            sections.training([entry]),
            _search_effort(card.get("search_effort") or {}),
            sections.text_lengths(found.words),
            _worst_labels(found),
            _confusions(found.confusions),
            _confident_mistakes(found.confident_mistakes),
            _examples(found.examples),
            _conditions(found),
        ],
    )


def _overview(found: Measurements) -> Section:
    entry = found.entry
    tiles = []
    for metric in ("P@1", "P@5", "PSP@1", "PSP@5", "R@5"):
        if metric in entry.scores:
            interval = entry.interval(metric)
            detail = f"95%: {interval[0]:.1f} to {interval[1]:.1f}" if interval else ""
            tiles.append([metric, f"{entry.scores[metric]:.1f} %", detail])
    tiles.append(["Latency", f"{entry.ms_p50:.2f} ms", f"p99: {entry.ms_p99:.2f} ms"])
    tiles.append(["In bulk", f"{entry.bulk_texts_per_second:,.0f}", "texts per second"])
    if entry.model_bytes:
        tiles.append(["Size", file_size(entry.model_bytes), "on disk"])
    lead = (
        f"Scores on {found.n_scored_texts:,} test texts. Latency (median, and 99th percentile) of "
        f"{found.n_timed_texts:,} of them, one at a time on one core, from the text to the names of the labels."
    )
    table = Table(["", "value", "details"], tiles, (0, 2), style="tiles")
    return Section("Overview", "How good is the model?", lead, table, sections.busy_machine(found.machine))


def _accuracy(entry: Entry) -> Section:
    plots, rows, meanings = [], [], []
    for family in ("P", "PSP", "N", "R"):
        metrics = [f"{family}@{k}" for k in KS]
        shown = [
            Bar(metric, entry.scores[metric], entry.interval(metric)) for metric in metrics if metric in entry.scores
        ]
        if shown:
            plots.append(bars(shown, MEANINGS[family].split(":")[0]))
            meanings.append(MEANINGS[family] + ".")
            rows.append([f"{family}@k", *(score_cell(entry, metric) for metric in metrics)])
    without_training_part = "PSP and the section on rare labels need the training data: add it with --train."
    return Section(
        "Accuracy",
        "How many predicted labels are correct?",
        "Percentages, with 95% intervals: how much a score would vary with other texts of the same kind.",
        Figure(plots, Table(["", *(f"k = {k}" for k in KS)], rows), " ".join(meanings)),
        None if "PSP@1" in entry.scores else Text(without_training_part, small=True),
    )


def _search_effort(search_effort: Mapping[str, Any]) -> Section | None:
    """How accuracy depends on the number of clusters searched, from the model card."""
    points = sorted((float(step["searched"]), float(step["P@1"])) for step in search_effort.get("curve") or ())
    if len(points) < 2:
        return None
    plot = lines([Line("P@1", points)], "clusters searched", "%", "P@1 on held-out texts")
    table = Table(["clusters searched", "P@1"], [[f"{searched:,.0f}", fixed(value)] for searched, value in points])
    lead = (
        f"The model searches {search_effort['searched']:,} of {search_effort['of']:,} clusters of labels. Fewer are "
        "faster. These scores come from the model card. The re-ranker was trained on the same held-out texts: compare "
        "the scores with each other only."
    )
    return Section("Search effort", "What would a smaller search cost?", lead, Figure([plot], table))


def _worst_labels(found: Measurements) -> Section | None:
    blocks: list[Block] = []
    for labels, header in (
        (found.missed_labels, ["frequent, but often missed", "in training", "test texts", "found", "fraction found"]),
        (
            found.overpredicted_labels,
            ["ranked first, but often wrong", "in training", "ranked first", "wrong", "fraction wrong"],
        ),
    ):
        rows = [
            [
                one.name,
                NO_VALUE if one.training_texts is None else f"{one.training_texts:,}",
                f"{one.total:,}",
                f"{one.counted:,}",
                f"{100 * one.counted / one.total:.0f} %",
            ]
            for one in labels
        ]
        if rows:
            blocks.append(Table(header, rows))
    lead = (
        "First, frequent labels that are least often among the 5 best-ranked labels. Second, labels that are ranked "
        "first by mistake most often. Labels with overlapping or very broad meanings tend to appear here."
    )
    return Section("Worst labels", "Which labels does it get wrong?", lead, *blocks) if blocks else None


def _confusions(confusions: Sequence[Mapping[str, Any]]) -> Section | None:
    rows = [[one["true"], one["predicted"], f"{one['texts']:,}", one["example"]] for one in confusions]
    lead = "Texts whose first label is wrong and whose true label is not among the 5 best: which label took its place."
    table = Table(["true label", "ranked first", "texts", "example"], rows, (0, 1, 3))
    return Section("Confusions", "Which labels does it confuse?", lead, table) if rows else None


def _confident_mistakes(mistakes: Sequence[Mapping[str, Any]]) -> Section | None:
    rows = [[one["text"], one["predicted"], f"{one['score']:.2f}", "; ".join(one["labels"])] for one in mistakes]
    lead = (
        "Texts whose first label has a high score but is not among the labels in the test data, highest scores first. "
        "Often the data lacks a label."
    )
    table = Table(["text", "ranked first", "score", "labels in the data"], rows, (0, 1, 3))
    return Section("Confident mistakes", "Where is it confident but wrong?", lead, table) if rows else None


def _examples(examples: Mapping[str, Sequence[Mapping[str, Any]]]) -> Section | None:
    titles = {"correct": "First label correct", "wrong": "First label wrong"}
    blocks = [
        Examples(list(map(_example, examples[kind])), title) for kind, title in titles.items() if examples.get(kind)
    ]
    lead = (
        "A random sample. Words are coloured by their effect on the first label: blue with a solid line for it, orange "
        "with a dashed line against it. Correct labels are marked."
    )
    return Section("Examples", "Which words decide?", lead, *blocks) if blocks else None


def _example(one: Mapping[str, Any]) -> Example:
    predictions: Sequence[Prediction] = one["predictions"]
    answers = [Answer(p.name, p.score, correct) for p, correct in zip(predictions, one["correct"], strict=True)]
    if not predictions:
        return Example([Word(one["text"])], one["labels"], {"": answers})
    text, first = one["text"], predictions[0]
    strongest = max((abs(word.moved) for word in first.words), default=0.0)
    words, effects, done = [], [], 0
    for start, end, moved in first.words:
        if strongest and abs(moved) >= MIN_STRENGTH * strongest:
            effect = "for" if moved > 0 else "against"
            words += [Word(text[done:start]), Word(text[start:end], effect, abs(moved) / strongest)]
            effects.append(f"{text[start:end]} {moved:+.1f}".replace("-", "−"))
            done = end
    words.append(Word(text[done:]))
    return Example(words, one["labels"], {"": answers}, (first.name, ", ".join(effects)))


def _conditions(found: Measurements) -> Section:
    facts = [f"Test data: {found.n_texts:,} texts, {found.n_labels:,} labels."]
    if found.n_left_out:
        facts.append(f"Texts left out because none of their labels occurs in the training part: {found.n_left_out:,}.")
    facts += [*found.notes, f"Machine: {found.machine['cores']} cores, {found.machine['processor']}."]
    options = [
        [str(name), str(value)]
        for name, value in (found.card.get("options") or {}).items()
        if value not in ("", None) and not isinstance(value, dict | list)
    ]
    return Section(
        "Conditions",
        "How was this measured?",
        "Times come from one run on one machine.",
        *map(Text, facts),
        Table([f"option of {found.card['recipe']}", "value"], options, (0, 1), folded="Options") if options else None,
    )
