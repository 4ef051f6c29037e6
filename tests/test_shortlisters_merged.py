"""Shortlists from two indexes: labels' centres, votes of texts, and how they are merged."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.arrays import Ragged
from shortlist.errors import ModelError
from shortlist.model.deepxml import check_shortlister
from shortlist.shortlisters.cells import CellIndex
from shortlist.shortlisters.centres import label_centres, unit
from shortlist.shortlisters.merged import MergedShortlister
from shortlist.shortlisters.neighbours import NeighbourIndex

ALL_CELLS = 1 << 20


def random_labels(n_texts, n_labels, rng):
    return Ragged.from_lists(
        [sorted(rng.choice(n_labels, rng.integers(0, min(4, n_labels) + 1), replace=False)) for _ in range(n_texts)]
    )


def new_shortlister(n_texts=60, n_labels=15, n_features=8, seed=0, share=0.4, n_voters=7, with_texts=True):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_texts, n_features)).astype(np.float32)
    labels = random_labels(n_texts, n_labels, rng)
    centres, owner = label_centres(features, labels, n_labels)
    texts = NeighbourIndex.build(features) if with_texts else None
    queries = rng.standard_normal((20, n_features)).astype(np.float32)
    return MergedShortlister(CellIndex.build(centres), owner, texts, labels, n_voters, share, n_labels), queries


def slow_shortlist(shortlister, query, k):
    """What `shortlist` promises, said plainly."""
    n_searched = shortlister.n_searched(min(k, shortlister.n_labels))
    found, cosines = shortlister.centres.search(query[None], n_searched, ALL_CELLS)
    of_label = {}
    for representative, cosine in zip(found[0], cosines[0], strict=True):
        of_label.setdefault(int(shortlister.owner[representative]), float(cosine))
    least = float(cosines[0].min())
    votes, total = {}, 0.0
    if shortlister.texts is not None:
        texts, nearness = shortlister.texts.search(query[None], min(shortlister.n_texts, len(shortlister.texts)))
        for text, cosine in zip(texts[0], nearness[0], strict=True):
            if cosine > 0:
                total += float(cosine) ** 4
                for label in shortlister.text_labels.row(text):
                    votes[int(label)] = votes.get(int(label), 0.0) + float(cosine) ** 4
    share = shortlister.share if shortlister.texts is not None else 0.0
    rows = [
        (share * votes.get(label, 0.0) / max(total, 1e-9) + (1 - share) * of_label.get(label, least), label)
        for label in {*of_label, *votes}
    ]
    return {label: score for score, label in rows}, of_label, votes, total


class TestMergedShortlister:
    @pytest.mark.parametrize("k", [1, 4, 15, 40])
    @pytest.mark.parametrize("kind", [{}, {"share": 1.0}, {"share": 0.0}, {"with_texts": False}, {"n_voters": 500}])
    def test_is_what_it_promises(self, kind, k):
        shortlister, queries = new_shortlister(**kind)
        ids, cosines, votes = shortlister.shortlist(queries, k, ALL_CELLS)
        assert ids.shape == (20, min(k, 15))
        for row, query in enumerate(queries):
            scores, of_label, of_votes, total = slow_shortlist(shortlister, query, k)
            found = ids[row][ids[row] >= 0].tolist()
            assert len(set(found)) == len(found) == min(k, len(scores))
            expected = sorted(scores.values(), reverse=True)[: len(found)]  # which of equals comes first is open
            own = [scores[label] for label in found]
            if shortlister.texts is None:  # then they come in no order
                own.sort(reverse=True)
            assert own == pytest.approx(expected, abs=1e-5)
            for place, label in enumerate(found):
                assert votes[row, place] == pytest.approx(of_votes.get(label, 0) / max(total, 1e-9), abs=1e-5)
                if label in of_label:
                    assert cosines[row, place] == pytest.approx(of_label[label], abs=1e-5)

    @pytest.mark.parametrize("n_cells", [1, 3, 20])
    @pytest.mark.parametrize("with_texts", [False, True])
    def test_in_some_cells_what_is_found_has_the_same_similarities(self, n_cells, with_texts):
        """And where the cells hold too few labels, the rest of the places is empty."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shortlist.shortlisters.cells.FEW", 16)
            shortlister, queries = new_shortlister(600, 120, with_texts=with_texts, share=0.4 * with_texts)
        assert len(shortlister.centres.cells) > 20
        ids, cosines, votes = shortlister.shortlist(queries, 100, n_cells)
        assert ids.shape == cosines.shape == votes.shape == (20, 100)
        there = ids >= 0
        assert (np.diff(there.astype(int), axis=1) <= 0).all()
        assert not there.all()
        assert not cosines[~there].any()
        assert not votes[~there].any()
        exact = shortlister.similarities(queries, np.tile(np.arange(120), (20, 1)), 100, ALL_CELLS)[0]
        for row in range(20):
            assert len(set(ids[row][there[row]])) == there[row].sum()
            found = cosines[row][there[row]]
            if with_texts:  # those of the texts alone have the least cosine that was found
                assert (np.isclose(found, exact[row, ids[row][there[row]]], atol=1e-5) | (found == found.min())).all()
            else:
                np.testing.assert_allclose(found, exact[row, ids[row][there[row]]], atol=1e-5)

    def test_similarities_of_given_labels_are_those_of_their_shortlist(self):
        shortlister, queries = new_shortlister()
        ids, cosines, votes = shortlister.shortlist(queries, 15, ALL_CELLS)
        given, of_given = shortlister.similarities(queries, ids, 15, ALL_CELLS)
        np.testing.assert_allclose(given, cosines, atol=1e-5)
        np.testing.assert_allclose(of_given, votes, atol=1e-5)

    def test_similarity_to_a_label_with_several_centres_is_that_of_the_nearest(self):
        rng = np.random.default_rng(0)
        features = rng.standard_normal((2000, 6)).astype(np.float32)
        centres, owner = label_centres(features, Ragged.from_lists([[0, 1 + i % 10] for i in range(2000)]), 11)
        nothing = Ragged(np.zeros(1, np.int64), np.zeros(0, np.int32))
        shortlister = MergedShortlister(CellIndex.build(centres), owner, None, nothing, 0, 0.0, 11)
        found, votes = shortlister.similarities(features[:9], np.tile(np.arange(11), (9, 1)), 5, ALL_CELLS)
        products = unit(features[:9]) @ unit(centres).T
        expected = np.stack([products[:, owner == label].max(axis=1) for label in range(11)], axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert not votes.any()

    def test_labels_with_several_centres_do_not_crowd_out_the_others(self):
        rng = np.random.default_rng(0)
        features = rng.standard_normal((2000, 6)).astype(np.float32)
        labels = Ragged.from_lists([[0, 1 + i % 10] for i in range(2000)])
        centres, owner = label_centres(features, labels, 11)
        assert len(centres) > 5 * 11
        nothing = Ragged(np.zeros(1, np.int64), np.zeros(0, np.int32))
        shortlister = MergedShortlister(CellIndex.build(centres), owner, None, nothing, 0, 0.0, 11)
        ids, _, _ = shortlister.shortlist(features[:50], 11, ALL_CELLS)
        assert (np.sort(ids, axis=1) == np.arange(11)).all()

    def test_threads_change_nothing(self):
        shortlister, queries = new_shortlister()
        one, two = (shortlister.shortlist(queries, 9, ALL_CELLS, threads) for threads in (1, 2))
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))

    def test_no_queries(self):
        shortlister, queries = new_shortlister()
        assert shortlister.shortlist(queries[:0], 5, ALL_CELLS)[0].shape == (0, 5)

    def test_one_label(self):
        shortlister, queries = new_shortlister(n_labels=1)
        assert shortlister.shortlist(queries, 5, ALL_CELLS)[0].tolist() == [[0]] * 20

    @pytest.mark.parametrize(
        "broken",
        [
            {"owner": np.full(15, 99, np.int32)},
            {"owner": np.zeros(3, np.int32)},
            {"owner": np.zeros(15, np.int64)},
            {"text_labels": Ragged(np.zeros(1, np.int64), np.zeros(0, np.int32))},
            {"text_labels": Ragged(np.arange(61) * 2, np.full(120, 15, np.int32))},
            {"text_labels": Ragged(np.arange(61)[::-1].copy(), np.zeros(60, np.int32))},
        ],
    )
    def test_damaged_arrays_are_refused_before_they_are_followed(self, broken):
        shortlister, _ = new_shortlister()
        check_shortlister(shortlister, 8)
        with pytest.raises(ModelError):
            check_shortlister(MergedShortlister(**{**vars(shortlister), **broken}), 8)
        with pytest.raises(ModelError):
            check_shortlister(shortlister, 9)
