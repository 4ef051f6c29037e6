"""How labels are weighted and clustered: propensities, centroids, correlations, the label tree."""

from typing import TYPE_CHECKING

from shortlist.lazy import names_from

if TYPE_CHECKING:
    from shortlist.labels.centroids import label_centroids
    from shortlist.labels.correlation import correlated_centroids, label_correlations
    from shortlist.labels.propensity import propensities
    from shortlist.labels.tree import LabelTree

__all__ = ["LabelTree", "correlated_centroids", "label_centroids", "label_correlations", "propensities"]

# Imported when first used: a prediction needs few of them.
__getattr__ = names_from(
    __name__,
    {
        "shortlist.labels.centroids": ("label_centroids",),
        "shortlist.labels.correlation": ("correlated_centroids", "label_correlations"),
        "shortlist.labels.propensity": ("propensities",),
        "shortlist.labels.tree": ("LabelTree",),
    },
)
