"""Moved to `shortlist.labels.centroids`."""

from shortlist.labels.centroids import label_representatives as label_centres
from shortlist.labels.centroids import nearest_centroid as nearest
from shortlist.labels.centroids import normalize_rows as unit
from shortlist.labels.centroids import spherical_kmeans as kmeans

__all__ = ["kmeans", "label_centres", "nearest", "unit"]
