"""What the tests of reports share: small data, a full comparison, and a check of HTML pages."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

COLOURS, THINGS = ("red", "blue", "green", "black"), ("shoes", "hat", "coat", "shirt")
NASTY = "<script>alert(1)</script> | **bold** & \x01"


def rows(count: int) -> list[tuple[str, list[str]]]:
    return [(f"{c} {t} number {i}", [t, c]) for i in range(count) for c in COLOURS for t in THINGS]


VOID = {"meta", "br", "line", "rect", "circle", "path", "polygon"}


class Checker(HTMLParser):
    """Collects the tags, ids, links and text of a page; tags must be balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.tagged_words: list[tuple[str, str]] = []

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
        self.tagged_words.append((self.open[-1] if self.open else "", data))

    @property
    def sections(self) -> list[str]:
        """The names in the table of contents."""
        return [word.strip() for tag, word in self.tagged_words if tag == "a"]

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


def entry(name: str, p1: float, **more: Any) -> dict[str, Any]:
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
        "notes": ["Unseen labels: 34 of 735 test labels do not occur in training, in 43 of 6,900 pairs."],
    },
    "machine": {"cores": 2, "versions": {"shortlist": "0.1.0"}, "peers_versions": {"omikuji": "0.5"}},
    "entries": [
        entry(
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
        entry(
            "bonsai",
            71.4,
            kind="peer",
            train_seconds=1.9,
            ms_p50=0.925,
            difference_to_best={"P@1": {"difference": -2.17, "low": -3.1, "high": -1.2, "p": 0.002}},
        ),
        entry(
            "pecos",
            73.1,
            kind="peer",
            train_seconds=0.5,
            ms_p50=1.446,
            difference_to_best={"P@1": {"difference": -0.47, "low": -1.1, "high": 0.2, "p": 0.31}},
        ),
        entry("popular", 9.6, train_seconds=0.2, ms_p50=0.037),
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
}
