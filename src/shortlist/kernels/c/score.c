/* Features, logits, and the best of many scores: see encoders.py, classifier.py and top_k.py in kernels. */

#include "native.h"

/* Vectors or rows of weights, in float32 or in 8 bits. */
typedef struct {
    const int8_t *bytes;
    const float *floats; /* NULL: in 8 bits */
    int64_t n;
} Rows;

static inline Rows rows_of(const Argument *argument, int in_bytes) {
    return (Rows){in_bytes ? argument->data : NULL, in_bytes ? NULL : argument->data, argument->m};
}

static inline float row_dot(Rows rows, int64_t row, const float *vector) {
    if (rows.floats) return float_dot(rows.floats + row * rows.n, vector, rows.n);
    return dot(rows.bytes + row * rows.n, vector, rows.n);
}

static inline void four_row_dots(Rows rows, const int64_t *four, const float *vector, float *sums) {
    const int8_t *bytes = rows.bytes;
    const float *floats = rows.floats;
    int64_t n = rows.n, a = four[0] * n, b = four[1] * n, c = four[2] * n, d = four[3] * n;
    if (floats) four_float_dots(floats + a, floats + b, floats + c, floats + d, vector, n, sums);
    else four_dots(bytes + a, bytes + b, bytes + c, bytes + d, vector, n, sums);
}

/* Rows lie anywhere in memory: fetch one that is needed soon. */
static inline void prefetch_row(Rows rows, int64_t row) {
    int64_t size = rows.floats ? (int64_t)sizeof *rows.floats * rows.n : rows.n;
    const char *start = (rows.floats ? (const char *)rows.floats : (const char *)rows.bytes) + row * size;
    for (int64_t at = 0; at < size; at += 64) __builtin_prefetch(start + at);
}

static inline int64_t sum_words(const Argument *arguments, int in_bytes) {
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, words, 3);
    ARRAY(const float, weights, 4);
    ARRAY(const int32_t, row_of_word, 5);
    Rows vectors = rows_of(arguments + 6, in_bytes);
    ARRAY(const float, scales, 7);
    ARRAY(const float, idf, 8);
    int64_t max_words = arguments[9].integer, n = arguments[10].m;
    ARRAY(float, sums, 10);
    int ones = !arguments[4].n;
    for (int64_t text = arguments[0].integer; text < arguments[1].integer; text++) {
        int64_t first = indptr[text], last = indptr[text + 1];
        if (last > first + max_words) last = first + max_words;
        float square = 0, *restrict sum = sums + text * n;
        for (int64_t i = first; i < last; i++) {
            float weight = idf[words[i]] * (ones ? 1 : weights[i]);
            square += weight * weight;
        }
        float scale = 1 / fmaxf(sqrtf(square), 1e-6f);
        memset(sum, 0, n * sizeof *sum);
        for (int64_t i = first; i < last; i++) {
            int64_t row = row_of_word[words[i]];
            float factor = scale * idf[words[i]] * (ones ? 1 : weights[i]) * scales[row];
            if (in_bytes) {
                const int8_t *restrict vector = vectors.bytes + row * n;
                for (int64_t j = 0; j < n; j++) sum[j] += factor * vector[j];
            } else {
                const float *restrict vector = vectors.floats + row * n;
                for (int64_t j = 0; j < n; j++) sum[j] += factor * vector[j];
            }
        }
    }
    return 0;
}

