"""Training, batch prediction and serving on Ray (extra `ray`)."""

from shortlist.lazy import names_from

__all__ = ["deployment", "open_label_shards", "save_label_shards", "sharded_deployment"]

# Imported when first used: serving needs extras that training does not.
__getattr__ = names_from(
    __name__,
    {
        "shortlist.cluster.serve": ("deployment", "sharded_deployment"),
        "shortlist.cluster.label_shards": ("open_label_shards", "save_label_shards"),
    },
)
