"""Propensities: how likely a label that applies was also noted down, which for rare labels is not very."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.errors import OptionError


def propensities(label_frequencies: Any, n_texts: int, a: float = 0.55, b: float = 1.5) -> np.ndarray:
    """The propensity of every label, as modelled by Jain, Prabhu and Varma (KDD 2016).

    p = 1 / (1 + C · (n + b)^-a) with C = (log N − 1) · (b + 1)^a, where n is the number of training texts
    with the label and N (`n_texts`) the number of all training texts. Frequent labels come close to 1.

    The values of a and b go with the kind of data. Published results use

    | data sets                                                    | a    | b   |
    |--------------------------------------------------------------|------|-----|
    | Wikipedia: WikiLSHTC-325K, Wikipedia-500K, WikiTitles-500K   | 0.5  | 0.4 |
    | Amazon: Amazon-670K, Amazon-3M, and their titles-only forms  | 0.6  | 2.6 |
    | everything else (EURLex, Wiki10, WikiSeeAlsoTitles-350K ...) | 0.55 | 1.5 |

    With fewer than three texts log N − 1 is negative, and the formula gives propensities above 1 or below 0.
    The model says nothing about so little data, so then every propensity is 1.

    >>> propensities([1, 10, 1000], n_texts=10_000).round(3).tolist()
    [0.109, 0.22, 0.767]
    """
    if b <= 0:
        raise OptionError(f"the propensity option b must be above 0, not {b}; the usual value is 1.5")
    frequencies = np.asarray(label_frequencies, dtype=np.float64)
    c = max(np.log(max(n_texts, 1)) - 1, 0.0) * (b + 1) ** a
    return 1 / (1 + c * (frequencies + b) ** -a)
