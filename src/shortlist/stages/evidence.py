"""What the re-ranker knows besides scores: the names of labels, in words and in parts of words, and taught texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, Ragged, counts_to_indptr, gather_positions
from shortlist.kernels.evidence import gather_evidence, hash_bags
from shortlist.lazy import sparse
from shortlist.text.texts import Texts
from shortlist.text.tokenizer import Tokenizer

EVIDENCE_SPEC = {
    "frequencies": ArraySpec("float32", ("n_labels",)),
    "names.indptr": ArraySpec("int64", ("n_features+1",), indptr="n_in_names"),
    "names.labels": ArraySpec("int32", ("n_in_names",), below="n_labels"),
    "names.weights": ArraySpec("uint8", ("n_in_names",)),
    "taught.hashes": ArraySpec("int64", ("n_taught",)),
    "taught.indptr": ArraySpec("int64", ("n_taught+1",), indptr="n_taught_pairs"),
    "taught.labels": ArraySpec("int32", ("n_taught_pairs",), below="n_labels"),
}


class Evidence(NamedTuple):
    """What is known about the candidates of some texts (arrays are texts × K).

    ids       the candidates: those that were given, followed by further ones; -1 for none
    rows      the lexical features of the texts
    names     similarity of each candidate's name and the text
    known     whether the candidate is a label of a training text with the same words
    is_known  whether there is such a text
    parts     similarity of each candidate's name and the text in parts of words; None: there is no index of them
    """

    ids: np.ndarray
    rows: Ragged
    names: np.ndarray
    known: np.ndarray
    is_known: np.ndarray
    parts: np.ndarray | None = None


def similar(
    index: tuple[np.ndarray, ...], rows: Ragged, taught: Ragged, ids: np.ndarray, n_more: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The candidates and up to `n_more` further ones, their similarity to each text, and whether it has them taught.

    index  of names, see `index_names`
    rows   features of the texts, as in the index
    """
    n_given = ids.shape[1]
    size = len(ids), n_given + n_more
    all_ids, names, known = np.empty(size, np.int32), np.empty(size, np.float32), np.empty(size, np.bool_)
    all_ids[:, :n_given] = ids
    name_ptr, labels, weights = index
    texts, own = (rows.indptr, rows.values, rows.weights), (taught.indptr, taught.values)
    gather_evidence(*texts, name_ptr, labels, weights, *own, n_given, all_ids, names, known)
    return all_ids, names, known


def index_names(names: sparse.csr_array) -> Arrays:
    """For each feature the labels whose names have it, from one row of features per label."""
    by_feature = sparse.csr_array(names.T)
    by_feature.sort_indices()
    return {
        "names.indptr": by_feature.indptr.astype(np.int64),
        "names.labels": by_feature.indices.astype(np.int32),
        "names.weights": np.rint(255 * np.minimum(by_feature.data, 1)).astype(np.uint8),
    }


def largest_of_names(rows: Ragged, labels: np.ndarray, n_labels: int, n_features: int) -> sparse.csr_array:
    """One row of features per label: of each feature the largest weight in one of its names.

    rows    features of names
    labels  the label of each name
    """
    assert rows.weights is not None
    keys = labels[rows.row_ids].astype(np.int64) * n_features + rows.values
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.diff(keys[order], prepend=-1))
    values = rows.weights[order]
    values = np.maximum.reduceat(values, first) if len(first) else values
    owners, columns = np.divmod(keys[order][first], n_features)
    indptr = counts_to_indptr(np.bincount(owners, minlength=n_labels))
    return sparse.csr_array((values, columns.astype(np.int32), indptr), (n_labels, n_features))


def remember_texts(texts: Sequence[str], labels: Ragged, tokenizer: Tokenizer) -> Arrays:
    """The labels of texts by a hash of their words, so that no text needs to be stored.

    Texts with the same words, in any order, are one entry. It has the labels that at least half of them have.
    """
    hashes, entry_of_text = np.unique(hashes_of(texts, tokenizer), return_inverse=True)
    n_texts = np.bincount(entry_of_text, minlength=len(hashes))
    pairs = np.column_stack([entry_of_text[labels.row_ids], labels.values])
    pairs, votes = np.unique(pairs, axis=0, return_counts=True)
    kept = pairs[(2 * votes >= n_texts[pairs[:, 0]]) & (hashes[pairs[:, 0]] != 0)]
    return {
        "taught.hashes": hashes,
        "taught.indptr": counts_to_indptr(np.bincount(kept[:, 0], minlength=len(hashes))),
        "taught.labels": kept[:, 1].astype(np.int32),
    }


def remember_more(arrays: Arrays, texts: Sequence[str], labels: Ragged, tokenizer: Tokenizer) -> Arrays:
    """The arrays of `remember_texts` with further texts. One with the same words as an old text has its labels, too."""
    new = remember_texts(texts, labels, tokenizer)
    hashes = np.union1d(arrays["taught.hashes"], new["taught.hashes"])
    pairs = []
    for one in (arrays, new):
        entries = np.repeat(np.searchsorted(hashes, one["taught.hashes"]), np.diff(one["taught.indptr"]))
        pairs.append(np.column_stack([entries, one["taught.labels"]]))
    entries, values = np.unique(np.concatenate(pairs), axis=0).T
    indptr = counts_to_indptr(np.bincount(entries, minlength=len(hashes)))
    return {"taught.hashes": hashes, "taught.indptr": indptr, "taught.labels": values.astype(np.int32)}


def forget(arrays: Arrays, texts: Sequence[str], labels: Ragged, tokenizer: Tokenizer) -> Arrays:
    """The arrays of `remember_texts` without these labels of texts with the same words."""
    hashes, own = arrays["taught.hashes"], Ragged(arrays["taught.indptr"], arrays["taught.labels"])
    forgotten = set(zip(hashes_of(texts, tokenizer)[labels.row_ids].tolist(), labels.values.tolist(), strict=True))
    known = zip(hashes[own.row_ids].tolist(), own.values.tolist(), strict=True)
    own = own.keep(np.fromiter((pair not in forgotten for pair in known), bool, len(own.values)))
    return {"taught.hashes": hashes, "taught.indptr": own.indptr, "taught.labels": own.values}


def nothing_taught() -> Arrays:
    """The arrays of `remember_texts` without a text."""
    return remember_texts([], Ragged.from_lists([]), Tokenizer())


def taught_labels(arrays: Arrays, texts: Sequence[str], tokenizer: Tokenizer) -> Ragged:
    """The labels of the training texts that have the same words as each text."""
    known, indptr = arrays["taught.hashes"], arrays["taught.indptr"]
    if not len(known):
        return Ragged.empty(len(texts))
    hashes = hashes_of(texts, tokenizer)
    entries = np.minimum(known.searchsorted(hashes), len(known) - 1)
    is_same = known[entries] == hashes
    if not is_same.any():
        return Ragged.empty(len(hashes))
    positions, new_indptr = gather_positions(indptr, entries)
    return Ragged(new_indptr, arrays["taught.labels"][positions]).keep(np.repeat(is_same, np.diff(new_indptr)))


def hashes_of(texts: Any, tokenizer: Tokenizer) -> np.ndarray:
    words, ends, counts = tokenizer.split_texts(Texts.from_strings(texts))
    hashes = np.empty(len(counts), np.uint64)
    hash_bags(words, ends, counts, hashes)
    return hashes.view(np.int64)
