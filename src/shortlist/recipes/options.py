"""Options of recipes as data: a name, a default, a meaning, a range. They are resolved once, before anything starts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from shortlist.errors import OptionError

# How a training runs, not what the model is: these are not saved with it.
RUN_OPTIONS = ("threads", "device", "checkpoint_dir", "resume", "checkpoint_minutes", "minutes")

_TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    list: "a list of strings",
}


class DataSize(NamedTuple):
    """What a default may depend on: the training data, and the options resolved so far.

    inputs       "texts", or "sparse" or "dense" features
    longest_row  the largest number of columns that a row of sparse features has
    """

    n_texts: int
    n_labels: int
    options: Mapping[str, Any]
    inputs: str = "texts"
    longest_row: int = 0

    @property
    def scale(self) -> float:
        """The number of texts in units of 10,000, within the range that the defaults were found for."""
        return min(max(self.n_texts / 10_000, 0.1), 100.0)


@dataclass(frozen=True)
class Option:
    """An option of a recipe.

    types     accepted types of the value
    default   a value, or a function of the `DataSize`
    rule      how a default that depends on the data is computed, in words
    required  whether the user must set it: there is no sensible default
    low       smallest value, excluded if `open_low`; likewise `high`
    source    in a published form, where in the paper the default is
    aliases   other values that are accepted, and what they mean

    >>> Option("n_epochs", (int,), 10, "passes over the training texts", low=1).range
    'at least 1'
    """

    name: str
    types: tuple[type, ...]
    default: Any
    help: str
    rule: str = ""
    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False
    choices: tuple[str, ...] = ()
    pattern: str = ""
    source: str = ""
    required: bool = False
    aliases: tuple[tuple[Any, Any], ...] = ()

    @property
    def range(self) -> str:
        """The accepted values, in words."""
        if self.choices:
            return " | ".join(self.choices)
        if self.types == (bool,):
            return "true | false"
        low = "" if self.low is None else f"{'above' if self.open_low else 'at least'} {self.low:.10g}"
        high = "" if self.high is None else f"{'below' if self.open_high else 'at most'} {self.high:.10g}"
        return " and ".join(filter(None, (low, high))) or " or ".join(_TYPE_NAMES[kind] for kind in self.types)

    def checked(self, value: Any) -> Any:
        """The value as a plain Python object, or an OptionError that says what was expected."""
        if isinstance(value, np.generic):
            value = value.item()  # numpy's numbers cannot be saved as JSON
        for alias, meant in self.aliases:
            if type(value) is type(alias) and value == alias:
                return meant
        if not any(_is_instance(value, kind) for kind in self.types):
            expected = " or ".join(_TYPE_NAMES[kind] for kind in self.types)
            raise OptionError(f"{self.name} is {value!r:.60}; expected {expected}")
        if self.choices and value not in self.choices:
            raise OptionError(f"{self.name} is {value!r:.60}; it can be {', '.join(self.choices)}")
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise OptionError(f"{self.name} is {value!r:.60}; expected {self.help}")
        if float in self.types or int in self.types:
            below = self.low is not None and (value <= self.low if self.open_low else value < self.low)
            above = self.high is not None and (value >= self.high if self.open_high else value > self.high)
            if below or above or value != value:
                raise OptionError(f"{self.name} is {value}; it must be {self.range}")
        return float(value) if self.types == (float,) else value


def _is_instance(value: Any, kind: type) -> bool:
    if isinstance(value, bool):  # to Python it is an int, too
        return kind is bool
    if kind is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, int | float if kind is float else kind)


def count(name: str, default: Any, help: str, rule: str = "", low: int = 1) -> Option:
    return Option(name, (int,), default, help, rule, low=low)


def fraction(name: str, default: Any, help: str, rule: str = "") -> Option:
    return Option(name, (float,), default, help, rule, low=0, high=1, open_high=True)


def share(name: str, default: Any, help: str) -> Option:
    return Option(name, (float,), default, help, low=0, high=1)


def rate(name: str, default: Any, help: str) -> Option:
    return Option(name, (float,), default, help, low=0, high=1, open_low=True, open_high=True)


def flag(name: str, default: bool, help: str) -> Option:
    return Option(name, (bool,), default, help)


def choice(name: str, default: str, help: str, choices: Sequence[str]) -> Option:
    return Option(name, (str,), default, help, choices=tuple(choices))


def by_size(unit: str, first: Any, *steps: tuple[int, Any]) -> dict[str, Any]:
    """A default that follows the number of "texts" or "labels": the first value, and others from some numbers on.

    Returns the keyword arguments `default` and `rule` of an option or a `Published`.

    >>> by_size("texts", 40, (100_000, 200))["rule"]
    '40; 200 from 100,000 texts on'
    """

    def default(size: DataSize) -> Any:
        n = size.n_texts if unit == "texts" else size.n_labels
        return next((value for bound, value in reversed(steps) if n >= bound), first)

    later = [f"{_show(value)} from {bound:,} {unit} on" for bound, value in steps]
    return {"default": default, "rule": "; ".join([_show(first), *later])}


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value).lower() if isinstance(value, bool | str) else f"{value:,}"


class Published(NamedTuple):
    """The default of an option in a paper: a value or a function of the `DataSize`, and its place in the paper.

    >>> Published(500, "Table 5").default
    500
    """

    default: Any
    source: str = ""
    rule: str = ""

    @staticmethod
    def by_size(source: str, unit: str, first: Any, *steps: tuple[int, Any]) -> Published:
        """A default that follows the number of "texts" or "labels": see `by_size`."""
        return Published(source=source, **by_size(unit, first, *steps))


def with_defaults(options: Iterable[Option], **defaults: Any) -> tuple[Option, ...]:
    """The options with other defaults."""
    return with_published(options, {name: Published(value) for name, value in defaults.items()})


def with_published(options: Iterable[Option], published: Mapping[str, Published]) -> tuple[Option, ...]:
    """The options with the defaults of a paper."""
    options = tuple(options)
    unknown = published.keys() - {option.name for option in options}
    if unknown:
        raise OptionError(f"no option {', '.join(sorted(unknown))} to give a default to")
    return tuple(replace(o, **published[o.name]._asdict()) if o.name in published else o for o in options)


class Options:
    """Resolved options, as attributes: `options.n_epochs`."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"this recipe has no option {name!r}") from None

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Any) -> Any:
        """The value, or the default for recipes without this option."""
        return self._values.get(name, default)

    def replace(self, **values: Any) -> Options:
        return Options({**self._values, **values})

    def to_dict(self) -> dict[str, Any]:
        return dict(self._values)

    def model_options(self) -> dict[str, Any]:
        """The options that make the model what it is, and are saved with it."""
        return {name: value for name, value in self._values.items() if name not in RUN_OPTIONS}


