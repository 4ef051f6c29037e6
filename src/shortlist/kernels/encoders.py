"""The encoders' forward pass: weighted sums of word vectors, and what follows a convolution."""

from __future__ import annotations

from shortlist.kernels.native import native
from shortlist.kernels.threads import run_ranges


def sum_words(indptr, words, weights, row_of_word, vectors, scales, idf, max_words, sums):
    """The sum of each text's word vectors, weighted by `idf` and by `weights`, if there are any; scaled to length 1."""
    rows = row_of_word, vectors, scales, idf
    run_ranges(native.sum_words, len(sums), 64, indptr, words, weights, *rows, max_words, sums)


def gelu_rows(x):
    """GELU of a matrix, in place."""
    native.gelu_rows(x)


def join_taps(products, bounds, biases, out):
    """What follows the product of a convolution: add up the taps, add the bias, apply GELU.

    out[text, i] = gelu(biases + the sum over taps t of products[text, i + t, bounds[t]:bounds[t + 1]]). A tap with
    fewer columns than there are channels belongs to the last channels.
    """
    native.join_taps(products, bounds, biases, out)
