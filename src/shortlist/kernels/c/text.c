/* Texts to words, word ids and weights: see kernels/words.py, kernels/strings.py and kernels/ragged.py. */

#include "native.h"

enum { SPACE, WORD, ALONE, NOTHING, MARK };
enum { EMPTY = -1, STEM_SIZE = 256, STEM_START = 60, STEM_END = 62 };

typedef struct {
    const int32_t *slots;
    int64_t mask;
    const uint8_t *arena;
    const int64_t *offsets;
} Table;

static Table table_of(const Argument *arguments) {
    return (Table){arguments[0].data, arguments[0].n - 1, arguments[1].data, arguments[2].data};
}

uint64_t hash_bytes(const uint8_t *data, int64_t start, int64_t end) {
    uint64_t value = 0xCBF29CE484222325u;
    for (int64_t i = start; i < end; i++) value = (value ^ data[i]) * 0x100000001B3u;
    return value ^ (value >> 32);
}

/* The slot that holds this string with this hash, or the empty slot where it belongs. */
static int64_t slot_from(Table table, uint64_t hash, const uint8_t *string, int64_t size) {
    int64_t slot = hash & table.mask;
    for (; table.slots[slot] != EMPTY; slot = (slot + 1) & table.mask) {
        const int64_t *bounds = table.offsets + table.slots[slot];
        if (bounds[1] - bounds[0] == size && !memcmp(table.arena + bounds[0], string, size)) break;
    }
    return slot;
}

static int64_t find_slot(Table table, const uint8_t *data, int64_t start, int64_t end) {
    return slot_from(table, hash_bytes(data, start, end), data + start, end - start);
}

static int64_t find_strings(const Argument *arguments) {
    Table table = table_of(arguments);
    ARRAY(const uint8_t, data, 3);
    ARRAY(const int64_t, bounds, 4);
    ARRAY(int32_t, ids, 5);
    for (int64_t i = 0; i < arguments[5].n; i++) ids[i] = table.slots[find_slot(table, data, bounds[i], bounds[i + 1])];
    return 0;
}

static int64_t add_strings(const Argument *arguments) {
    Table table = table_of(arguments);
    int32_t *slots = arguments[0].data; /* all three also belong to the table */
    uint8_t *arena = arguments[1].data;
    int64_t *offsets = arguments[2].data, count = arguments[3].integer;
    ARRAY(const uint8_t, data, 4);
    ARRAY(const int64_t, bounds, 5);
    ARRAY(int32_t, ids, 6);
    enum { AHEAD = 8 };
    uint64_t hashes[AHEAD];
    for (int64_t i = -AHEAD; i < arguments[6].n; i++) {
        int64_t next = i + AHEAD; /* a look-up in a large table mostly waits for memory */
        uint64_t hash = i < 0 ? 0 : hashes[i % AHEAD];
        if (next < arguments[6].n) {
            hashes[next % AHEAD] = hash_bytes(data, bounds[next], bounds[next + 1]);
            __builtin_prefetch(slots + (hashes[next % AHEAD] & table.mask));
        }
        if (i < 0) continue;
        int64_t size = bounds[i + 1] - bounds[i], slot = slot_from(table, hash, data + bounds[i], size);
        if (slots[slot] == EMPTY) {
            memcpy(arena + offsets[count], data + bounds[i], size);
            offsets[count + 1] = offsets[count] + size;
            slots[slot] = count++;
        }
        ids[i] = slots[slot];
    }
    return count;
}

static int64_t place_strings(const Argument *arguments) {
    Table table = table_of(arguments);
    int32_t *slots = arguments[0].data; /* also those of the table */
    for (int64_t i = 0; i < arguments[3].integer; i++) {
        slots[find_slot(table, table.arena, table.offsets[i], table.offsets[i + 1])] = i;
    }
    return 0;
}

static int64_t copy_rows(const Argument *arguments) {
    ARRAY(const uint8_t, values, 0);
    ARRAY(const int64_t, indptr, 1);
    ARRAY(const int64_t, rows, 2);
    ARRAY(const int64_t, bounds, 3);
    ARRAY(uint8_t, out, 4);
    for (int64_t i = 0; i < arguments[2].n; i++) {
        memcpy(out + bounds[i], values + indptr[rows[i]], bounds[i + 1] - bounds[i]);
    }
    return 0;
}

