"""What a threshold can be chosen for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shortlist.errors import OptionError


@dataclass(frozen=True)
class Goal:
    """What a threshold is chosen for: one of these."""

    precision: float | None = None
    coverage: float | None = None
    cost_wrong: float | None = None
    cost_missing: float | None = None
    guarantee: float | None = None

    def __post_init__(self) -> None:
        for name in ("precision", "coverage", "guarantee"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and 0 < value <= 1):
                raise OptionError(f"{name} is {value!r}; expected a share above 0, up to 1, such as 0.9")
        if self.guarantee == 1:
            raise OptionError("guarantee is 1; no threshold can promise that. Give a share below 1, such as 0.9")
        costs = self.cost_wrong, self.cost_missing
        if (costs[0] is None) != (costs[1] is None):
            raise OptionError("give both costs: cost_wrong, of a wrong label, and cost_missing, of a label left out")
        for name in ("cost_wrong", "cost_missing"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and 0 <= value < math.inf):
                raise OptionError(f"{name} is {value!r}; expected a number of at least 0")
        given = [
            value for value in (self.precision, self.coverage, self.cost_wrong, self.guarantee) if value is not None
        ]
        if len(given) != 1:
            goals = "precision, coverage, guarantee, or cost_wrong with cost_missing"
            raise OptionError(f"a threshold is chosen for one goal; give one of {goals}")

    @property
    def by_label(self) -> bool:
        """Whether it can be asked of the predictions of a single label."""
        return self.precision is not None or self.cost_wrong is not None

    def __str__(self) -> str:
        if self.cost_wrong is not None:
            return f"cost {self.cost_wrong:g} of a wrong label, {self.cost_missing:g} of a missing one"
        name = next(name for name in ("precision", "coverage", "guarantee") if getattr(self, name) is not None)
        return f"{name} {getattr(self, name):g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
