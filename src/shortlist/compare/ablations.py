"""Ablations: recipes with one part changed at a time. Each variant is an entry of the comparison, like any other.

There is no re-ranker in them, because it would hide what the candidates miss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

N_CLUSTERS = "n_clusters"  # the recipe option that `Variant.labels_per_cluster` sets


@dataclass(frozen=True)
class Variant:
    """A variant of a recipe, and the options that make it."""

    name: str
    recipe: str
    options: dict[str, Any] = field(default_factory=dict)
    labels_per_cluster: int | None = None


ABLATIONS = {
    # InceptionXML, Table 3 and Figure 3: few or many labels per cluster, and the same number of candidates.
    # Synchronised: at first, the classifier does not train the encoder. Not detached: it always does.
    "fan-out": [
        Variant(f"{labels_per_cluster},{name}", "inceptionxml+", options, labels_per_cluster)
        for labels_per_cluster in (8, 32)
        for name, options in (
            ("synchronised", {}),
            ("not detached", {"detach_fraction": 0.0}),
            ("LightXML", {"detach_fraction": 0.0, "variant": "lightxml"}),
        )
    ],
    # InceptionXML, Figure 5: convolutions run over the dimensions of word vectors, whose order has no meaning.
    "dimensions": [
        Variant(f"permutation {number}" if number else "original", "inceptionxml", {"dimension_permutation": number})
        for number in range(11)
    ],
}
