"""How labels are weighted and clustered: propensities, centroids, correlations, the label tree."""

from shortlist.labels.centroids import label_centroids
from shortlist.labels.correlation import correlated_centroids, label_correlations
from shortlist.labels.propensity import propensities
from shortlist.labels.tree import LabelTree

__all__ = ["LabelTree", "correlated_centroids", "label_centroids", "label_correlations", "propensities"]
