"""Numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class FloatRange(click.FloatRange):
    """A range of numbers. Click's own also takes NaN."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        number = super().convert(value, parameter, context)
        if math.isnan(number):
            self.fail("nan is not a number.", parameter, context)
        return number
