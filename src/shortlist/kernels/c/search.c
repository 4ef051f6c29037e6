/* The nearest vectors of queries, in cells, without short codes, and what is done with the vectors found. */

#include "native.h"

/* Rows in float32 or in 8 bits, each with a scale. */
typedef struct {
    const int8_t *bytes;
    const float *floats; /* NULL: in 8 bits */
    const float *scales;
    int64_t n, n_features;
} Rows;

static Rows rows_of(const Argument *arguments, int in_bytes) {
    return (Rows){in_bytes ? arguments[0].data : NULL, in_bytes ? NULL : arguments[0].data, arguments[1].data,
                  arguments[0].n, arguments[0].m};
}

/* The dot products of a vector and n rows. */
static void products_of(Rows rows, int64_t first, int64_t n, const float *vector, float *products) {
    int64_t m = rows.n_features, i = 0;
    const float *scales = rows.scales + first, *floats = rows.floats ? rows.floats + first * m : NULL;
    const int8_t *bytes = rows.floats ? NULL : rows.bytes + first * m;
    for (; i + 4 <= n; i += 4) {
        int64_t a = i * m, b = a + m, c = b + m, d = c + m;
        if (floats) four_float_dots(floats + a, floats + b, floats + c, floats + d, vector, m, products + i);
        else four_dots(bytes + a, bytes + b, bytes + c, bytes + d, vector, m, products + i);
    }
    for (; i < n; i++) products[i] = floats ? float_dot(floats + i * m, vector, m) : dot(bytes + i * m, vector, m);
    for (i = 0; i < n; i++) products[i] *= scales[i];
}

enum { QUERIES_AT_ONCE = 512, ROWS_AT_ONCE = 16 };

/* Search cell by cell, so that rows stay in the cache for all queries that visit their cell. */
static int64_t search_together(const float *queries, int64_t n_queries, Rows cells, Rows vectors, const int64_t *starts,
                               int64_t n_cells, int64_t k, int32_t *places, float *cosines) {
    int64_t n_features = cells.n_features, n_visits = n_queries * n_cells, longest = 0, failed = -1;
    int32_t *nearest = malloc((n_visits + 1) * sizeof *nearest), *chosen = NULL;
    int64_t *bounds = malloc(n_queries * (n_cells + 1) * sizeof *bounds); /* of the products with each cell */
    int64_t *first_visit = calloc(cells.n + 2, sizeof *first_visit);
    int64_t *visits = malloc((n_visits + 1) * sizeof *visits);
    float *of_cells = malloc((n_queries * cells.n + 1) * sizeof *of_cells), *products = NULL;
    uint32_t *cell_keys = malloc((cells.n + 1) * sizeof *cell_keys), *keys = NULL;
    if (!nearest || !bounds || !first_visit || !visits || !of_cells || !cell_keys) goto end;
    for (int64_t first = 0; first < cells.n; first += ROWS_AT_ONCE) {
        int64_t n = cells.n - first < ROWS_AT_ONCE ? cells.n - first : ROWS_AT_ONCE;
        for (int64_t q = 0; q < n_queries; q++) {
            products_of(cells, first, n, queries + q * n_features, of_cells + q * cells.n + first);
        }
    }
    for (int64_t q = 0; q < n_queries; q++) {
        int64_t *own = bounds + q * (n_cells + 1);
        top_k(of_cells + q * cells.n, cells.n, n_cells, nearest + q * n_cells, cell_keys);
        own[0] = 0;
        for (int64_t i = 0; i < n_cells; i++) {
            int64_t cell = nearest[q * n_cells + i];
            own[i + 1] = own[i] + starts[cell + 1] - starts[cell];
            first_visit[cell + 2]++;
        }
        longest = larger(longest, own[n_cells]);
    }
    for (int64_t cell = 0; cell < cells.n; cell++) first_visit[cell + 2] += first_visit[cell + 1];
    for (int64_t i = 0; i < n_visits; i++) visits[first_visit[nearest[i] + 1]++] = i; /* now one cell further */
    products = malloc((n_queries * longest + 1) * sizeof *products);
    chosen = malloc((longest + 1) * sizeof *chosen);
    keys = malloc((longest + 1) * sizeof *keys);
    if (!products || !chosen || !keys) goto end;
    for (int64_t cell = 0; cell < cells.n; cell++) {
        for (int64_t first = starts[cell]; first < starts[cell + 1]; first += ROWS_AT_ONCE) {
            int64_t n = starts[cell + 1] - first < ROWS_AT_ONCE ? starts[cell + 1] - first : ROWS_AT_ONCE;
            for (int64_t i = first_visit[cell]; i < first_visit[cell + 1]; i++) {
                int64_t q = visits[i] / n_cells, bound = bounds[q * (n_cells + 1) + visits[i] % n_cells];
                products_of(vectors, first, n, queries + q * n_features,
                            products + q * longest + bound + first - starts[cell]);
            }
        }
    }
    for (int64_t q = 0; q < n_queries; q++) {
        const int64_t *own = bounds + q * (n_cells + 1);
        int64_t n = own[n_cells], found = n < k ? n : k;
        top_k(products + q * longest, n, found, chosen, keys);
        for (int64_t j = 0, i = 0; j < found; j++) { /* both `chosen` and the bounds increase */
            while (chosen[j] >= own[i + 1]) i++;
            places[q * k + j] = starts[nearest[q * n_cells + i]] + chosen[j] - own[i];
            cosines[q * k + j] = products[q * longest + chosen[j]];
        }
        for (int64_t j = found; j < k; j++) places[q * k + j] = -1, cosines[q * k + j] = -INFINITY;
    }
    failed = 0;
end:
    free(nearest), free(bounds), free(first_visit), free(visits), free(of_cells), free(cell_keys);
    free(products), free(chosen), free(keys);
    return failed;
}

