/* Learning the re-ranker's linear classifiers over words: see kernels/reranker.py. */

#include "native.h"

enum { MAX_PASSES = 20, AHEAD = 4 };
/* A label is learnt when no text would move its weights by more than this. */
static const float TOLERANCE = 0.3f;

static int64_t texts_of_labels(const Argument *arguments) {
    ARRAY(const int32_t, candidates, 0);
    ARRAY(const int64_t, indptr, 1);
    ARRAY(const int32_t, labels, 2);
    int64_t n_labels = arguments[3].n, k = arguments[0].m, only_counts = !arguments[4].n;
    ARRAY(int64_t, filled, 3);
    ARRAY(int32_t, texts, 4);
    ARRAY(uint8_t, right, 5);
    int64_t *last_text = calloc(n_labels + 1, sizeof *last_text); /* + 1 */
    if (!last_text) return -1;
    for (int64_t text = 0; text < arguments[0].n; text++) {
        const int32_t *own = labels + indptr[text], *others = candidates + text * k;
        int64_t n_own = indptr[text + 1] - indptr[text];
        for (int64_t i = 0; i < n_own + k; i++) {
            int32_t label = i < n_own ? own[i] : others[i - n_own];
            if (label < 0 || last_text[label] == text + 1) continue;
            last_text[label] = text + 1;
            if (!only_counts) texts[filled[label]] = text, right[filled[label]] = i < n_own;
            filled[label]++;
        }
    }
    free(last_text);
    return 0;
}

/* Texts as rows of words. */
typedef struct {
    const int64_t *indptr;
    const int32_t *words;
    const float *values;
} Texts;

/* The texts of a label, and what its solver keeps of each. `before` and `counts` may be NULL. */
typedef struct {
    const int32_t *texts;
    const uint8_t *right;
    const float *before, *counts;
    int64_t n, *order;
    float *alphas, *squares;
} Problem;

static inline void swap(int64_t *order, int64_t a, int64_t b) {
    int64_t one = order[a];
    order[a] = order[b], order[b] = one;
}

/* Coordinate descent with shrinking, as in LIBLINEAR; adds to `weights`, which are 0 at first, and returns the bias. */
static float learn_label(Texts all, Problem problem, float cost, uint64_t seed, float *restrict weights) {
    const int32_t *restrict words = all.words;
    const float *restrict values = all.values;
    float *restrict alphas = problem.alphas;
    int64_t *restrict order = problem.order, n_active = problem.n;
    for (int64_t i = 0; i < problem.n; i++) {
        const int64_t *bounds = all.indptr + problem.texts[i];
        float square = 1;
        for (int64_t p = bounds[0]; p < bounds[1]; p++) square += values[p] * values[p];
        problem.squares[i] = square, alphas[i] = 0, order[i] = i;
    }
    uint64_t state = 2 * seed + 1;
    float common = 0.5f / cost, bias = 0, aside = INFINITY;
    for (int pass = 0; pass < MAX_PASSES; pass++, state += 2) {
        uint64_t counter = state;
        for (int64_t i = 0; i < n_active - 1; i++, counter += 0x9E3779B97F4A7C15u) { /* shuffle */
            swap(order, i, i + mix(counter) % (uint64_t)(n_active - i));
        }
        float least = INFINITY, most = -INFINITY;
        for (int64_t place = 0; place < n_active;) {
            if (place + 2 * AHEAD < n_active) __builtin_prefetch(all.indptr + problem.texts[order[place + 2 * AHEAD]]);
            if (place + AHEAD < n_active) { /* texts lie anywhere in memory */
                int64_t next = all.indptr[problem.texts[order[place + AHEAD]]];
                __builtin_prefetch(words + next), __builtin_prefetch(words + next + 16);
                __builtin_prefetch(values + next), __builtin_prefetch(values + next + 16);
            }
            int64_t i = order[place], begin = all.indptr[problem.texts[i]], end = all.indptr[problem.texts[i] + 1];
            float sign = problem.right[i] ? 1 : -1, score = bias + (problem.before ? problem.before[i] : 0);
            for (int64_t p = begin; p < end; p++) score += weights[words[p]] * values[p];
            float diagonal = problem.counts ? common / problem.counts[i] : common;
            float slope = sign * score - 1 + alphas[i] * diagonal;
            if (alphas[i] == 0 && slope > aside) { /* far on the right side */
                swap(order, place, --n_active);
                continue;
            }
            float projected = alphas[i] == 0 ? fminf(slope, 0) : slope;
            least = fminf(least, projected), most = fmaxf(most, projected);
            if (projected != 0) {
                float alpha = fmaxf(alphas[i] - slope / (problem.squares[i] + diagonal), 0);
                float change = (alpha - alphas[i]) * sign;
                alphas[i] = alpha;
                bias += change;
                for (int64_t p = begin; p < end; p++) weights[words[p]] += change * values[p];
            }
            place++;
        }
        if (most - least > TOLERANCE) {
            aside = most > 0 ? most : INFINITY;
        } else {
            if (n_active == problem.n) break;
            n_active = problem.n, aside = INFINITY;
        }
    }
    return bias;
}

