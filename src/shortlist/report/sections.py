"""The sections that a comparison and the report of one model share. They take rows as `summary.json` holds them.

A row without a value is left out of a plot and named below it; a section for which no row has a value is not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shortlist.report.html import Block, Cell, Html, Section, escape, figure, given, grid, paragraph, plain
from shortlist.report.plots import Bar, Line, bars, histogram, lines, reliability, spread

Row = Mapping[str, Any]
ACCURACY = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
# What families of metrics are called, and what they mean.
LONG_NAMES = {"P": "P", "PSP": "PSP", "N": "nDCG", "PSN": "PSnDCG", "R": "recall"}
MEANINGS = {
    "P": "P@k: of the k labels put first, the share that is right",
    "PSP": "PSP@k: the same, rare labels counting more",
    "N": "nDCG@k: as P@k, the first places counting more",
    "PSN": "PSnDCG@k: the same, rare labels counting more",
    "R": "recall@k: of the true labels, the share among the first k",
}
DISTURBED = {"shuffled": "shuffled", "dropped": "words left out", "misspelt": "misspelt"}
AS_WRITTEN, NOTHING = "as written", "–"
BUSY = 0.5  # of the cores: a machine as busy as this slows what is timed on it


def value_at(row: Row, *path: str) -> float | None:
    """The number at the end of the path, if there is one."""
    found: Any = row
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    usable = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
    return float(found) if usable else None


def fixed(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def done(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.get("status", "done") == "done"]


def is_peer(row: Row) -> bool:
    return row.get("kind") == "peer"


def interval(row: Row, metric: str) -> tuple[float | None, float | None]:
    ends = (row.get("intervals") or {}).get(metric)
    return (float(ends[0]), float(ends[1])) if ends and None not in ends else (None, None)


def score_cell(row: Row, metric: str, best: float | None = None, small: bool = True) -> Cell:
    """A score, bold if it is the best; `small`: with its interval."""
    value, (low, high) = value_at(row, "scores", metric), interval(row, metric)
    ends = "" if low is None or not small else f"{low:.1f} to {high:.1f}"
    return Cell(fixed(value), value is not None and best is not None and value >= best, ends)


def busy(machine: Row) -> list[Block]:
    """A warning where others were at work on the machine while times were taken."""
    load, cores = value_at(machine, "load"), value_at(machine, "cores")
    if load is None or not cores or load <= 1 + BUSY * cores:
        return []
    said = (
        f"The machine was busy (a load of {load:.1f} on {cores:.0f} cores): the times would be shorter on an idle one."
    )
    return [paragraph(said)]


def left_out(rows: Sequence[Row], there: Sequence[Row], what: str) -> list[Block]:
    """Names the rows that have no such value."""
    missing = [str(row["name"]) for row in rows if row not in there]
    return [paragraph(f"Not shown, because {what}: {', '.join(missing)}.", "left-out")] if missing else []


def without_value(missing: Mapping[str, Sequence[str]]) -> list[Block]:
    """Names what rows have no value of."""
    told = [f"{name} ({', '.join(what)})" for name, what in missing.items() if what]
    return [paragraph(f"Without a value: {'; '.join(told)}.", "left-out")] if told else []


def by_frequency(rows: Sequence[Row]) -> Section | None:
    """Which labels earn the precision (Astec's Figure 3)."""
    there = [row for row in rows if row.get("by_quantile")]
    if not there:
        return None
    metric = next((m for m in ("P@5", "P@3", "P@1") if m in there[0]["by_quantile"][0]), None)
    if metric is None:
        return None
    parts = there[0]["by_quantile"]
    there = [row for row in there if len(row["by_quantile"]) == len(parts)]
    titles = [_fifth(part, i, len(parts)) for i, part in enumerate(parts)]
    header = ["", *titles]
    cells = [[str(row["name"]), *(fixed(value_at(part, metric)) for part in row["by_quantile"])] for row in there]
    if len(there) == 1:
        pictures = [
            bars(
                [Bar(title, value_at(part, metric) or 0.0) for title, part in zip(titles, parts, strict=True)],
                f"points of {metric} from each part of the labels",
                2,
            )
        ]
    else:
        pictures = []
        for i, title in reversed(list(enumerate(titles))):
            values = [(row, value_at(row["by_quantile"][i], metric)) for row in there]
            shown = [Bar(str(row["name"]), value, peer=is_peer(row)) for row, value in values if value is not None]
            if shown:
                pictures.append(bars(sorted(shown, key=lambda bar: -bar.value), title, 2, best=True))
    lead = (
        f"All labels, sorted by how often training saw them, in {len(parts)} equal parts. What the parts add to "
        f"{metric} sums up to it."
    )
    if len(there) > 1:
        lead += " Each plot has a scale of its own: compare within, not between."
    title = "How good is it on rare labels?" if len(rows) == 1 else "Who is good on rare labels?"
    return Section(
        "Rare labels", title, lead, [figure(pictures, grid(header, cells)), *left_out(rows, there, "not measured")]
    )


def _fifth(part: Row, place: int, of: int) -> str:
    name = "rarest" if place == of - 1 else "commonest" if place == 0 else f"part {place + 1}"
    low, high = value_at(part, "from"), value_at(part, "to")
    if low is None or high is None:
        return name
    texts = "text" if high == 1 else "texts"
    return f"{name}: {low:,.0f} {texts}" if low == high else f"{name}: {low:,.0f} to {high:,.0f} {texts}"


def curves(rows: Sequence[Row]) -> Section | None:
    """How training went, epoch by epoch (InceptionXML's Figure 3)."""
    there = [row for row in rows if _curves_of(row)]
    if not there:
        return None
    lead = (
        "Measured on held-out texts after each epoch, before the words of the labels have their second look: the final "
        "scores are higher. In the phase “surrogate” words are learnt on clusters of labels, in “extreme” the labels' "
        "own rows. Where labels are searched cluster by cluster, the recall of the meta head is the share of the right "
        "clusters among those it puts forward: the labels' head can find no more."
    )
    missing = left_out(rows, there, "nothing is learnt epoch by epoch, or no curve was kept")
    title = "Had it learnt enough?" if len(rows) == 1 else "How does training go?"
    return Section("Training", title, lead, [_curve_figure(there), *missing])


# What the curves of models with and without a meta head show, and the names for it.
_OF_META_HEADS = {"P@1": "P@1", "meta_P@1": "meta P@1", "meta_recall": "meta recall"}
_OF_OTHERS = {"P@1": "P@1", "P@5": "P@5"}


def _curve_figure(rows: Sequence[Row]) -> Block:
    pictures = [curve for row in rows for curve in _curves_of(row)]
    columns = {"loss": "loss"} | _OF_OTHERS | {"PSP@5": "PSP@5"} | _OF_META_HEADS
    cells = [
        [_phase_name(row, record), str(record.get("epoch", NOTHING)), *(fixed(value_at(record, c)) for c in columns)]
        for row in rows
        for record in row["curves"]
    ]
    return figure(pictures, grid(["", "epoch", *columns.values()], cells))


def _phase_name(row: Row, record: Row) -> str:
    return f"{record['phase']}: {row['name']}" if record.get("phase") else str(row["name"])


def _curves_of(row: Row) -> list[Html]:
    phases: dict[str, list[Row]] = {}
    for record in row.get("curves") or ():
        if value_at(record, "epoch") is not None:
            phases.setdefault(_phase_name(row, record), []).append(record)
    pictures = []
    for name, records in phases.items():
        has_meta = any("meta_P@1" in record for record in records)
        shown = _OF_META_HEADS if has_meta else _OF_OTHERS
        drawn = [
            Line(title, points, series, dashed=key.startswith("meta"))
            for series, (key, title) in enumerate(shown.items())
            if (points := _points(records, key))
        ]
        if not drawn and (points := _points(records, "loss")):
            drawn = [Line("loss", points)]
        if drawn:
            unit = "loss" if drawn[0].name == "loss" else "%"
            pictures.append(lines(drawn, "epoch", unit, name))
    return pictures


def _points(records: Sequence[Row], key: str) -> list[tuple[float, float]]:
    values = [(float(record["epoch"]), value_at(record, key)) for record in records]
    return [(epoch, value) for epoch, value in values if value is not None]


def calibration(rows: Sequence[Row]) -> Section | None:
    """Whether scores mean what they say; on the test part where that was measured ("test"), else as the card has it."""
    there = [row for row in rows if _curves_of_scores(row)]
    if not there:
        return None
    pictures, cells = [], []
    for row in there:
        tables = _curves_of_scores(row)
        pictures.append(reliability(list(tables.items()), str(row["name"])))
        for part, table in tables.items():
            cells += [
                [
                    f"{row['name']}, {part}",
                    f"{line['from']:.1f} to {line['to']:.1f}",
                    f"{line['labels']:,}",
                    fixed(line["mean_score"], 3),
                    fixed(line["right"], 3),
                ]
                for line in table
            ]
    lead = (
        "Of all labels with a score near 0.8, 80 % should be right: then the line follows the diagonal. Above it the "
        "model is too modest, below it too sure. Large points stand for many labels."
    )
    if not any("test" in _curves_of_scores(row) for row in there):
        lead += " Measured on texts held out in training."
    blocks = [figure(pictures, grid(["", "score", "labels", "mean score", "share right"], cells)), _errors(there)]
    blocks += left_out(rows, there, "its scores were not held against the truth")
    return Section("Calibration", "Do scores mean what they say?", lead, blocks)


def _curves_of_scores(row: Row) -> dict[str, list[Row]]:
    found = row.get("calibration") or {}
    tables = {"test": found.get("test"), "held out": found.get("table")}
    return {part: table for part, table in tables.items() if table}


def _errors(rows: Sequence[Row]) -> Block:
    """How far scores are off on average, in points."""
    cells = []
    for row in rows:
        found = row["calibration"]
        method = str(found.get("method") or "none")
        errors = [value_at(found, "test_error"), value_at(found, "errors", method), value_at(found, "errors", "none")]
        cells.append([str(row["name"]), method, *(NOTHING if e is None else f"{100 * e:.1f}" for e in errors)])
    header = ["off by points, on average", "calibration", "on test texts", "on held-out texts", "before calibration"]
    return grid(header, cells, (0, 1))


def robustness(rows: Sequence[Row]) -> Section | None:
    """What is left when words are shuffled (InceptionXML's Table 4), left out or misspelt."""
    there = [row for row in rows if any(value_at(row, "robustness", kind, "P@1") is not None for kind in DISTURBED)]
    if not there:
        return None
    measured = {metric for row in there for kind in DISTURBED for metric in row["robustness"].get(kind) or ()}
    metrics = [metric for metric in ("P@1", "P@5", "PSP@1", "PSP@5") if metric in measured]
    cells, pictures = [], []
    for row in there:
        for kind in (AS_WRITTEN, *DISTURBED):
            values = [_disturbed(row, kind, metric) for metric in metrics]
            if any(value is not None for value in values):
                cells.append([f"{row['name']}, {DISTURBED.get(kind, kind)}", *map(fixed, values)])
    for kind, name in DISTURBED.items():
        triples = [(row, value_at(row, "robustness", kind, "P@1"), _disturbed(row, AS_WRITTEN, "P@1")) for row in there]
        shown = [Bar(str(row["name"]), v, peer=is_peer(row), was=was) for row, v, was in triples if v is not None]
        if shown and len(there) > 1:
            pictures.append(bars(sorted(shown, key=lambda bar: -bar.value), f"P@1, {name}", best=True))
    if len(there) == 1:
        pictures = [bars(_bars_of_one(there[0], metric), metric) for metric in metrics]
    sample = value_at(there[0], "robustness", "texts")
    lead = (
        "The same texts with their words in another order; with words left out at random, one in four; and with words "
        "misspelt, one in four, by a letter. The dashed mark is where the texts as written stand."
    )
    if sample is not None:
        lead += f" Measured on {sample:,.0f} of the test texts."
    title = "What do word order, missing words and slips cost?"
    return Section(
        "Robustness",
        title,
        lead,
        [figure(pictures, grid(["", *metrics], cells)), *left_out(rows, there, "not measured")],
    )


def _disturbed(row: Row, kind: str, metric: str) -> float | None:
    value = value_at(row, "robustness", kind, metric)
    if value is None and kind == AS_WRITTEN and value_at(row, "robustness", "texts") is None:
        return value_at(row, "scores", metric)  # all texts were disturbed
    return value


def _bars_of_one(row: Row, metric: str) -> list[Bar]:
    was = _disturbed(row, AS_WRITTEN, metric)
    shown = [Bar(AS_WRITTEN, was)] if was is not None else []
    for kind, name in DISTURBED.items():
        value = value_at(row, "robustness", kind, metric)
        if value is not None:
            shown.append(Bar(name, value, was=was))
    return shown


def words_per_text(content: Any) -> Section | None:
    """How short the texts are (InceptionXML's Figure 6)."""
    buckets = _buckets(content)
    if not buckets:
        return None
    part = f" of the {content['texts']} part" if "texts" in content else ""
    lead = f"Words in a text{part}, and the share of texts that have so many."
    facts = [f"{name} {value:,.1f}" for name in ("mean", "median") if (value := value_at(content, name)) is not None]
    lead += f" {'; '.join(facts).capitalize()}." if facts else ""
    numbers = grid(["words", "texts"], [[name, f"{count:,.0f}"] for name, count in buckets])
    picture = histogram(buckets, "words in a text", "Share of the texts")
    return Section("Words", "How short are the texts?", lead, [figure([picture], numbers)])


def _buckets(content: Any) -> list[tuple[str, float]]:
    found = content.get("histogram") if isinstance(content, Mapping) else None
    return [(str(bucket["name"]), float(bucket["count"])) for bucket in found or ()]


def answers(predictions: Iterable[Sequence[Any]]) -> tuple[str, str]:
    """Predicted labels as a list, right ones marked: in HTML and for a Markdown table."""
    items, marked = [], []
    for label, name, score, right in predictions:
        shown = str(name or label)
        told = "right" if right else "wrong"
        sign = f'<span class="sign" role="img" aria-label="{told}">{"✓" if right else ""}</span>'
        points = "" if score is None else f'<span class="score">{float(score):.2f}</span>'
        items.append(f'<li class="{told}">{sign}<span>{given(shown)}</span>{points}</li>')
        marked.append(f"**{plain(shown)}**" if right else f"*{plain(shown)}*")
    return f"<ul>{''.join(items)}</ul>", "; ".join(marked)


def example(text: str, labels: Sequence[str], predictions: Mapping[str, Sequence[Any]], why: str = "") -> Block:
    """One text, what is true of it, and what each system says; `why`: the text in another form."""
    lists, cells = [], []
    for name, found in predictions.items():
        shown, marked = answers(found)
        head = f"<h3>{escape(name)}</h3>" if name else ""
        lists.append(f"<div>{head}{shown}</div>")
        cells.append(f"{plain(name)}: {marked}" if name else marked)
    truth, said = "; ".join(labels) or "none", f'<p class="said">{given(text)}</p>'
    html = (
        f'<article class="example{" one" if why else ""}"><div>{why or said}<p class="truth">True: {given(truth)}</p>'
        f'</div><div class="answers">{"".join(lists)}</div></article>'
    )
    return Block(html, "\n".join([f"- {plain(text)} (true: {plain(truth)})", *(f"  - {cell}" for cell in cells)]))


def ablations(tables: Sequence[Mapping[str, Any]] | None) -> list[Section]:
    """Tables that came with the results, with plots of their columns of numbers.

    A table may say how many of its first columns name a row ("named", else 1), which columns are drawn ("drawn", else
    all that are numbers), that the spread of each is what matters ("spread"), and have "notes" on its rows, and rows
    with "curves" as systems have them.
    """
    return [_ablation(table) for table in tables or () if table["rows"]]


def _ablation(table: Mapping[str, Any]) -> Section:
    header, rows = [str(name) for name in table["header"]], [list(row) for row in table["rows"]]
    n_names = int(table.get("named") or 1)
    names = [", ".join(str(value) for value in row[:n_names]) for row in rows]
    numeric = [
        column
        for column in range(n_names, len(header))
        if all(isinstance(row[column], int | float | None) for row in rows)
        and any(row[column] is not None for row in rows)
    ]
    drawn = {
        header[c]: [Bar(name, float(row[c])) for name, row in zip(names, rows, strict=True) if row[c] is not None]
        for c in numeric
        if header[c] in (table.get("drawn") or header)
    }
    if table.get("spread") and drawn:
        pictures = [spread([(n, [bar.value for bar in values]) for n, values in drawn.items()], str(table["title"]))]
    else:
        pictures = [bars(values, name, 2) for name, values in drawn.items()]
    cells = [[_cell(value, column in numeric) for column, value in enumerate(row)] for row in rows]
    numbers = grid(header, cells, [column for column in range(len(header)) if column not in numeric])
    blocks = [figure(pictures, numbers)] if pictures and len(rows) > 1 else [numbers]
    missing = {name: [header[c] for c in numeric if row[c] is None] for name, row in zip(names, rows, strict=True)}
    blocks += without_value(missing)
    blocks += [paragraph(f"{name}: {note}", "left-out") for name, note in (table.get("notes") or {}).items()]
    learnt = [row for row in table.get("curves") or () if _curves_of(row)]
    blocks += [_curve_figure(learnt)] if learnt else []
    title = str(table.get("question") or table["title"])
    return Section(str(table["title"]), title, str(table.get("lead") or table["title"]) + ".", blocks)


def _cell(value: Any, numeric: bool) -> str:
    if value is None:
        return NOTHING
    if numeric:
        return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return str(value)


def bars_by_metric(rows: Sequence[Row], metrics: Iterable[str]) -> list[Html]:
    """A panel for each metric, the best row on top."""
    pictures: list[Html] = []
    for metric in metrics:
        values = [(row, value_at(row, "scores", metric)) for row in rows]
        shown = [
            Bar(str(row["name"]), value, *interval(row, metric), peer=is_peer(row))
            for row, value in values
            if value is not None
        ]
        if shown:
            pictures.append(bars(sorted(shown, key=lambda bar: -bar.value), metric, best=True))
    return pictures
