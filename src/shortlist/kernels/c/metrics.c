/* Metrics and ragged arrays: see kernels/metrics.py and kernels/ragged.py. */

#include "native.h"

enum { NOTHING = -1, SHORT_ROW = 32 };

static int64_t sort_rows(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 2);
    ARRAY(int32_t, values, 3);
    ARRAY(uint8_t, first, 4);
    for (int64_t row = arguments[0].integer; row < arguments[1].integer; row++) {
        int64_t start = indptr[row], end = indptr[row + 1];
        sort_in_place(values + start, end - start);
        for (int64_t i = start; i < end; i++) first[i] = i == start || values[i] != values[i - 1];
    }
    return 0;
}

/* Whether an id is in a sorted row. */
static inline int has_id(const int32_t *ids, int64_t n, int32_t id) {
    int64_t low = 0;
    while (n > 1) {
        int64_t half = n / 2;
        low += ids[low + half] <= id ? half : 0;
        n -= half;
    }
    return n && ids[low] == id;
}

static int64_t find_hits(const Argument *arguments) {
    ARRAY(const int32_t, predictions, 2);
    ARRAY(const int64_t, indptr, 3);
    ARRAY(const int32_t, truth, 4);
    ARRAY(int32_t, ranked, 5);
    ARRAY(uint8_t, correct, 6);
    int64_t n_texts = arguments[2].n, n_places = arguments[2].m;
    for (int64_t text = arguments[0].integer; text < arguments[1].integer; text++) {
        const int32_t *own = predictions + text * n_places, *labels = truth + indptr[text];
        int64_t n_labels = indptr[text + 1] - indptr[text];
        for (int64_t place = 0; place < n_places; place++) {
            int is_new = own[place] >= 0;
            for (int64_t earlier = 0; earlier < place; earlier++) is_new &= own[earlier] != own[place];
            ranked[place * n_texts + text] = is_new ? own[place] : NOTHING;
            correct[place * n_texts + text] = is_new && has_id(labels, n_labels, own[place]);
        }
    }
    return 0;
}

static int64_t best_gains(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, truth, 3);
    ARRAY(const double, gains, 4);
    ARRAY(double, best, 5);
    int64_t n_places = arguments[5].n, n_texts = arguments[5].m;
    int64_t *ids = malloc((n_places + 1) * sizeof *ids);
    double *top = malloc((n_places + 1) * sizeof *top);
    for (int64_t text = arguments[0].integer; ids && top && text < arguments[1].integer; text++) {
        int64_t n = 0;
        for (int64_t i = indptr[text]; i < indptr[text + 1]; i++) {
            n = insert_best_double(i, gains[truth[i]], ids, top, n_places, n);
        }
        for (int64_t place = 0; place < n_places; place++) best[place * n_texts + text] = place < n ? top[place] : 0;
    }
    int64_t failed = -!(ids && top);
    free(ids), free(top);
    return failed;
}

static int64_t top_of_rows(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, values, 3);
    ARRAY(const double, scores, 4);
    ARRAY(int32_t, top, 5);
    int64_t k = arguments[5].m;
    int64_t *positions = malloc((k + 1) * sizeof *positions);
    double *best = malloc((k + 1) * sizeof *best);
    for (int64_t row = arguments[0].integer; positions && best && row < arguments[1].integer; row++) {
        int64_t n = 0;
        for (int64_t i = indptr[row]; i < indptr[row + 1]; i++) {
            n = insert_best_double(i, scores[i], positions, best, k, n);
        }
        for (int64_t place = 0; place < k; place++) top[row * k + place] = place < n ? values[positions[place]] : NOTHING;
    }
    int64_t failed = -!(positions && best);
    free(positions), free(best);
    return failed;
}

static int64_t count_labels(const Argument *arguments) {
    ARRAY(const int32_t, ranked, 0);
    ARRAY(const uint8_t, correct, 1);
    ARRAY(int64_t, predicted_counts, 2);
    ARRAY(int64_t, correct_counts, 3);
    int64_t n = arguments[0].n * arguments[0].m;
    for (int64_t i = 0; i < n; i++) {
        int32_t label = ranked[i];
        if (label < 0) continue;
        correct_counts[label] += correct[i];
        predicted_counts[label]++;
    }
    return 0;
}

/* Short rows are searched, so that a few short rows out of millions of values need no array over all values. */
static int64_t first_in_row(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 0);
    ARRAY(const int32_t, values, 1);
    ARRAY(uint8_t, first, 3);
    int64_t *last_row = NULL; /* that has a value, plus 1 */
    for (int64_t row = 0; row < arguments[0].n - 1; row++) {
        int64_t start = indptr[row], end = indptr[row + 1];
        if (end - start <= SHORT_ROW) {
            for (int64_t i = start; i < end; i++) {
                int is_first = 1;
                for (int64_t earlier = start; earlier < i; earlier++) is_first &= values[earlier] != values[i];
                first[i] = is_first;
            }
            continue;
        }
        if (!last_row && !(last_row = calloc(arguments[2].integer, sizeof *last_row))) return -1;
        for (int64_t i = start; i < end; i++) {
            first[i] = last_row[values[i]] != row + 1;
            last_row[values[i]] = row + 1;
        }
    }
    free(last_row);
    return 0;
}

const Kernel METRIC_KERNELS[] = {
    {"sort_rows", "IIl=i=?", sort_rows, 0},
    {"find_hits", "IIili=i=?", find_hits, 0},
    {"best_gains", "IIlid=d", best_gains, 0},
    {"top_of_rows", "IIlid=i", top_of_rows, 0},
    {"count_labels", "i?=l=l", count_labels, 0},
    {"first_in_row", "liI=?", first_in_row, 0},
    {0},
};
