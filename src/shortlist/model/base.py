"""What every trained model can do, whatever its recipe: predict by name, save, load."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.dataset import Dataset
from shortlist.data.texts import Texts
from shortlist.errors import DataError, OptionError
from shortlist.kernels.threads import use_cores
from shortlist.model.calibration import Calibration
from shortlist.model.folder import CARD, DISPLAY_NAMES, LABELS, ModelReader, ModelWriter, save_model
from shortlist.odds import log_odds

if TYPE_CHECKING:
    from shortlist.text import Tokenizer

log = logging.getLogger("shortlist")

# Points of P@1 that 8 bits may cost without a warning.
LARGEST_LOSS = 0.2
# Of longer texts, so many words are explained.
MOST_EXPLAINED = 64
TEXTS_PER_PART = 512


class WordShare(NamedTuple):
    """What a word did for a label: `text[start:end]` moved its log-odds by so much, up or down."""

    start: int
    end: int
    moved: float


class Prediction(NamedTuple):
    """A label, how likely it is right, its readable name (the label itself where it has no other), and why."""

    label: str
    score: float
    name: str
    words: tuple[WordShare, ...] = ()


AnyModel = TypeVar("AnyModel", bound="Model")


class Model(ABC):
    """A trained model. `recipe` is the name under which it was trained."""

    recipe: str

    def __init__(
        self, label_names: Sequence[str], display_names: Mapping[str, str] | Sequence[str], options: dict[str, Any]
    ) -> None:
        """`display_names` by label, or in the order of the labels, empty where there is none."""
        self._names, self._shown = label_names, display_names
        self.options = options
        self.calibration: Calibration | None = None
        # What training found out, for the card; and texts and labels that it has not learnt from, to measure on.
        self.facts: dict[str, Any] = {}
        self.held_out: tuple[Any, Ragged] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_labels:,} labels)"

    @property
    def n_labels(self) -> int:
        return len(self._names)

    @cached_property
    def label_names(self) -> list[str]:
        """The names of all labels, by id."""
        return list(self._names)

    @cached_property
    def display_names(self) -> dict[str, str]:
        """Readable names, by label, of those labels that have one."""
        if isinstance(self._shown, Mapping):
            return dict(self._shown)
        return {name: shown for name, shown in zip(self._names, self._shown, strict=False) if shown}

    @property
    def card(self) -> dict[str, Any]:
        """What there is to know about the model, as JSON would hold it."""
        from shortlist import __version__

        vocabulary = getattr(self, "vocabulary", None)
        about = {
            "title": self.title,
            "recipe": self.recipe,
            "shortlist_version": __version__,
            "n_labels": self.n_labels,
            "n_words": None if vocabulary is None else len(vocabulary),
            "options": self.options,
        }
        return {**about, **self.facts, **about}  # facts come from a file, and do not overrule what is so

    @property
    def title(self) -> str:
        """What it is, for people."""
        return self.recipe

    @abstractmethod
    def _rank(self, inputs: Any, k: int, threads: int | None, search_effort: float) -> tuple[np.ndarray, np.ndarray]:
        """For texts (or rows of features), the k best label ids and their scores; -1 where there are fewer."""

    @abstractmethod
    def _scores(self, inputs: Any, ids: np.ndarray, threads: int | None) -> np.ndarray:
        """The scores that these labels (texts × K) would have if they were looked at, whatever is put forward."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What makes words of texts; None where texts are not read."""
        return None

    @abstractmethod
    def _write(self, writer: ModelWriter) -> dict[str, Any]:
        """Put the model's own files in place; what else the config should hold."""

    @classmethod
    @abstractmethod
    def _read(cls: type[AnyModel], reader: ModelReader, common: dict[str, Any]) -> AnyModel:
        """The model again; `common` are the arguments of `Model.__init__`."""

    def rank(
        self, inputs: Any, k: int = 5, threads: int | None = None, min_score: float = 0.0, search_effort: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `predict`, in arrays: label ids (texts × k, -1 where there are fewer) and their scores."""
        inputs = _checked(inputs)
        if threads is None and _count(inputs) == 1:
            threads = 1  # there is nothing to share out, and others to wait for
        ids, scores = self._rank_in_parts(inputs, _checked_k(k), threads, _checked_search_effort(search_effort))
        ids, scores = _without_nan(ids, scores)
        if self.calibration is not None:
            scores = self.calibration.apply(scores)
        scores = np.clip(scores, 0, 1)  # of cosines, some are a little above 1
        if _checked_score(min_score) > 0:
            ids = np.where(scores >= min_score, ids, -1)
        return ids, scores

    def _rank_in_parts(
        self, inputs: Any, k: int, threads: int | None, search_effort: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Many texts in parts, each the work of one core from words to labels: nothing then waits for anything."""
        n_parts = -(-_count(inputs) // TEXTS_PER_PART)
        with use_cores(threads) as n_threads:
            if n_parts <= 1 or n_threads == 1:
                return self._rank(inputs, k, threads, search_effort)

        def rank_part(part: int) -> tuple[np.ndarray, np.ndarray]:
            with use_cores(1):
                return self._rank(inputs[part * TEXTS_PER_PART : (part + 1) * TEXTS_PER_PART], k, 1, search_effort)

        with ThreadPoolExecutor(n_threads) as pool:
            ids, scores = (np.concatenate(parts) for parts in zip(*pool.map(rank_part, range(n_parts)), strict=True))
        return ids, scores

    def scores(self, inputs: Any, ids: np.ndarray, threads: int | None = None) -> np.ndarray:
        """The scores of these labels (ids, texts × K), whether or not they are among the best."""
        with use_cores(threads):
            scores = np.nan_to_num(self._scores(_checked(inputs), ids, threads))
        return np.clip(scores if self.calibration is None else self.calibration.apply(scores), 0, 1)

    @overload
    def predict(  # type: ignore[overload-overlap]
        self,
        texts: str,
        k: int = 5,
        threads: int | None = None,
        min_score: float = 0.0,
        explain: bool = False,
        search_effort: float = 1.0,
    ) -> list[Prediction]: ...
    @overload
    def predict(
        self,
        texts: Iterable[str],
        k: int = 5,
        threads: int | None = None,
        min_score: float = 0.0,
        explain: bool = False,
        search_effort: float = 1.0,
    ) -> list[list[Prediction]]: ...
    def predict(
        self,
        texts: str | Iterable[str],
        k: int = 5,
        threads: int | None = None,
        min_score: float = 0.0,
        explain: bool = False,
        search_effort: float = 1.0,
    ) -> list[Prediction] | list[list[Prediction]]:
        """The k best labels of one text, or of each of many; fewer where the model knows no more.

        threads    how many cores to use; all by default
        min_score  labels with a smaller score are left out: silence rather than a bad guess
        explain    say of each label which words moved its score, and by how much
        effort     2: search about twice as much as was found to be enough, a little more accurate and slower;
                   0.5: half of it

        >>> model.predict("jbl wireless headphones", k=3)  # doctest: +SKIP
        [Prediction(label='headphones', score=0.71, name='headphones'), …]
        """
        if isinstance(texts, str):
            return self.predict([texts], k, threads, min_score, explain, search_effort)[0]
        texts = _checked(texts)
        ids, scores = self.rank(texts, k, threads, min_score, search_effort)
        predictions = [
            [self._prediction(label, score) for label, score in zip(row, row_scores, strict=True) if label >= 0]
            for row, row_scores in zip(ids.tolist(), scores.tolist(), strict=True)
        ]
        if not explain:
            return predictions
        return [
            self._explained(text, row[row >= 0], found, threads)
            for text, row, found in zip(texts, ids, predictions, strict=True)
        ]

    def _explained(
        self, text: str, ids: np.ndarray, predictions: list[Prediction], threads: int | None
    ) -> list[Prediction]:
        """The predictions with what each word did: how the score would fall if the word were not there."""
        tokenizer = self.tokenizer
        spans = [] if tokenizer is None else tokenizer.spans(text)[:MOST_EXPLAINED]
        if not predictions or not spans:
            return predictions
        without = [text[:start] + " " + text[end:] for start, end in spans]
        texts, ids = Texts.from_strings([text, *without]), np.tile(ids, (1 + len(spans), 1))
        with use_cores(threads):
            # Not calibrated: where that curve is flat, nothing would seem to move.
            odds = log_odds(np.nan_to_num(self._scores(texts, ids, threads)))
        moved = (odds[0] - odds[1:]).T.tolist()
        return [
            prediction._replace(words=tuple(WordShare(*span, by) for span, by in zip(spans, row, strict=True)))
            for prediction, row in zip(predictions, moved, strict=True)
        ]

    def _prediction(self, label: int, score: float) -> Prediction:
        name = self._names[label]
        if isinstance(self._shown, Mapping):
            return Prediction(name, score, self._shown.get(name, name))
        return Prediction(name, score, (self._shown[label] or name) if self._shown else name)

    def predict_dataset(
        self, dataset: Dataset, k: int = 5, threads: int | None = None, search_effort: float = 1.0
    ) -> Dataset:
        """Predictions as a data set: the same texts, the predicted labels best first, scores as weights."""
        inputs = dataset.texts if dataset.features is None else dataset.features
        ids, scores = self.rank(inputs, k, threads, search_effort=search_effort)
        found = ids >= 0
        labels = Ragged(
            counts_to_indptr(found.sum(axis=1)), ids[found].astype(np.int32), scores[found].astype(np.float32)
        )
        return Dataset(dataset.texts, labels, self.label_names, self.display_names)

    def save(self, folder: str | Path, bits: int = 8) -> None:
        """Write the model to a folder, all or nothing; an older model there is replaced.

        Rows of weights are stored in 8 bits, or with `bits=32` as they were learnt, four times as large. What that
        costs is measured on held-out texts and stands in the model's card.
        """
        check_bits(bits)

        def fill(writer: ModelWriter) -> dict[str, Any]:
            writer.strings(LABELS, self._names)
            if self.display_names:
                writer.strings(DISPLAY_NAMES, [self.display_names.get(name, "") for name in self._names])
            return self.write_part(writer)

        def card_of(reader: ModelReader) -> dict[str, Any]:
            facts = {name: value for name, value in self.facts.items() if name not in ("size_bytes", "created")}
            before = facts.get("storage", {})
            if self.held_out is None:  # what was measured before holds for what was stored before
                return facts | {"storage": before if 0 < before.get("bits", 0) <= bits else {"bits": bits}}
            stored = type(self).from_reader(reader)
            stored.warm_up()
            return facts | {"storage": {"bits": bits} | self._storage_loss(stored)}

        save_model(folder, self.recipe, self.options, self.n_labels, bits, fill, card_of)

    def warm_up(self) -> None:
        """Let everything that predictions need load or, the first time on a machine, compile: it takes seconds."""
        if self.tokenizer is None:
            return
        texts = self.facts.get("examples") or ["a text"]
        self.predict(texts[0], explain=True)
        self.predict(texts)

    def _storage_loss(self, stored: Model) -> dict[str, Any]:
        """P@1 on the held-out texts of this model and of what was stored of it."""
        from shortlist.evaluation import evaluate

        assert self.held_out is not None
        inputs, labels = self.held_out
        before, after = (evaluate(model.rank(inputs, 1)[0], labels, k=(1,))["P@1"] for model in (self, stored))
        if before - after > LARGEST_LOSS:
            log.warning(
                "stored in 8 bits the model loses %.2f points of P@1; bits=32 keeps them, at four times the size",
                before - after,
            )
        return {"P@1_as_learnt": round(before, 2), "P@1_as_stored": round(after, 2), "held_out_texts": len(labels)}

    def write_part(self, writer: ModelWriter) -> dict[str, Any]:
        """Put everything but the names of labels in place; what the config should hold."""
        extra = self._write(writer)
        return extra if self.calibration is None else extra | {"calibration": vars(self.calibration)}

    @classmethod
    def read_part(cls: type[AnyModel], reader: ModelReader, common: dict[str, Any]) -> AnyModel:
        """What `write_part` wrote; `common` are the arguments of `Model.__init__`."""
        model = cls._read(reader, common)
        if "calibration" in reader.config.extra:
            try:
                model.calibration = Calibration(**reader.config.extra["calibration"])
            except (TypeError, ValueError, OverflowError) as error:
                raise reader.damaged(f"its calibration: {error}") from None
        return model

    @classmethod
    def from_reader(cls: type[AnyModel], reader: ModelReader) -> AnyModel:
        """The model in an open folder."""
        names = reader.strings(LABELS)
        shown: Sequence[str] = reader.strings(DISPLAY_NAMES) if reader.has(DISPLAY_NAMES) else []
        if len(names) != reader.config.n_labels or len(shown) not in (0, len(names)):
            raise reader.damaged(f"there are not {reader.config.n_labels:,} labels in it, as its config says")
        if not len(names):
            raise reader.damaged("it has no labels")
        model = cls.read_part(reader, {"label_names": names, "display_names": shown, "options": reader.config.options})
        if reader.has(CARD):
            model.facts = reader.json(CARD) | reader.facts()
            examples = model.facts.get("examples", [])
            if not isinstance(examples, list) or not all(isinstance(text, str) for text in examples):
                raise reader.damaged(f"the examples in {CARD} are not a list of texts")
        reader.check_config()
        return model


def check_bits(bits: int) -> None:
    """Refuse other numbers of bits than rows can be stored in."""
    if bits not in (8, 32):
        raise OptionError(f"bits is {bits!r}; it can be 8 or 32")


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


def _without_nan(ids: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels whose score is no number, left out: only weights that are none themselves, or far too large, do that."""
    strange = np.isnan(scores)
    if not strange.any():
        return ids, scores
    last = np.argsort(strange | (ids < 0), axis=1, kind="stable")
    ids, scores = np.where(strange, -1, ids), np.where(strange, 0, scores)
    return np.take_along_axis(ids, last, axis=1), np.take_along_axis(scores, last, axis=1)


def _count(inputs: Any) -> int:
    return inputs.shape[0] if hasattr(inputs, "shape") else len(inputs)


def _checked_k(k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise OptionError(f"k is {k!r}; expected a whole number")
    if k < 1:
        raise OptionError(f"k is {k}; ask for at least one label")
    return int(k)


def _checked_search_effort(search_effort: float) -> float:
    if isinstance(search_effort, bool) or not isinstance(search_effort, int | float) or not 0 < search_effort < np.inf:
        raise OptionError(f"search_effort is {search_effort!r}; it is a factor such as 0.5 or 2")
    return float(search_effort)


def _checked_score(min_score: float) -> float:
    if isinstance(min_score, bool) or not isinstance(min_score, int | float) or not 0 <= min_score <= 1:
        raise OptionError(f"min_score is {min_score!r}; scores go from 0 to 1")
    return float(min_score)
