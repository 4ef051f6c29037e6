/* What the re-ranker knows about candidates: see kernels/evidence.py, and `score_candidates` in kernels/reranker.py. */

#include "native.h"

enum { PAGE = 1 << 16 };

enum { WINDOW = 32 };

/* Where a word is among the n sorted words from `start` on; -1 if it is not there. `total` words can be read. Halving
without a branch, until one comparison of SIMD instructions sees all that is left. */
static inline int64_t find_word(const uint16_t *words, int64_t start, int64_t n, int64_t total, uint16_t word) {
#ifdef __AVX2__
    int64_t enough = total < WINDOW ? 1 : WINDOW;
#else
    int64_t enough = 1;
#endif
    while (n > enough) {
        int64_t half = n / 2;
        start += words[start + half - 1] < word ? half : 0;
        n -= half;
    }
#ifdef __AVX2__
    if (enough == WINDOW) {
        int64_t at = start < total - WINDOW ? start : total - WINDOW; /* other words before and behind do not count */
        __m256i same = _mm256_set1_epi16((int16_t)word);
        __m256i low = _mm256_cmpeq_epi16(_mm256_loadu_si256((const __m256i *)(words + at)), same);
        __m256i high = _mm256_cmpeq_epi16(_mm256_loadu_si256((const __m256i *)(words + at + 16)), same);
        __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xD8);
        uint64_t found = (uint64_t)(uint32_t)_mm256_movemask_epi8(both) >> (start - at) & ((1ull << n) - 1);
        return found ? start + __builtin_ctzll(found) : -1;
    }
#endif
    return n && words[start] == word ? start : -1;
}

/* Label by label instead of text by text: a label that several texts have is fetched once, and the others in the order
in which they lie in memory. */
static inline int64_t score_candidates(const Argument *arguments, int in_bytes) {
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, words, 3);
    ARRAY(const float, values, 4);
    ARRAY(const int64_t, starts, 5);
    int64_t n_pages = arguments[6].integer, k = arguments[11].m, total = arguments[7].n;
    ARRAY(const uint16_t, label_words, 7);
    ARRAY(const int8_t, bytes, 8);
    ARRAY(const float, floats, 8);
    ARRAY(const float, scales, 9);
    ARRAY(const float, biases, 10);
    ARRAY(const int32_t, candidates, 11);
    ARRAY(float, scores, 12);
    enum { TEXTS_AT_ONCE = 512, AHEAD = 8, FETCHED = 4096 };
    int64_t begin = arguments[0].integer, end = arguments[1].integer, size = in_bytes ? 1 : sizeof(float);
    int64_t most = k * (end - begin < TEXTS_AT_ONCE ? end - begin : TEXTS_AT_ONCE);
    uint64_t *pairs = malloc(2 * (most + 1) * sizeof *pairs); /* label, then position */
    if (!pairs) return -1;
    for (int64_t first = begin; first < end; first += TEXTS_AT_ONCE) {
        int64_t last = first + TEXTS_AT_ONCE < end ? first + TEXTS_AT_ONCE : end, n = 0;
        for (int64_t i = 0; i < (last - first) * k; i++) {
            int32_t label = candidates[first * k + i];
            scores[first * k + i] = -INFINITY;
            pairs[n] = (uint64_t)label << 32 | i;
            n += label >= 0;
        }
        sort_keys(pairs, pairs + most + 1, n);
        for (int64_t i = 0; i < n; i++) {
            /* What is needed soon: where a label starts, then its words and weights, or the first of many. */
            if (i + 2 * AHEAD < n) {
                const int64_t *next = starts + (pairs[i + 2 * AHEAD] >> 32) * n_pages;
                __builtin_prefetch(next), __builtin_prefetch(next + n_pages);
            }
            if (i + AHEAD < n && pairs[i + AHEAD] >> 32 != pairs[i + AHEAD - 1] >> 32) {
                const int64_t *next = starts + (pairs[i + AHEAD] >> 32) * n_pages;
                int64_t n_next = next[n_pages] - next[0] < FETCHED ? next[n_pages] - next[0] : FETCHED;
                const char *of_words = (const char *)(label_words + next[0]);
                const char *weights = (const char *)arguments[8].data + size * next[0];
                for (int64_t at = 0; at < 2 * n_next; at += 64) __builtin_prefetch(of_words + at);
                for (int64_t at = 0; at < size * n_next; at += 64) __builtin_prefetch(weights + at);
            }
            int64_t label = pairs[i] >> 32, pair = first * k + (uint32_t)pairs[i], text = pair / k;
            const int64_t *pages = starts + label * n_pages;
            float sum = 0;
            for (int64_t p = indptr[text]; p < indptr[text + 1]; p++) {
                int64_t page = words[p] >> 16, start = pages[page];
                int64_t at = find_word(label_words, start, pages[page + 1] - start, total, words[p] & (PAGE - 1));
                if (at >= 0) sum += (in_bytes ? bytes[at] : floats[at]) * values[p];
            }
            scores[pair] = biases[label] + scales[label] * sum;
        }
    }
    free(pairs);
    return 0;
}

