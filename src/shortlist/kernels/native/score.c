/* Features, logits, and the best of many scores: see kernels/encoders.py, kernels/classifier.py and kernels/top_k.py. */

#include "native.h"

static int64_t sum_words(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, words, 3);
    ARRAY(const float, weights, 4);
    ARRAY(const int32_t, row_of_word, 5);
    ARRAY(const int8_t, vectors, 6);
    ARRAY(const float, scales, 7);
    ARRAY(const float, idf, 8);
    int64_t max_words = arguments[9].integer, n = arguments[10].m;
    ARRAY(float, sums, 10);
    int ones = !arguments[4].n;
    for (int64_t text = arguments[0].integer; text < arguments[1].integer; text++) {
        int64_t first = indptr[text], last = indptr[text + 1];
        if (last > first + max_words) last = first + max_words;
        float square = 0, *sum = sums + text * n;
        for (int64_t i = first; i < last; i++) {
            float weight = idf[words[i]] * (ones ? 1 : weights[i]);
            square += weight * weight;
        }
        float scale = 1 / fmaxf(sqrtf(square), 1e-6f);
        memset(sum, 0, n * sizeof *sum);
        for (int64_t i = first; i < last; i++) {
            int64_t row = row_of_word[words[i]];
            float factor = scale * idf[words[i]] * (ones ? 1 : weights[i]) * scales[row];
            const int8_t *vector = vectors + row * n;
            for (int64_t j = 0; j < n; j++) sum[j] += factor * vector[j];
        }
    }
    return 0;
}

static int64_t score_rows(const Argument *arguments) {
    ARRAY(const int8_t, weights, 2);
    ARRAY(const float, scales, 3);
    ARRAY(const float, biases, 4);
    ARRAY(const float, features, 5);
    ARRAY(const int32_t, candidates, 6);
    ARRAY(float, logits, 7);
    int64_t n = arguments[2].m, k = arguments[6].m;
    enum { AHEAD = 12 };
    for (int64_t sample = arguments[0].integer; sample < arguments[1].integer; sample++) {
        const int32_t *rows = candidates + sample * k;
        const float *vector = features + sample * n;
        float *out = logits + sample * k, sums[4];
        for (int64_t i = 0; i < k; i += 4) {
            const int8_t *four[4];
            for (int j = 0; j < 4; j++) {
                int64_t row = i + j < k ? rows[i + j] : -1;
                four[j] = weights + (row < 0 ? 0 : row) * n;
                if (i + j + AHEAD < k && rows[i + j + AHEAD] >= 0) { /* rows lie anywhere in memory */
                    const int8_t *next = weights + rows[i + j + AHEAD] * n;
                    for (int64_t at = 0; at < n; at += 64) __builtin_prefetch(next + at);
                }
            }
            four_dots(four[0], four[1], four[2], four[3], vector, n, sums);
            for (int j = 0; j < 4 && i + j < k; j++) {
                int64_t row = rows[i + j];
                out[i + j] = row < 0 ? -INFINITY : biases[row] + scales[row] * sums[j];
            }
        }
    }
    return 0;
}

static int64_t score_all_rows(const Argument *arguments) {
    ARRAY(const int8_t, weights, 2);
    ARRAY(const float, scales, 3);
    ARRAY(const float, biases, 4);
    ARRAY(const float, features, 5);
    ARRAY(float, logits, 6);
    int64_t n = arguments[2].m, n_rows = arguments[6].m;
    for (int64_t row = arguments[0].integer; row < arguments[1].integer; row++) {
        for (int64_t sample = 0; sample < arguments[5].n; sample++) {
            logits[sample * n_rows + row] = biases[row] + scales[row] * dot(weights + row * n, features + sample * n, n);
        }
    }
    return 0;
}

static int64_t blend_odds(const Argument *arguments) {
    ARRAY(const float, logits, 0);
    ARRAY(const float, cosines, 1);
    ARRAY(const float, votes, 2);
    double of_logit = arguments[3].real, of_cosine = arguments[4].real, of_votes = arguments[5].real;
    double bias = arguments[6].real, least = arguments[7].real, log_least = log(least);
    ARRAY(float, odds, 8);
    for (int64_t i = 0; i < arguments[0].n; i++) {
        double vote = votes[i] > least ? log(votes[i]) : log_least;
        odds[i] = isfinite(logits[i]) ? of_logit * logits[i] + of_cosine * cosines[i] + of_votes * vote + bias : -INFINITY;
    }
    return 0;
}

