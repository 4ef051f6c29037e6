"""The places that `--published` and docs/papers.md name exist, and are those of the two papers that we have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import shortlist

ROOT = Path(__file__).parent.parent
PAGE, PACKAGE = ROOT / "docs" / "papers.md", ROOT / "src" / "shortlist"
PLACES = {
    "InceptionXML": {
        *("§1", "§2", "§3", "§4", "§4.1", "§4.2", "§4.3", "§5", "§5.1", "§5.2", "§6", "§6.1", "§6.2", "§6.3", "§7"),
        *("A.1", "A.2", "A.3", "A.4", "A.5", "Algorithm 1"),
        *(f"Table {i}" for i in range(1, 7)),
        *(f"Figure {i}" for i in range(1, 7)),
    },
    "DeepXML": {
        *("§1", "§2", "§3", "§3.1", "§3.2", "§3.3", "§3.4", "§4", "§5", "§6", "equation (1)"),
        *("A.1", "A.2", "A.3", "A.4", "A.5", "A.6"),
        *(f"Table {i}" for i in range(1, 12)),
        *(f"Figure {i}" for i in range(1, 4)),
    },
}
PLACE = re.compile(r"§\d+(?:\.\d+)?|\bA\.\d+|(?:Table|Figure|Algorithm) \d+|equation \(\d+\)")


@pytest.mark.parametrize(
    ("recipe", "option", "source"),
    [
        pytest.param(recipe.name, name, published.source, id=f"{recipe.name}-{name}")
        for recipe in shortlist.list_recipes().values()
        for name, published in recipe.published.items()
    ],
)
def test_places_of_options_exist(recipe, option, source):
    assert source, f"{option} of {recipe} has no source"
    for part in re.split(r"[;,]", source):
        paper = next((paper for paper in PLACES if paper in source[: source.index(part) + len(part)]), "")
        for place in PLACE.findall(part):
            assert paper, f"{source!r}: a place that we cannot check"
            assert place in PLACES[paper], f"{source!r}: {paper} has no {place}"


def test_places_on_the_page_exist():
    """Of each table cell, the places belong to the paper that the cell or its section names."""
    section = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = next((paper for paper in PLACES if paper in line), "")
        if not line.startswith("|"):
            continue
        for part in re.split(r"[|;]", line):
            paper = next((paper for paper in PLACES if part.strip().startswith(paper)), section)
            for place in PLACE.findall(part):
                known = PLACES[paper] if paper else set.intersection(*PLACES.values())
                assert place in known, f"{line!r}: {place}"


def rows_of(header: str) -> list[tuple[str, list[str]]]:
    """The rows of the page's tables whose first column has this header, as cells, with the section's title."""
    found, section, cells = [], "", [""]
    reading = False
    for line in PAGE.read_text().splitlines():
        section = line.removeprefix("## ") if line.startswith("## ") else section
        is_row = line.startswith("|")
        cells = [cell.strip() for cell in line.strip("|").split("|")] if is_row else [""]
        reading = is_row and (reading or cells[0] == header)
        if reading and cells[0] != header and set(cells[0]) != {"-"}:
            found.append((section, cells))
    return found


def test_every_row_says_what_came_out():
    for header, n_cells in (("system", 4), ("part", 5), ("experiment", 4)):
        rows = rows_of(header)
        assert len(rows) > 10
        for _, cells in rows:
            assert len(cells) == n_cells and cells[-1], cells


def test_parts_name_options_and_files_that_exist():
    recipes = {"Parts of InceptionXML": ("inceptionxml", "inceptionxml+"), "Parts of DeepXML and Astec": ("astec",)}
    for section, (part, _, options, code, _) in rows_of("part"):
        for file in re.findall(r"`([^`]+)`", code):
            assert (PACKAGE / file).is_file(), f"{part}: {file}"
        known = set().union(*(shortlist.get_recipe(name).option_names for name in recipes[section]))
        for option in re.findall(r"`([a-z_]+)(?:=[^`]*)?`", options):
            is_value = option in ("frequent", "none")  # further values of the option before
            assert is_value or option in known, f"{part}: {option}"


def test_the_lab_book_has_the_sections_that_are_named():
    titles = re.findall(r"^## [0-9-]+ · (.*)$", (PAGE.parent / "lab-book.md").read_text(), re.MULTILINE)
    for title in re.findall(r"(?<!\*)\*([A-Z][^*|]+)\*(?!\*)", PAGE.read_text()):
        assert title == "Titles" or any(known.startswith(title) for known in titles), title
