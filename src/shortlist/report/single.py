"""The report of one model: how good it is, whether its scores can be trusted, and where it goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shortlist.model.base import Prediction
from shortlist.report import sections as parts
from shortlist.report.comparison import size
from shortlist.report.html import Block, Cell, Page, Section, escape, figure, given, grid, paragraph
from shortlist.report.measuring import Found
from shortlist.report.plots import Bar, Line, bars, lines
from shortlist.report.sections import NOTHING, fixed, interval, value_at

KS = (1, 3, 5)
FAMILIES = ("P", "PSP", "N", "R")
WEAK = 0.15  # of the strongest word of a text: what moves the label less is not coloured


def model_page(found: Found) -> Page:
    row, card = found.row, found.card
    made = [
        _headline(found),
        _accuracy(row),
        parts.by_frequency([row]),
        parts.calibration([row]),
        parts.robustness([row]),
        parts.curves([row]),
        _effort(card),
        parts.words_per_text(found.words),
        _labels(found),
        _confusions(found.confusions),
        _mistakes(found.mistakes),
        _examples(found.examples),
        _conditions(found),
    ]
    about = f"{card['title']}, {card['n_labels']:,} labels, measured on {found.test['texts']:,} texts."
    return Page(f"Report on {row['name']}", about, [section for section in made if section is not None])


def _headline(found: Found) -> Section:
    row = found.row
    tiles = []
    for metric in ("P@1", "P@5", "PSP@1", "PSP@5", "R@5"):
        value = value_at(row, "scores", metric)
        low, high = interval(row, metric)
        if value is not None:
            tiles.append((metric, f"{value:.1f} %", "" if low is None else f"95 %: {low:.1f} to {high:.1f}"))
    tiles.append(("One text", f"{row['ms_p50']:.2f} ms", f"slowest of 100: {row['ms_p99']:.2f} ms"))
    tiles.append(("In bulk", f"{row['bulk_texts_per_second']:,.0f}", "texts a second"))
    if row.get("model_bytes"):
        tiles.append(("Size", size(row["model_bytes"]), "on disk"))
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(small)}</small></dd></div>"
        for name, value, small in tiles
    )
    told = grid(["", "value", "more"], [[name, value, small or NOTHING] for name, value, small in tiles], (0, 2))
    lead = (
        f"On {found.test['counted']:,} test texts. One text: {row['latency_texts']:,} of them, one at a time on one "
        "core, text in, names out."
    )
    blocks = [Block(f'<dl class="tiles">{shown}</dl>', told.markdown), *parts.busy(row["machine"])]
    return Section("In short", "How good is it?", lead, blocks)


def _accuracy(row: Mapping[str, Any]) -> Section:
    pictures: list[str] = []
    cells: list[list[str | Cell]] = []
    meanings: list[str] = []
    for family in FAMILIES:
        told = parts.MEANINGS[family]
        values = [(k, value_at(row, "scores", f"{family}@{k}")) for k in KS]
        shown = [
            Bar(f"{family}@{k}", value, *interval(row, f"{family}@{k}")) for k, value in values if value is not None
        ]
        if shown:
            pictures.append(bars(shown, told.split(":")[0]))
            meanings.append(told)
            cells.append([f"{family}@k", *(parts.score_cell(row, f"{family}@{k}") for k in KS)])
    lead = "Per cent, with 95 % intervals: how far a value would move with other texts of the same kind."
    blocks = [figure(pictures, grid(["", *(f"k = {k}" for k in KS)], cells), ". ".join(meanings) + ".")]
    if value_at(row, "scores", "PSP@1") is None:
        blocks.append(
            paragraph("PSP and the section on rare labels need the training data: give it with --train.", "left-out")
        )
    return Section("Accuracy", "How many of its labels are right?", lead, blocks)


def _effort(card: Mapping[str, Any]) -> Section | None:
    """What searching less would cost, from the model's card."""
    search_effort = card.get("search_effort") or {}
    curve = search_effort.get("curve") or []
    if len(curve) < 2:
        return None
    points = sorted((float(step["searched"]), float(step["P@1"])) for step in curve)
    picture = lines([Line("P@1", points)], "clusters of labels searched", "%", "P@1 on held-out texts")
    numbers = grid(["clusters", "P@1"], [[f"{searched:,.0f}", fixed(value)] for searched, value in points])
    lead = (
        f"The model looks into {search_effort['searched']:,} of {search_effort['of']:,} clusters of labels; fewer "
        "are quicker. From its card, on held-out texts that a re-ranker has learnt from, too: compare them with each "
        "other only."
    )
    return Section("Effort", "What would searching less cost?", lead, [figure([picture], numbers)])