static int64_t score_with_bytes(const Argument *arguments) { return score_candidates(arguments, 1); }
static int64_t score_with_floats(const Argument *arguments) { return score_candidates(arguments, 0); }

/* Compilers would turn several look-ups into one "gather" instruction, which is slower where processors are protected
against its leaks ("Downfall"): hide from them where the word comes from. */
static inline float look_up_value(const float *value_of, uint32_t word) {
    __asm__("" : "+r"(word));
    return value_of[word];
}

/* Text by text, with a table of the values of its words: texts have more parts of words than names do. */
static int64_t score_parts(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, parts, 3);
    ARRAY(const float, values, 4);
    ARRAY(const int64_t, starts, 5);
    int64_t n_pages = arguments[6].integer, k = arguments[9].m;
    ARRAY(const uint16_t, label_parts, 7);
    ARRAY(const int8_t, weights, 8);
    ARRAY(const int32_t, candidates, 9);
    ARRAY(float, scores, 10);
    enum { AHEAD = 8 };
    static _Thread_local float all_values[PAGE]; /* zero between texts */
    float *value_of = all_values;
    for (int64_t text = arguments[0].integer; text < arguments[1].integer; text++) {
        const int32_t *labels = candidates + text * k;
        float *own = scores + text * k;
        for (int64_t i = 0; i < k; i++) { /* labels lie anywhere in memory: fetch many at a time */
            if (labels[i] >= 0) __builtin_prefetch(starts + labels[i] * n_pages);
            own[i] = 0;
        }
        for (int64_t first = indptr[text], last; first < indptr[text + 1]; first = last) {
            int32_t page = parts[first] >> 16;
            for (last = first; last < indptr[text + 1] && parts[last] >> 16 == page; last++) {
                value_of[parts[last] & (PAGE - 1)] = values[last];
            }
            for (int64_t i = 0; i < k; i++) {
                if (labels[i] < 0) continue;
                int64_t at = starts[labels[i] * n_pages + page], end = starts[labels[i] * n_pages + page + 1];
                if (i + AHEAD < k && labels[i + AHEAD] >= 0) {
                    int64_t next = starts[labels[i + AHEAD] * n_pages + page];
                    __builtin_prefetch(label_parts + next);
                    __builtin_prefetch(label_parts + next + 32);
                    __builtin_prefetch(weights + next);
                }
                float sums[4] = {0}; /* that do not wait for each other */
                for (; at + 4 <= end; at += 4) {
                    for (int j = 0; j < 4; j++) sums[j] += weights[at + j] * look_up_value(value_of, label_parts[at + j]);
                }
                for (; at < end; at++) sums[0] += weights[at] * look_up_value(value_of, label_parts[at]);
                own[i] += (sums[0] + sums[1]) + (sums[2] + sums[3]);
            }
            for (int64_t i = first; i < last; i++) value_of[parts[i] & (PAGE - 1)] = 0;
        }
        for (int64_t i = 0; i < k; i++) own[i] *= 1.0f / INT8_MAX;
    }
    return 0;
}

