/* What the re-ranker knows about candidates: see kernels/reranker.py and kernels/evidence.py. */

#include "native.h"

enum { MAX_NAMES_PER_WORD = 1000, PAGE = 1 << 16 };

/* Where a word is among sorted words, or would be. */
static int64_t find_word(const uint16_t *words, int64_t low, int64_t high, uint16_t word) {
    while (low < high) {
        int64_t middle = (low + high) >> 1;
        if (words[middle] < word) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The sum of weight times value over the words that a label and a text have on the same page; both are sorted. `marked`
has a bit for every word of the text: most words of a label are not in it, and a bit tells so at once. */
static float score_page(const uint16_t *own, const float *values, int64_t n_own, const uint16_t *label_words,
                        const int8_t *weights, int64_t n, const uint64_t *marked) {
    float score = 0;
    if (n > 16 * n_own) { /* a long list: look the words of the text up in it */
        for (int64_t i = 0, at = 0; i < n_own && at < n; i++) {
            at = find_word(label_words, at, n, own[i]);
            if (at < n && label_words[at] == own[i]) score += weights[at] * values[i];
        }
        return score;
    }
    for (int64_t at = 0; at < n; at++) {
        uint16_t word = label_words[at];
        if (marked[word >> 6] >> (word & 63) & 1) score += weights[at] * values[find_word(own, 0, n_own, word)];
    }
    return score;
}

static int64_t score_candidates(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 2);
    ARRAY(const int32_t, words, 3);
    ARRAY(const float, values, 4);
    ARRAY(const int64_t, starts, 5);
    int64_t n_pages = arguments[6].integer, k = arguments[11].m;
    ARRAY(const uint16_t, label_words, 7);
    ARRAY(const int8_t, weights, 8);
    ARRAY(const float, scales, 9);
    ARRAY(const float, biases, 10);
    ARRAY(const int32_t, candidates, 11);
    ARRAY(float, scores, 12);
    enum { AHEAD = 8 };
    uint64_t *marked = calloc(PAGE / 64, sizeof *marked);
    uint16_t *own = malloc((arguments[3].n + 1) * sizeof *own);
    for (int64_t text = arguments[0].integer; marked && own && text < arguments[1].integer; text++) {
        const int32_t *labels = candidates + text * k;
        float *sums = scores + text * k;
        for (int64_t i = 0; i < k; i++) { /* labels lie anywhere in memory: fetch many at a time */
            if (labels[i] >= 0) __builtin_prefetch(starts + labels[i] * n_pages);
            sums[i] = 0;
        }
        for (int64_t first = indptr[text], last; first < indptr[text + 1]; first = last) {
            int32_t page = words[first] >> 16;
            for (last = first; last < indptr[text + 1] && words[last] >> 16 == page; last++) {
                own[last - first] = words[last] & (PAGE - 1);
                marked[own[last - first] >> 6] |= (uint64_t)1 << (own[last - first] & 63);
            }
            for (int64_t i = 0; i < k; i++) {
                if (labels[i] < 0) continue;
                int64_t at = starts[labels[i] * n_pages + page], n = starts[labels[i] * n_pages + page + 1] - at;
                if (i + AHEAD < k && labels[i + AHEAD] >= 0) {
                    int64_t next = starts[labels[i + AHEAD] * n_pages + page];
                    __builtin_prefetch(label_words + next);
                    __builtin_prefetch(label_words + next + 32);
                    __builtin_prefetch(weights + next);
                }
                sums[i] += score_page(own, values + first, last - first, label_words + at, weights + at, n, marked);
            }
            for (int64_t i = 0; i < last - first; i++) marked[own[i] >> 6] = 0;
        }
        for (int64_t i = 0; i < k; i++) {
            sums[i] = labels[i] < 0 ? -INFINITY : biases[labels[i]] + scales[labels[i]] * sums[i];
        }
    }
    int64_t failed = marked && own ? 0 : -1;
    free(marked), free(own);
    return failed;
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

/* What is known of a label; a table of open addressing has many. */
typedef struct {
    int32_t label;
    float name;
    uint8_t is_known, is_given;
} Slot;

static Slot *slot_of(Slot *slots, int64_t mask, int32_t label) {
    int64_t at = mix((uint64_t)label) & mask;
    while (slots[at].label != -1 && slots[at].label != label) at = (at + 1) & mask;
    return slots + at;
}

/* Insert into a list sorted by decreasing score, then increasing label; returns the new length. */
static int64_t insert_best(int32_t label, float score, int32_t *ids, float *scores, int64_t k, int64_t filled) {
    if (filled == k) {
        if (score < scores[k - 1] || (score == scores[k - 1] && label > ids[k - 1])) return filled;
        filled--;
    }
    int64_t at = filled;
    for (; at > 0 && (score > scores[at - 1] || (score == scores[at - 1] && label < ids[at - 1])); at--) {
        ids[at] = ids[at - 1], scores[at] = scores[at - 1];
    }
    ids[at] = label, scores[at] = score;
    return filled + 1;
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
    int64_t n_given = arguments[10].integer, k = arguments[11].m, room = k - n_given, most_slots = 0;
    ARRAY(int32_t, all_ids, 11);
    ARRAY(float, names, 12);
    ARRAY(uint8_t, known, 13);
    Slot *slots = NULL;
    float *best = malloc((room + 1) * sizeof *best);
    if (!best) return -1;
    for (int64_t text = arguments[0].integer; text < arguments[1].integer; text++) {
        int32_t *ids = all_ids + text * k;
        int64_t size = known_ptr[text + 1] - known_ptr[text] + k, n_slots = 64, n_new = 0;
        for (int64_t p = indptr[text]; p < indptr[text + 1]; p++) {
            int64_t n_names = name_ptr[words[p] + 1] - name_ptr[words[p]];
            if (n_names <= MAX_NAMES_PER_WORD) size += n_names;
        }
        while (n_slots < 2 * size) n_slots *= 2;
        if (n_slots > most_slots) {
            free(slots);
            slots = malloc((most_slots = n_slots) * sizeof *slots);
            if (!slots) return free(best), -1;
        }
        for (int64_t i = 0; i < n_slots; i++) slots[i] = (Slot){-1, 0, 0, 0};
        for (int64_t p = indptr[text]; p < indptr[text + 1]; p++) {
            int64_t first = name_ptr[words[p]], last = name_ptr[words[p] + 1];
            for (int64_t i = first; last - first <= MAX_NAMES_PER_WORD && i < last; i++) {
                Slot *slot = slot_of(slots, n_slots - 1, name_labels[i]);
                slot->label = name_labels[i];
                slot->name += values[p] * name_weights[i] * (float)(1 / 255.0);
            }
        }
        for (int64_t i = known_ptr[text]; i < known_ptr[text + 1]; i++) {
            Slot *slot = slot_of(slots, n_slots - 1, known_labels[i]);
            slot->label = known_labels[i], slot->is_known = 1;
        }
        for (int64_t i = 0; i < n_given; i++) {
            if (ids[i] >= 0) slot_of(slots, n_slots - 1, ids[i])->is_given = 1;
        }
        for (int64_t i = 0; room > 0 && i < n_slots; i++) {
            if (slots[i].label >= 0 && !slots[i].is_given) {
                float score = slots[i].name + (slots[i].is_known ? 2 : 0);
                n_new = insert_best(slots[i].label, score, ids + n_given, best, room, n_new);
            }
        }
        for (int64_t i = n_given + n_new; i < k; i++) ids[i] = -1;
        for (int64_t i = 0; i < k; i++) {
            const Slot *slot = ids[i] < 0 ? NULL : slot_of(slots, n_slots - 1, ids[i]);
            names[text * k + i] = slot ? slot->name : 0;
            known[text * k + i] = slot ? slot->is_known : 0;
        }
    }
    free(slots), free(best);
    return 0;
}

#define KNOWN_ABOVE 2.0
#define OTHERS_BELOW 1.9

static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }

static int64_t evidence_odds(const Argument *arguments) {
    ARRAY(const int32_t, ids, 0);
    ARRAY(const float, probabilities, 1);
    ARRAY(const float, word_scores, 2);
    ARRAY(const float, names, 3);
    ARRAY(const uint8_t, known, 4);
    ARRAY(const uint8_t, is_known, 5);
    ARRAY(const float, frequencies, 6);
    double weights[10], surest = arguments[17].real;
    for (int i = 0; i < 10; i++) weights[i] = arguments[7 + i].real;
    double first = weights[0], words = weights[1], name = weights[2], same_name = weights[3], frequency = weights[4];
    double first_rare = weights[5], words_rare = weights[6], own = weights[7], other = weights[8], bias = weights[9];
    ARRAY(float, odds, 18);
    int64_t k = arguments[0].m;
    for (int64_t i = 0; i < arguments[0].n * k; i++) {
        if (ids[i] < 0) {
            odds[i] = -INFINITY;
            continue;
        }
        double common = frequencies[ids[i]], probability = fmin(fmax(probabilities[i], surest), 1 - surest);
        double square = (double)names[i] * names[i];
        double sum = (first + first_rare * common) * log(probability / (1 - probability)) + bias;
        sum += (words + words_rare * common) * word_scores[i] + frequency * common;
        sum += name * names[i] + same_name * square * square;
        if (is_known[i / k] && known[i]) sum = KNOWN_ABOVE + softplus(sum + own - KNOWN_ABOVE);
        else if (is_known[i / k]) sum = OTHERS_BELOW - softplus(OTHERS_BELOW - sum - other);
        odds[i] = sum;
    }
    return 0;
}

const Kernel EVIDENCE_KERNELS[] = {
    {"score_candidates", "IIliflIHbffi=f", score_candidates, 0},
    {"hash_bags", "Bll=L", hash_bags, 0},
    {"gather_evidence", "IIlifliBliI=i=f=?", gather_evidence, 0},
    {"evidence_odds", "ifff??fDDDDDDDDDDD=f", evidence_odds, 0},
    {0},
};
