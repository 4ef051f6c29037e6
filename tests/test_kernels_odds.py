"""Log-odds and labels of centres against numpy; predictions for many texts in blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.candidates import labels_of_centres
from shortlist.stages.blend import MIN_VOTES, Blend

shapes = st.tuples(st.integers(0, 10_000), st.integers(0, 4), st.integers(0, 9))


@given(shapes)
def test_a_blend_is_a_weighted_sum(shape):
    seed, n_texts, k = shape
    rng = np.random.default_rng(seed)
    logits, cosines, votes = rng.standard_normal((3, n_texts, k)).astype(np.float32)
    blend = Blend(*rng.standard_normal(4).tolist())
    expected = blend.classifier * logits + blend.cosine * cosines + blend.bias
    expected += blend.votes * np.log(np.maximum(votes, MIN_VOTES))
    is_missing = rng.random((n_texts, k)) < 0.3
    odds = blend.log_odds(np.where(is_missing, np.float32(-np.inf), logits), cosines, votes)
    np.testing.assert_allclose(odds, np.where(is_missing, -np.inf, expected), rtol=1e-4, atol=1e-4)


@given(st.integers(0, 10_000), st.integers(0, 4), st.integers(0, 12), st.integers(1, 8))
def test_each_label_of_the_centres_occurs_once_with_its_largest_cosine(seed, n_queries, n_found, k):
    rng = np.random.default_rng(seed)
    owner = np.concatenate([np.arange(8), rng.integers(0, 8, 6)]).astype(np.int32)  # some labels have several centres
    several = np.bincount(owner, minlength=8) > 1
    found = np.array([rng.permutation(14)[:n_found] for _ in range(n_queries)], np.int32).reshape(n_queries, n_found)
    found[rng.random(found.shape) < 0.2] = -1
    cosines = rng.permutation(n_queries * n_found).reshape(found.shape).astype(np.float32)
    ids, similarities = np.full((n_queries, k), -7, np.int32), np.empty((n_queries, k), np.float32)
    labels_of_centres(found, cosines, owner, several, ids, similarities)
    for query in range(n_queries):
        best = {}
        for centre, cosine in zip(found[query], cosines[query], strict=True):
            if centre >= 0:
                best[int(owner[centre])] = max(best.get(int(owner[centre]), -1), float(cosine))
        expected = sorted(best.items(), key=lambda pair: -pair[1])[:k]
        given = [(int(i), float(s)) for i, s in zip(ids[query], similarities[query], strict=True) if i >= 0]
        assert sorted(given) == sorted(expected)
        assert (ids[query, len(expected) :] == -1).all()


def test_texts_ranked_in_blocks_equal_texts_ranked_together(monkeypatch):
    """With any number of threads."""
    import shortlist

    pairs = [(f"wort{i % 7} ding{i % 5} zeug{i}", [f"label {i % 7}"]) for i in range(60)]
    model = shortlist.train(pairs, recipe="centroid")
    texts = [text for text, _ in pairs]
    whole = model.rank(texts, 3, threads=1)
    monkeypatch.setattr("shortlist.stages.pipeline.TEXTS_PER_BLOCK", 7)
    for threads in (1, 2, None):
        parts = model.rank(texts, 3, threads=threads)
        assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))
    assert len(model.rank([], 3)[0]) == 0


def test_an_error_in_a_block_reaches_the_caller(monkeypatch):
    import shortlist

    model = shortlist.train([("rot", ["a"]), ("blau", ["b"])], recipe="centroid")
    monkeypatch.setattr("shortlist.stages.pipeline.TEXTS_PER_BLOCK", 1)
    monkeypatch.setattr(model.pipelines[0], "_rank_block", lambda *_: (_ for _ in ()).throw(ValueError("broken")))
    with pytest.raises(ValueError, match="broken"):
        model.rank(["rot", "blau"], 1, threads=2)
