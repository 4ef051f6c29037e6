"""Options of reading, the same for every format."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from shortlist.errors import OptionError
from shortlist.text.fields import FieldWords, TextFields

OnError = Literal["raise", "skip"]


@dataclass(frozen=True)
class ReadOptions:
    """How to read a source. A field is a JSON field, a CSV column or a Parquet column.

    text             field of the text, or a list of several, which are joined: a record may lack some of them. With
                     weights, {field: weight}: a field of weight 3 counts as if it stood in the text three times. None
                     to read no texts (for example, predictions)
    field_words      with several text fields: "shared" words, or "own" words for all fields but the first
    labels           field of the labels; None to read no labels
    weights          field of the label weights, one per label; None for no weights
    time             field of the time, for splitting by time
    group            field of the group, such as an author: texts of one group can be kept in one part of a split
    keep             names of further fields to keep, such as ids: `dataset.columns`
    label_separator  separator if all labels are in one string; ";" by default in CSV and TSV; "none" if the string is
                     one label, whatever it contains
    separator        separator of CSV columns; "," for .csv and tab for .tsv by default
    header           whether the first line of a CSV file has the column names; if not, the first column is the text
                     and the second the labels
    quotes           whether to remove the quotes around CSV fields
    encoding         encoding of text files
    on_error         "raise" an error at the first bad line, or "skip" bad lines and list them in `dataset.report`
    label_names      display names of the labels: a dict, or a file; a file beside the data is found automatically. A
                     label with several names has {"name": …, "alt_names": […], "description": …} (in JSON, or a dict)
    """

    text: str | Sequence[str] | Mapping[str, int] | None = "text"
    field_words: FieldWords = "shared"
    labels: str | None = "labels"
    weights: str | None = None
    time: str | None = None
    group: str | None = None
    keep: Sequence[str] = ()
    label_separator: str | None = None
    separator: str | None = None
    header: bool = True
    quotes: bool = True
    encoding: str = "utf-8"
    on_error: OnError = "raise"
    label_names: str | Path | Mapping[str, str | Mapping[str, Any]] | None = None
    show_progress: bool = True

    # No kept field may have the name of a field that is written anyway.
    output_fields: ClassVar[frozenset[str]] = frozenset(["text", "labels", "weights", "time"])
    # For error messages: how to choose other fields.
    field_hint: ClassVar[str] = "Choose other fields with text= and labels= (--text, --labels)"

    @property
    def fields(self) -> list[str]:
        """The fields to read. A record must have all of them; of several text fields, at least one."""
        named = (*self.text_names, self.labels, self.weights, self.time, self.group, *self.keep)
        return list(dict.fromkeys(field for field in named if field))

    @property
    def text_names(self) -> tuple[str, ...]:
        """The names of the text fields, usually one."""
        return () if self.text is None else (self.text,) if isinstance(self.text, str) else tuple(self.text)

    @property
    def text_fields(self) -> TextFields | None:
        """The text fields if there are several."""
        if self.text is None or isinstance(self.text, str):
            return None
        return TextFields.of(self.text, self.field_words)

    def __post_init__(self) -> None:
        if self.text is not None and not isinstance(self.text, str):
            if len(self.text_names) == 1 and not isinstance(self.text, Mapping):
                object.__setattr__(self, "text", self.text_names[0])
            else:
                _ = self.text_fields  # raises if they are wrong
        for option in ("text", "labels", "weights", "time", "group"):
            if getattr(self, option) == "":
                raise OptionError(f"{option} is empty; give the name of a field, or None for no {option}")
        if isinstance(self.keep, str):
            raise OptionError(f"keep is {self.keep!r}; give a list of names, such as [{self.keep!r}]")
        if clash := self.output_fields.intersection(self.keep):
            what = f"keep (--keep) names {min(clash)!r}, but the output has a field of that name"
            raise OptionError(f"{what}; leave it out, or rename the field")
        if self.separator is not None and len(self.separator) != 1:
            raise OptionError(f"separator is {self.separator!r}; it must be one character")
        if self.label_separator == "":
            raise OptionError("label_separator is empty; give the separator of the labels, or leave the option out")
        try:
            "".encode(self.encoding)
            codecs.getincrementaldecoder(self.encoding)("replace").decode(b"")  # some know no error handlers
        except (LookupError, UnicodeError):
            raise OptionError(f"encoding {self.encoding!r} is unknown; try utf-8, latin-1 or utf-16") from None
