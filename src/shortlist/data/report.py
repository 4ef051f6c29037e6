"""What reading noticed: lines that could not be used, and oddities that could.

In one place, so that every format complains in the same words and obeys the same `on_error`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from shortlist.errors import DataError, OptionError

OnError = Literal["raise", "skip"]
MOST_PROBLEMS_KEPT = 1000


@dataclass(frozen=True)
class Problem:
    """One line (or row, where a format has no lines) that could not be used, and why."""

    file: str
    line: int
    what: str
    expected: str
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.line:,}: {self.what}; expected {self.expected}"


@dataclass
class Report:
    """Filled while a data set is read; `dataset.report` afterwards."""

    on_error: OnError = "raise"
    problems: list[Problem] = field(default_factory=list)
    n_problems: int = 0
    empty_texts: int = 0
    texts_without_labels: int = 0
    repeated_labels: int = 0

    def __post_init__(self) -> None:
        if self.on_error not in get_args(OnError):
            raise OptionError(f'on_error is {self.on_error!r}; it can be "raise" or "skip"')

    def add(
        self, file: str, line: int, what: str, expected: str, unit: str = "line", advice: str | None = None
    ) -> None:
        """Take note of a bad line; or, when reading is strict, stop here and say what to do about it."""
        problem = Problem(file, line, what, expected, unit)
        if self.on_error == "raise":
            mend = f"Mend the {unit}, or skip and list bad {unit}s with on_error='skip' (--on-error skip)."
            raise DataError(f"{problem}. {advice or mend}")
        self.n_problems += 1
        if len(self.problems) < MOST_PROBLEMS_KEPT:
            self.problems.append(problem)

    def lines(self, most: int = 10) -> list[str]:
        """For people: what was skipped and what was odd."""
        lines = []
        if self.n_problems:
            counted = "1 bad line was" if self.n_problems == 1 else f"{self.n_problems:,} bad lines were"
            lines.append(f"{counted} skipped:")
            lines += [f"  {problem}" for problem in self.problems[:most]]
            if self.n_problems > most:
                lines.append(f"  … and {self.n_problems - most:,} more")
        for count, what in (
            (self.empty_texts, "texts are empty"),
            (self.texts_without_labels, "texts have no labels"),
            (self.repeated_labels, "labels stood twice in one text and were kept once"),
        ):
            if count:
                lines.append(f"{count:,} {what}")
        return lines
