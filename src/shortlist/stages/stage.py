"""What every stage of a model can do: give its arrays, come back from them, become smaller, and say what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, QuantizedMatrix, check_arrays
from shortlist.errors import ModelError

if TYPE_CHECKING:
    from typing_extensions import Self


class Stage:
    """A part of a model over plain arrays.

    A subclass sets `kind` (its name in a model folder) and `spec` (its arrays), stores its arrays in `_arrays`, and
    builds what it needs from them in `__init__`. `config()` holds the few numbers that are not arrays. A stage with
    files of its own (`file_names`) finds their contents in `config["files"]`.
    """

    kind: ClassVar[str]
    spec: ClassVar[Mapping[str, ArraySpec]] = {}
    file_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, arrays: Arrays, config: dict[str, Any] | None = None) -> None:
        self._arrays, self._config = arrays, config or {}

    def arrays(self) -> Arrays:
        """Everything large, by name."""
        return self._arrays

    def config(self) -> dict[str, Any]:
        """Everything small, as JSON would hold it."""
        return self._config

    @property
    def learns_on(self) -> bool:
        """Whether labels can learn from further texts (`Model.update`) while all others stay as they are."""
        return False

    def files(self) -> dict[str, bytes]:
        """The contents of its own files, by name."""
        return {}

    @classmethod
    def from_arrays(cls, arrays: Arrays, config: dict[str, Any], **sizes: int) -> Self:
        """The stage again, from arrays that may come from a file: they are checked against `spec` first."""
        check_arrays(arrays, cls.spec, **sizes)
        return cls(arrays, config)

    def quantized(self) -> Self:
        """The same stage with its matrices in 8 bits."""
        return type(self)(quantize_rows(self.arrays(), self.spec), self.config())


def quantize_rows(arrays: Arrays, spec: Mapping[str, ArraySpec]) -> Arrays:
    """The arrays with everything that `spec` calls rows in 8 bits."""
    packed: Arrays = {}
    for name, array in arrays.items():
        is_rows = name in spec and spec[name].dtype == "rows" and array.dtype == np.float32
        packed |= QuantizedMatrix.of_floats(array).in_8_bits().to_arrays(name) if is_rows else {name: array}
    return packed


def with_prefix(prefix: str, named: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in named.items()}


def without_prefix(prefix: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """What is called `prefix.…`, without the prefix."""
    return {name[len(prefix) + 1 :]: value for name, value in named.items() if name.startswith(f"{prefix}.")}


def whole_number(config: Mapping[str, Any], name: str, least: int = 1, most: int = 2**31 - 1) -> int:
    """An integer from the config of a stage, checked."""
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ModelError(f"{name} is {value!r:.60}; expected a whole number from {least} to {most:,}")
    return value


def with_n_labels(config: Mapping[str, Any], sizes: dict[str, int]) -> dict[str, int]:
    """The sizes with the number of labels of the config, which is that of the model, where the model is known."""
    n_labels = whole_number(config, "n_labels")
    if sizes.get("n_labels", n_labels) != n_labels:
        raise ModelError(f"n_labels is {n_labels}; the model has {sizes['n_labels']:,} labels")
    return {**sizes, "n_labels": n_labels}


def finite_number(config: Mapping[str, Any], name: str, least: float = -1e6, most: float = 1e6) -> float:
    """A number from the config of a stage, checked."""
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ModelError(f"{name} is {value!r:.60}; expected a number from {least:g} to {most:g}")
    return float(value)
