"""What a caller can say about how to read a source; the same for every format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from shortlist.data.report import OnError
from shortlist.errors import OptionError


@dataclass(frozen=True)
class ReadOptions:
    """Fields are columns, too: `text` names a JSON field, a CSV column or a Parquet column.

    text             where the text is; None when there is none to read (predictions, say)
    labels           where the labels are; None when there are none to read
    weights          where the labels' weights are (as many as labels), if anywhere
    time             where a time is kept, for splitting by it
    label_separator  how several labels are written in one string; in CSV and TSV ";" unless said otherwise
    separator        between CSV columns ("," for .csv, tab for .tsv)
    header           whether a CSV begins with column names; without, the first column is the text and the
                     second the labels
    quotes           whether quotes around a CSV field are not part of it
    encoding         of text files
    on_error         "raise" at the first bad line, or "skip" and list them in `dataset.report`
    label_names      a file of readable names for labels; found by itself when it lies beside the data
    """

    text: str | None = "text"
    labels: str | None = "labels"
    weights: str | None = None
    time: str | None = None
    label_separator: str | None = None
    separator: str | None = None
    header: bool = True
    quotes: bool = True
    encoding: str = "utf-8"
    on_error: OnError = "raise"
    label_names: str | Path | None = None
    show_progress: bool = True

    # In messages: which columns to name, and how.
    columns: ClassVar[str] = "text and labels (--text, --labels)"
    fields_said: ClassVar[str] = "text=, labels= (--text, --labels)"

    @property
    def fields(self) -> list[str]:
        """The fields that must be there."""
        return [field for field in (self.text, self.labels, self.weights, self.time) if field]

    def __post_init__(self) -> None:
        for option in ("text", "labels", "weights", "time"):
            if getattr(self, option) == "":
                raise OptionError(f"{option} is empty; give the name of a field, or None for no {option}")
        if self.separator is not None and len(self.separator) != 1:
            raise OptionError(f"separator is {self.separator!r}; it must be one character")
        if self.label_separator == "":
            raise OptionError("label_separator is empty; leave it out or give the character between labels")
        try:
            "".encode(self.encoding)
        except LookupError:
            raise OptionError(f"encoding {self.encoding!r} is not known; try utf-8, latin-1 or utf-16") from None
