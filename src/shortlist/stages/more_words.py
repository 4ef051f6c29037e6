"""Words that a trained model does not know become part of its vocabulary: those of new texts, and of names of labels.

The encoder leaves them out, so that what it knows stays as it is. The re-ranker reads them: rare words say most
about labels, and new labels bring new ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shortlist.stages.pipeline import Pipeline
from shortlist.stages.replacing import with_more_features
from shortlist.stages.reranker import Reranker
from shortlist.text import Vocabulary
from shortlist.text.texts import Texts


def with_more_words(
    pipeline: Pipeline, texts: Texts, n_texts: int, max_words: int, min_count: int, min_subword_count: int
) -> Pipeline:
    """The pipeline with the words of these texts.

    n_texts    the number of texts that it was trained on: new words are as rare as if none of these had them
    max_words  how many words it may know; 0: any number
    min_count  leave out words that occur less often; and prefixes and pairs, with `min_subword_count`
    """
    reranker, vocabulary = pipeline.reranker, pipeline.vocabulary
    if not isinstance(reranker, Reranker) or not isinstance(vocabulary, Vocabulary):
        return pipeline
    n_texts += len(texts)
    room = max(max_words - len(vocabulary.words), 0) if max_words else None
    if vocabulary.subword_lengths:
        room = 0  # the subwords of a new word stand for it
    words, counts, idf = unknown_words(vocabulary, texts, n_texts, min_count, room)
    ngrams, ngram_counts, ngram_idf = unknown_words(reranker.subwords, texts, n_texts, min_subword_count)
    if not words and not ngrams:
        return pipeline
    larger = vocabulary.with_words(words, counts) if words else vocabulary
    subwords = reranker.subwords.with_words(ngrams, ngram_counts)
    return replace(pipeline, vocabulary=larger, reranker=with_more_features(reranker, larger, idf, subwords, ngram_idf))


def unknown_words(
    vocabulary: Vocabulary, texts: Texts, n_texts: int, min_count: int, room: int | None = None
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The most frequent words of these texts that are not in the vocabulary, how often they occur, and their idf."""
    found, ids = Vocabulary.build_and_encode(texts, vocabulary.tokenizer, min_count=min_count)
    every = list(found.words)
    new = np.flatnonzero(~vocabulary.is_known(every))[:room]
    document_frequencies = np.bincount(ids.to_csr(len(found)).indices, minlength=len(found))[new]
    idf: Any = np.log((1 + n_texts) / (1 + document_frequencies)) + 1
    return [every[i] for i in new.tolist()], found.counts[new], idf.astype(np.float32)
