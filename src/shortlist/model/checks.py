"""What may be given to `Model.predict`: checks with messages that say what to do; and rankings without NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from shortlist.errors import OptionError
from shortlist.model.levels import Levels
from shortlist.stages.tail import TailRanking
from shortlist.stages.thresholds import Thresholds
from shortlist.text.fields import TextFields, joined
from shortlist.text.texts import Texts


def checked_inputs(inputs: Any, fields: TextFields | None = None) -> Any:
    """Texts from any container, or a matrix of features as it is. Texts may be given as fields: dicts or tuples."""
    if isinstance(inputs, Texts) or getattr(inputs, "ndim", 1) == 2:
        return inputs
    takes = "predict takes a text, a list of texts, or a matrix of features (numpy, scipy)"
    try:
        if isinstance(inputs, bytes):  # would fall apart into numbers
            raise TypeError
        texts = [joined(one, fields) if isinstance(one, Mapping | tuple) else one for one in inputs]
    except TypeError:
        raise OptionError(f"texts are of type {type(inputs).__name__}; {takes}") from None
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            among = " among texts" if any(isinstance(other, str) for other in texts) else ""
            raise OptionError(f"text {i} is of type {type(text).__name__}{among}; {takes}")
    return Texts.from_strings(texts)


def check_same_fields(read: TextFields | None, learnt: TextFields | None) -> None:
    """Texts that were read from several fields must come from those that the model was trained on."""
    if read is not None and read != learnt:
        was = "one text field" if learnt is None else f"the text fields {learnt}, with {learnt.words} words"
        raise OptionError(
            f"the texts were read from the fields {read}, with {read.words} words; this model was trained on {was}"
        )


def without_nan(ids: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels whose score is NaN, because weights are NaN or far too large, are left out."""
    bad = np.isnan(scores)
    if not bad.any():
        return ids, scores
    good_first = np.argsort(bad | (ids < 0), axis=1, kind="stable")
    ids, scores = np.where(bad, -1, ids), np.where(bad, 0, scores)
    return np.take_along_axis(ids, good_first, axis=1), np.take_along_axis(scores, good_first, axis=1)


def checked_k(k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise OptionError(f"k is {k!r}; expected a whole number")
    if k < 1:
        raise OptionError(f"k is {k}; ask for at least one label")
    return int(k)


def checked_search_effort(search_effort: float) -> float:
    is_number = isinstance(search_effort, int | float) and not isinstance(search_effort, bool)
    if not is_number or not 0 < search_effort < np.inf:
        raise OptionError(f"search_effort is {search_effort!r}; expected a factor such as 0.5 or 2")
    return float(search_effort)


def checked_min_score(min_score: float) -> float:
    if isinstance(min_score, bool) or not isinstance(min_score, int | float) or not 0 <= min_score <= 1:
        raise OptionError(f"min_score is {min_score!r}; expected a score from 0 to 1")
    return float(min_score)


def checked_levels(levels: Levels | None, tail: float, thresholds: Thresholds | None) -> Levels | None:
    """The levels, or an OptionError if they are wrong or do not go with the other options."""
    if levels is None or levels == "leaves":
        return levels
    if levels not in get_args(Levels):
        raise OptionError(f"levels is {levels!r:.60}; expected {', '.join(map(repr, get_args(Levels)))}, or None")
    if tail:
        raise OptionError(f"levels is {levels!r}, which ranks by score: it does not go with a tail")
    if levels == "back-off" and (thresholds is None or not (thresholds.min_score or thresholds.per_label)):
        raise OptionError(
            "levels is 'back-off', which needs a threshold to tell which labels are sure: set min_score, such as 0.5, "
            "or store a threshold (choose_threshold)"
        )
    return levels


def checked_tail(tail: float | str, ranking: TailRanking | None) -> float:
    """The tail as a number, or an OptionError if it is wrong or the model has none."""
    if isinstance(tail, bool) or not (tail == "auto" or (isinstance(tail, int | float) and 0 <= tail <= 1)):
        raise OptionError(f"tail is {tail!r}; expected a number from 0 to 1, or 'auto'")
    if not tail:
        return 0.0
    if ranking is None:
        raise OptionError("this model does not know how frequent its labels are, so it takes no tail")
    if tail != "auto":
        return float(tail)
    if ranking.auto is None:
        raise OptionError(
            "tail is 'auto', but training has chosen no value for this model, because there were no held-out texts. "
            "Give a number from 0 to 1, such as 0.3"
        )
    return ranking.auto