static int64_t search_cells(const Argument *arguments, int cells_in_bytes, int values_in_bytes) {
    int64_t end = arguments[1].integer, n_features = arguments[2].m, k = arguments[9].m, failed = 0;
    ARRAY(const float, queries, 2);
    Rows cells = rows_of(arguments + 3, cells_in_bytes), vectors = rows_of(arguments + 6, values_in_bytes);
    ARRAY(const int64_t, starts, 5);
    ARRAY(int32_t, places, 9);
    ARRAY(float, cosines, 10);
    for (int64_t first = arguments[0].integer; first < end && !failed; first += QUERIES_AT_ONCE) {
        int64_t n_queries = end - first < QUERIES_AT_ONCE ? end - first : QUERIES_AT_ONCE;
        failed = search_together(queries + first * n_features, n_queries, cells, vectors, starts, arguments[8].integer,
                                 k, places + first * k, cosines + first * k);
    }
    return failed;
}

static int64_t search_bytes(const Argument *arguments) { return search_cells(arguments, 1, 1); }
static int64_t search_floats(const Argument *arguments) { return search_cells(arguments, 0, 0); }
static int64_t search_bytes_by_floats(const Argument *arguments) { return search_cells(arguments, 0, 1); }
static int64_t search_floats_by_bytes(const Argument *arguments) { return search_cells(arguments, 1, 0); }