def _labels(found: Found) -> Section | None:
    blocks = []
    if found.worst_labels:
        cells = [
            [one["label"], _count(one["training"]), *_share(one["texts"], one["found"])] for one in found.worst_labels
        ]
        header = ["common, and often missed", "in training", "test texts", "found", "share found"]
        blocks.append(grid(header, cells))
    if found.wrong_labels:
        cells = [
            [one["label"], _count(one["training"]), *_share(one["first"], one["wrong"])] for one in found.wrong_labels
        ]
        header = ["put first, and often wrong", "in training", "times first", "wrong", "share wrong"]
        blocks.append(grid(header, cells))
    if not blocks:
        return None
    lead = (
        "Labels of many test texts that are found (among the first 5) in the fewest of them, and labels that are put "
        "first most often without being right. Labels that mean nearly the same, or too much, tend to be here."
    )
    return Section("Worst labels", "Which labels does it get wrong?", lead, blocks)


def _share(whole: int, part: int) -> list[str]:
    return [f"{whole:,}", f"{part:,}", f"{100 * part / whole:.0f} %"]


def _count(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def _confusions(confusions: Sequence[Mapping[str, Any]]) -> Section | None:
    if not confusions:
        return None
    cells = [[one["true"], one["said"], f"{one['texts']:,}", one["example"]] for one in confusions]
    lead = (
        "Where the first label was wrong and the true one was not among the first 5: which was said instead of which."
    )
    table = grid(["true", "said first", "texts", "for example"], cells, (0, 1, 3))
    return Section("Confusions", "What does it mistake for what?", lead, [table])


def _mistakes(mistakes: Sequence[Mapping[str, Any]]) -> Section | None:
    if not mistakes:
        return None
    cells = [[one["text"], one["said"], f"{one['score']:.2f}", "; ".join(one["labels"])] for one in mistakes]
    lead = (
        "Texts whose first label is wrong by the test data although its score is high, the surest first. Look at them: "
        "often it is the data that lacks a label."
    )
    table = grid(["text", "said", "score", "true by the data"], cells, (0, 1, 3))
    return Section("Sure mistakes", "Where is it sure, and wrong by the data?", lead, [table])


def _examples(examples: Mapping[str, Sequence[Mapping[str, Any]]]) -> Section | None:
    blocks = []
    for kind, title in (("right", "First label right"), ("wrong", "First label wrong")):
        if examples.get(kind):
            blocks.append(Block(f"<h3>{title}</h3>", f"### {title}"))
            blocks += [_example(one) for one in examples[kind]]
    if not blocks:
        return None
    lead = (
        "Drawn at random. Words are coloured by what they do for the label that is put first: blue with a full line "
        "speaks for it, orange with a dashed line against it. Right labels are marked."
    )
    return Section("Examples", "What does it look at?", lead, blocks)


def _example(one: Mapping[str, Any]) -> Block:
    predictions: list[Prediction] = one["predictions"]
    found = [(p.label, p.name, p.score, right) for p, right in zip(predictions, one["right"], strict=True)]
    why = _coloured(one["text"], predictions[0]) if predictions else ""
    return parts.example(one["text"], one["labels"], {"": found}, why)


def _coloured(text: str, prediction: Prediction) -> str:
    """The text with each word coloured by how far it moved the label, and the same in numbers."""
    most = max((abs(word.moved) for word in prediction.words), default=0.0)
    pieces: list[str] = []
    told: list[str] = []
    done = 0
    for start, end, moved in prediction.words:
        strength = abs(moved) / most if most > 0 else 0.0
        pieces.append(escape(text[done:start]))
        word = escape(text[start:end])
        if strength < WEAK:
            pieces.append(word)
        else:
            kind = "for" if moved > 0 else "against"
            pieces.append(f'<span class="word {kind}" style="--strength:{strength:.2f}">{word}</span>')
            told.append(f"{text[start:end]} {moved:+.1f}".replace("-", "−"))
        done = end
    pieces.append(escape(text[done:]))
    because = f'<p class="why">{given(prediction.name)}: {given(", ".join(told))} in log-odds</p>' if told else ""
    return f'<p class="said"><bdi>{"".join(pieces)}</bdi></p>{because}'


def _conditions(found: Found) -> Section:
    row, card, machine = found.row, found.card, found.row["machine"]
    lines_ = [f"Test data: {found.test['texts']:,} texts, {found.test['labels']:,} labels."]
    if found.test["left_out"]:
        lines_.append(f"Texts left out because training knows none of their labels: {found.test['left_out']:,}.")
    lines_ += found.notes
    lines_.append(f"Machine: {machine['cores']} cores, {machine['processor']}.")
    facts = [
        [str(name), str(value)]
        for name, value in (card.get("options") or {}).items()
        if value not in ("", None) and not isinstance(value, dict | list)
    ]
    blocks = [paragraph(line) for line in lines_]
    if facts:
        table = grid([f"options of {card['recipe']}", ""], facts, (0, 1))
        blocks.append(Block(f"<details><summary>Options of the model</summary>{table.html}</details>", table.markdown))
    lead = "What the numbers above rest on. Times are from one run: take them as ratios."
    return Section("Conditions", f"How was {row['name']} measured?", lead, blocks)
