/* Candidates from inverted indexes, from neighbours, and in training; the best of rows: see kernels/candidates.py and
kernels/top_k.py. */

#include "native.h"

void sort_keys(uint64_t *keys, uint64_t *space, int64_t n) {
    if (n <= 32) {
        for (int64_t i = 1; i < n; i++) {
            uint64_t key = keys[i];
            int64_t at = i;
            for (; at > 0 && keys[at - 1] >> 32 > key >> 32; at--) keys[at] = keys[at - 1];
            keys[at] = key;
        }
        return;
    }
    uint64_t differing = 0, *from = keys, *to = space;
    for (int64_t i = 1; i < n; i++) differing |= keys[i] ^ keys[0];
    for (int shift = 32; shift < 64; shift += 8) { /* radix sort, by bytes that are not all the same */
        if (!(differing >> shift & 255)) continue;
        int64_t ends[257] = {0};
        for (int64_t i = 0; i < n; i++) ends[(from[i] >> shift & 255) + 1]++;
        for (int byte = 0; byte < 256; byte++) ends[byte + 1] += ends[byte];
        for (int64_t i = 0; i < n; i++) to[ends[from[i] >> shift & 255]++] = from[i];
        uint64_t *before = from;
        from = to, to = before;
    }
    if (from != keys) memcpy(keys, from, n * sizeof *keys);
}

static int64_t top_labels(const Argument *arguments) {
    ARRAY(const int64_t, text_ptr, 2);
    ARRAY(const int32_t, words, 3);
    ARRAY(const float, values, 4);
    ARRAY(const int64_t, word_ptr, 5);
    ARRAY(const int32_t, labels, 6);
    ARRAY(const float, weights, 7);
    int64_t n_labels = arguments[8].integer, k = arguments[9].m;
    ARRAY(int32_t, ids, 9);
    ARRAY(float, scores, 10);
    typedef struct {
        float sum;
        int32_t last_text; /* + 1: a sum of zero does not tell whether the label was touched */
    } Label;
    Label *all = calloc(n_labels + 1, sizeof *all);
    int32_t *touched = malloc((n_labels + 1) * sizeof *touched);
    for (int64_t text = arguments[0].integer; all && touched && text < arguments[1].integer; text++) {
        int64_t n_touched = 0, filled = 0;
        for (int64_t i = text_ptr[text]; i < text_ptr[text + 1]; i++) {
            float value = values[i];
            for (int64_t j = word_ptr[words[i]], end = word_ptr[words[i] + 1]; j < end; j++) {
                Label *label = all + labels[j];
                float sum = label->last_text == text + 1 ? label->sum : 0;
                touched[n_touched] = labels[j];
                n_touched += label->last_text != text + 1;
                *label = (Label){sum + value * weights[j], text + 1};
            }
        }
        int32_t *best = ids + text * k;
        float *best_scores = scores + text * k;
        for (int64_t i = 0; i < n_touched; i++) {
            filled = insert_best(touched[i], all[touched[i]].sum, best, best_scores, k, filled);
        }
        for (; filled < k; filled++) best[filled] = -1, best_scores[filled] = 0;
    }
    int64_t failed = all && touched ? 0 : -1;
    free(all), free(touched);
    return failed;
}

/* The keys of `sort_keys` for scores in decreasing order; below, positions. */
static inline uint64_t falling_key(float score, int32_t position) {
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    if (bits == 0x80000000u) bits = 0; /* -0 equals 0 */
    bits = bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
    return (uint64_t)bits << 32 | (uint32_t)position;
}

