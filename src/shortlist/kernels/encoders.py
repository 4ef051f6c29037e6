"""The encoders' forward pass: weighted sums of word vectors, and what follows a convolution."""

from __future__ import annotations

import math

import numpy as np

from shortlist.kernels.compile import FAST, kernel
from shortlist.kernels.threads import parallel_kernel

# Products and sums may be fused, but not reordered.
FUSED = {"contract", "arcp", "nsz"}

ROOT_HALF = np.float32(math.sqrt(0.5))
FLAT = np.float32(4)  # erf is 1 in float32 from here on


@parallel_kernel(rows="sums", minimum=64, fastmath=FAST)
def sum_words(begin, end, indptr, words, weights, row_of_word, vectors, scales, idf, max_words, sums):
    """The sum of each text's word vectors, weighted by `idf` and by `weights`, if there are any; scaled to length 1."""
    ones = len(weights) == 0
    for text in range(begin, end):
        first = indptr[text]
        last = min(indptr[text + 1], first + max_words)
        square = np.float32(0)
        for i in range(first, last):
            square += (idf[words[i]] if ones else idf[words[i]] * weights[i]) ** 2
        scale = 1 / max(np.sqrt(square), np.float32(1e-6))
        sums[text] = 0
        for i in range(first, last):
            row = row_of_word[words[i]]
            weight = idf[words[i]] if ones else idf[words[i]] * weights[i]
            factor, vector = scale * weight * scales[row], vectors[row]
            for j in range(len(vector)):
                sums[text, j] += factor * np.float32(vector[j])


@kernel(fastmath=FUSED, error_model="numpy")
def _gelu(x):
    """x/2 · (1 + erf(x/√2)), with Eigen's rational approximation of erf: unlike `math.erf`, it becomes SIMD code."""
    z = x * ROOT_HALF
    z = z if z < FLAT else FLAT
    z = z if z > -FLAT else -FLAT
    s = z * z
    above = np.float32(-2.72614225801306e-10)
    above = above * s + np.float32(2.77068142495902e-08)
    above = above * s + np.float32(-2.10102402082508e-06)
    above = above * s + np.float32(-5.69250639462346e-05)
    above = above * s + np.float32(-7.34990630326855e-04)
    above = above * s + np.float32(-2.95459980854025e-03)
    above = above * s + np.float32(-1.60960333262415e-02)
    below = np.float32(-1.45660718464996e-05)
    below = below * s + np.float32(-2.13374055278905e-04)
    below = below * s + np.float32(-1.68282697438203e-03)
    below = below * s + np.float32(-7.37332916720468e-03)
    below = below * s + np.float32(-1.42647390514189e-02)
    half = np.float32(0.5) * x
    return half + half * (z * above / below)


@kernel(fastmath=FUSED, error_model="numpy")
def gelu_rows(x):
    """GELU of a matrix, in place."""
    for row in x:
        for i in range(len(row)):
            row[i] = _gelu(row[i])


@kernel(fastmath=FUSED, error_model="numpy")
def join_taps(products, bounds, biases, out):
    """What follows the product of a convolution: add up the taps, add the bias, apply GELU.

    out[text, i] = gelu(biases + the sum over taps t of products[text, i + t, bounds[t]:bounds[t + 1]]). A tap with
    fewer columns than there are channels belongs to the last channels.
    """
    n_texts, n_positions, n_channels = out.shape
    for text in range(n_texts):
        for i in range(n_positions):
            row = out[text, i]
            for c in range(n_channels):
                row[c] = biases[c]
            for tap in range(len(bounds) - 1):
                part = products[text, i + tap, bounds[tap] : bounds[tap + 1]]
                first = n_channels - len(part)
                for c in range(len(part)):
                    row[first + c] += part[c]
            for c in range(n_channels):
                row[c] = _gelu(row[c])