static int64_t ascii_rows(const Argument *arguments) {
    ARRAY(const uint8_t, buffer, 0);
    ARRAY(const int64_t, offsets, 1);
    ARRAY(uint8_t, plain, 2);
    for (int64_t row = 0; row < arguments[2].n; row++) {
        uint8_t any = 0;
        for (int64_t i = offsets[row]; i < offsets[row + 1]; i++) any |= buffer[i];
        plain[row] = any < 128;
    }
    return 0;
}

/* The code point of a UTF-8 character, and its number of bytes. */
static int32_t character(const uint8_t *at, int *size) {
    if (at[0] < 0x80) return *size = 1, at[0];
    if (at[0] < 0xE0) return *size = 2, (at[0] & 0x1F) << 6 | (at[1] & 0x3F);
    if (at[0] < 0xF0) return *size = 3, (at[0] & 0x0F) << 12 | (at[1] & 0x3F) << 6 | (at[2] & 0x3F);
    return *size = 4, (at[0] & 0x07) << 18 | (at[1] & 0x3F) << 12 | (at[2] & 0x3F) << 6 | (at[3] & 0x3F);
}

static int64_t next_character(const uint8_t *data, int64_t at, int64_t end) {
    for (at++; at < end && (data[at] & 0xC0) == 0x80;) at++;
    return at;
}

static int64_t split_words(const Argument *arguments) {
    ARRAY(const uint8_t, buffer, 0);
    ARRAY(const int64_t, offsets, 1);
    ARRAY(const uint8_t, kinds, 2);
    ARRAY(uint8_t, words, 3);
    ARRAY(int64_t, word_ends, 4);
    ARRAY(int64_t, word_counts, 5);
    int64_t filled = 0, count = 0;
    for (int64_t row = 0; row < arguments[1].n - 1; row++) {
        int64_t first = count, word_start = filled;
        int size;
        for (int64_t at = offsets[row]; at < offsets[row + 1]; at += size) {
            int32_t code = character(buffer + at, &size);
            uint8_t kind = kinds[code];
            int is_letter = kind == WORD || (kind == MARK && filled > word_start);
            if (!is_letter && kind != NOTHING && kind != MARK && filled > word_start) {
                word_ends[count++] = filled;
                word_start = filled;
            }
            if (is_letter || kind == ALONE) {
                for (int i = 0; i < size; i++) words[filled++] = buffer[at + i];
                if (code >= 'A' && code <= 'Z') words[filled - 1] += 32;
            }
            if (kind == ALONE) {
                word_ends[count++] = filled;
                word_start = filled;
            }
        }
        if (filled > word_start) word_ends[count++] = filled;
        word_counts[row] = count - first;
    }
    return count;
}

static int64_t prefix_end(const uint8_t *words, int64_t start, int64_t end, int64_t size) {
    for (; size > 0 && start < end; size--) start = next_character(words, start, end);
    return start;
}

static int64_t put(uint8_t *out, int64_t filled, const uint8_t *words, int64_t start, int64_t end) {
    memcpy(out + filled, words + start, end - start);
    return filled + end - start;
}

static int64_t cut_pieces(const Argument *arguments) {
    ARRAY(const uint8_t, words, 0);
    ARRAY(const int64_t, word_ends, 1);
    ARRAY(const int64_t, word_counts, 2);
    ARRAY(const int64_t, sizes, 3);
    int64_t pair_size = arguments[4].integer;
    ARRAY(uint8_t, out, 5);
    ARRAY(int64_t, ends, 6);
    ARRAY(int64_t, counts, 7);
    int64_t filled = 0, count = 0, word = 0, start = 0;
    for (int64_t row = 0; row < arguments[2].n; row++) {
        int64_t before = 0, before_end = 0, first = count;
        for (int64_t place = 0; place < word_counts[row]; place++) {
            int64_t end = word_ends[word++];
            for (int64_t i = 0; i < arguments[3].n; i++) {
                int64_t at = prefix_end(words, start, end, sizes[i]);
                if (at < end) ends[count++] = filled = put(out, filled, words, start, at);
            }
            if (pair_size) {
                int64_t at = prefix_end(words, start, end, pair_size);
                if (place) {
                    filled = put(out, filled, words, before, before_end);
                    out[filled++] = ' ';
                    ends[count++] = filled = put(out, filled, words, start, at);
                }
                before = start, before_end = at;
            }
            start = end;
        }
        counts[row] = count - first;
    }
    return count;
}