static inline int64_t score_rows(const Argument *arguments, int in_bytes) {
    Rows weights = rows_of(arguments + 2, in_bytes);
    ARRAY(const float, scales, 3);
    ARRAY(const float, biases, 4);
    ARRAY(const float, features, 5);
    ARRAY(const int32_t, candidates, 6);
    ARRAY(float, logits, 7);
    int64_t n = weights.n, k = arguments[6].m;
    enum { AHEAD = 12 };
    for (int64_t sample = arguments[0].integer; sample < arguments[1].integer; sample++) {
        const int32_t *rows = candidates + sample * k;
        float *out = logits + sample * k, sums[4] = {0};
        for (int64_t i = 0; i < k; i += 4) {
            int64_t four[4];
            for (int j = 0; j < 4; j++) {
                four[j] = i + j < k && rows[i + j] >= 0 ? rows[i + j] : 0;
                if (i + j + AHEAD < k && rows[i + j + AHEAD] >= 0) prefetch_row(weights, rows[i + j + AHEAD]);
            }
            if (arguments[2].n) four_row_dots(weights, four, features + sample * n, sums);
            for (int j = 0; j < 4 && i + j < k; j++) {
                int64_t row = rows[i + j];
                out[i + j] = row < 0 ? -INFINITY : biases[row] + scales[row] * sums[j];
            }
        }
    }
    return 0;
}

static inline int64_t score_all_rows(const Argument *arguments, int in_bytes) {
    Rows weights = rows_of(arguments + 2, in_bytes);
    ARRAY(const float, scales, 3);
    ARRAY(const float, biases, 4);
    ARRAY(const float, features, 5);
    ARRAY(float, logits, 6);
    int64_t n_rows = arguments[6].m;
    for (int64_t row = arguments[0].integer; row < arguments[1].integer; row++) {
        for (int64_t sample = 0; sample < arguments[5].n; sample++) {
            float product = row_dot(weights, row, features + sample * weights.n);
            logits[sample * n_rows + row] = biases[row] + scales[row] * product;
        }
    }
    return 0;
}

static inline float log_sigmoid(float z) { return fminf(z, 0) - log1pf(expf(-fabsf(z))); }

static inline int64_t best_of_clusters(const Argument *arguments, int in_bytes) {
    Rows weights = rows_of(arguments + 2, in_bytes);
    ARRAY(const float, scales, 3);
    ARRAY(const float, biases, 4);
    ARRAY(const int64_t, starts, 5);
    ARRAY(const float, features, 6);
    ARRAY(const int32_t, clusters, 7);
    ARRAY(const float, cluster_logits, 8);
    int64_t multiplied = arguments[9].integer, n_searched = arguments[7].m, k = arguments[10].m;
    ARRAY(int32_t, ids, 10);
    ARRAY(float, scores, 11);
    for (int64_t sample = arguments[0].integer; sample < arguments[1].integer; sample++) {
        int32_t *best = ids + sample * k;
        float *best_scores = scores + sample * k, sums[4];
        int64_t filled = 0;
        for (int64_t i = 0; i < n_searched; i++) {
            int32_t cluster = clusters[sample * n_searched + i];
            if (cluster < 0) continue;
            float of_cluster = multiplied ? log_sigmoid(cluster_logits[sample * arguments[8].m + cluster]) : 0;
            for (int64_t row = starts[cluster], end = starts[cluster + 1]; row < end; row += 4) {
                int64_t last = end - 1, four[4] = {row, row + 1, row + 2, row + 3};
                for (int j = 1; j < 4; j++) four[j] = four[j] < last ? four[j] : last;
                four_row_dots(weights, four, features + sample * weights.n, sums);
                for (int j = 0; j < 4 && row + j < end; j++) {
                    float score = biases[row + j] + scales[row + j] * sums[j];
                    if (multiplied) score = log_sigmoid(score) + of_cluster;
                    filled = insert_best(row + j, score, best, best_scores, k, filled);
                }
            }
        }
        for (; filled < k; filled++) best[filled] = -1, best_scores[filled] = -INFINITY;
    }
    return 0;
}

/* The same for both types of rows. */
#define FOR_BOTH(name)                                                                                                 \
    static int64_t name##_bytes(const Argument *arguments) { return name(arguments, 1); }                              \
    static int64_t name##_floats(const Argument *arguments) { return name(arguments, 0); }
FOR_BOTH(sum_words)
FOR_BOTH(score_rows)
FOR_BOTH(score_all_rows)
FOR_BOTH(best_of_clusters)

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

enum { AT_ONCE = 16 };

