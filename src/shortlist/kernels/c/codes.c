/* The nearest vectors of queries, in cells, with short codes.

A first look compares the query with short codes, 2 bits per dimension, 32 vectors at a time: two dimensions make one of
16 codes, and one instruction looks up the products of 32 of them ("fast scan", as in faiss and ScaNN). A query therefore
reads a quarter of the bytes, which is what a search waits for. The best of the first look are then compared in full. */

#include "native.h"

enum { BLOCK = 32, FETCHED = 4096 };

/* The best levels for normally distributed numbers (Lloyd and Max), and the bound between them. */
static const float LEVELS[4] = {-1.510f, -0.4528f, 0.4528f, 1.510f}, LEVEL_BOUND = 0.9816f;

/* Vectors as codes. Cell c has the blocks `first_block[c]` to `first_block[c + 1]` of 32 vectors. For every four
dimensions a block has 32 bytes: vector i in the low and vector i + 16 in the high half of byte i, for the first two
dimensions, then the same for the other two. The number of such groups is a multiple of four. */
typedef struct {
    const float *deviations;
    const int64_t *first_block;
    const uint8_t *codes;
    int64_t n_groups;
} Codes;

static Codes codes_of(const Argument *arguments) {
    return (Codes){arguments[0].data, arguments[1].data, arguments[2].data, arguments[2].m / BLOCK};
}

static int64_t code_vectors(const Argument *arguments) {
    ARRAY(const int8_t, values, 0);
    ARRAY(const float, scales, 1);
    ARRAY(const int64_t, starts, 2);
    ARRAY(float, deviations, 3);
    ARRAY(const int64_t, first_block, 4);
    ARRAY(uint8_t, codes, 5);
    int64_t n = arguments[0].n, n_features = arguments[0].m, width = arguments[5].m, step = n / 4096 + 1, n_seen = 0;
    float *means = calloc(2 * n_features + width, sizeof *means), *bounds = means + n_features;
    if (!means) return -1;
    uint8_t *levels = (uint8_t *)(bounds + n_features);
    memset(deviations, 0, n_features * sizeof *deviations);
    for (int64_t row = 0; row < n; row += step, n_seen++) { /* a sample tells enough */
        for (int64_t i = 0; i < n_features; i++) {
            float value = scales[row] * values[row * n_features + i];
            means[i] += value, deviations[i] += value * value;
        }
    }
    for (int64_t i = 0; i < n_features; i++) {
        means[i] /= n_seen;
        deviations[i] = sqrtf(fmaxf(deviations[i] / n_seen - means[i] * means[i], 0));
        bounds[i] = LEVEL_BOUND * deviations[i];
    }
    memset(codes, 0, arguments[5].n * width);
    for (int64_t cell = 0; cell < arguments[2].n - 1; cell++) {
        for (int64_t row = starts[cell]; row < starts[cell + 1]; row++) {
            const int8_t *own = values + row * n_features;
            for (int64_t i = 0; i < n_features; i++) {
                float value = scales[row] * own[i] - means[i];
                levels[i] = (value > -bounds[i]) + (value > 0) + (value > bounds[i]);
            }
            int64_t place = row - starts[cell];
            uint8_t *bytes = codes + (first_block[cell] + place / BLOCK) * width + place % 16;
            int shift = place % BLOCK < 16 ? 0 : 4;
            for (int64_t pair = 0; pair < width / 16; pair++) {
                bytes[16 * pair] |= (levels[2 * pair] | levels[2 * pair + 1] << 2) << shift;
            }
        }
    }
    free(means);
    return 0;
}