def resolve(
    recipe: str,
    options: Sequence[Option],
    given: Mapping[str, Any],
    n_texts: int = 10_000,
    n_labels: int = 1000,
    inputs: str = "texts",
    longest_row: int = 0,
) -> Options:
    """Check the given values and fill in the defaults for data of this kind and size (see `DataSize`).

    None asks for the default where that depends on the data or the machine.

    >>> resolve("r", [count("n_epochs", lambda size: 10, "passes")], {"n_epoch": 3})
    Traceback (most recent call last):
    ...
    shortlist.errors.OptionError: recipe 'r' has no option 'n_epoch'; did you mean 'n_epochs'? (shortlist recipes r)
    """
    known = {option.name: option for option in options}
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known) or 'none'}."
            raise OptionError(f"recipe {recipe!r} has no option {name!r}; {hint} (shortlist recipes {recipe})")
    values: dict[str, Any] = {}
    for option in options:
        value = given.get(option.name)
        if option.name not in given or (value is None and callable(option.default)):
            default = option.default
            value = default(DataSize(n_texts, n_labels, values, inputs, longest_row)) if callable(default) else default
        values[option.name] = option.checked(value)
    if values.get("resume") and not values.get("checkpoint_dir"):
        raise OptionError("resume needs checkpoint_dir: the folder with the checkpoints of the interrupted training")
    return Options(values)