static int64_t calibrated(const Argument *arguments) {
    ARRAY(const float, scores, 0);
    ARRAY(const float, total, 1);
    ARRAY(const double, known, 2);
    ARRAY(const double, weights, 3);
    ARRAY(const double, curves, 4);
    ARRAY(const double, places, 5);
    double surest = arguments[6].real, min_others = arguments[7].real;
    ARRAY(float, probabilities, 8);
    int64_t k = arguments[0].m, n_curves = arguments[3].n, n_places = arguments[5].n;
    for (int64_t i = 0; i < arguments[0].n * k; i++) {
        int64_t text = i / k;
        double score = fmin(fmax(scores[i], surest), 1 - surest), sum = 0;
        double odds = log(score / (1 - score));
        double others = log(fmax(total[text] - fmin(fmax(scores[i], 0), 1), min_others));
        for (int64_t j = 0; j < n_curves; j++) {
            const double *w = weights + 4 * j, *curve = curves + n_places * j;
            double z = w[0] * odds + w[1] * others + w[2] * (known[text] - 1) + w[3];
            double guess = 1 / (1 + exp(-fmin(fmax(z, -30), 30)));
            int64_t low = 0, high = n_places - 1; /* the first place that is not below the guess */
            while (low < high) {
                int64_t middle = (low + high) / 2;
                if (places[middle] < guess) low = middle + 1;
                else high = middle;
            }
            double share = low ? fmin((guess - places[low - 1]) / (places[low] - places[low - 1]), 1) : 0;
            sum += low ? curve[low - 1] + share * (curve[low] - curve[low - 1]) : curve[0];
        }
        probabilities[i] = sum / n_curves;
    }
    return 0;
}

/* The bits of floats sort like integers, once those of negative numbers are inverted; -0 becomes 0. */
static inline uint32_t key_of(float score) {
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits <= 0x80000000u ? bits | 0x80000000u : ~bits;
}

/* The k-th largest key, by radix selection; overwrites the keys. */
static uint32_t kth_largest(uint32_t *keys, int64_t n, int64_t k) {
    for (int shift = 24; shift >= 0 && n > 1; shift -= 8) {
        int64_t counts[256] = {0}, kept = 0;
        for (int64_t i = 0; i < n; i++) counts[keys[i] >> shift & 255]++;
        uint32_t byte = 255;
        for (; counts[byte] < k; byte--) k -= counts[byte];
        for (int64_t i = 0; i < n; i++) {
            keys[kept] = keys[i];
            kept += (keys[i] >> shift & 255) == byte;
        }
        n = kept;
    }
    return keys[0];
}

void top_k(const float *scores, int64_t n, int64_t k, int32_t *positions, uint32_t *keys) {
    if (!k) return;
    for (int64_t i = 0; i < n; i++) keys[i] = key_of(scores[i]);
    uint32_t threshold = kth_largest(keys, n, k);
    int64_t n_ties = k, filled = 0;
    for (int64_t i = 0; i < n; i++) n_ties -= key_of(scores[i]) > threshold;
    for (int64_t i = 0; i < n && filled < k; i++) {
        uint32_t key = key_of(scores[i]);
        positions[filled] = i;
        int is_tie = key == threshold && n_ties > 0;
        n_ties -= is_tie;
        filled += key > threshold || is_tie;
    }
}

typedef struct {
    float score;
    int32_t position;
} Ranked;

static int compare_ranked(const void *one, const void *other) {
    const Ranked *a = one, *b = other;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    return (a->position > b->position) - (a->position < b->position);
}

static int64_t best_of_candidates(const Argument *arguments) {
    ARRAY(const int32_t, ids, 0);
    ARRAY(const float, odds, 1);
    ARRAY(int32_t, best, 2);
    ARRAY(float, best_odds, 3);
    int64_t n = arguments[0].m, k = arguments[2].m;
    uint32_t *keys = malloc((n + 1) * sizeof *keys);
    int32_t *positions = malloc((k + 1) * sizeof *positions);
    Ranked *ranked = malloc((k + 1) * sizeof *ranked);
    for (int64_t text = 0; keys && positions && ranked && text < arguments[0].n; text++) {
        const float *own = odds + text * n;
        top_k(own, n, k, positions, keys);
        for (int64_t i = 0; i < k; i++) ranked[i] = (Ranked){own[positions[i]], positions[i]};
        qsort(ranked, k, sizeof *ranked, compare_ranked);
        for (int64_t i = 0; i < k; i++) {
            best[text * k + i] = ids[text * n + ranked[i].position];
            best_odds[text * k + i] = ranked[i].score;
        }
    }
    int64_t failed = keys && positions && ranked ? 0 : -1;
    free(keys), free(positions), free(ranked);
    return failed;
}

const Kernel SCORE_KERNELS[] = {
    {"sum_words", "IIlifibffI=f", sum_words, 0},
    {"score_rows", "IIbfffi=f", score_rows, 0},
    {"score_all_rows", "IIbfff=f", score_all_rows, 0},
    {"blend_odds", "fffDDDDD=f", blend_odds, 0},
    {"calibrated", "ffddddDD=f", calibrated, 0},
    {"best_of_candidates", "if=i=f", best_of_candidates, 0},
    {0},
};
