/* Centroids, walks and word vectors: see kernels/labels.py and kernels/word_vectors.py. */

#include "native.h"

enum { STRIDE = 64 /* as in kernels/word_vectors.py */, FEW = 32 };

/* Sort ids that are not negative: a few by insertion, others by their bytes; `spare` has room for as many. */
static void sort_ids(int32_t *ids, int64_t n, int32_t *spare) {
    if (n <= FEW) {
        for (int64_t i = 1; i < n; i++) {
            int32_t id = ids[i];
            int64_t at = i;
            for (; at > 0 && ids[at - 1] > id; at--) ids[at] = ids[at - 1];
            ids[at] = id;
        }
        return;
    }
    int32_t all = 0, *from = ids, *to = spare;
    for (int64_t i = 0; i < n; i++) all |= ids[i];
    for (int shift = 0; shift < 32 && all >> shift; shift += 8) {
        int64_t places[257] = {0};
        for (int64_t i = 0; i < n; i++) places[(from[i] >> shift & 255) + 1]++;
        for (int byte = 0; byte < 256; byte++) places[byte + 1] += places[byte];
        for (int64_t i = 0; i < n; i++) to[places[from[i] >> shift & 255]++] = from[i];
        int32_t *before = from;
        from = to, to = before;
    }
    if (from != ids) memcpy(ids, from, n * sizeof *ids);
}

static int64_t inverse_lengths(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 0);
    ARRAY(const float, data, 1);
    ARRAY(double, scales, 2);
    for (int64_t row = 0; row < arguments[0].n - 1; row++) {
        double square = 0;
        for (int64_t p = indptr[row]; p < indptr[row + 1]; p++) square += (double)data[p] * data[p];
        scales[row] = square > 0 ? 1 / sqrt(square) : 0;
    }
    return 0;
}

static int64_t count_words(const Argument *arguments) {
    ARRAY(const int64_t, member_indptr, 0);
    ARRAY(const int32_t, members, 1);
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, indices, 3);
    int64_t n_words = arguments[4].integer, enough = arguments[5].integer;
    ARRAY(int64_t, counts, 8);
    int64_t *seen_by = calloc(n_words + 1, sizeof *seen_by), failed = -!seen_by; /* label + 1 */
    for (int64_t label = arguments[6].integer; !failed && label < arguments[7].integer; label++) {
        int64_t count = 0;
        for (int64_t m = member_indptr[label]; m < member_indptr[label + 1] && count < enough; m++) {
            for (int64_t p = indptr[members[m]]; p < indptr[members[m] + 1]; p++) {
                count += seen_by[indices[p]] != label + 1;
                seen_by[indices[p]] = label + 1;
            }
        }
        counts[label] = count < enough ? count : enough;
    }
    free(seen_by);
    return failed;
}

typedef struct {
    double sum;
    int64_t seen_by; /* label + 1 */
} WordSum;

typedef struct {
    WordSum *sums; /* of all words; 0 between labels */
    int32_t *words, *spare;
    float *sizes;
    uint32_t *keys;
    uint8_t *is_kept;
} Work;

/* Keep the k largest of the n sums. */
static void keep_largest(Work work, int64_t n, int64_t k) {
    for (int64_t i = 0; i < n; i++) work.sizes[i] = fabs(work.sums[work.words[i]].sum);
    mark_top(work.sizes, n, k, work.is_kept, work.spare, work.keys);
    for (int64_t i = 0, filled = 0; i < n; i++) {
        if (work.is_kept[i]) work.words[filled++] = work.words[i];
        else work.sums[work.words[i]].sum = 0;
    }
}