static int64_t hash_bags(const Argument *arguments) {
    ARRAY(const uint8_t, words, 0);
    ARRAY(const int64_t, word_ends, 1);
    ARRAY(const int64_t, word_counts, 2);
    ARRAY(uint64_t, hashes, 3);
    int64_t word = 0, start = 0;
    for (int64_t text = 0; text < arguments[2].n; text++) {
        hashes[text] = 0;
        for (int64_t i = 0; i < word_counts[text]; i++, start = word_ends[word++]) {
            hashes[text] += mix(hash_bytes(words, start, word_ends[word]));
        }
    }
    return 0;
}

/* What is known of a label; a table of open addressing has many. Which slots are in use is written down, so that
neither emptying the table nor looking through it reads all of it. */
typedef struct {
    int32_t label;
    float name;
} Slot;

typedef struct {
    Slot *slots;
    uint8_t *marks; /* IS_KNOWN, IS_GIVEN; of each slot */
    int32_t *used;
    int64_t n_used, size;
} Table;

enum { IS_KNOWN = 1, IS_GIVEN = 2 };

/* Make the table empty, with room for twice as many labels; whether there was memory for it. */
static int clear(Table *table, int64_t n_labels) {
    for (int64_t i = 0; i < table->n_used; i++) {
        table->slots[table->used[i]] = (Slot){-1, 0};
        table->marks[table->used[i]] = 0;
    }
    table->n_used = 0;
    int64_t size = 64;
    while (size < 2 * n_labels) size *= 2;
    if (size <= table->size) return 1;
    free(table->slots), free(table->marks), free(table->used);
    table->slots = malloc(size * sizeof *table->slots), table->marks = calloc(size, 1);
    table->used = malloc(size * sizeof *table->used), table->size = size;
    if (!table->slots || !table->marks || !table->used) return 0;
    for (int64_t i = 0; i < size; i++) table->slots[i] = (Slot){-1, 0};
    return 1;
}

/* Where a label is, or would be. */
static inline int64_t place_of(const Table *table, int32_t label) {
    int64_t mask = table->size - 1, at = (((uint32_t)label * 0x9E3779B97F4A7C15u) >> 32) & mask;
    while (table->slots[at].label != -1 && table->slots[at].label != label) at = (at + 1) & mask;
    return at;
}

static inline int64_t add_label(Table *table, int32_t label) {
    int64_t at = place_of(table, label);
    table->used[table->n_used] = at; /* counts only if it is new */
    table->n_used += table->slots[at].label == -1;
    table->slots[at].label = label;
    return at;
}

static int64_t gather_evidence(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, words, 3);
    ARRAY(const float, values, 4);
    ARRAY(const int64_t, name_ptr, 5);
    ARRAY(const int32_t, name_labels, 6);
    ARRAY(const uint8_t, name_weights, 7);
    ARRAY(const int64_t, known_ptr, 8);
    ARRAY(const int32_t, known_labels, 9);
    int64_t n_given = arguments[10].integer, max_names = arguments[11].integer, k = arguments[12].m, room = k - n_given;
    ARRAY(int32_t, all_ids, 12);
    ARRAY(float, names, 13);
    ARRAY(uint8_t, known, 14);
    Table table = {NULL, NULL, NULL, 0, 0};
    float *best = malloc((room + 1) * sizeof *best);
    int64_t failed = -!best;
    for (int64_t text = arguments[0].integer; !failed && text < arguments[1].integer; text++) {
        int32_t *ids = all_ids + text * k;
        int64_t size = known_ptr[text + 1] - known_ptr[text] + k, n_new = 0;
        for (int64_t p = indptr[text]; p < indptr[text + 1]; p++) {
            int64_t n_names = name_ptr[words[p] + 1] - name_ptr[words[p]];
            if (n_names > max_names) continue;
            size += n_names;
            __builtin_prefetch(name_labels + name_ptr[words[p]]);
            __builtin_prefetch(name_weights + name_ptr[words[p]]);
        }
        if (!clear(&table, size)) {
            failed = -1;
            break;
        }
        for (int64_t p = indptr[text]; p < indptr[text + 1]; p++) {
            int64_t first = name_ptr[words[p]], last = name_ptr[words[p] + 1];
            float value = values[p] * (float)(1 / 255.0);
            for (int64_t i = first; last - first <= max_names && i < last; i++) {
                table.slots[add_label(&table, name_labels[i])].name += value * name_weights[i];
            }
        }
        for (int64_t i = known_ptr[text]; i < known_ptr[text + 1]; i++) {
            table.marks[add_label(&table, known_labels[i])] = IS_KNOWN;
        }
        for (int64_t i = 0; i < n_given; i++) {
            if (ids[i] >= 0) table.marks[add_label(&table, ids[i])] |= IS_GIVEN;
        }
        for (int64_t i = 0; room > 0 && i < table.n_used; i++) {
            int32_t at = table.used[i];
            if (table.marks[at] & IS_GIVEN) continue;
            float score = table.slots[at].name + (table.marks[at] & IS_KNOWN ? 2 : 0);
            n_new = insert_best(table.slots[at].label, score, ids + n_given, best, room, n_new);
        }
        for (int64_t i = n_given + n_new; i < k; i++) ids[i] = -1;
        for (int64_t i = 0; i < k; i++) {
            int64_t at = ids[i] < 0 ? -1 : place_of(&table, ids[i]);
            names[text * k + i] = at < 0 ? 0 : table.slots[at].name;
            known[text * k + i] = at >= 0 && table.marks[at] & IS_KNOWN;
        }
    }
    free(table.slots), free(table.marks), free(table.used), free(best);
    return failed;
}