static inline int64_t cosines_of_labels(const Argument *arguments, int in_bytes) {
    ARRAY(const float, queries, 2);
    ARRAY(const int32_t, ids, 3);
    ARRAY(const int64_t, bounds, 4);
    ARRAY(const int64_t, places, 5);
    Rows rows = rows_of(arguments + 6, in_bytes);
    ARRAY(float, cosines, 8);
    int64_t n = arguments[2].m, k = arguments[3].m, last = arguments[1].integer * k, size = in_bytes ? n : 4 * n;
    enum { AHEAD = 4 };
    for (int64_t i = arguments[0].integer * k; i < last; i++) {
        cosines[i] = -1;
        /* One look-up leads to the next, each anywhere in memory: fetch what the next labels need, step by step. */
        int32_t next = i + 3 * AHEAD < last ? ids[i + 3 * AHEAD] : -1;
        if (next >= 0) __builtin_prefetch(bounds + next);
        next = i + 2 * AHEAD < last ? ids[i + 2 * AHEAD] : -1;
        if (next >= 0) __builtin_prefetch(places + bounds[next]);
        next = i + AHEAD < last ? ids[i + AHEAD] : -1;
        if (next >= 0 && bounds[next] < bounds[next + 1]) {
            const char *row = (const char *)arguments[6].data + places[bounds[next]] * size;
            for (int64_t at = 0; at < size; at += 64) __builtin_prefetch(row + at);
        }
        for (int64_t j = ids[i] < 0 ? 0 : bounds[ids[i]]; ids[i] >= 0 && j < bounds[ids[i] + 1]; j++) {
            const float *query = queries + i / k * n;
            int64_t at = places[j] * n;
            float product = in_bytes ? dot(rows.bytes + at, query, n) : float_dot(rows.floats + at, query, n);
            cosines[i] = fmaxf(cosines[i], rows.scales[places[j]] * product);
        }
    }
    return 0;
}

static int64_t cosines_with_bytes(const Argument *arguments) { return cosines_of_labels(arguments, 1); }
static int64_t cosines_with_floats(const Argument *arguments) { return cosines_of_labels(arguments, 0); }

static int64_t labels_of_centres(const Argument *arguments) {
    ARRAY(const int32_t, found, 0);
    ARRAY(const float, cosines, 1);
    ARRAY(const int32_t, owner, 2);
    ARRAY(const uint8_t, has_several, 3);
    ARRAY(int32_t, ids, 4);
    ARRAY(float, similarities, 5);
    int64_t n_found = arguments[0].m, most = arguments[4].m, n_slots = 64, failed = -1;
    while (n_slots < 2 * n_found) n_slots *= 2;
    int32_t *slots = malloc(n_slots * sizeof *slots), *labels = malloc((n_found + 1) * sizeof *labels);
    int32_t *chosen = malloc((n_found + 1) * sizeof *chosen);
    uint32_t *keys = malloc((n_found + 1) * sizeof *keys);
    float *best = malloc((n_found + 1) * sizeof *best);
    if (!slots || !labels || !chosen || !keys || !best) goto end;
    for (int64_t query = 0; query < arguments[0].n; query++) {
        int64_t n = 0;
        memset(slots, 255, n_slots * sizeof *slots);
        for (int64_t i = query * n_found; i < (query + 1) * n_found; i++) {
            if (found[i] < 0) continue;
            int32_t label = owner[found[i]];
            int64_t place = n;
            if (has_several[label]) { /* only such a label can have been found before */
                int64_t at = mix(label) & (n_slots - 1);
                while (slots[at] >= 0 && labels[slots[at]] != label) at = (at + 1) & (n_slots - 1);
                if (slots[at] < 0) slots[at] = n;
                place = slots[at];
            }
            best[place] = place == n ? cosines[i] : fmaxf(best[place], cosines[i]);
            labels[place] = label;
            n += place == n;
        }
        int64_t k = n < most ? n : most;
        top_k(best, n, k, chosen, keys);
        for (int64_t i = 0; i < most; i++) {
            ids[query * most + i] = i < k ? labels[chosen[i]] : -1;
            similarities[query * most + i] = i < k ? best[chosen[i]] : 0;
        }
    }
    failed = 0;
end:
    free(slots), free(labels), free(chosen), free(keys), free(best);
    return failed;
}

const Kernel SEARCH_KERNELS[] = {
    {"search_cells", "IIfbflbfI=i=f", search_bytes, 0},
    {"search_cells", "IIffflffI=i=f", search_floats, 0},
    {"search_cells", "IIffflbfI=i=f", search_bytes_by_floats, 0},
    {"search_cells", "IIfbflffI=i=f", search_floats_by_bytes, 0},
    {"cosines_of_labels", "IIfillbf=f", cosines_with_bytes, 0},
    {"cosines_of_labels", "IIfillff=f", cosines_with_floats, 0},
    {"labels_of_centres", "ifi?=i=f", labels_of_centres, 0},
    {0},
};