static int64_t sum_members(const Argument *arguments) {
    ARRAY(const int64_t, member_indptr, 0);
    ARRAY(const int32_t, members, 1);
    ARRAY(const float, weights, 2);
    ARRAY(const int64_t, indptr, 3);
    ARRAY(const int32_t, indices, 4);
    ARRAY(const float, data, 5);
    ARRAY(const double, scales, 6);
    int64_t room = arguments[7].integer + 1, unit = arguments[8].integer;
    ARRAY(const int64_t, out_indptr, 11);
    ARRAY(int32_t, out_indices, 12);
    ARRAY(float, out_data, 13);
    Work work = {calloc(room, sizeof *work.sums),        malloc(room * sizeof *work.words),
                 malloc(room * sizeof *work.spare),      malloc(room * sizeof *work.sizes),
                 malloc(room * sizeof *work.keys),       calloc(room, 1)};
    WordSum *sums = work.sums;
    int32_t *words = work.words;
    int64_t failed = sums && words && work.spare && work.sizes && work.keys && work.is_kept ? 0 : -1;
    for (int64_t label = arguments[9].integer; !failed && label < arguments[10].integer; label++) {
        int64_t n = 0, start = out_indptr[label], n_kept = out_indptr[label + 1] - start;
        for (int64_t m = member_indptr[label]; m < member_indptr[label + 1]; m++) {
            double factor = weights[m] * scales[members[m]];
            for (int64_t p = indptr[members[m]]; p < indptr[members[m] + 1]; p++) {
                WordSum *word = sums + indices[p];
                words[n] = indices[p]; /* counts only if it is new */
                n += word->seen_by != label + 1;
                word->seen_by = label + 1;
                word->sum += factor * data[p];
            }
        }
        if (n_kept < n) keep_largest(work, n, n_kept);
        sort_ids(words, n_kept, work.spare);
        double square = 0;
        for (int64_t i = 0; i < n_kept; i++) square += sums[words[i]].sum * sums[words[i]].sum;
        double scale = unit && square > 0 ? 1 / sqrt(square) : 1;
        for (int64_t i = 0; i < n_kept; i++) {
            out_indices[start + i] = words[i];
            out_data[start + i] = sums[words[i]].sum * scale;
            sums[words[i]].sum = 0;
        }
    }
    free(sums), free(words), free(work.spare), free(work.sizes), free(work.keys), free(work.is_kept);
    return failed;
}

static int64_t walk(const Argument *arguments) {
    ARRAY(const int64_t, labels_indptr, 0);
    ARRAY(const int32_t, labels, 1);
    ARRAY(const int64_t, texts_indptr, 2);
    ARRAY(const int32_t, texts, 3);
    int64_t n_steps = arguments[6].integer, places = arguments[9].m;
    double restart = arguments[7].real;
    uint64_t seed = arguments[8].integer;
    ARRAY(int32_t, neighbours, 9);
    ARRAY(float, visits, 10);
    int32_t *visited = malloc((n_steps + 1) * sizeof *visited), *spare = malloc((n_steps + 1) * sizeof *spare);
    float *counts = malloc((n_steps + 1) * sizeof *counts);
    uint32_t *keys = malloc((n_steps + 1) * sizeof *keys);
    uint8_t *is_kept = calloc(n_steps + 1, 1);
    int64_t failed = visited && spare && counts && keys && is_kept ? 0 : -1;
    for (int64_t origin = arguments[4].integer; !failed && origin < arguments[5].integer; origin++) {
        int32_t *own = neighbours + origin * places;
        float *own_visits = visits + origin * places;
        if (texts_indptr[origin] == texts_indptr[origin + 1]) {
            own[0] = origin, own_visits[0] = 1;
            continue;
        }
        uint64_t counter = mix(seed ^ mix(origin));
        int64_t at = origin, n = 0, place = 0;
        for (int64_t step = 0; step < n_steps; step++) {
            counter += 3;
            if ((double)mix(counter) * 0x1p-64 < restart) at = origin;
            int64_t n_texts = texts_indptr[at + 1] - texts_indptr[at];
            int64_t text = texts[texts_indptr[at] + below(mix(counter + 1), n_texts)];
            int64_t n_labels = labels_indptr[text + 1] - labels_indptr[text];
            visited[step] = at = labels[labels_indptr[text] + below(mix(counter + 2), n_labels)];
        }
        sort_ids(visited, n_steps, spare);
        for (int64_t step = 0; step < n_steps; step++) {
            if (n && visited[step] == visited[n - 1]) {
                counts[n - 1]++;
            } else {
                visited[n] = visited[step], counts[n++] = 1;
            }
        }
        mark_top(counts, n, n < places ? n : places, is_kept, spare, keys);
        for (int64_t i = 0; i < n; i++) {
            if (is_kept[i]) own[place] = visited[i], own_visits[place++] = counts[i];
        }
    }
    free(visited), free(spare), free(counts), free(keys), free(is_kept);
    return failed;
}