static int64_t merge_neighbours(const Argument *arguments) {
    ARRAY(const int32_t, found, 2);
    ARRAY(const float, cosines, 3);
    ARRAY(const int32_t, owner, 4);
    ARRAY(const int32_t, texts, 5);
    ARRAY(const float, text_cosines, 6);
    ARRAY(const int64_t, indptr, 7);
    ARRAY(const int32_t, labels, 8);
    double share = arguments[9].real;
    int64_t as_sums = arguments[10].integer, n_labels = arguments[11].integer, most = 0, failed = -1;
    ARRAY(int32_t, all_ids, 12);
    ARRAY(float, all_similarities, 13);
    ARRAY(float, all_votes, 14);
    int64_t n_found = arguments[2].m, n_texts = arguments[5].m, max_candidates = arguments[12].m;
    for (int64_t query = arguments[0].integer; query < arguments[1].integer; query++) {
        int64_t n = n_found;
        for (int64_t i = query * n_texts; i < (query + 1) * n_texts; i++) {
            if (texts[i] >= 0) n += indptr[texts[i] + 1] - indptr[texts[i]];
        }
        if (n > most) most = n;
    }
    typedef struct {
        int32_t label;
        float cosine, votes;
    } Candidate;
    Candidate *list = malloc((most + 1) * sizeof *list);
    int32_t *place = calloc(n_labels + 1, sizeof *place); /* of each label in the list, + 1; 0: it is not there */
    int32_t *best = malloc((most + 1) * sizeof *best);
    float *merged = malloc((most + 1) * sizeof *merged);
    uint32_t *keys = malloc((most + 1) * sizeof *keys);
    uint64_t *ranked = malloc(2 * (most + 1) * sizeof *ranked);
    if (!list || !place || !best || !merged || !keys || !ranked) goto end;
    for (int64_t query = arguments[0].integer; query < arguments[1].integer; query++) {
        int64_t n = 0;
        float least = 1, total = 0;
        for (int64_t i = query * n_found; i < (query + 1) * n_found; i++) {
            if (found[i] < 0) continue;
            int32_t label = owner[found[i]];
            least = fminf(least, cosines[i]);
            if (place[label]) continue;
            list[n] = (Candidate){label, cosines[i], 0};
            place[label] = ++n;
        }
        if (as_sums) least = 0;
        for (int64_t i = query * n_texts; i < (query + 1) * n_texts; i++) {
            float cosine = text_cosines[i];
            if (texts[i] < 0 || cosine <= 0) continue;
            float weight = as_sums ? cosine : cosine * cosine * cosine * cosine;
            total += weight;
            for (int64_t at = indptr[texts[i]]; at < indptr[texts[i] + 1]; at++) {
                int32_t label = labels[at];
                if (!place[label]) {
                    list[n] = (Candidate){label, least, 0};
                    place[label] = ++n;
                }
                list[place[label] - 1].votes += weight;
            }
        }
        if (as_sums) {
            total = 0;
            for (int64_t i = 0; i < n; i++) total = fmaxf(total, list[i].votes);
        }
        for (int64_t i = 0; i < n; i++) {
            place[list[i].label] = 0;
            list[i].votes /= fmaxf(total, 1e-9f);
            merged[i] = share * list[i].votes + (1 - share) * list[i].cosine;
        }
        int64_t k = n < max_candidates ? n : max_candidates;
        top_k(merged, n, k, best, keys);
        for (int64_t i = 0; i < k; i++) ranked[i] = falling_key(merged[best[i]], best[i]);
        sort_keys(ranked, ranked + most + 1, k);
        for (int64_t i = 0, at = query * max_candidates; i < max_candidates; i++, at++) {
            Candidate one = i < k ? list[(uint32_t)ranked[i]] : (Candidate){-1, 0, 0};
            all_ids[at] = one.label, all_similarities[at] = one.cosine, all_votes[at] = one.votes;
        }
    }
    failed = 0;
end:
    free(list), free(place), free(best), free(merged), free(keys), free(ranked);
    return failed;
}

