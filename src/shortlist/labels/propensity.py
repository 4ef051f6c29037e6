"""Propensities: the probability that a relevant label was actually assigned, which is low for rare labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.errors import OptionError


def propensities(label_frequencies: Any, n_texts: int, a: float = 0.55, b: float = 1.5) -> np.ndarray:
    """Return the propensity of every label by the model of Jain, Prabhu and Varma (KDD 2016).

    p = 1 / (1 + C · (n + b)^-a) with C = (log N − 1) · (b + 1)^a

    label_frequencies  n, the number of training texts of each label
    n_texts            N, the number of training texts
    a, b               depend on the kind of data; published results use

    | data sets                                                    | a    | b   |
    |--------------------------------------------------------------|------|-----|
    | Wikipedia: WikiLSHTC-325K, Wikipedia-500K, WikiTitles-500K   | 0.5  | 0.4 |
    | Amazon: Amazon-670K, Amazon-3M, and their titles-only forms  | 0.6  | 2.6 |
    | all others (EURLex, Wiki10, WikiSeeAlsoTitles-350K ...)      | 0.55 | 1.5 |

    With fewer than three texts, log N − 1 is negative and the formula leaves the range of probabilities: then every
    propensity is 1.

    >>> propensities([1, 10, 1000], n_texts=10_000).round(3).tolist()
    [0.109, 0.22, 0.767]
    """
    if b <= 0:
        raise OptionError(f"the propensity option b must be positive, not {b}; the usual value is 1.5")
    frequencies = np.asarray(label_frequencies, dtype=np.float64)
    return 1 / (1 + _factor(n_texts, a, b) * (frequencies + b) ** -a)


def frequencies_of(propensities: Any, n_texts: int, a: float = 0.55, b: float = 1.5) -> np.ndarray:
    """The number of training texts of each label again, from its propensity; 0 where all propensities are 1.

    >>> frequencies_of(propensities([1, 10, 1000], n_texts=10_000), n_texts=10_000).tolist()
    [1, 10, 1000]
    """
    odds = 1 / np.asarray(propensities, np.float64) - 1
    factor = _factor(n_texts, a, b)
    if not factor:
        return np.zeros(len(odds), np.int64)
    return np.rint(np.maximum((np.maximum(odds, 1e-9) / factor) ** (-1 / a) - b, 0)).astype(np.int64)


def _factor(n_texts: int, a: float, b: float) -> float:
    return max(float(np.log(max(n_texts, 1))) - 1, 0.0) * (b + 1) ** a
