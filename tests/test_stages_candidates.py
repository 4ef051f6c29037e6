"""Candidate stages: all labels, the best clusters, the nearest labels with and without votes of texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_files import replaced
from reference_astec import shortlist_scores
from shortlist.arrays import ArraySpec, Ragged
from shortlist.errors import ModelError
from shortlist.kernels.threads import use_threads
from shortlist.labels.centroids import label_representatives, normalize_rows
from shortlist.stages.candidates import AllLabels, Candidates, CandidateStage, NearestLabels, TopClusters, top_clusters
from shortlist.stages.candidates.cells import CellIndex
from shortlist.stages.candidates.neighbours import GraphSizes, NeighbourIndex

ALL_CELLS = 1 << 20
NAN, INF = float("nan"), float("inf")


def test_all_labels():
    stage = AllLabels.from_arrays({}, {})
    assert stage.find(np.ones((2, 3)), 1) == (None, None, None, ())
    assert stage.evidence(np.ones((2, 3)), np.zeros((2, 1), int), 1) == ()
    assert (stage.n_searched, stage.max_searched, stage.n_features) == (1, 1, None)
    with pytest.raises(ModelError, match="'x' is not part of this stage"):
        AllLabels.from_arrays({"x": np.zeros(1)}, {})


class SameLabels(CandidateStage):
    """A stage as docs/contributing.md tells a newcomer to write it."""

    kind, spec = "same", {"labels": ArraySpec("int32", ("n",), below="n_labels", unique=True)}

    def find(self, features, n_searched):
        return Candidates(np.tile(self.arrays()["labels"], (len(features), 1)))


def test_a_new_stage_needs_only_its_spec_and_find():
    stage = SameLabels({"labels": np.array([2, 0], np.int32)})
    assert stage.quantized().find(np.ones((2, 3)), 1).ids.tolist() == [[2, 0], [2, 0]]
    with pytest.raises(ModelError, match="expected values from 0 to below 2"):
        SameLabels.from_arrays(stage.arrays(), stage.config(), n_labels=2)


N_CLUSTERS, N_LABELS, N_FEATURES = 6, 14, 4
STARTS = np.array([0, 1, 4, 4, 9, 12, 14])


def new_clusters(use_logits=False, block=False, **config):
    rng = np.random.default_rng(0)
    arrays = {
        "meta.weights": rng.standard_normal((N_CLUSTERS, N_FEATURES), dtype=np.float32),
        "meta.biases": rng.standard_normal(N_CLUSTERS, dtype=np.float32),
        "starts": STARTS,
        "cluster_of_label": rng.permutation(np.repeat(np.arange(N_CLUSTERS, dtype=np.int32), np.diff(STARTS))),
    }
    if block:
        arrays["meta.block"] = rng.standard_normal((N_FEATURES, N_FEATURES), dtype=np.float32)
    return arrays, {"n_searched": 2, "max_searched": 4, "use_logits": use_logits, **config}


class TestTopClusters:
    @pytest.mark.parametrize("block", [False, True])
    @pytest.mark.parametrize("n_searched", [1, 3, N_CLUSTERS, 100])
    @pytest.mark.parametrize("use_logits", [False, True])
    def test_finds_the_clusters_with_the_largest_logits(self, block, n_searched, use_logits):
        arrays, config = new_clusters(use_logits, block)
        stage = TopClusters.from_arrays(arrays, config)
        x = np.random.default_rng(1).standard_normal((9, N_FEATURES), dtype=np.float32)
        hidden = np.maximum(x @ arrays["meta.block"].T, 0) + x if block else x
        logits = hidden @ arrays["meta.weights"].T + arrays["meta.biases"]
        found = stage.find(x, n_searched)
        assert found.ids is None
        assert found.starts is STARTS
        best = np.argsort(-logits, axis=1)[:, :n_searched]
        assert np.array_equal(found.clusters, np.sort(best, axis=1))
        ids = np.tile(np.arange(N_LABELS), (9, 1))
        evidence = stage.evidence(x, ids, n_searched)
        if use_logits:
            np.testing.assert_allclose(found.evidence[0], logits, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(evidence[0], logits[:, arrays["cluster_of_label"]], rtol=1e-5, atol=1e-5)
        else:
            assert found.evidence == evidence == ()

    def test_how_much_is_searched(self):
        arrays, config = new_clusters(n_searched=3, max_searched=99)
        stage = TopClusters.from_arrays(arrays, config)
        assert (stage.n_searched, stage.max_searched, stage.n_features) == (3, N_CLUSTERS, N_FEATURES)
        stage.n_searched = 2
        assert stage.config()["n_searched"] == 2

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"meta.weights": None}, "'meta.weights' is missing"),
            ({"meta.weights": lambda a: a[:-1]}, "'meta.biases' has shape"),
            ({"meta.biases": lambda a: a * np.nan}, "'meta.biases' contains NaN"),
            ({"meta.block": np.zeros((N_FEATURES, 3), np.float32)}, "'meta.block' has shape"),
            ({"starts": lambda a: a[:-1]}, "'starts' has shape"),
            ({"starts": lambda a: a[::-1].copy()}, "'starts' must start at 0"),
            ({"starts": lambda a: np.minimum(a, N_LABELS - 1)}, "'starts' must start at 0, never decrease, and end at"),
            ({"cluster_of_label": lambda a: a + 1}, "'cluster_of_label' has a value of 6"),
            ({"cluster_of_label": lambda a: a - 1}, "'cluster_of_label' has a value of -1"),
            ({"cluster_of_label": lambda a: a[:-1]}, "'starts' must start at 0, never decrease, and end at 13"),
        ],
    )
    def test_damaged_arrays_are_refused(self, change, message):
        arrays, config = new_clusters()
        with pytest.raises(ModelError, match=message):
            TopClusters.from_arrays(replaced(arrays, change), config)

    def test_another_number_of_labels_is_refused(self):
        arrays, config = new_clusters()
        with pytest.raises(ModelError, match="expected 15 where it has 14"):
            TopClusters.from_arrays(arrays, config, n_labels=N_LABELS + 1)

    @pytest.mark.parametrize("name", ["n_searched", "max_searched"])
    @pytest.mark.parametrize("value", [0, -1, "8", 2.5, None, [3], True, 1 << 40])
    def test_a_damaged_config_is_refused(self, name, value):
        arrays, config = new_clusters(**{name: value})
        with pytest.raises(ModelError, match=name):
            TopClusters.from_arrays(arrays, config)


class TestTopClustersOfLogits:
    @given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 40), st.integers(1, 50), st.booleans())
    def test_the_best_in_ascending_order_and_of_equals_the_first(self, seed, n_texts, n_clusters, k, ties):
        rng = np.random.default_rng(seed)
        logits = (
            rng.integers(-2, 3, (n_texts, n_clusters)) if ties else 1e3 * rng.standard_normal((n_texts, n_clusters))
        )
        logits = logits.astype(np.float32)
        expected = [sorted(np.argsort(-line, kind="stable")[:k].tolist()) for line in logits]
        assert top_clusters(logits, k).tolist() == expected

    def test_infinite_and_extreme_logits(self):
        logits = np.asarray([[-INF, 3e38, INF, -3e38, 1e-45, -1e-45, 0]], np.float32)
        order = [2, 1, 4, 6, 5, 3, 0]
        for k in range(1, 8):
            assert top_clusters(logits, k).tolist() == [sorted(order[:k])]

    @pytest.mark.parametrize("change", [np.asfortranarray, np.float64], ids=["Fortran order", "float64"])
    def test_other_layouts_and_types(self, change):
        logits = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32)
        assert top_clusters(change(logits), 3).tolist() == top_clusters(logits, 3).tolist()


@dataclass
class Neighbours:
    """A stage, and what it was built from, for slow twins."""

    stage: NearestLabels
    queries: np.ndarray
    centres: CellIndex
    owner: np.ndarray
    texts: NeighbourIndex | None
    labels: Ragged
    n_labels: int
    n_neighbours: int
    vote_weight: float


def new_nearest(
    n_texts=60, n_labels=15, seed=0, n_candidates=15, vote_weight=0.4, n_neighbours=7, votes=True, exact=True
):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_texts, 8)).astype(np.float32)
    labels = Ragged.from_lists(
        [sorted(rng.choice(n_labels, rng.integers(0, min(4, n_labels) + 1), replace=False)) for _ in range(n_texts)]
    )
    centres, owner = label_representatives(features, labels, n_labels)
    texts = NeighbourIndex.build(features, exact=exact) if votes else None
    queries = rng.standard_normal((20, 8)).astype(np.float32)
    vote_weight = vote_weight if votes else 0.0
    stage = NearestLabels.build(centres, owner, n_labels, n_candidates, texts, labels, n_neighbours, vote_weight)
    index = CellIndex.build(centres)
    return Neighbours(stage, queries, index, owner, texts, labels, n_labels, n_neighbours, vote_weight)


def new_graphs(n_texts, n_features):
    """The arrays of HNSW graphs of random texts."""
    vectors = np.random.default_rng(0).standard_normal((n_texts, n_features))
    return NeighbourIndex.build(vectors, exact=False).arrays().values()


def slow_candidates(built, query, k):
    """What `find` promises, as a loop: score, cosine and votes by label, and all votes."""
    k = min(k, built.n_labels)
    n_centres = len(built.centres) if k == built.n_labels else k + min(k, len(built.centres) - built.n_labels)
    found, cosines = built.centres.search(query[None], n_centres, ALL_CELLS)
    of_label = {}
    for centre, cosine in zip(found[0], cosines[0], strict=True):
        of_label.setdefault(int(built.owner[centre]), float(cosine))
    least = float(cosines[0].min())
    votes, total = {}, 0.0
    if built.texts is not None:
        texts, similarities = built.texts.search(query[None], min(built.n_neighbours, len(built.texts)))
        for text, cosine in zip(texts[0], similarities[0], strict=True):
            if cosine > 0:
                total += float(cosine) ** 4
                for label in built.labels.row(text):
                    votes[int(label)] = votes.get(int(label), 0.0) + float(cosine) ** 4
    weight = built.vote_weight
    scores = {
        label: weight * votes.get(label, 0.0) / max(total, 1e-9) + (1 - weight) * of_label.get(label, least)
        for label in {*of_label, *votes}
    }
    return scores, of_label, votes, total


def several_centres():
    """Label 0 belongs to every text and has several centres."""
    features = np.random.default_rng(0).standard_normal((2000, 6)).astype(np.float32)
    centres, owner = label_representatives(features, Ragged.from_lists([[0, 1 + i % 10] for i in range(2000)]), 11)
    assert len(centres) > 5 * 11
    return features, centres, owner, NearestLabels.build(centres, owner, 11, 11)


class TestNearestLabels:
    @pytest.mark.parametrize("allowed", [[0, 3], [1, 2, 5, 9], range(1, 11)])
    def test_only_finds_the_allowed_labels_with_the_same_cosines(self, allowed):
        features, _, _, stage = several_centres()
        some = stage.only(np.isin(np.arange(11), allowed))
        ids, (cosines, _) = some.find(features[:9], some.n_searched)[::3]
        assert all(sorted(row[row >= 0]) == list(allowed) for row in ids)
        for expected in (stage, some):
            of_labels, _ = expected.evidence(features[:9], ids, ALL_CELLS)
            np.testing.assert_allclose(cosines[ids >= 0], of_labels[ids >= 0], atol=1e-6)

    def test_some_stages_have_no_index_of_some_labels(self):
        assert new_nearest().stage.only(np.arange(15) < 3) is None  # texts vote
        assert AllLabels().only(np.arange(15) < 3) is None
        assert new_nearest(votes=False).stage.only(np.zeros(15, bool)) is None

    def test_what_was_found_is_not_searched_again(self, monkeypatch):
        built = new_nearest()
        found, ids = built.stage.find(built.queries, ALL_CELLS), np.tile(np.arange(15), (20, 1))
        searched_again = built.stage.evidence(built.queries, ids, ALL_CELLS)
        monkeypatch.setattr(NearestLabels, "find", None)
        for one, other in zip(built.stage.evidence(built.queries, ids, ALL_CELLS, found), searched_again, strict=True):
            assert np.array_equal(one, other)

    @pytest.mark.parametrize("k", [1, 4, 15, 40])
    @pytest.mark.parametrize(
        "kind", [{}, {"vote_weight": 1.0}, {"vote_weight": 0.0}, {"votes": False}, {"n_neighbours": 500}]
    )
    def test_find_equals_its_definition(self, kind, k):
        built = new_nearest(n_candidates=k, **kind)
        found = built.stage.find(built.queries, ALL_CELLS)
        ids, (cosines, votes) = found.ids, found.evidence
        assert ids.shape == (20, min(k, 15))
        for row, query in enumerate(built.queries):
            scores, of_label, of_votes, total = slow_candidates(built, query, k)
            own = ids[row][ids[row] >= 0].tolist()
            assert len(set(own)) == len(own) == min(k, len(scores))
            expected = sorted(scores.values(), reverse=True)[: len(own)]  # equals may come in any order
            own_scores = [scores[label] for label in own]
            if built.texts is None:  # then candidates come in no order
                own_scores.sort(reverse=True)
            assert own_scores == pytest.approx(expected, abs=1e-5)
            for place, label in enumerate(own):
                assert votes[row, place] == pytest.approx(of_votes.get(label, 0) / max(total, 1e-9), abs=1e-5)
                if label in of_label:
                    assert cosines[row, place] == pytest.approx(of_label[label], abs=1e-5)

    @pytest.mark.parametrize("n_cells", [1, 3, 20])
    @pytest.mark.parametrize("votes", [False, True])
    def test_few_cells_give_fewer_candidates_with_the_same_cosines(self, n_cells, votes):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shortlist.stages.candidates.cells.ONE_CELL_UP_TO", 16)
            built = new_nearest(600, 120, n_candidates=100, votes=votes)
        assert built.stage.max_searched > 10
        found = built.stage.find(built.queries, n_cells)
        ids, (cosines, of_votes) = found.ids, found.evidence
        assert ids.shape == cosines.shape == of_votes.shape == (20, 100)
        present = ids >= 0
        assert (np.diff(present.astype(int), axis=1) <= 0).all()
        assert not present.all()
        assert not cosines[~present].any()
        assert not of_votes[~present].any()
        exact = built.stage.evidence(built.queries, np.tile(np.arange(120), (20, 1)), ALL_CELLS)[0]
        for row in range(20):
            own = ids[row][present[row]]
            assert len(set(own)) == len(own)
            of_own = cosines[row][present[row]]
            if votes:  # labels that only texts found have the smallest cosine of the others
                assert (np.isclose(of_own, exact[row, own], atol=1e-5) | (of_own == of_own.min())).all()
            else:
                np.testing.assert_allclose(of_own, exact[row, own], atol=1e-5)

    def test_evidence_of_given_labels_is_that_of_the_same_candidates(self):
        built = new_nearest()
        found = built.stage.find(built.queries, ALL_CELLS)
        cosines, votes = built.stage.evidence(built.queries, found.ids, ALL_CELLS)
        np.testing.assert_allclose(cosines, found.evidence[0], atol=1e-5)
        np.testing.assert_allclose(votes, found.evidence[1], atol=1e-5)

    def test_evidence_of_missing_labels_and_of_labels_without_centres(self):
        """A label without training texts has no centre; there are more texts than are looked at together."""
        features, centres, owner, _ = several_centres()
        stage = NearestLabels.build(centres[owner != 3], owner[owner != 3], 11, 11)
        ids = np.random.default_rng(1).integers(-1, 11, (150, 7)).astype(np.int32)
        cosines, _ = stage.evidence(features[:150], ids, ALL_CELLS)
        products = normalize_rows(features[:150]) @ normalize_rows(centres).T
        for (text, place), label in np.ndenumerate(ids):
            own = [] if label in (-1, 3) else products[text, owner == label]
            assert cosines[text, place] == pytest.approx(max(own, default=-1), abs=1e-5)
        for shape in ((0, 3), (3, 0)):
            assert stage.evidence(features[: shape[0]], np.zeros(shape, np.int32), ALL_CELLS)[0].shape == shape
        only_1 = NearestLabels.build(centres[owner == 1], owner[owner == 1], 11, 11)
        assert (only_1.evidence(features[:2], np.full((2, 1), 3), ALL_CELLS)[0] == -1).all()

    def test_the_nearest_of_several_centres_counts(self):
        features, centres, owner, stage = several_centres()
        cosines, votes = stage.evidence(features[:9], np.tile(np.arange(11), (9, 1)), ALL_CELLS)
        products = normalize_rows(features[:9]) @ normalize_rows(centres).T
        expected = np.stack([products[:, owner == label].max(axis=1) for label in range(11)], axis=1)
        np.testing.assert_allclose(cosines, expected, atol=1e-5)
        assert not votes.any()

    def test_labels_with_several_centres_do_not_crowd_out_the_others(self):
        features, _, _, stage = several_centres()
        ids = stage.find(features[:50], ALL_CELLS).ids
        assert (np.sort(ids, axis=1) == np.arange(11)).all()

    def test_nearest_centres_may_name_a_label_twice(self):
        features, centres, owner, stage = several_centres()
        ids = stage.nearest_centres(features[:50], ALL_CELLS)
        nearest = np.argsort(-(normalize_rows(features[:50]) @ normalize_rows(centres).T), axis=1)[:, :11]
        assert np.array_equal(ids, owner[nearest])
        assert any(len(set(row)) < 11 for row in ids.tolist())

    def test_threads_change_nothing(self):
        built = new_nearest(n_candidates=9)
        results = []
        for threads in (1, 2):
            with use_threads(threads):
                found = built.stage.find(built.queries, ALL_CELLS)
                results.append((found.ids, *found.evidence))
        assert all(np.array_equal(one, two) for one, two in zip(*results, strict=True))

    def test_no_queries_and_one_label(self):
        built = new_nearest(n_candidates=5)
        assert built.stage.find(built.queries[:0], ALL_CELLS).ids.shape == (0, 5)
        built = new_nearest(n_labels=1)
        assert built.stage.find(built.queries, ALL_CELLS).ids.tolist() == [[0]] * 20

    def test_how_much_is_searched(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shortlist.stages.candidates.cells.ONE_CELL_UP_TO", 16)
            stage = new_nearest(600, 120, votes=False).stage
        n_cells = len(stage.arrays()["centres.cells"])
        assert n_cells > 16
        assert stage.n_searched == stage.max_searched == n_cells // 2
        assert stage.n_searched_in_training == n_cells // 8
        stage.n_searched = 3
        assert NearestLabels.from_arrays(stage.arrays(), stage.config()).n_searched == 3

    def test_votes_by_graphs_are_nearly_those_of_exact_search(self):
        exact, graphs = (new_nearest(exact=exact) for exact in (True, False))
        one, two = (built.stage.find(built.queries, ALL_CELLS) for built in (exact, graphs))
        assert (one.ids == two.ids).mean() > 0.95

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"owner": lambda a: a + 99}, "'owner' has a value of"),
            ({"owner": lambda a: a[:3]}, "'owner' has shape"),
            ({"owner": lambda a: a.astype(np.int64)}, "'owner' is int64"),
            ({"centres.order": lambda a: a - 1}, "'centres.order' has a value of -1"),
            ({"centres.cells": lambda a: a[:, :-1]}, "'centres.vectors' has shape"),
            ({"text_labels.indptr": np.zeros(1, np.int64)}, "'text_labels.indptr' must|'texts.vectors' has shape"),
            ({"text_labels.indptr": lambda a: a[::-1].copy()}, "'text_labels.indptr' must start at 0"),
            ({"text_labels.values": lambda a: a + 15}, "'text_labels.values' has a value of"),
            ({"text_labels.values": None}, "no array of size 'n_pairs'"),
            ({"text_labels.indptr": None}, "60 texts in the index, labels for 0"),
            ({"text_labels.indptr": None, "text_labels.values": None}, "60 texts in the index, labels for 0"),
            ({"texts.vectors": lambda a: a[:-1]}, "'texts.vectors' has shape"),
            ({"texts.vectors": lambda a: a[:, :-1]}, "'texts.vectors' has shape"),
            ({"texts.graph.7": np.zeros(3, np.uint8)}, "'texts.graph.7' is not part of this stage"),
        ],
    )
    def test_damaged_arrays_are_refused_before_a_kernel_follows_them(self, change, message):
        stage = new_nearest().stage
        with pytest.raises(ModelError, match=message):
            NearestLabels.from_arrays(replaced(stage.arrays(), change), stage.config())

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"texts.graph.3": None}, "45 texts in the index, labels for 60"),
            ({"texts.graph.0": None}, "'graph.0' is missing"),
            ({"texts.graph.0": lambda a: a[:-1]}, "cannot be read"),
            (
                {f"texts.graph.{i}": array for i, array in enumerate(new_graphs(60, 7))},
                "the index of texts has 7 features, that of centres 8",
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_damaged_graphs_are_refused(self, change, message):
        stage = new_nearest(exact=False).stage
        with pytest.raises(ModelError, match=message):
            NearestLabels.from_arrays(replaced(stage.arrays(), change), stage.config())

    def test_another_number_of_labels_is_refused(self):
        """The config and the model must agree: a kernel has room for as many labels as the config says."""
        stage = new_nearest().stage
        with pytest.raises(ModelError, match="n_labels is 15; the model has 16"):
            NearestLabels.from_arrays(stage.arrays(), stage.config(), n_labels=16)
        for n_labels in (1, 14, 16, 10**9):
            with pytest.raises(ModelError, match=f"n_labels is {n_labels}; the model has 15"):
                NearestLabels.from_arrays(stage.arrays(), {**stage.config(), "n_labels": n_labels}, n_labels=15)

    @pytest.mark.parametrize("name", ["n_labels", "n_candidates", "n_neighbours", "vote_weight", "n_searched"])
    @pytest.mark.parametrize("value", [-1, "8", None, [3], True, float("nan"), 1e300])
    def test_a_damaged_config_is_refused(self, name, value):
        stage = new_nearest().stage
        with pytest.raises(ModelError, match=name):
            NearestLabels.from_arrays(stage.arrays(), {**stage.config(), name: value})


class TestAsPublished:
    """Astec's two HNSW graphs, and the sum of what they find (DeepXML, module II and appendix A.1)."""

    def built(self, n_labels=300, gamma=0.075, n_nearest=40, n_candidates=60, n_neighbours=25, sizes=(16,)):
        rng = np.random.default_rng(0)
        features = np.abs(rng.standard_normal((900, 12))).astype(np.float32)
        labels = Ragged.from_lists([rng.choice(n_labels, rng.integers(0, 12), replace=False) for _ in range(900)])
        centres, owner = label_representatives(features, labels, n_labels, n_common=2, per_common=3)
        texts = NeighbourIndex.build(features, exact=False, links=16)
        more = {"n_nearest": n_nearest, "votes_are_sums": True, "graph": GraphSizes(*sizes)}
        stage = NearestLabels.build(
            centres, owner, n_labels, n_candidates, texts, labels, n_neighbours, gamma, 0, **more
        )
        queries = np.abs(rng.standard_normal((20, 12))).astype(np.float32)
        return stage, queries, (features, labels, centres, owner)

    def test_finds_what_the_formula_says(self):
        stage, queries, (features, labels, centres, owner) = self.built()
        found = stage.find(queries, stage.n_searched)
        assert found.ids.shape == (20, 60)
        texts = [list(map(int, labels.row(i))) for i in range(len(labels))]
        for row, query in enumerate(queries):
            # A label with three more centres may be found four times.
            scores, cosines, votes = shortlist_scores(query, centres, owner, 46, features, texts, 25, gamma=0.075)
            ids = found.ids[row][found.ids[row] >= 0].tolist()
            best = sorted(scores.values(), reverse=True)[: len(ids)]
            assert [scores[label] for label in ids] == pytest.approx(best, abs=1e-5)
            assert found.evidence[0][row, : len(ids)] == pytest.approx([cosines.get(i, 0) for i in ids], abs=1e-5)
            assert found.evidence[1][row, : len(ids)] == pytest.approx([votes.get(i, 0) for i in ids], abs=1e-5)

    def test_evidence_of_any_label_is_its_best_cosine_unless_only_texts_name_it(self):
        stage, queries, (_, _, centres, owner) = self.built()
        found = stage.find(queries, stage.n_searched)
        only_texts = [
            set(ids[cosines == 0].tolist()) for ids, cosines in zip(found.ids, found.evidence[0], strict=True)
        ]
        assert any(only_texts)
        ids = np.tile(np.arange(300, dtype=np.int32), (20, 1))
        cosines, votes = stage.evidence(queries, ids, stage.n_searched)
        exact = (queries / np.linalg.norm(queries, axis=1, keepdims=True)) @ centres.T
        for label in range(300):
            expected = np.where([label in row for row in only_texts], 0, exact[:, owner == label].max(axis=1))
            np.testing.assert_allclose(cosines[:, label], expected, atol=1e-5)
        assert votes.max() == pytest.approx(1)

    def test_is_the_same_with_any_number_of_threads_and_after_saving(self):
        stages = []
        for threads in (1, 2):
            with use_threads(threads):
                stages.append(self.built()[0])
        one, two = ({name: array.copy() for name, array in stage.arrays().items()} for stage in stages)
        assert one.keys() == two.keys() and all((one[name] == two[name]).all() for name in one)
        queries = self.built()[1]
        again = NearestLabels.from_arrays(one, stages[0].config(), n_labels=300)
        assert (again.find(queries, 1).ids == stages[0].find(queries, 1).ids).all()

    def test_a_larger_effort_searches_more(self):
        stage, queries, _ = self.built(n_nearest=5, gamma=0.0, sizes=(2, 2, 1))
        assert stage.max_searched == stage.n_searched == stage.n_searched_in_training == 1
        few, many = (stage.find(queries, n).evidence[0].sum() for n in (1, 50))
        assert many > few

    def test_fewer_centres_than_owners_are_refused(self):
        stage, *_ = self.built()
        arrays = {**stage.arrays(), "owner": stage.arrays()["owner"][1:]}
        with pytest.raises(ModelError, match=r"306 centres in the index, owners of 305"):
            NearestLabels.from_arrays(arrays, stage.config())

    def test_a_missing_graph_is_refused(self):
        stage, *_ = self.built()
        with pytest.raises(ModelError, match=r"array 'graph\.0' is missing"):
            NearestLabels.from_arrays(replaced(stage.arrays(), {"centres.graph.0": None}), stage.config())