static int64_t add_wanted(const Argument *arguments) {
    ARRAY(int32_t, all, 0);
    int64_t k = arguments[1].integer, width = arguments[0].m, n_found = 0;
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, wanted, 3);
    for (int64_t row = 0; row < arguments[0].n; row++) {
        int32_t *chosen = all + row * width;
        int64_t filled = k;
        for (int64_t i = indptr[row]; i < indptr[row + 1]; i++) {
            int64_t at = 0;
            while (at < filled && chosen[at] != wanted[i]) at++;
            n_found += at < k;
            if (at == filled) chosen[filled++] = wanted[i];
        }
        for (; filled < width; filled++) chosen[filled] = -1;
    }
    return n_found;
}

static int64_t join_shortlists(const Argument *arguments) {
    ARRAY(const int32_t, shortlists, 2);
    ARRAY(const int64_t, rows, 3);
    ARRAY(const int32_t, others, 4);
    ARRAY(const int64_t, indptr, 5);
    ARRAY(const int32_t, positives, 6);
    ARRAY(int32_t, all_joined, 7);
    int64_t k = arguments[2].m, n_others = arguments[4].m, width = arguments[7].m, most = 0;
    for (int64_t i = arguments[0].integer; i < arguments[1].integer; i++) {
        if (indptr[i + 1] - indptr[i] > most) most = indptr[i + 1] - indptr[i];
    }
    most += k + n_others + 1;
    uint64_t *keys = malloc(2 * most * sizeof *keys);
    for (int64_t i = arguments[0].integer; keys && i < arguments[1].integer; i++) {
        const int32_t *parts[] = {shortlists + rows[i] * k, others + i * n_others, positives + indptr[i]};
        int64_t sizes[] = {k, n_others, indptr[i + 1] - indptr[i]}, n = 0, filled = 0;
        for (int part = 0; part < 3; part++) {
            for (int64_t j = 0; j < sizes[part]; j++) {
                keys[n] = (uint64_t)parts[part][j] << 32;
                n += parts[part][j] >= 0;
            }
        }
        sort_keys(keys, keys + most, n);
        int32_t *joined = all_joined + i * width;
        for (int64_t j = 0; j < n; j++) {
            if (j == 0 || keys[j] != keys[j - 1]) joined[filled++] = keys[j] >> 32;
        }
        for (; filled < width; filled++) joined[filled] = -1;
    }
    int64_t failed = -!keys;
    free(keys);
    return failed;
}

static int64_t best_of_row(const Argument *arguments) {
    ARRAY(const float, logits, 2);
    int64_t first = arguments[3].integer, n_columns = arguments[2].m, k = arguments[5].m;
    ARRAY(int32_t, all_ids, 5);
    ARRAY(float, all_scores, 6);
    for (int64_t row = arguments[0].integer; row < arguments[1].integer; row++) {
        int32_t *ids = all_ids + row * k;
        float *scores = all_scores + row * k;
        int64_t filled = arguments[4].integer;
        for (int64_t column = 0; column < n_columns && k; column++) {
            float score = logits[row * n_columns + column];
            if (filled < k || score > scores[k - 1]) {
                filled = insert_best(first + column, score, ids, scores, k, filled);
            }
        }
    }
    return 0;
}

static int64_t top_columns(const Argument *arguments) {
    ARRAY(const float, scores, 2);
    int64_t n = arguments[2].m, k = arguments[3].integer, width = arguments[4].m;
    ARRAY(int32_t, chosen, 4);
    uint32_t *keys = malloc((n + 1) * sizeof *keys);
    for (int64_t row = arguments[0].integer; keys && row < arguments[1].integer; row++) {
        top_k(scores + row * n, n, k, chosen + row * width, keys);
    }
    int64_t failed = -!keys;
    free(keys);
    return failed;
}

const Kernel MERGE_KERNELS[] = {
    {"top_labels", "IIliflifI=i=f", top_labels, 0},
    {"merge_neighbours", "IIifiifliDII=i=f=f", merge_neighbours, 0},
    {"add_wanted", "=iIli", add_wanted, 1},
    {"join_shortlists", "IIilili=i", join_shortlists, 0},
    {"best_of_row", "IIfII=i=f", best_of_row, 0},
    {"top_columns", "IIfI=i", top_columns, 0},
    {0},
};