static int64_t positive_information(const Argument *arguments) {
    ARRAY(const int64_t, tokens, 2);
    ARRAY(const int64_t, indptr, 3);
    ARRAY(const int64_t, starts, 4);
    ARRAY(const int64_t, ends, 5);
    ARRAY(const int32_t, contexts, 6);
    int64_t skip_own = arguments[7].integer, n_rows = arguments[3].n - 1, n_contexts = arguments[9].n;
    ARRAY(const double, log_rows, 8);
    ARRAY(const double, log_contexts, 9);
    ARRAY(const double, weights, 10);
    ARRAY(int64_t, out_indptr, 11);
    ARRAY(int32_t, columns, 12);
    ARRAY(float, information, 13);
    int is_filling = arguments[12].n > 0;
    int32_t *counts = calloc(n_contexts + 1, sizeof *counts), *spare = malloc((n_contexts + 1) * sizeof *spare);
    int32_t *touched = malloc((n_contexts + 1) * sizeof *touched);
    int64_t failed = counts && spare && touched ? 0 : -1;
    for (int64_t share = arguments[0].integer; !failed && share < arguments[1].integer; share++) {
        for (int64_t row = share; row < n_rows; row += STRIDE) {
            int64_t n = 0, filled = is_filling ? out_indptr[row] : 0;
            for (int64_t t = indptr[row]; t < indptr[row + 1]; t++) {
                for (int64_t position = starts[tokens[t]]; position < ends[tokens[t]]; position++) {
                    if (skip_own && position == tokens[t]) continue;
                    touched[n] = contexts[position]; /* counts only if it is new */
                    n += !counts[contexts[position]]++;
                }
            }
            if (is_filling) sort_ids(touched, n, spare);
            for (int64_t i = 0; i < n; i++) {
                double value = log(counts[touched[i]]) - log_rows[row] - log_contexts[touched[i]];
                counts[touched[i]] = 0;
                if (!(value > 0)) continue;
                if (is_filling) columns[filled] = touched[i], information[filled] = weights[row] * value;
                filled++;
            }
            if (!is_filling) out_indptr[row + 1] = filled;
        }
    }
    free(counts), free(spare), free(touched);
    return failed;
}

static int64_t sparse_times_dense(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, columns, 3);
    ARRAY(const float, values, 4);
    ARRAY(const float, dense, 5);
    ARRAY(float, out, 6);
    int64_t n_rows = arguments[2].n - 1, width = arguments[5].m;
    for (int64_t share = arguments[0].integer; share < arguments[1].integer; share++) {
        for (int64_t row = share; row < n_rows; row += STRIDE) {
            float *sum = out + row * width;
            memset(sum, 0, width * sizeof *sum);
            int64_t p = indptr[row];
            for (; p + 1 < indptr[row + 1]; p += 2) { /* two at a time: half as many sums to read and write */
                const float *one = dense + columns[p] * width, *other = dense + columns[p + 1] * width;
                float of_one = values[p], of_other = values[p + 1];
                for (int64_t d = 0; d < width; d++) sum[d] += of_one * one[d] + of_other * other[d];
            }
            for (; p < indptr[row + 1]; p++) {
                const float *other = dense + columns[p] * width;
                for (int64_t d = 0; d < width; d++) sum[d] += values[p] * other[d];
            }
        }
    }
    return 0;
}

const Kernel LABEL_KERNELS[] = {
    {"inverse_lengths", "lf=d", inverse_lengths, 0},
    {"count_words", "liliIIII=l", count_words, 0},
    {"sum_members", "liflifdIIIIl=i=f", sum_members, 0},
    {"walk", "liliIIIDI=i=f", walk, 0},
    {"positive_information", "IIlllliIddd=l=i=f", positive_information, 0},
    {"sparse_times_dense", "IIliff=f", sparse_times_dense, 0},
    {0},
};
