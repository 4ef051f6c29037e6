"""The report of one model: how good it is, whether its scores can be trusted, and where it goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shortlist.compare.results import Entry
from shortlist.evaluation.thresholds import ThresholdRow
from shortlist.model.prediction import Prediction
from shortlist.report import sections
from shortlist.report.measure import Measurements
from shortlist.report.plots import Bar, Line, bars, lines
from shortlist.report.render import Cell, Page
from shortlist.report.sections import MEANINGS, Data, byte_count, score_cell

KS = (1, 3, 5)
MIN_STRENGTH = 0.15  # of the strongest word; weaker words are not coloured


def model_page(found: Measurements) -> Page:
    return Page(
        "model.j2",
        found=found,
        card=found.card,
        tiles=_tiles(found.entry),
        busy=sections.busy_machine(found.machine),
        accuracy=_accuracy(found.entry),
        **sections.shared_sections([found.entry], found.words),
        thresholds=_thresholds(found),
        search_effort=_search_effort(found.card.get("search_effort") or {}),
        examples={kind: [_example(one) for one in given] for kind, given in found.examples.items() if given},
        options=[
            (name, str(value))
            for name, value in (found.card.get("options") or {}).items()
            if value not in ("", None) and not isinstance(value, dict | list)
        ],
    )


def _tiles(entry: Entry) -> list[tuple[str, str, str]]:
    """The most important numbers: name, value, details."""
    tiles: list[tuple[str, str, str]] = []
    for metric in ("P@1", "P@5", "PSP@1", "PSP@5", "R@5"):
        if metric in entry.scores:
            interval = entry.intervals.get(metric)
            details = [f"95%: {interval[0]:.1f} to {interval[1]:.1f}"] if interval else []
            if entry.ceilings.get(metric, 100) < 100:
                details.append(f"at most {entry.ceilings[metric]:.1f}")
            tiles.append((metric, f"{entry.scores[metric]:.1f} %", ", ".join(details)))
    tiles.append(("Latency", f"{entry.ms_p50:.2f} ms", f"p99: {entry.ms_p99:.2f} ms"))
    tiles.append(("In bulk", f"{entry.bulk_texts_per_second:,.0f}", "texts per second"))
    if entry.model_bytes:
        tiles.append(("Size", byte_count(entry.model_bytes), "on disk"))
    return tiles


def _accuracy(entry: Entry) -> Data:
    plots, rows, meanings = [], [], []
    for family in ("P", "PSP", "N", "R"):
        metrics = [f"{family}@{k}" for k in KS]
        measured = [metric for metric in metrics if metric in entry.scores]
        shown = [Bar(metric, entry.scores[metric], entry.intervals.get(metric)) for metric in measured]
        if shown:
            plots.append(bars(shown, MEANINGS[family].split(":")[0]))
            meanings.append(MEANINGS[family])
            rows.append([f"{family}@k", *(score_cell(entry, metric) for metric in metrics)])
            rows += sections.ceiling_rows(entry, metrics)
    return {"header": ["", *(f"k = {k}" for k in KS)], "rows": rows, "plots": plots, "meanings": " ".join(meanings)}


def _thresholds(found: Measurements) -> Data | None:
    """What a minimum score costs and gains: the risk-coverage curve, and the same at round thresholds."""
    if len(found.risk_coverage) < 2:
        return None
    curve = [(100 * answered, 100 * wrong) for answered, wrong in found.risk_coverage]
    drawn = [Line("labels wrong", curve)]
    rows = [_threshold_cells(f"{row.min_score:.2f}", row) for row in found.thresholds]
    if found.threshold is not None:
        answered, right = found.threshold.answered.value, found.threshold.right.value
        drawn.append(Line("threshold", [(100 * answered, 100 * (1 - right))], series=1))
        rows.append(_threshold_cells("the model’s", found.threshold))
    plots = [lines(drawn, "% of texts with an answer", "% of labels wrong", "Risk and coverage")]
    header = ["minimum score", "% of texts with an answer", "% of labels right", "labels per text"]
    return {"header": header, "rows": rows, "plots": plots, "own": found.threshold is not None}


def _threshold_cells(name: str, row: ThresholdRow) -> list[Any]:
    shares = [
        Cell(f"{100 * share.value:.1f}", detail=f"{100 * share.low:.1f} to {100 * share.high:.1f}")
        for share in (row.answered, row.right)
    ]
    return [name, *shares, row.labels_per_text.value]


def _search_effort(given: Mapping[str, Any]) -> Data | None:
    """How accuracy depends on the number of clusters searched, from the model card."""
    points = sorted((float(step["searched"]), float(step["P@1"])) for step in given.get("curve") or ())
    if len(points) < 2:
        return None
    plot = lines([Line("P@1", points)], "clusters searched", "%", "P@1 on held-out texts")
    rows = [(f"{searched:,.0f}", score) for searched, score in points]
    return {"searched": given["searched"], "of": given["of"], "rows": rows, "plots": [plot]}


def _example(one: Mapping[str, Any]) -> Data:
    """A text with the words that matter for its first label: (text, "for" or "against" or "", strength)."""
    text, predictions = one["text"], one["predictions"]
    answers = [(p.name, p.score, correct) for p, correct in zip(predictions, one["correct"], strict=True)]
    words, effects = _words(text, predictions[0]) if predictions else ([(text, "", 0.0)], "")
    why = (predictions[0].name, effects) if predictions else None
    return {"words": words, "labels": one["labels"], "answers": {"": answers}, "why": why}


def _words(text: str, prediction: Prediction) -> tuple[Sequence[tuple[str, str, float]], str]:
    strongest = max((abs(word.moved) for word in prediction.words), default=0.0)
    words, effects, done = [], [], 0
    for start, end, moved in prediction.words:
        if strongest and abs(moved) >= MIN_STRENGTH * strongest:
            words.append((text[done:start], "", 0.0))
            words.append((text[start:end], "for" if moved > 0 else "against", abs(moved) / strongest))
            effects.append(f"{text[start:end]} {moved:+.1f}".replace("-", "−"))
            done = end
    return [*words, (text[done:], "", 0.0)], ", ".join(effects)
