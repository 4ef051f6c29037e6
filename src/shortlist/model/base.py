"""What every trained model can do, whatever its recipe: predict by name, save, load."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.texts import Texts
from shortlist.errors import DataError, OptionError
from shortlist.model.folder import DISPLAY_NAMES, LABELS, ModelReader, ModelWriter, save_model
from shortlist.ragged import Ragged, bounds_of


class Prediction(NamedTuple):
    """A label, how well it fits, and its readable name (the label itself where it has no other)."""

    label: str
    score: float
    name: str


AnyModel = TypeVar("AnyModel", bound="Model")


class Model(ABC):
    """A trained model. `recipe` is the name under which it was trained."""

    recipe: str

    def __init__(self, label_names: list[str], display_names: dict[str, str], options: dict[str, Any]) -> None:
        self.label_names = label_names
        self.display_names = display_names
        self.options = options

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.label_names):,} labels)"

    @property
    def title(self) -> str:
        """What it is, for people."""
        return self.recipe

    @abstractmethod
    def rank(self, inputs: Any, k: int, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """For texts (or rows of features), the k best label ids and their scores; -1 where there are fewer."""

    @abstractmethod
    def _write(self, writer: ModelWriter) -> dict[str, Any]:
        """Put the model's own files in place; what else the config should hold."""

    @classmethod
    @abstractmethod
    def _read(cls: type[AnyModel], reader: ModelReader, common: dict[str, Any]) -> AnyModel:
        """The model again; `common` are the arguments of `Model.__init__`."""

    @overload
    def predict(  # type: ignore[overload-overlap]
        self, texts: str, k: int = 5, threads: int | None = None
    ) -> list[Prediction]: ...
    @overload
    def predict(self, texts: Iterable[str], k: int = 5, threads: int | None = None) -> list[list[Prediction]]: ...
    def predict(
        self, texts: str | Iterable[str], k: int = 5, threads: int | None = None
    ) -> list[Prediction] | list[list[Prediction]]:
        """The k best labels of one text, or of each of many; fewer where the model knows no more.

        >>> model.predict("jbl wireless headphones", k=3)  # doctest: +SKIP
        [Prediction(label='headphones', score=0.71, name='headphones'), …]
        """
        if isinstance(texts, str):
            return self.predict([texts], k, threads)[0]
        ids, scores = self.rank(_checked(texts), _checked_k(k), threads)
        return [
            [self._prediction(label, score) for label, score in zip(row, row_scores, strict=True) if label >= 0]
            for row, row_scores in zip(ids.tolist(), scores.tolist(), strict=True)
        ]

    def _prediction(self, label: int, score: float) -> Prediction:
        name = self.label_names[label]
        return Prediction(name, score, self.display_names.get(name, name))

    def predict_dataset(self, dataset: Dataset, k: int = 5, threads: int | None = None) -> Dataset:
        """Predictions as a data set: the same texts, the predicted labels best first, scores as weights."""
        inputs = dataset.texts if dataset.features is None else dataset.features
        ids, scores = self.rank(inputs, _checked_k(k), threads)
        found = ids >= 0
        labels = Ragged(bounds_of(found.sum(axis=1)), ids[found].astype(np.int32), scores[found].astype(np.float32))
        return Dataset(dataset.texts, labels, self.label_names, self.display_names)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, all or nothing; an older model there is replaced."""

        def fill(writer: ModelWriter) -> dict[str, Any]:
            writer.strings(LABELS, self.label_names)
            if self.display_names:
                writer.strings(DISPLAY_NAMES, [self.display_names.get(name, "") for name in self.label_names])
            return self._write(writer)

        save_model(folder, self.recipe, self.options, len(self.label_names), fill)

    @classmethod
    def from_reader(cls: type[AnyModel], reader: ModelReader) -> AnyModel:
        names = reader.strings(LABELS)
        display = reader.strings(DISPLAY_NAMES) if reader.has(DISPLAY_NAMES) else []
        if len(names) != reader.config.n_labels or len(display) not in (0, len(names)):
            raise reader.damaged(f"there are not {reader.config.n_labels:,} labels in it, as its config says")
        display_names = {name: shown for name, shown in zip(names, display, strict=False) if shown}
        common = {"label_names": names, "display_names": display_names, "options": reader.config.options}
        return cls._read(reader, common)


def as_texts(inputs: Any) -> Texts:
    """Whatever was given to predict, as texts."""
    if hasattr(inputs, "shape"):
        raise OptionError("this model was trained on texts; it got a matrix of features")
    return Texts.from_strings(inputs)


def need_pairs(dataset: Dataset) -> None:
    """Refuse a data set without a single label."""
    if not len(dataset.labels.values):
        raise DataError("there is nothing to learn from: the data set has no text with a label")


def _checked(texts: Any) -> Any:
    """Many texts in whatever holds them, each looked at; a matrix of features as it is."""
    if isinstance(texts, Texts) or getattr(texts, "ndim", 1) == 2:
        return texts
    try:
        if isinstance(texts, bytes):  # would fall apart into numbers
            raise TypeError
        texts = list(texts)
    except TypeError:
        raise OptionError(
            f"the texts are of type {type(texts).__name__}; predict takes a text or a list of texts"
        ) from None
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise OptionError(f"text {i} is of type {type(text).__name__}; predict takes a text or a list of texts")
    return Texts.from_strings(texts)


def _checked_k(k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise OptionError(f"k is {k!r}; expected a whole number")
    if k < 1:
        raise OptionError(f"k is {k}; ask for at least one label")
    return int(k)
