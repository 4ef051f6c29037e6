/* The kernels: inner loops over arrays, without Python. Each has a slow twin in the tests. */

#ifndef SHORTLIST_NATIVE_H
#define SHORTLIST_NATIVE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

/* An argument: an array with its first three sizes, or a number. */
typedef struct {
    union {
        void *data;
        int64_t integer;
        double real;
    };
    int64_t n, m, p;
} Argument;

/* A kernel. `types` has one letter per argument, tuples flattened: that of the array's items as in Python's `struct`,
behind "=" if the kernel writes to it; I for an integer, D for a float. Kernels of one name that stand together in a
table are the same for other types. A result below 0 means: out of memory. */
typedef struct {
    const char *name, *types;
    int64_t (*run)(const Argument *);
    int has_result;
} Kernel;

extern const Kernel TEXT_KERNELS[], SCORE_KERNELS[], EVIDENCE_KERNELS[], CODE_KERNELS[], SEARCH_KERNELS[],
    READING_KERNELS[], METRIC_KERNELS[], ROW_KERNELS[], MERGE_KERNELS[], TREE_KERNELS[], LABEL_KERNELS[],
    RERANKER_KERNELS[], ENCODER_KERNELS[];

#define ARRAY(type, name, i) type *restrict name = (type *)arguments[i].data

uint64_t hash_bytes(const uint8_t *data, int64_t start, int64_t end);

/* Sort ids in place. */
void sort_in_place(int32_t *ids, int64_t n);

static inline uint64_t mix(uint64_t counter) {
    uint64_t bits = counter + 0x9E3779B97F4A7C15u;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    return bits ^ (bits >> 31);
}

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* A number below `bound` from 64 random bits, with a bias of less than bound / 2**32. */
static inline int64_t below(uint64_t bits, int64_t bound) { return ((bits >> 32) * (uint64_t)bound) >> 32; }

#ifdef __AVX2__
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float Floats __attribute__((vector_size(4 * LANES)));

static inline Floats load_float(const float *at) {
    Floats floats;
    memcpy(&floats, at, sizeof floats);
    return floats;
}

static inline float total(Floats x) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

/* The dot product of a row, in float32 or in 8 bits, and a vector; and those of four rows, so that the vector is read
once for all of them. Four sums side by side do not wait for each other. */
#define DEFINE_DOTS(dot, four_dots, TYPE)                                                                              \
    static inline float dot(const TYPE *restrict row, const float *restrict vector, int64_t n) {                       \
        Floats a = {0}, b = {0}, c = {0}, d = {0};                                                                     \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 * LANES <= n; i += 4 * LANES) {                                                                   \
            a += load_##TYPE(row + i) * load_float(vector + i);                                                        \
            b += load_##TYPE(row + i + LANES) * load_float(vector + i + LANES);                                        \
            c += load_##TYPE(row + i + 2 * LANES) * load_float(vector + i + 2 * LANES);                                \
            d += load_##TYPE(row + i + 3 * LANES) * load_float(vector + i + 3 * LANES);                                \
        }                                                                                                              \
        for (; i + LANES <= n; i += LANES) a += load_##TYPE(row + i) * load_float(vector + i);                         \
        float sum = total((a + b) + (c + d));                                                                          \
        for (; i < n; i++) sum += row[i] * vector[i];                                                                  \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static inline void four_dots(const TYPE *restrict a, const TYPE *restrict b, const TYPE *restrict c,               \
                                 const TYPE *restrict d, const float *restrict vector, int64_t n, float *sums) {       \
        Floats sum_a = {0}, sum_b = {0}, sum_c = {0}, sum_d = {0};                                                     \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= n; i += LANES) {                                                                           \
            Floats x = load_float(vector + i);                                                                         \
            sum_a += load_##TYPE(a + i) * x;                                                                           \
            sum_b += load_##TYPE(b + i) * x;                                                                           \
            sum_c += load_##TYPE(c + i) * x;                                                                           \
            sum_d += load_##TYPE(d + i) * x;                                                                           \
        }                                                                                                              \
        sums[0] = total(sum_a), sums[1] = total(sum_b), sums[2] = total(sum_c), sums[3] = total(sum_d);                \
        for (; i < n; i++) {                                                                                           \
            sums[0] += a[i] * vector[i];                                                                               \
            sums[1] += b[i] * vector[i];                                                                               \
            sums[2] += c[i] * vector[i];                                                                               \
            sums[3] += d[i] * vector[i];                                                                               \
        }                                                                                                              \
    }
DEFINE_DOTS(float_dot, four_float_dots, float)

#ifdef __AVX2__
static inline Floats load_int8_t(const int8_t *at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at)));
}
DEFINE_DOTS(dot, four_dots, int8_t)
#else
static inline float dot(const int8_t *restrict row, const float *restrict vector, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (float)row[i] * vector[i];
    return sum;
}

static inline void four_dots(const int8_t *restrict a, const int8_t *restrict b, const int8_t *restrict c,
                             const int8_t *restrict d, const float *restrict vector, int64_t n, float *sums) {
    float sum_a = 0, sum_b = 0, sum_c = 0, sum_d = 0;
    for (int64_t i = 0; i < n; i++) {
        sum_a += (float)a[i] * vector[i];
        sum_b += (float)b[i] * vector[i];
        sum_c += (float)c[i] * vector[i];
        sum_d += (float)d[i] * vector[i];
    }
    sums[0] = sum_a, sums[1] = sum_b, sums[2] = sum_c, sums[3] = sum_d;
}
#endif

/* Positions of the k largest scores, in increasing order; of equal scores the first. */
void top_k(const float *scores, int64_t n, int64_t k, int32_t *positions, uint32_t *keys);

/* Insert into a list sorted by decreasing score, then increasing id; returns the new length. `ids` and `scores` hold
`filled` entries and have room for k; if they are full, the last one is dropped. */
#define DEFINE_INSERT_BEST(insert_best, ID, SCORE)                                                                     \
    static inline int64_t insert_best(ID id, SCORE score, ID *ids, SCORE *scores, int64_t k, int64_t filled) {         \
        if (filled == k) {                                                                                             \
            if (!k || score < scores[k - 1] || (score == scores[k - 1] && id > ids[k - 1])) return filled;             \
            filled--;                                                                                                  \
        }                                                                                                              \
        int64_t at = filled;                                                                                           \
        for (; at > 0 && (score > scores[at - 1] || (score == scores[at - 1] && id < ids[at - 1])); at--) {            \
            ids[at] = ids[at - 1], scores[at] = scores[at - 1];                                                        \
        }                                                                                                              \
        ids[at] = id, scores[at] = score;                                                                              \
        return filled + 1;                                                                                             \
    }
DEFINE_INSERT_BEST(insert_best, int32_t, float)
DEFINE_INSERT_BEST(insert_best_double, int64_t, double)

/* Sort by the upper 32 bits; equal ones stay in their order. `space` is as large as `keys`. */
void sort_keys(uint64_t *keys, uint64_t *space, int64_t n);

/* Mark the k largest scores, the first of equal ones; returns how many marks changed. Overwrites `positions` (k) and
`keys` (n). */
int64_t mark_top(const float *scores, int64_t n, int64_t k, uint8_t *is_top, int32_t *positions, uint32_t *keys);

#endif
