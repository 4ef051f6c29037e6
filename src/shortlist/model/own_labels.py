"""The part of `Model` that changes its labels: they come and go, learn, and have lists and a hierarchy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from shortlist.errors import OptionError
from shortlist.labels.hierarchy import Hierarchy, HierarchySource, read_hierarchy
from shortlist.model.about import ModelAbout
from shortlist.model.label_lookup import LabelChoice, checked_list_name, entries_of

if TYPE_CHECKING:
    from shortlist.model.model import Model


class ModelLabels(ModelAbout):
    """The part of `Model` that changes its labels."""

    def add_labels(self, names: Mapping[str, Any] | Iterable[str]) -> Model:
        """A new model with further labels, {label: name}, which can be predicted by their names at once.

        Instead of a name, a label can have {"name": …, "alt_names": […], "description": …}: all of them count. This
        model stays as it is, and so does all that the new one knows about the other labels.

        >>> model = model.add_labels({"J45.9": "Asthma, unspecified"})  # doctest: +SKIP
        """
        from shortlist.model.labelling import add_labels

        return add_labels(cast("Model", self), names)

    def remove_labels(self, labels: Iterable[str] | str) -> Model:
        """A new model without these labels, which are given as in `allow`."""
        from shortlist.model.labelling import remove_labels

        return remove_labels(cast("Model", self), labels)

    def rename_labels(self, names: Mapping[str, str]) -> Model:
        """A new model with other display names, {label: name}. What was learnt stays as it is."""
        from shortlist.model.labelling import rename_labels

        return rename_labels(cast("Model", self), names)

    def update(self, data: Any, replay: Any = None, threads: int | None = None, seed: int = 0) -> Model:
        """A new model that has learnt from further texts. New labels are added; only labels of these texts change.

        data    a `Dataset`, or anything that `shortlist.read` reads. A label with a weight of 0 or less is wrong for
                its text: {"text": "…", "labels": {"J45": 1, "J20": 0}}
        replay  the old data, or part of it: new labels learn not to answer for it

        >>> model = model.update("new.jsonl", replay="old.jsonl")  # doctest: +SKIP
        """
        from shortlist import update  # not from the module: models are below training

        return update(cast("Model", self), data, replay, threads, seed)

    def store_list(self, name: str, labels: LabelChoice) -> None:
        """Store a list of labels under a name: from then on, `allow` and `deny` take it as "@name". None removes it.

        labels  as in `allow`: labels, display names, prefixes, other lists

        >>> model.store_list("asthma", "J45*")  # doctest: +SKIP
        >>> model.predict("wheezing", allow="@asthma")  # doctest: +SKIP
        """
        name = checked_list_name(name)
        lists = {other: own for other, own in self.lists.items() if other != name}
        if labels is not None:
            ids = sorted(set(self.labels.find(entries_of(labels, name), name)))
            lists[name] = [self.label_names[i] for i in ids]
        self.lists = lists
        self.forget_lookups()  # which remember what was allowed before

    def set_hierarchy(
        self, source: HierarchySource | None, names: Mapping[str, str] | None = None, inclusive: bool = False
    ) -> None:
        """Store which labels are above which: from then on, `predict` takes `levels`. None removes the hierarchy.

        source     a file (see docs/living-labels.md), (child, parent) pairs, or {child: parent} or {child: [parents]}.
                   Parents need not be labels of the model
        names      display names of parents that are not labels of the model, if the file has none
        inclusive  the model was trained on texts that have the parents of their labels as labels, too

        >>> model.set_hierarchy({"J45.0": "J45", "J45.1": "J45"}, {"J45": "Asthma"})  # doctest: +SKIP
        >>> model.predict("wheezing", levels="back-off", min_score=0.5)  # doctest: +SKIP
        """
        found = None if source is None else hierarchy_for(self.label_names, source)
        if found is not None:
            places = (("the hierarchy", *pair) for pair in found.pairs)
            found = Hierarchy(places, {**found.names, **(names or {})}, inclusive=inclusive)
        self.hierarchy = found
        self.forget_lookups()


def hierarchy_for(labels: Sequence[str], source: HierarchySource) -> Hierarchy:
    """The hierarchy of a source, if it has any of these labels."""
    hierarchy = read_hierarchy(source, labels)
    if not hierarchy.ids.keys() & set(labels):
        raise OptionError(
            f"the hierarchy has none of the labels of the model: it has {hierarchy.labels[0]!r:.60} and others, the "
            f"model {labels[0]!r:.60} and others"
        )
    return hierarchy
