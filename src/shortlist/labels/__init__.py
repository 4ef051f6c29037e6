"""How labels are weighted and clustered: propensities, centroids, the label tree."""

from shortlist.labels.centroids import label_centroids
from shortlist.labels.propensity import propensities
from shortlist.labels.tree import LabelTree

__all__ = ["LabelTree", "label_centroids", "propensities"]