/* The products of a query with all codes of each two dimensions, as whole numbers with a common scale. Those of four
groups of dimensions add up in 8 bits, those of all in 16. */
static void make_products(Codes codes, const float *query, int64_t n_features, uint8_t *products, float *buffer) {
    int64_t n_pairs = 2 * codes.n_groups;
    float widest = 1e-30f;
    for (int64_t pair = 0; pair < n_pairs; pair++) {
        float a = 2 * pair < n_features ? query[2 * pair] * codes.deviations[2 * pair] : 0;
        float b = 2 * pair + 1 < n_features ? query[2 * pair + 1] * codes.deviations[2 * pair + 1] : 0;
        float least = -1.510f * (fabsf(a) + fabsf(b));
        for (int code = 0; code < 16; code++) {
            buffer[16 * pair + code] = a * LEVELS[code & 3] + b * LEVELS[code >> 2] - least;
        }
        widest = fmaxf(widest, -2 * least);
    }
    float scale = fminf(63, 65535 / n_pairs) / widest;
    for (int64_t i = 0; i < 16 * n_pairs; i++) products[i] = (uint8_t)(scale * buffer[i] + 0.5f);
}

/* The codes of a cell's n vectors, one in each byte: the low halves of each 32 bytes, then their high halves. */
static void unpack_cell(Codes codes, int64_t cell, int64_t n, uint8_t *unpacked) {
    const uint8_t *packed = codes.codes + codes.first_block[cell] * codes.n_groups * BLOCK;
    int64_t n_groups = (n + BLOCK - 1) / BLOCK * codes.n_groups;
    for (int64_t group = 0; group < n_groups; group++, packed += BLOCK, unpacked += 2 * BLOCK) {
        for (int64_t i = 0; i < BLOCK; i++) unpacked[i] = packed[i] & 15, unpacked[BLOCK + i] = packed[i] >> 4;
    }
}

