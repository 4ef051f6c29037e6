"""Problems found while reading. All formats report them here, in the same words, and obey the same `on_error`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from shortlist.errors import DataError, OptionError

OnError = Literal["raise", "skip"]
MAX_PROBLEMS_KEPT = 1000


@dataclass(frozen=True)
class Problem:
    """A line (or row, if a format has no lines) that could not be read, and why."""

    file: str
    line: int
    what: str
    expected: str
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.line:,}: {self.what}; expected {self.expected}"


@dataclass
class ReadReport:
    """Filled while a data set is read; afterwards `dataset.report`."""

    on_error: OnError = "raise"
    problems: list[Problem] = field(default_factory=list)
    n_problems: int = 0
    empty_texts: int = 0
    texts_without_labels: int = 0
    repeated_labels: int = 0

    def __post_init__(self) -> None:
        if self.on_error not in get_args(OnError):
            raise OptionError(f'on_error is {self.on_error!r}; choose "raise" or "skip"')

    def add(
        self, file: str, line: int, what: str, expected: str, unit: str = "line", advice: str | None = None
    ) -> None:
        """Record a bad line; with on_error="raise", raise an error that also says what to do."""
        problem = Problem(file, line, what, expected, unit)
        if self.on_error == "raise":
            advice = advice or f"Fix the {unit}, or skip bad {unit}s with on_error='skip' (--on-error skip)."
            raise DataError(f"{problem}. {advice}")
        self.n_problems += 1
        if len(self.problems) < MAX_PROBLEMS_KEPT:
            self.problems.append(problem)

    def lines(self, limit: int = 10) -> list[str]:
        """A summary to print: what was skipped, and what looks odd."""
        lines = []
        if self.n_problems:
            lines.append("skipped 1 bad line:" if self.n_problems == 1 else f"skipped {self.n_problems:,} bad lines:")
            lines += [f"  {problem}" for problem in self.problems[:limit]]
            if self.n_problems > limit:
                lines.append(f"  … and {self.n_problems - limit:,} more")
        for count, one, many in (
            (self.empty_texts, "empty text", "empty texts"),
            (self.texts_without_labels, "text without labels", "texts without labels"),
            (self.repeated_labels, "label", "labels"),
        ):
            if count:
                lines.append(f"{count:,} {one if count == 1 else many}")
        if self.repeated_labels:
            lines[-1] += " repeated within a text, kept once"
        return lines