/* The k-th largest key, by radix selection; overwrites the keys. `k` becomes how many keys like it are among the k. */
static uint32_t kth_largest(uint32_t *keys, int64_t n, int64_t *k) {
    for (int shift = 24; shift >= 0 && n > 1; shift -= 8) {
        uint32_t counts[4][256] = {0}, byte = 255, count; /* neighbours are often alike: do not wait for one counter */
        int64_t kept = 0, i = 0;
        for (; i + 4 <= n; i += 4) {
            for (int j = 0; j < 4; j++) counts[j][keys[i + j] >> shift & 255]++;
        }
        for (; i < n; i++) counts[0][keys[i] >> shift & 255]++;
        for (;; byte--, *k -= count) {
            count = counts[0][byte] + counts[1][byte] + counts[2][byte] + counts[3][byte];
            if (count >= *k) break;
        }
        for (i = 0; i + AT_ONCE <= n; i += AT_ONCE) {
            int any = 0; /* most have none */
            for (int j = 0; j < AT_ONCE; j++) any |= (keys[i + j] >> shift & 255) == byte;
            for (int j = 0; any && j < AT_ONCE; j++) {
                keys[kept] = keys[i + j];
                kept += (keys[i + j] >> shift & 255) == byte;
            }
        }
        for (; i < n; i++) {
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
    int64_t n_ties = k, filled = 0;
    uint32_t threshold = kth_largest(keys, n, &n_ties);
    for (int64_t i = 0; filled < k;) {
        while (i + AT_ONCE <= n) { /* skip those that have none */
            int any = 0;
            for (int j = 0; j < AT_ONCE; j++) any |= key_of(scores[i + j]) >= threshold;
            if (any) break;
            i += AT_ONCE;
        }
        for (int64_t end = i + AT_ONCE < n ? i + AT_ONCE : n; i < end && filled < k; i++) {
            uint32_t key = key_of(scores[i]);
            positions[filled] = i;
            int is_tie = key == threshold && n_ties > 0;
            n_ties -= is_tie;
            filled += key > threshold || is_tie;
        }
    }
}

int64_t mark_top(const float *scores, int64_t n, int64_t k, uint8_t *is_top, int32_t *positions, uint32_t *keys) {
    top_k(scores, n, k, positions, keys);
    int64_t filled = 0, n_changed = 0;
    for (int64_t i = 0; i < n; i++) {
        uint8_t top = filled < k && positions[filled] == i;
        filled += top;
        n_changed += top != is_top[i];
        is_top[i] = top;
    }
    return n_changed;
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

static int64_t mark_top_scores(const Argument *arguments) {
    int64_t n = arguments[0].n, k = arguments[1].integer, n_changed = -1;
    int32_t *positions = malloc((k + 1) * sizeof *positions);
    uint32_t *keys = malloc((n + 1) * sizeof *keys);
    if (positions && keys) n_changed = mark_top(arguments[0].data, n, k, arguments[2].data, positions, keys);
    free(positions), free(keys);
    return n_changed;
}

const Kernel SCORE_KERNELS[] = {
    {"sum_words", "IIlifibffI=f", sum_words_bytes, 0},
    {"sum_words", "IIlififffI=f", sum_words_floats, 0},
    {"score_rows", "IIbfffi=f", score_rows_bytes, 0},
    {"score_rows", "IIffffi=f", score_rows_floats, 0},
    {"score_all_rows", "IIbfff=f", score_all_rows_bytes, 0},
    {"score_all_rows", "IIffff=f", score_all_rows_floats, 0},
    {"best_of_clusters", "IIbfflfifI=i=f", best_of_clusters_bytes, 0},
    {"best_of_clusters", "IIffflfifI=i=f", best_of_clusters_floats, 0},
    {"blend_odds", "fffDDDDD=f", blend_odds, 0},
    {"calibrated", "ffddddDD=f", calibrated, 0},
    {"best_of_candidates", "if=i=f", best_of_candidates, 0},
    {"mark_top", "fI=?", mark_top_scores, 1},
    {0},
};