/* The sums of a query's products for the 32 vectors of a block, whose codes are packed or not. */
static inline void scan_block(const uint8_t *codes, int packed, int64_t n_groups, const uint8_t *products, uint16_t *sums) {
#ifdef __AVX2__
    __m256i all[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, odd[2] = {all[0], all[0]};
    __m256i low = _mm256_set1_epi8(15);
    for (int64_t group = 0; group < n_groups; group += 4) {
        __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (int64_t i = group; i < group + 4; i++) {
            __m256i table = _mm256_loadu_si256((const __m256i *)(products + BLOCK * i)), both, code[2];
            if (packed) { /* read once, so memory is what it waits for */
                __builtin_prefetch(codes + BLOCK * i + FETCHED);
                both = _mm256_loadu_si256((const __m256i *)(codes + BLOCK * i));
                code[0] = _mm256_and_si256(both, low), code[1] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
            } else {
                code[0] = _mm256_loadu_si256((const __m256i *)(codes + BLOCK * 2 * i));
                code[1] = _mm256_loadu_si256((const __m256i *)(codes + BLOCK * (2 * i + 1)));
            }
            for (int half = 0; half < 2; half++) {
                sum[half] = _mm256_add_epi8(sum[half], _mm256_shuffle_epi8(table, code[half]));
            }
        }
        for (int half = 0; half < 2; half++) {
            all[half] = _mm256_add_epi16(all[half], sum[half]); /* of even bytes, and 256 times those of odd ones */
            odd[half] = _mm256_add_epi16(odd[half], _mm256_srli_epi16(sum[half], 8));
        }
    }
    for (int half = 0; half < 2; half++) { /* both lanes have the same vectors, for other dimensions */
        __m256i even = _mm256_sub_epi16(all[half], _mm256_slli_epi16(odd[half], 8));
        __m128i of_even = _mm_add_epi16(_mm256_castsi256_si128(even), _mm256_extracti128_si256(even, 1));
        __m128i of_odd = _mm_add_epi16(_mm256_castsi256_si128(odd[half]), _mm256_extracti128_si256(odd[half], 1));
        _mm_storeu_si128((__m128i *)(sums + 16 * half), _mm_unpacklo_epi16(of_even, of_odd));
        _mm_storeu_si128((__m128i *)(sums + 16 * half + 8), _mm_unpackhi_epi16(of_even, of_odd));
    }
#else
    memset(sums, 0, BLOCK * sizeof *sums);
    for (int64_t group = 0; group < n_groups; group++, products += BLOCK) {
        const uint8_t *own = codes + BLOCK * (packed ? group : 2 * group), *high = packed ? own : own + BLOCK;
        for (int64_t i = 0; i < BLOCK; i++) {
            sums[i % 16] += products[i / 16 * 16 + (own[i] & 15)];
            sums[16 + i % 16] += products[i / 16 * 16 + (packed ? high[i] >> 4 : high[i])];
        }
    }
#endif
}

/* The sums for all n vectors of a cell. */
static inline void scan_cell(const uint8_t *codes, int packed, int64_t n_groups, int64_t n, const uint8_t *products,
                             uint16_t *sums) {
    for (; n > 0; n -= BLOCK, sums += BLOCK, codes += (packed ? 1 : 2) * n_groups * BLOCK) {
        uint16_t all[BLOCK];
        int whole = n >= BLOCK;
        scan_block(codes, packed, n_groups, products, whole ? sums : all);
        if (!whole) memcpy(sums, all, n * sizeof *all);
    }
}

/* The largest number that m of the values reach; 0 if there are fewer. */
static uint16_t reached_by(const uint16_t *values, int64_t n, int64_t m) {
    uint16_t reached = 0;
    for (int32_t bit = 1 << 15; bit && m <= n; bit >>= 1) {
        uint16_t tried = reached + bit;
        int64_t count = 0;
        for (int64_t i = 0; i < n;) {
            uint16_t some = 0; /* in 16 bits, for SIMD */
            for (int64_t end = i + 32768 < n ? i + 32768 : n; i < end; i++) some += values[i] >= tried;
            count += some;
        }
        if (count >= m) reached = tried;
    }
    return reached;
}

/* The positions of the m largest sums, and of those that equal the last of them; returns their number. `space` has room
for twice as many sums. */
static int64_t best_sums(const uint16_t *sums, int64_t n, int64_t m, int32_t *positions, uint16_t *space) {
    enum { GROUP = 8, AT_ONCE = 16 };
    int64_t n_groups = n / GROUP, n_some = 0, filled = 0;
    uint16_t *restrict largest = space, *restrict some = space + n_groups;
    memcpy(largest, sums, n_groups * sizeof *largest);
    for (int64_t first = n_groups; first < GROUP * n_groups; first += n_groups) {
        for (int64_t i = 0; i < n_groups; i++) largest[i] = sums[first + i] > largest[i] ? sums[first + i] : largest[i];
    }
    uint16_t least = reached_by(largest, n_groups, m); /* at least m sums reach it, and not many more */
    for (int64_t i = 0; i < n;) {
        int64_t end = i + AT_ONCE < n ? i + AT_ONCE : n;
        int any = 0;
        for (int64_t j = 0; j < AT_ONCE && i + AT_ONCE <= n; j++) any |= sums[i + j] >= least;
        if (!any && i + AT_ONCE <= n) i = end;
        for (; i < end; i++) {
            positions[n_some] = i, some[n_some] = sums[i];
            n_some += sums[i] >= least;
        }
    }
    least = reached_by(some, n_some, m);
    for (int64_t i = 0; i < n_some; i++) {
        positions[filled] = positions[i];
        filled += some[i] >= least;
    }
    return filled;
}

/* The dot products of a query and the rows at these places. */
static void products_at(const int8_t *values, const float *scales, const int32_t *places, int64_t n,
                        const float *query, int64_t n_features, float *products) {
    enum { AHEAD = 12 };
    for (int64_t i = 0; i < n; i += 4) {
        const int8_t *rows[4];
        float sums[4];
        for (int64_t j = 0; j < 4; j++) {
            rows[j] = values + places[i + j < n ? i + j : i] * n_features;
            if (i + j + AHEAD < n) {
                const int8_t *next = values + places[i + j + AHEAD] * n_features;
                for (int64_t at = 0; at < n_features; at += 64) __builtin_prefetch(next + at);
            }
        }
        four_dots(rows[0], rows[1], rows[2], rows[3], query, n_features, sums);
        for (int64_t j = 0; j < 4 && i + j < n; j++) products[i + j] = scales[places[i + j]] * sums[j];
    }
}

/* A query that searches a cell, and where its sums begin. */
typedef struct {
    int32_t query, bound;
} Visit;

/* What the search of one call needs. */
typedef struct {
    int32_t *nearest, *positions, *chosen;
    int64_t *bounds, *first_visit, *filled;
    Visit *visits;
    uint8_t *products, *unpacked;
    uint16_t *sums;
    uint32_t *keys;
    float *dots, *buffer;
} Space;

static int64_t search_codes(const Argument *arguments) {
    int64_t begin = arguments[0].integer, n_queries = arguments[1].integer - begin;
    ARRAY(const float, queries, 2);
    Codes of_cells = codes_of(arguments + 3), of_vectors = codes_of(arguments + 8);
    ARRAY(const int8_t, cells, 6);
    ARRAY(const float, cell_scales, 7);
    ARRAY(const int8_t, values, 11);
    ARRAY(const float, scales, 12);
    ARRAY(const int64_t, starts, 13);
    int64_t n_cells = arguments[14].integer, n_compared = arguments[15].integer, all_cells = arguments[6].n;
    ARRAY(int32_t, places, 16);
    ARRAY(float, cosines, 17);
    int64_t n_features = arguments[2].m, k = arguments[16].m, width = of_vectors.n_groups * BLOCK, failed = -1, largest = all_cells;
    int64_t most = all_cells; /* of what a query is compared with */
    for (int64_t i = 0, n = 0; i < all_cells; i++) {
        n = starts[i + 1] - starts[i];
        most = larger(most, n * n_cells);
        largest = larger(largest, n);
    }
    most = larger(all_cells, most < arguments[11].n ? most : arguments[11].n);
    Space s = {
        malloc(n_queries * n_cells * sizeof *s.nearest + 8), malloc((most + 1) * sizeof *s.positions),
        malloc((most + 1) * sizeof *s.chosen), malloc(n_queries * (n_cells + 1) * sizeof *s.bounds + 8),
        calloc(all_cells + 1, sizeof *s.first_visit), malloc((all_cells + 1) * sizeof *s.filled),
        malloc(n_queries * n_cells * sizeof *s.visits + 8), malloc(n_queries * width + 8),
        malloc(2 * (largest / BLOCK + 1) * width), NULL,
        malloc((most + 1) * sizeof *s.keys), malloc((most + 1) * sizeof *s.dots), malloc(width * sizeof *s.buffer),
    };
    uint16_t *cell_sums = malloc((all_cells + 1) * sizeof *cell_sums);
    int64_t longest = 0;
    if (!s.nearest || !s.positions || !s.chosen || !s.bounds || !s.first_visit || !s.filled || !s.visits ||
        !s.products || !s.unpacked || !s.keys || !s.dots || !s.buffer || !cell_sums)
        goto end;
    if (n_queries > 1) unpack_cell(of_cells, 0, all_cells, s.unpacked);
    for (int64_t q = 0; q < n_queries; q++) {
        const float *query = queries + (begin + q) * n_features;
        int32_t *nearest = s.nearest + q * n_cells;
        int64_t *bounds = s.bounds + q * (n_cells + 1), n_first = all_cells;
        make_products(of_cells, query, n_features, s.products, s.buffer);
        if (n_queries > 1) scan_cell(s.unpacked, 0, of_cells.n_groups, all_cells, s.products, cell_sums);
        else scan_cell(of_cells.codes, 1, of_cells.n_groups, all_cells, s.products, cell_sums);
        n_first = best_sums(cell_sums, all_cells, 2 * n_cells, s.positions, (uint16_t *)s.keys);
        products_at(cells, cell_scales, s.positions, n_first, query, n_features, s.dots);
        top_k(s.dots, n_first, n_cells, s.chosen, s.keys);
        bounds[0] = 0;
        for (int64_t i = 0; i < n_cells; i++) {
            int64_t cell = nearest[i] = s.positions[s.chosen[i]];
            bounds[i + 1] = bounds[i] + starts[cell + 1] - starts[cell];
            s.first_visit[cell + 1]++;
        }
        longest = larger(longest, bounds[n_cells]);
    }
    /* Cell by cell, so that its codes stay in the cache for all queries that visit it. */
    for (int64_t q = 0; q < n_queries; q++) {
        make_products(of_vectors, queries + (begin + q) * n_features, n_features, s.products + q * width, s.buffer);
    }
    for (int64_t cell = 0; cell < all_cells; cell++) s.first_visit[cell + 1] += s.first_visit[cell];
    memcpy(s.filled, s.first_visit, all_cells * sizeof *s.filled);
    for (int64_t q = 0; q < n_queries; q++) {
        for (int64_t i = 0; i < n_cells; i++) {
            s.visits[s.filled[s.nearest[q * n_cells + i]]++] = (Visit){q, s.bounds[q * (n_cells + 1) + i]};
        }
    }
    s.sums = malloc((n_queries * longest + 1) * sizeof *s.sums);
    if (!s.sums) goto end;
    for (int64_t cell = 0; cell < all_cells; cell++) {
        if (s.first_visit[cell] == s.first_visit[cell + 1]) continue;
        int64_t n = starts[cell + 1] - starts[cell], n_visits = s.first_visit[cell + 1] - s.first_visit[cell];
        const uint8_t *packed = of_vectors.codes + of_vectors.first_block[cell] * width;
        if (n_visits > 1) unpack_cell(of_vectors, cell, n, s.unpacked);
        for (int64_t i = s.first_visit[cell]; i < s.first_visit[cell + 1]; i++) {
            int64_t q = s.visits[i].query;
            uint16_t *sums = s.sums + q * longest + s.visits[i].bound;
            if (n_visits > 1) scan_cell(s.unpacked, 0, of_vectors.n_groups, n, s.products + q * width, sums);
            else scan_cell(packed, 1, of_vectors.n_groups, n, s.products + q * width, sums);
        }
    }
    for (int64_t q = 0; q < n_queries; q++) {
        const int64_t *bounds = s.bounds + q * (n_cells + 1);
        int64_t n_sums = bounds[n_cells];
        int64_t n = best_sums(s.sums + q * longest, n_sums, n_compared, s.positions, (uint16_t *)s.keys);
        int64_t found = n < k ? n : k;
        for (int64_t i = 0, cell = 0; i < n; i++) {
            while (s.positions[i] >= bounds[cell + 1]) cell++;
            s.positions[i] += starts[s.nearest[q * n_cells + cell]] - bounds[cell];
        }
        products_at(values, scales, s.positions, n, queries + (begin + q) * n_features, n_features, s.dots);
        top_k(s.dots, n, found, s.chosen, s.keys);
        for (int64_t i = 0; i < k; i++) {
            places[(begin + q) * k + i] = i < found ? s.positions[s.chosen[i]] : -1;
            cosines[(begin + q) * k + i] = i < found ? s.dots[s.chosen[i]] : -INFINITY;
        }
    }
    failed = 0;
end:
    free(s.nearest), free(s.positions), free(s.chosen), free(s.bounds), free(s.first_visit), free(s.filled);
    free(s.visits), free(s.products), free(s.unpacked), free(s.sums), free(s.keys), free(s.dots), free(s.buffer), free(cell_sums);
    return failed;
}

const Kernel CODE_KERNELS[] = {
    {"code_vectors", "bfl=fl=B", code_vectors, 0},
    {"search_codes", "IIfflBbfflBbflII=i=f", search_codes, 0},
    {0},
};