static int64_t look_up(const Argument *arguments) {
    Table table = table_of(arguments), parts = table_of(arguments + 4);
    int64_t n_words = arguments[3].integer, shortest = arguments[7].integer, longest = arguments[8].integer;
    int of_all = arguments[9].integer != 0;
    ARRAY(const uint8_t, words, 10);
    ARRAY(const int64_t, word_ends, 11);
    ARRAY(const int64_t, word_counts, 12);
    ARRAY(int32_t, ids, 13);
    ARRAY(int64_t, id_counts, 14);
    int64_t filled = 0, start = 0, word = 0;
    uint8_t stem[STEM_SIZE];
    for (int64_t row = 0; row < arguments[12].n; row++) {
        int64_t before = filled;
        for (int64_t i = 0; i < word_counts[row]; i++) {
            int64_t end = word_ends[word++];
            int32_t known = table.slots[find_slot(table, words, start, end)];
            if (known != EMPTY && known < n_words) ids[filled++] = known;
            if (longest > 0 && (known == EMPTY || (of_all && known < n_words))) {
                int64_t size = end - start < STEM_SIZE - 2 ? end - start : STEM_SIZE - 2;
                while (size < end - start && (words[start + size] & 0xC0) == 0x80) size--;
                stem[0] = STEM_START;
                memcpy(stem + 1, words + start, size);
                stem[size + 1] = STEM_END;
                size += 2;
                for (int64_t first = 0; first < size; first = next_character(stem, first, size)) {
                    int64_t last = first;
                    for (int64_t length = 1; length <= longest && last < size; length++) {
                        last = next_character(stem, last, size);
                        int32_t part = length < shortest ? EMPTY : parts.slots[find_slot(parts, stem, first, last)];
                        if (part != EMPTY) ids[filled++] = n_words + part;
                    }
                }
            }
            start = end;
        }
        id_counts[row] = filled - before;
    }
    return filled;
}

static int compare_ids(const void *a, const void *b) {
    return (*(const int32_t *)a > *(const int32_t *)b) - (*(const int32_t *)a < *(const int32_t *)b);
}

