"""Candidates by nearest neighbours: labels with the nearest centres, and labels of the nearest training texts."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, Ragged, counts_to_indptr
from shortlist.errors import ModelError
from shortlist.kernels.candidates import labels_of_centres, merge_neighbours
from shortlist.labels.centroids import normalize_rows
from shortlist.stages.candidates.cells import CellIndex
from shortlist.stages.candidates.neighbours import N_GRAPHS, GraphSizes, NeighbourIndex
from shortlist.stages.candidates.stage import Candidates, CandidateStage
from shortlist.stages.stage import finite_number, whole_number, with_n_labels, with_prefix, without_prefix


class CentreIndex(Protocol):
    """What finds the nearest label centres: cells, or HNSW graphs.

    n_searched              cells, or multiples of the graphs' search breadth
    max_searched            with this many, practically all neighbours are found
    n_searched_in_training  with this many, enough of them
    """

    @property
    def n_features(self) -> int: ...
    @property
    def max_searched(self) -> int: ...
    @property
    def n_searched_in_training(self) -> int: ...
    def __len__(self) -> int: ...
    def search(
        self, queries: np.ndarray, k: int, n_searched: int, ordered: bool = True
    ) -> tuple[np.ndarray, np.ndarray]: ...
    def places_of(self, ids: np.ndarray) -> np.ndarray: ...
    def cosines_of(
        self, queries: np.ndarray, ids: np.ndarray, bounds: np.ndarray, places: np.ndarray, cosines: np.ndarray
    ) -> None: ...
    def multiply_adds(self, n_searched: int) -> float | None: ...
    def arrays(self) -> Arrays: ...


def _graph_spec(prefix: str) -> dict[str, ArraySpec]:
    names = [f"{prefix}.graph.{i}" for i in range(N_GRAPHS)]
    return {name: ArraySpec("uint8", (f"n_bytes of {name}",), optional=True) for name in names}


class NearestLabels(CandidateStage):
    """The labels with the nearest centres; and, if texts vote, the labels of the nearest training texts (Astec).

    owner           the label of each centre; frequent labels have several
    text_labels     the labels of each voting text
    n_nearest       labels that centres give per query; all other candidates come from texts
    n_neighbours    voting texts per query
    vote_weight     weight of the votes relative to the cosines of the centres; 0: there is no index of texts
    votes_are_sums  how votes count, see `merge_neighbours`
    centre_breadth  search breadth of the graphs of centres, if the centres are not in cells
    text_breadth    search breadth of the graphs of texts
    """

    kind = "nearest"
    spec = {
        **{f"centres.{name}": replace(array, optional=True) for name, array in CellIndex.spec.items()},
        **_graph_spec("centres"),
        "owner": ArraySpec("int32", ("n_vectors",), below="n_labels"),
        "text_labels.indptr": ArraySpec("int64", ("n_texts+1",), optional=True, indptr="n_pairs"),
        "text_labels.values": ArraySpec("int32", ("n_pairs",), optional=True, below="n_labels"),
        "texts.vectors": ArraySpec("float32", ("n_texts", "n_features"), optional=True, finite=False),
        **_graph_spec("texts"),
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        config = {"n_nearest": config.get("n_candidates"), "text_breadth": config.get("n_neighbours"), **config}
        super().__init__(arrays, config)
        self._n_labels = whole_number(config, "n_labels")
        self._n_candidates = min(whole_number(config, "n_candidates"), self._n_labels)
        self._n_nearest = min(whole_number(config, "n_nearest"), self._n_candidates)
        self._n_neighbours = whole_number(config, "n_neighbours")
        self._vote_weight = finite_number(config, "vote_weight", 0, 1)
        self._votes_are_sums = bool(config.get("votes_are_sums"))
        self._centres = _centre_index(without_prefix("centres", arrays), config)
        self._owner, self.n_features = arrays["owner"], self._centres.n_features
        if len(self._centres) != len(self._owner):
            raise ModelError(f"{len(self._centres):,} centres in the index, owners of {len(self._owner):,}")
        self.max_searched = self._centres.max_searched
        self.n_searched = whole_number(config, "n_searched")
        self._texts, self._text_labels = None, None
        texts = without_prefix("texts", arrays)
        self._needs_finite = bool(texts) or "centres.cells" not in arrays
        if texts:
            self._texts = NeighbourIndex.from_arrays(texts, whole_number(config, "text_breadth"))
            labels = without_prefix("text_labels", arrays)
            self._text_labels = Ragged(labels.get("indptr", np.zeros(1, np.int64)), labels.get("values", np.zeros(0)))
            if not 0 < len(self._texts) == len(self._text_labels):
                raise ModelError(f"{len(self._texts):,} texts in the index, labels for {len(self._text_labels):,}")
            if self._texts.n_features != self.n_features:
                raise ModelError(
                    f"the index of texts has {self._texts.n_features} features, that of centres {self.n_features}"
                )

    @classmethod
    def from_arrays(cls, arrays: Arrays, config: dict[str, Any], **sizes: int) -> NearestLabels:
        return super().from_arrays(arrays, config, **with_n_labels(config, sizes))

    @staticmethod
    def build(
        centres: np.ndarray,
        owner: np.ndarray,
        n_labels: int,
        n_candidates: int,
        texts: NeighbourIndex | None = None,
        text_labels: Ragged | None = None,
        n_neighbours: int = 50,
        vote_weight: float = 0.0,
        seed: int = 0,
        n_nearest: int | None = None,
        votes_are_sums: bool = False,
        graph: GraphSizes | None = None,
        cells: np.ndarray | None = None,
    ) -> NearestLabels:
        """From the centres of labels, the label of each, and, where texts vote, an index of texts with their labels.

        n_nearest  all candidates by default
        graph      for an index of centres by HNSW graphs instead of cells
        cells      directions of the cells, if they are known
        """
        index: CentreIndex = CellIndex.build(centres, seed, cells)
        config: dict[str, Any] = {"n_labels": n_labels, "n_candidates": n_candidates, "n_searched": 1}
        config |= {"n_nearest": n_nearest or n_candidates, "n_neighbours": n_neighbours}
        config |= {"vote_weight": vote_weight, "votes_are_sums": votes_are_sums}
        if graph is not None:
            index = NeighbourIndex.build(centres, exact=False, **graph._asdict(), seed=seed)
            config["centre_breadth"] = graph.search_breadth
        arrays = {**with_prefix("centres", index.arrays()), "owner": owner}
        if texts is not None and text_labels is not None:
            arrays |= with_prefix("texts", texts.arrays())
            labels = {"indptr": text_labels.indptr, "values": text_labels.values.astype(np.int32)}
            arrays |= with_prefix("text_labels", labels)
            config["text_breadth"] = texts.search_breadth
        stage = NearestLabels(arrays, config)
        stage.n_searched = stage.max_searched
        return stage

    def config(self) -> dict[str, Any]:
        return {**self._config, "n_searched": self.n_searched}

    @property
    def n_searched_in_training(self) -> int:
        return self._centres.n_searched_in_training

    @property
    def learns_on(self) -> bool:
        return isinstance(self._centres, CellIndex) and self._texts is None

    def find(self, features: np.ndarray, n_searched: int) -> Candidates:
        n_centres = self._centres_for(self._n_nearest)
        features = np.nan_to_num(features) if self._needs_finite else features
        ids = np.empty((len(features), self._n_candidates), np.int32)
        cosines, votes = np.empty(ids.shape, np.float32), np.zeros(ids.shape, np.float32)
        if self._texts is None or self._text_labels is None:
            found, similarities = self._centres.search(features, n_centres, n_searched, ordered=False)
            labels_of_centres(found, similarities, self._owner, self._has_several, ids, cosines)
            return Candidates(ids, evidence=(cosines, votes))
        found, similarities = self._centres.search(features, n_centres, n_searched)
        n_texts = min(self._n_neighbours, len(self._texts))
        texts, text_similarities = self._texts.search(features, n_texts)
        merge_neighbours(
            found,
            similarities,
            self._owner,
            texts,
            text_similarities,
            self._text_labels.indptr,
            self._text_labels.values,
            np.float32(self._vote_weight),
            self._votes_are_sums,
            self._n_labels,
            ids,
            cosines,
            votes,
        )
        return Candidates(ids, evidence=(cosines, votes))

    def scaled(self, factor: float) -> NearestLabels:
        if factor == 1:
            return self
        stage = copy(self)
        sizes = {name: max(1, round(factor * self._config[name])) for name in ("n_candidates", "n_nearest")}
        stage._config = {**self._config, **sizes}
        stage._n_candidates, stage._n_nearest = (min(n, self._n_labels) for n in sizes.values())
        return stage

    def only(self, is_allowed: np.ndarray) -> NearestLabels | None:
        if not isinstance(self._centres, CellIndex) or self._texts is not None:
            return None
        owner = self._owner[self._centres.order]
        kept = is_allowed[owner]
        if not kept.any():
            return None
        centres, n_searched = self._centres.only(kept, self.n_searched)
        arrays = {**with_prefix("centres", centres.arrays()), "owner": owner[kept]}
        return NearestLabels(arrays, {**self._config, "n_searched": n_searched})

    def nearest_centres(self, features: np.ndarray, n_searched: int) -> np.ndarray:
        """The labels of the nearest centres (Slice's negatives); a label with several centres may occur twice."""
        ids, _ = self._centres.search(features, self._n_candidates, n_searched)
        return np.where(ids >= 0, self._owner[ids], -1).astype(np.int32)

    def evidence(
        self, features: np.ndarray, ids: np.ndarray, n_searched: int, found: Candidates | None = None
    ) -> tuple[np.ndarray, ...]:
        queries = normalize_rows(np.asarray(features, np.float32))
        cosines, votes = np.empty(ids.shape, np.float32), np.zeros(ids.shape, np.float32)
        self._centres.cosines_of(queries, np.ascontiguousarray(ids, np.int32), *self._centres_of_labels, cosines)
        if self._texts is not None:
            found = self.find(features, n_searched) if found is None else found
            assert found.ids is not None
            is_same = (ids[:, :, None] == found.ids[:, None]) & (ids >= 0)[:, :, None]
            of_found = [np.where(is_same, of_found[:, None], 0).sum(axis=2) for of_found in found.evidence]
            cosines, votes = np.where(is_same.any(axis=2), of_found[0], cosines), of_found[1]
        return cosines, votes

    def multiply_adds(self, n_searched: int) -> float | None:
        return self._centres.multiply_adds(n_searched) if self._texts is None else None  # unknown for a graph

    def n_candidates(self, n_searched: int, n_labels: int) -> float:
        return min(self._config["n_candidates"], n_labels)

    def _centres_for(self, k: int) -> int:
        """How many centres to look at for k labels: labels with several centres are found more than once."""
        if k >= self._n_labels:
            return len(self._centres)
        return max(1, min(k + min(k, len(self._centres) - self._n_owners), len(self._centres)))

    @cached_property
    def _n_owners(self) -> int:
        """How many labels have a centre."""
        return int((np.bincount(self._owner) > 0).sum())

    @cached_property
    def _has_several(self) -> np.ndarray:
        """Which labels have more than one centre."""
        return np.bincount(self._owner, minlength=self._n_labels) > 1

    @cached_property
    def _centres_of_labels(self) -> tuple[np.ndarray, np.ndarray]:
        """(bounds, places): the centres of label l are at places[bounds[l]] to places[bounds[l + 1] - 1]."""
        bounds = counts_to_indptr(np.bincount(self._owner, minlength=self._n_labels))
        return bounds, self._centres.places_of(np.argsort(self._owner, kind="stable"))


def _centre_index(arrays: Arrays, config: dict[str, Any]) -> CentreIndex:
    """The index of centres again: graphs, or cells, whose arrays are then all there."""
    if any(name.startswith("graph.") for name in arrays):
        return NeighbourIndex.from_arrays(arrays, whole_number(config, "centre_breadth"))
    missing = CellIndex.spec.keys() - arrays.keys()
    if missing:
        raise ModelError(f"array 'centres.{min(missing)}' is missing")
    return CellIndex.from_arrays(arrays)
