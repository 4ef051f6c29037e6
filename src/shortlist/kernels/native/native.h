/* Kernels in C: the ones that predictions need, so that a first prediction waits for no compiler.

Each has the name, the arguments and the result of a kernel in numba, which takes its place where this module was not
built, and for arrays of other types. The tests compare the two. */

#ifndef SHORTLIST_NATIVE_H
#define SHORTLIST_NATIVE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* An argument: an array with its first two sizes, or a number. */
typedef struct {
    union {
        void *data;
        int64_t integer;
        double real;
    };
    int64_t n, m;
} Argument;

/* A kernel. `types` has one letter per argument, tuples flattened: that of the array's items, behind "=" if the kernel
writes to it; I for an integer, D for a float. */
typedef struct {
    const char *name, *types;
    int64_t (*run)(const Argument *);
    int has_result;
} Kernel;

extern const Kernel TEXT_KERNELS[], SCORE_KERNELS[], EVIDENCE_KERNELS[], SEARCH_KERNELS[];

#define ARRAY(type, name, i) type *restrict name = (type *)arguments[i].data

uint64_t hash_bytes(const uint8_t *data, int64_t start, int64_t end);

static inline uint64_t mix(uint64_t counter) {
    uint64_t bits = counter + 0x9E3779B97F4A7C15u;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    return bits ^ (bits >> 31);
}

/* The dot product of a row in 8 bits and a vector. */
static inline float dot(const int8_t *restrict row, const float *restrict vector, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (float)row[i] * vector[i];
    return sum;
}

/* The dot products of four rows, so that the vector is read once for all of them. */
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

/* Positions of the k largest scores, in increasing order; of equal scores the first. */
void top_k(const float *scores, int64_t n, int64_t k, int32_t *positions, uint32_t *keys);

#endif