/* Quicksort, unless the pivots are too bad. */
void sort_in_place(int32_t *ids, int64_t n) {
    enum { SHORT = 24 };
    for (int64_t patience = n; n > SHORT; patience = patience * 3 / 4) {
        if (patience < 2) {
            qsort(ids, n, sizeof *ids, compare_ids);
            return;
        }
        int32_t a = ids[0], b = ids[n / 2], c = ids[n - 1];
        int32_t pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        int64_t low = 0, high = n - 1;
        for (;; low++, high--) {
            while (ids[low] < pivot) low++;
            while (ids[high] > pivot) high--;
            if (low >= high) break;
            int32_t other = ids[low];
            ids[low] = ids[high], ids[high] = other;
        }
        int low_is_short = low < n - low;
        sort_in_place(low_is_short ? ids : ids + low, low_is_short ? low : n - low);
        ids += low_is_short ? low : 0;
        n = low_is_short ? n - low : low;
    }
    for (int64_t i = 1; i < n; i++) {
        int32_t id = ids[i];
        int64_t at = i;
        for (; at > 0 && ids[at - 1] > id; at--) ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

/* Append a text's distinct ids, sorted, with tf-idf weights scaled to this length; returns the new end. */
static int64_t append_weighted(const int32_t *ids, int64_t n, int32_t *sorted, const float *idf, double length,
                               int32_t first, int32_t *columns, float *values, int64_t filled) {
    memcpy(sorted, ids, n * sizeof *ids);
    sort_in_place(sorted, n);
    int64_t begin = filled;
    double square = 0;
    for (int64_t i = 0, same; i < n; i = same) {
        for (same = i + 1; same < n && sorted[same] == sorted[i];) same++;
        double weight = (1 + log(same - i)) * idf[sorted[i]];
        columns[filled] = first + sorted[i];
        values[filled++] = weight;
        square += weight * weight;
    }
    for (int64_t i = begin; square > 0 && i < filled; i++) values[i] *= length / sqrt(square);
    return filled;
}

static int64_t weigh_texts(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 0);
    ARRAY(const int32_t, words, 1);
    ARRAY(const float, idf, 2);
    ARRAY(const int64_t, more_indptr, 4);
    ARRAY(const int32_t, more, 5);
    ARRAY(const float, more_idf, 6);
    ARRAY(int64_t, starts, 8);
    ARRAY(int32_t, columns, 9);
    ARRAY(float, values, 10);
    int64_t n = arguments[0].n - 1, filled = 0;
    int32_t *sorted = malloc((arguments[1].n + arguments[5].n + 1) * sizeof *sorted);
    if (!sorted) return -1;
    for (int64_t text = 0; text < n; text++) {
        starts[text] = filled;
        filled = append_weighted(words + indptr[text], indptr[text + 1] - indptr[text], sorted, idf, arguments[3].real,
                                 0, columns, values, filled);
        filled = append_weighted(more + more_indptr[text], more_indptr[text + 1] - more_indptr[text], sorted, more_idf,
                                 arguments[7].real, arguments[2].n, columns, values, filled);
    }
    starts[n] = filled;
    free(sorted);
    return 0;
}

static int64_t hash_parts(const Argument *arguments) {
    enum { SHORTEST = 3, LONGEST = 5, BITS = 17 };
    const uint64_t base = 0xD1342543DE82EF95u, spread = 0x9E3779B97F4A7C15u;
    ARRAY(const uint8_t, words, 0);
    ARRAY(const int64_t, word_ends, 1);
    ARRAY(const int64_t, word_counts, 2);
    ARRAY(const float, idf, 3);
    ARRAY(int64_t, starts, 4);
    ARRAY(int32_t, parts, 5);
    ARRAY(float, weights, 6);
    int64_t n_texts = arguments[2].n, filled = 0, start = 0, word = 0;
    uint64_t *codes = malloc((arguments[0].n + 2) * sizeof *codes);
    if (!codes) return -1;
    for (int64_t text = 0; text < n_texts; text++) {
        int64_t begin = starts[text] = filled, distinct = filled;
        for (int64_t i = 0; i < word_counts[text]; i++) {
            int64_t n = 0, end = word_ends[word++];
            codes[n++] = ' ';
            for (int size; start < end; start += size) codes[n++] = character(words + start, &size);
            codes[n++] = ' ';
            for (int64_t first = 0; first + SHORTEST <= n; first++) {
                uint64_t hash = codes[first];
                for (int64_t at = first + 1; at < n && at < first + LONGEST; at++) {
                    hash = hash * base + codes[at];
                    if (at >= first + SHORTEST - 1) parts[filled++] = hash * spread >> (64 - BITS);
                }
            }
        }
        sort_in_place(parts + begin, filled - begin);
        double square = 0;
        for (int64_t i = begin; i < filled; i++) {
            if (distinct > begin && parts[i] == parts[distinct - 1]) continue;
            double weight = idf[parts[i]];
            square += weight * weight;
            weights[distinct] = weight;
            parts[distinct++] = parts[i];
        }
        for (int64_t i = begin; square > 0 && i < distinct; i++) weights[i] /= sqrt(square);
        filled = distinct;
    }
    starts[n_texts] = filled;
    free(codes);
    return filled;
}

const Kernel TEXT_KERNELS[] = {
    {"find_strings", "iBlBl=i", find_strings, 0},
    {"add_strings", "=i=B=lIBl=i", add_strings, 1},
    {"place_strings", "=iBlI", place_strings, 0},
    {"copy_rows", "Blll=B", copy_rows, 0},
    {"ascii_rows", "Bl=?", ascii_rows, 0},
    {"split_words", "BlB=B=l=l", split_words, 1},
    {"cut_pieces", "BlllI=B=l=l", cut_pieces, 1},
    {"look_up", "iBlIiBlIIIBll=i=l", look_up, 1},
    {"hash_parts", "Bllf=l=i=f", hash_parts, 1},
    {"weigh_texts", "lifDlifD=l=i=f", weigh_texts, 0},
    {0},
};
