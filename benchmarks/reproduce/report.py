"""The report of a reproduction: each table of the papers with our values beside theirs, and the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

from experiments import Table
from jinja2 import Environment
from markupsafe import Markup

from shortlist.files import write_atomically
from shortlist.report import plots
from shortlist.tables import markdown

MISSING = "–"
Rows = dict[str, dict[str, float]]
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>{{ style }}</style>
<main>
<h1>{{ title }}</h1>
<p>{{ lead }}</p>
<h2>What came out</h2>
<ul>
{% for section in sections if section.finding %}
<li><b>{{ section.title }}</b> ({{ section.place }}): {{ section.finding }}</li>
{% endfor %}
</ul>
{% for section in sections %}
<section>
<h2>{{ section.title }}</h2>
<p>{{ section.place }}. {{ section.text }}</p>
{% if section.finding %}<p><b>Here:</b> {{ section.finding }}</p>{% endif %}
{% if section.rows %}
<div class="table"><table>
<tr>{% for cell in section.header %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in section.rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</table></div>
{% endif %}
{% for figure in section.figures %}<figure>{{ figure }}</figure>{% endfor %}
</section>
{% endfor %}
</main>
</html>
"""


@dataclass
class Section:
    """One table or figure: its place in the paper, what the paper says, what came out here, the rows, and plots."""

    title: str
    place: str
    text: str = ""
    finding: str = ""
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    figures: list[Markup] = field(default_factory=list)

    def to_markdown(self) -> str:
        parts = [f"## {self.title}", f"{self.place}. {self.text}".strip()]
        parts += [f"**Here:** {self.finding}"] if self.finding else []
        if self.rows:
            parts.append(markdown(self.header, self.rows))
        return "\n\n".join(parts)


def table_section(table: Table, ours: Rows) -> Section:
    """A table of trained systems: our values, with the paper's in brackets, and whether their order agrees."""
    rows = [
        [name, *(_cell(ours[name].get(metric), table.theirs.get(name, {}).get(metric)) for metric in table.metrics)]
        for name in table.rows | ours
        if name in ours
    ]
    missing = [name for name in (table.rows | table.theirs) if name not in ours]
    text = [f"The paper: {table.expected}" if table.expected else ""]
    text += ["In brackets: the paper's value, on its own data."] if table.theirs else []
    text += [f"Not measured: {', '.join(missing)}."] if missing else []
    return Section(
        table.title,
        f"{table.paper}, {table.place}",
        " ".join(filter(None, text)),
        order_agreement(ours, table),
        ["", *table.metrics],
        rows,
    )


def order_agreement(ours: Rows, table: Table) -> str:
    """How many pairs of rows are in the paper's order, by the first metric that both have.

    >>> theirs = {"a": {"P@1": 3.0}, "b": {"P@1": 2.0}, "c": {"P@1": 1.0}}
    >>> table = Table("t", "", "", "", dict.fromkeys(theirs, ""), ("P@1",), theirs)
    >>> order_agreement({"a": {"P@1": 9.0}, "b": {"P@1": 5.0}, "c": {"P@1": 7.0}}, table)
    "By P@1, 2 of 3 pairs of rows are in the paper's order; not b before c."
    """
    for metric in table.metrics:
        both = [n for n in table.rows | ours if metric in ours.get(n, {}) and metric in table.theirs.get(n, {})]
        if len(both) > 1:
            break
    else:
        return ""
    theirs = {name: table.theirs[name][metric] for name in both}
    pairs = [sorted(pair, key=lambda name: -theirs[name]) for pair in combinations(both, 2)]
    pairs = [(first, second) for first, second in pairs if theirs[first] != theirs[second]]
    wrong = [f"{first} before {second}" for first, second in pairs if ours[first][metric] < ours[second][metric]]
    against = f"; not {', '.join(wrong[:6])}" + (" …" if len(wrong) > 6 else "") if wrong else ""
    return f"By {metric}, {len(pairs) - len(wrong)} of {len(pairs)} pairs of rows are in the paper's order{against}."


def _cell(ours: float | None, theirs: float | None) -> str:
    shown = MISSING if ours is None else f"{ours:.4f}" if 0 < abs(ours) < 0.1 else f"{ours:,.2f}"
    return shown if theirs is None else f"{shown} ({theirs:,.10g})"


def curves_figure(entries: Mapping[str, Any], names: Iterable[str]) -> list[Markup]:
    """InceptionXML, Figure 3: P@1 of both classifiers over the epochs of training."""
    figures = []
    for name in names:
        curves = [record for record in entries[name].curves if "meta_P@1" in record] if name in entries else []
        if curves:
            lines = [
                plots.Line(title, [(record["epoch"], record[metric]) for record in curves], series)
                for series, (title, metric) in enumerate((("labels", "P@1"), ("clusters", "meta_P@1")))
            ]
            figures.append(plots.lines(lines, "epoch", "P@1", name))
    return figures


def quantile_figure(entries: Mapping[str, Any], names: Iterable[str]) -> list[Markup]:
    """DeepXML, Figure 3: what labels of each fifth by frequency contribute to P@5."""
    figures = []
    for name in names:
        if name in entries and entries[name].by_quantile:
            given = [plots.Bar(f"{part['from']}–{part['to']} texts", part["P@5"]) for part in entries[name].by_quantile]
            figures.append(plots.bars(given, f"{name}: contribution to P@5", digits=2))
    return figures


def negatives_figure(ours: Rows) -> list[Markup]:
    """DeepXML, Figure 2: P@1 over the number of random negatives, and with all labels."""
    found = []
    for series, sampling in enumerate(("uniform", "frequent")):
        rows = [
            (float(name.split()[0]), row["P@1"]) for name, row in ours.items() if name.endswith(f"{sampling} negatives")
        ]
        found += [plots.Line(sampling, rows, series)] if rows else []
    if found and "all labels" in ours:
        ends = [point[0] for line in found for point in line.points]
        level = ours["all labels"]["P@1"]
        found.append(plots.Line("all labels", [(min(ends), level), (max(ends), level)], 2, dashed=True))
    return [plots.lines(found, "negatives per text", "P@1", "Random negatives")] if found else []


def write(folder: Path, title: str, lead: str, sections: list[Section]) -> None:
    """Write report.md and report.html."""
    page = Environment(autoescape=True, trim_blocks=True).from_string(PAGE)
    style = Markup((files("shortlist.report") / "templates" / "style.css").read_text())
    html = page.render(title=title, lead=lead, style=style, sections=sections)
    found = [f"- **{section.title}** ({section.place}): {section.finding}" for section in sections if section.finding]
    parts = [f"# {title}", lead, "## What came out", "\n".join(found)]
    text = "\n\n".join([*parts, *(section.to_markdown() for section in sections)]) + "\n"
    for name, content in (("report.html", html), ("report.md", text)):
        with write_atomically(folder / name) as file:
            file.write(content.encode())