static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }

static int64_t evidence_odds(const Argument *arguments) {
    ARRAY(const int32_t, ids, 0);
    ARRAY(const float, probabilities, 1);
    ARRAY(const float, word_scores, 2);
    ARRAY(const float, names, 3);
    ARRAY(const float, parts, 4);
    ARRAY(const uint8_t, known, 5);
    ARRAY(const uint8_t, is_known, 6);
    ARRAY(const float, frequencies, 7);
    double weights[12], surest = arguments[20].real;
    double known_above = arguments[21].real, others_below = arguments[22].real;
    for (int i = 0; i < 12; i++) weights[i] = arguments[8 + i].real;
    double first = weights[0], words = weights[1], name = weights[2], same_name = weights[3], frequency = weights[4];
    double first_rare = weights[5], words_rare = weights[6], own = weights[7], other = weights[8], bias = weights[9];
    double part = weights[10], same_parts = weights[11];
    ARRAY(float, odds, 23);
    int64_t k = arguments[0].m, has_parts = arguments[4].n > 0;
    for (int64_t i = 0; i < arguments[0].n * k; i++) {
        if (ids[i] < 0) {
            odds[i] = -INFINITY;
            continue;
        }
        double common = frequencies[ids[i]], probability = fmin(fmax(probabilities[i], surest), 1 - surest);
        double square = (double)names[i] * names[i], in_parts = has_parts ? parts[i] : 0, of_parts = in_parts * in_parts;
        double sum = (first + first_rare * common) * log(probability / (1 - probability)) + bias;
        sum += (words + words_rare * common) * word_scores[i] + frequency * common;
        sum += name * names[i] + same_name * square * square + part * in_parts + same_parts * of_parts * of_parts;
        if (is_known[i / k] && known[i]) sum = known_above + softplus(sum + own - known_above);
        else if (is_known[i / k]) sum = others_below - softplus(others_below - sum - other);
        odds[i] = sum;
    }
    return 0;
}

const Kernel EVIDENCE_KERNELS[] = {
    {"score_candidates", "IIliflIHbffi=f", score_with_bytes, 0},
    {"score_candidates", "IIliflIHfffi=f", score_with_floats, 0},
    {"score_parts", "IIliflIHbi=f", score_parts, 0},
    {"hash_bags", "Bll=L", hash_bags, 0},
    {"gather_evidence", "IIlifliBliII=i=f=?", gather_evidence, 0},
    {"evidence_odds", "iffff??fDDDDDDDDDDDDDDD=f", evidence_odds, 0},
    {0},
};
