"""Options that every recipe over words has."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from shortlist.errors import OptionError

# How a model is trained, not what it is: not kept with it.
PASSING = ("threads", "device", "checkpoints", "resume", "minutes_between_checkpoints")


@dataclass(frozen=True)
class TextOptions:
    """What is learnt from the texts, and how the work is done; what is None is chosen from the data.

    dimensions   of the word vectors
    vectors      file of word vectors to start from (GloVe or fastText text, .npy); else learnt from the texts
    min_count    words with fewer occurrences are left out
    parts        words that are left out, and unknown ones, are taken apart into pieces of so many characters, "3-4";
                 needs a min_count of 2 or more. Empty: they are not
    max_words    words of a text that are looked at
    label_texts  learn from the labels' names, too, where these are words and not codes
    reranker     whether the words of each label have a second look at the labels ranked best
    candidates   how many labels they look at
    cost         what a mistake costs them beside large weights; smaller for smoother classifiers
    validation   share of the texts that is held out to find the best epoch; 0 for none
    examples     whether some held-out texts stand in the model's card, for people to try; no for texts that are private
    patience     stop when so many epochs brought nothing better
    threads      as many as there are cores, if None
    device       cpu, cuda, or auto: CUDA where there is one
    checkpoints  folder for checkpoints; none are written without
    resume       go on from the checkpoint there
    """

    dimensions: int = 300
    vectors: str = ""
    min_count: int = 1
    parts: str = ""
    max_words: int = 32
    label_texts: bool = True
    reranker: bool = True
    candidates: int = 100
    cost: float = 0.5
    validation: float | None = None
    examples: bool = True
    patience: int = 10
    seed: int = 0
    threads: int | None = None
    device: str = "auto"
    checkpoints: str = ""
    resume: bool = False
    minutes_between_checkpoints: float = 10.0

    @property
    def part_sizes(self) -> tuple[int, int] | None:
        """The shortest and the longest piece of a word."""
        if not self.parts:
            return None
        sizes = re.fullmatch(r"(\d+)(?:-(\d+))?", self.parts)
        if sizes is None:
            raise OptionError(f'parts is {self.parts!r}; expected numbers of characters, such as "3-4"')
        return int(sizes[1]), int(sizes[2] or sizes[1])

    def kept(self) -> dict[str, Any]:
        """What of the options makes the model what it is, and is kept with it."""
        return {name: value for name, value in asdict(self).items() if name not in PASSING}


AnyOptions = TypeVar("AnyOptions", bound=TextOptions)


def size_of(n_texts: int) -> float:
    """How much there is to learn from, in units of 10,000 texts, within the bounds that the defaults were found for."""
    return min(max(n_texts / 10_000, 0.1), 100.0)


def filled(options: AnyOptions, values: dict[str, Any]) -> AnyOptions:
    """The options, with these values where they were left open."""
    return replace(options, **{name: value for name, value in values.items() if getattr(options, name) is None})


def check_options(
    options: TextOptions, counts: tuple[str, ...], shares: tuple[str, ...], rates: tuple[str, ...]
) -> None:
    """Refuse what makes no sense: `counts` are at least 1, `shares` from 0 to below 1, `rates` between 0 and 1."""
    for name in ("min_count", "max_words", "patience", "candidates", "threads", *counts):
        value = getattr(options, name, None)
        if value is not None and value < 1:
            raise OptionError(f"{name} is {value}; it must be at least 1")
    for name in ("validation", *shares):
        share = getattr(options, name)
        if share is not None and not 0 <= share < 1:
            raise OptionError(f"{name} is {share}; it is a share, from 0 to below 1")
    for name in rates:
        if not 0 < float(getattr(options, name)) < 1:
            raise OptionError(f"{name} is {getattr(options, name)}; expected a number between 0 and 1, such as 0.004")
    if options.cost <= 0:
        raise OptionError(f"cost is {options.cost}; expected a number above 0, such as 0.5")
    if options.resume and not options.checkpoints:
        raise OptionError("resume needs checkpoints: the folder in which the training left off")