/* Move the weights of at least `least` of the texts' words to `out` in the order of words, and set all to 0. */
static int64_t take_weights(Texts all, Problem problem, float least, float *weights, uint64_t *keys, uint64_t *space,
                            int32_t *out, float *weights_out) {
    int64_t n = 0;
    for (int64_t i = 0; i < problem.n; i++) {
        for (int64_t p = all.indptr[problem.texts[i]]; p < all.indptr[problem.texts[i] + 1]; p++) {
            int32_t word = all.words[p];
            uint32_t bits;
            memcpy(&bits, weights + word, sizeof bits);
            keys[n] = (uint64_t)word << 32 | bits;
            n += fabsf(weights[word]) >= least;
            weights[word] = 0;
        }
    }
    sort_keys(keys, space, n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = keys[i];
        out[i] = keys[i] >> 32;
        memcpy(weights_out + i, &bits, sizeof bits);
    }
    return n;
}

static int64_t learn_labels(const Argument *arguments) {
    Texts all = {arguments[2].data, arguments[3].data, arguments[4].data};
    int64_t n_words = arguments[5].integer;
    ARRAY(const int64_t, starts, 6);
    ARRAY(const int32_t, texts, 7);
    ARRAY(const uint8_t, right, 8);
    const float *before = arguments[9].n ? arguments[9].data : NULL;
    const float *counts = arguments[10].n ? arguments[10].data : NULL;
    ARRAY(const int64_t, cuts, 11);
    float cost = arguments[12].real, least = arguments[13].real;
    ARRAY(const int64_t, room, 14);
    ARRAY(int64_t, found, 15);
    ARRAY(int32_t, out, 16);
    ARRAY(float, weights_out, 17);
    ARRAY(float, biases, 18);
    int64_t first = cuts[arguments[0].integer], last = cuts[arguments[1].integer], failed = -1;
    int64_t most = 0, most_words = 0; /* of a label */
    for (int64_t label = first; label < last; label++) {
        int64_t n_texts = starts[label + 1] - starts[label], n = 0;
        for (const int32_t *text = texts + starts[label]; text < texts + starts[label + 1]; text++) {
            n += all.indptr[*text + 1] - all.indptr[*text];
        }
        if (n > most_words) most_words = n;
        if (n_texts > most) most = n_texts;
    }
    float *weights = calloc(n_words + 1, sizeof *weights);
    uint64_t *keys = malloc(2 * (most_words + 1) * sizeof *keys);
    Problem problem = {0};
    problem.order = malloc((most + 1) * sizeof *problem.order);
    problem.alphas = malloc((most + 1) * sizeof *problem.alphas);
    problem.squares = malloc((most + 1) * sizeof *problem.squares);
    if (!weights || !keys || !problem.order || !problem.alphas || !problem.squares) goto end;
    for (int64_t label = first; label < last; label++) {
        int64_t start = starts[label], at = label - cuts[0];
        problem.n = starts[label + 1] - start;
        problem.texts = texts + start, problem.right = right + start;
        problem.before = before ? before + start : NULL;
        problem.counts = counts ? counts + start : NULL;
        biases[at] = learn_label(all, problem, cost, label, weights);
        found[at] = take_weights(all, problem, least, weights, keys, keys + most_words + 1, out + room[at],
                                 weights_out + room[at]);
    }
    failed = 0;
end:
    free(weights), free(keys), free(problem.order), free(problem.alphas), free(problem.squares);
    return failed;
}

const Kernel RERANKER_KERNELS[] = {
    {"texts_of_labels", "ili=l=i=?", texts_of_labels, 0},
    {"learn_labels", "IIlifIli?fflDDl=l=i=f=f", learn_labels, 0},
    {0},
};
