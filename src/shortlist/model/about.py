"""What there is to know about a model without predicting anything: its labels, what it reads, and its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shortlist.errors import OptionError
from shortlist.labels.hierarchy import Hierarchy
from shortlist.model.label_lookup import LabelLookup
from shortlist.model.levels import LabelLevels
from shortlist.stages.columns import Columns
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.tail import TailRanking
from shortlist.stages.thresholds import Thresholds

if TYPE_CHECKING:
    from shortlist.text import Tokenizer, Vocabulary
    from shortlist.text.fields import TextFields


class ModelAbout:
    """The part of `Model` that describes it."""

    recipe: str
    options: dict[str, Any]
    pipelines: list[Pipeline]
    facts: dict[str, Any]
    thresholds: Thresholds | None
    tail_ranking: TailRanking | None
    lists: Mapping[str, Sequence[str]]
    hierarchy: Hierarchy | None
    text_fields: TextFields | None
    kept_texts: bytes
    _labels: Sequence[str]
    _display_names: Mapping[str, str] | Sequence[str]

    @property
    def n_labels(self) -> int:
        return len(self._labels)

    @cached_property
    def label_names(self) -> list[str]:
        """All labels, in the order of their ids."""
        return list(self._labels)

    @cached_property
    def display_names(self) -> dict[str, str]:
        """The display names of those labels that have one."""
        if isinstance(self._display_names, Mapping):
            return dict(self._display_names)
        return {label: name for label, name in zip(self._labels, self._display_names, strict=False) if name}

    @cached_property
    def labels(self) -> LabelLookup:
        """The labels by what users may call them."""
        return LabelLookup(self.label_names, self.display_names, self.lists)

    @cached_property
    def levels(self) -> LabelLevels:
        """The labels and those above them in the hierarchy of the model."""
        if self.hierarchy is None:
            raise OptionError(
                "this model has no hierarchy, so it has no levels. Store one with model.set_hierarchy(…), or "
                "`shortlist labels hierarchy`."
            )
        return LabelLevels(self.hierarchy.numbered(self.label_names), self.n_labels, self.display_names, self.lists)

    @property
    def all_labels(self) -> list[str]:
        """The labels, followed by those that occur in the hierarchy only."""
        return self.label_names if self.hierarchy is None else self.levels.hierarchy.labels

    @property
    def all_names(self) -> dict[str, str]:
        """The display names of `all_labels`, of those that have one."""
        return self.display_names if self.hierarchy is None else self.levels.display_names

    def forget_lookups(self) -> None:
        """Forget what was derived from labels, names, lists and the hierarchy: one of them has changed."""
        for name in ("label_names", "display_names", "labels", "levels"):
            self.__dict__.pop(name, None)

    @property
    def title(self) -> str:
        """The recipe, and the size of an ensemble."""
        return self.recipe if len(self.pipelines) == 1 else f"{self.recipe} × {len(self.pipelines)}"

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words that the model reads; None where it reads none."""
        words = self.pipelines[0].vocabulary
        return None if isinstance(words, Columns) else words

    @property
    def columns(self) -> Columns | None:
        """The columns of the features that the model takes; None if it takes texts."""
        columns = self.pipelines[0].vocabulary
        return columns if isinstance(columns, Columns) else None

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What splits texts into words; None where the model does not read words."""
        return None if self.vocabulary is None else self.vocabulary.tokenizer

    @property
    def inputs(self) -> str:
        """What `predict` takes: "texts", "sparse features", "dense features", or "anything"."""
        if self.columns is not None:
            return "dense features" if self.columns.dense else "sparse features"
        return "anything" if self.vocabulary is None else "texts"

    @property
    def reading(self) -> dict[str, Any]:
        """The options with which `shortlist.read` reads texts for this model."""
        return {} if self.text_fields is None else self.text_fields.reading

    @property
    def card(self) -> dict[str, Any]:
        """The model card: what there is to know about the model, as JSON would hold it."""
        from shortlist import __version__

        about = {
            "title": self.title,
            "recipe": self.recipe,
            "shortlist_version": __version__,
            "n_labels": self.n_labels,
            "inputs": self.inputs,
            "n_words": None if self.vocabulary is None else len(self.vocabulary),
            "n_columns": None if self.columns is None else len(self.columns),
            "options": self.options,
            "min_score": 0.0 if self.thresholds is None else self.thresholds.min_score,
            "text_fields": None if self.text_fields is None else list(self.text_fields.names),
            "kept_texts": self.kept_texts.count(b"\n"),
            "lists": {name: len(labels) for name, labels in self.lists.items()},
            "hierarchy": None if self.hierarchy is None else len(self.hierarchy.labels),
            "tail": None if self.tail_ranking is None else self.tail_ranking.auto,
        }
        return {**about, **self.facts, **about}  # facts may come from a file, and do not overrule what is so
