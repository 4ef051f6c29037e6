/* The label tree: see kernels/label_tree.py. */

#include "native.h"

enum { MAX_ITERATIONS = 20, EXCHANGED_ROWS = 512 /* of clusters that exchange labels */, MAX_SWEEPS = 8 };
#define GRID 16777216.0
#define SMALLEST_GAIN 1e-5f

/* Sparse rows. The sum of the squares of words that only one row has is `private`: they count in lengths only. */
typedef struct {
    int64_t *indptr;
    int32_t *indices;
    float *data, *private;
} Rows;

typedef struct { double left, right; } Sums; /* of the halves of a node, for one word */

typedef struct { int32_t count, number; } Word; /* number + 1 in the copy; 0: none yet */

typedef struct { int64_t end, n_clusters, n_words; } Node;

/* Memory for splits of up to n rows with up to n_words words. */
typedef struct {
    Sums *sums;
    float *direction, *scores;
    uint8_t *is_left, *was_left;
    int32_t *positions;
    uint32_t *keys;
} Work;

static Rows rows_of(const Argument *arguments) {
    return (Rows){arguments[0].data, arguments[1].data, arguments[2].data, arguments[3].data};
}

static Rows from(Rows rows, int64_t start) {
    return (Rows){rows.indptr + start, rows.indices, rows.data, rows.private + start};
}

/* Room for a copy of the chosen rows; whether there was memory for it. */
static int allocate_copy(Rows rows, const int32_t *chosen, int64_t n, Rows *copy) {
    int64_t size = 0;
    for (int64_t i = 0; i < n; i++) size += rows.indptr[chosen[i] + 1] - rows.indptr[chosen[i]];
    *copy = (Rows){calloc(n + 1, sizeof(int64_t)), malloc((size + 1) * sizeof(int32_t)),
                   malloc((size + 1) * sizeof(float)), calloc(n + 1, sizeof(float))};
    return copy->indptr && copy->indices && copy->data && copy->private;
}

static void free_copy(Rows rows) { free(rows.indptr), free(rows.indices), free(rows.data), free(rows.private); }

static int allocate_work(int64_t n, int64_t n_words, Work *work) {
    *work = (Work){malloc((n_words + 1) * sizeof(Sums)), malloc((n_words + 1) * sizeof(float)),
                   malloc((n + 1) * sizeof(float)),      malloc(n + 1),
                   malloc(n + 1),                        malloc((n + 1) * sizeof(int32_t)),
                   malloc((n + 1) * sizeof(uint32_t))};
    return work->sums && work->direction && work->scores && work->is_left && work->was_left && work->positions &&
           work->keys;
}

static void free_work(Work work) {
    free(work.sums), free(work.direction), free(work.scores), free(work.is_left), free(work.was_left);
    free(work.positions), free(work.keys);
}

/* Copy the chosen rows without the words that only one of them has; renumber the others from 0. Starts writing at
into.indptr[0]; returns the number of words. `words` must be zero, and is zero again afterwards. */
static int64_t compact(Rows rows, const int32_t *chosen, int64_t n, Word *restrict words, Rows into) {
    int64_t n_words = 0, filled = into.indptr[0];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t p = rows.indptr[chosen[i]]; p < rows.indptr[chosen[i] + 1]; p++) words[rows.indices[p]].count++;
    }
    for (int64_t i = 0; i < n; i++) {
        float private = rows.private[chosen[i]];
        for (int64_t p = rows.indptr[chosen[i]]; p < rows.indptr[chosen[i] + 1]; p++) {
            Word *word = words + rows.indices[p];
            if (word->count == 1) {
                private += rows.data[p] * rows.data[p];
                continue;
            }
            if (!word->number) word->number = ++n_words;
            into.indices[filled] = word->number - 1;
            into.data[filled++] = rows.data[p];
        }
        into.indptr[i + 1] = filled;
        into.private[i] = private;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t p = rows.indptr[chosen[i]]; p < rows.indptr[chosen[i] + 1]; p++) {
            words[rows.indices[p]] = (Word){0, 0};
        }
    }
    return n_words;
}

/* The dot product of a row with a dense vector. */
static inline float row_dot(Rows rows, int64_t row, const float *vector) {
    float sum = 0;
    for (int64_t p = rows.indptr[row]; p < rows.indptr[row + 1]; p++) sum += rows.data[p] * vector[rows.indices[p]];
    return sum;
}

static void add_to_vector(Rows rows, int64_t row, float sign, float *vector) {
    for (int64_t p = rows.indptr[row]; p < rows.indptr[row + 1]; p++) vector[rows.indices[p]] += sign * rows.data[p];
}

static void add_to_sums(Rows rows, int64_t row, double to_left, double to_right, Sums *restrict sums) {
    for (int64_t p = rows.indptr[row]; p < rows.indptr[row + 1]; p++) {
        Sums *sum = sums + rows.indices[p];
        sum->left += to_left * rows.data[p], sum->right += to_right * rows.data[p];
    }
}

/* direction = S_left / |S_left| - S_right / |S_right| */
static void write_direction(const Sums *restrict sums, int64_t n_words, double left_square, double right_square,
                            float *restrict direction) {
    for (int64_t word = 0; word < n_words; word++) {
        left_square += sums[word].left * sums[word].left;
        right_square += sums[word].right * sums[word].right;
    }
    double left_scale = 1 / sqrt(fmax(left_square, 1e-30)), right_scale = 1 / sqrt(fmax(right_square, 1e-30));
    for (int64_t word = 0; word < n_words; word++) {
        direction[word] = sums[word].left * left_scale - sums[word].right * right_scale;
    }
}

/* 2-means over n rows: marks in work.is_left those that go to the left. */
static void split_rows(Rows rows, int64_t n, int64_t n_words, int64_t n_left, uint64_t seed, Work work) {
    double left_private = 0, right_private = 0;
    memset(work.sums, 0, n_words * sizeof *work.sums);
    memset(work.direction, 0, n_words * sizeof *work.direction);
    memset(work.is_left, 0, n), memset(work.was_left, 0, n);
    for (int64_t i = 0; i < n; i++) {
        add_to_sums(rows, i, 0, 1, work.sums);
        right_private += rows.private[i];
    }
    /* The first split is in the direction of the difference of two random rows. */
    int64_t one = below(mix(seed), n), other = (one + 1 + below(mix(seed + 1), n - 1)) % n;
    add_to_vector(rows, one, 1, work.direction);
    add_to_vector(rows, other, -1, work.direction);
    for (int iteration = 0; iteration < MAX_ITERATIONS; iteration++) {
        for (int64_t i = 0; i < n; i++) work.scores[i] = row_dot(rows, i, work.direction);
        if (mark_top(work.scores, n, n_left, work.is_left, work.positions, work.keys) <= n / 1000) break;
        for (int64_t i = 0; i < n; i++) {
            if (work.is_left[i] == work.was_left[i]) continue;
            work.was_left[i] = work.is_left[i];
            double sign = work.is_left[i] ? 1 : -1;
            add_to_sums(rows, i, sign, -sign, work.sums);
            left_private += sign * rows.private[i], right_private -= sign * rows.private[i];
        }
        write_direction(work.sums, n_words, left_private, right_private, work.direction);
    }
}

/* How many of the rows go to the left half, with half of the clusters. */
static int64_t rows_of_left(int64_t n_rows, int64_t n_clusters) {
    int64_t left_clusters = (n_clusters + 1) / 2, n_larger = n_rows % n_clusters;
    return left_clusters * (n_rows / n_clusters) + (n_larger * left_clusters + n_clusters / 2) / n_clusters;
}

/* The dot products of all pairs of rows. The longer row is made dense, in a vector that is zero before and after: a
pair costs as much as the shorter one. */
static void write_cosines(Rows rows, int64_t n, float *restrict dense, float *restrict cosines) {
    for (int64_t i = 0; i < n; i++) {
        int64_t length = rows.indptr[i + 1] - rows.indptr[i];
        for (int64_t p = rows.indptr[i]; p < rows.indptr[i + 1]; p++) dense[rows.indices[p]] = rows.data[p];
        for (int64_t j = 0; j < n; j++) {
            int64_t other_length = rows.indptr[j + 1] - rows.indptr[j];
            if (other_length < length || (other_length == length && j <= i)) {
                cosines[i * n + j] = cosines[j * n + i] = row_dot(rows, j, dense);
            }
        }
        cosines[i * n + i] += rows.private[i];
        for (int64_t p = rows.indptr[i]; p < rows.indptr[i + 1]; p++) dense[rows.indices[p]] = 0;
    }
}

static inline float at_least(float square) { return square > 1e-12f ? square : 1e-12f; }

/* Exchange the n rows in `order` between clusters while that raises the sum of |S|. Cluster c ends at ends[c] - start.
`sums` (zero) is for the dot products of S of each cluster with each row. A row is tried only against clusters that it
is closer to than to the rest of its own: where an exchange of two helps, this is nearly always true of one of them. */
static void exchange(const float *restrict cosines, int64_t n, int32_t *restrict order, const int64_t *ends,
                     int64_t start, int64_t n_clusters, float *restrict sums, float *restrict squares,
                     float *restrict lengths) {
    for (int64_t c = 0, p = 0; c < n_clusters; c++) {
        int64_t first = p;
        for (; p < ends[c] - start; p++) {
            for (int64_t i = 0; i < n; i++) sums[c * n + i] += cosines[order[p] * n + i];
        }
        squares[c] = 0;
        for (int64_t q = first; q < p; q++) squares[c] += sums[c * n + order[q]];
        lengths[c] = sqrtf(at_least(squares[c]));
    }
    for (int sweep = 0, n_exchanged = 1; sweep < MAX_SWEEPS && n_exchanged; sweep++) {
        n_exchanged = 0;
        for (int64_t a = 0, position = 0; a < n_clusters; a++) {
            float *of_a = sums + a * n;
            for (; position < ends[a] - start; position++) {
                int64_t i = order[position], best_position = -1, best_cluster = -1;
                const float *of_i = cosines + i * n;
                float best_gain = SMALLEST_GAIN, best_a = 0, best_b = 0;
                float without_i = squares[a] - 2 * of_a[i] + of_i[i];
                float pull = (of_a[i] - of_i[i]) / sqrtf(at_least(without_i));
                for (int64_t b = 0; b < n_clusters; b++) {
                    const float *of_b = sums + b * n;
                    if (b == a || of_b[i] <= pull * lengths[b]) continue;
                    float with_i = squares[b] + 2 * of_b[i] + of_i[i];
                    for (int64_t q = b ? ends[b - 1] - start : 0; q < ends[b] - start; q++) {
                        int64_t j = order[q];
                        float own = cosines[j * n + j];
                        float new_a = at_least(without_i + 2 * (of_a[j] - of_i[j]) + own);
                        float new_b = at_least(with_i - 2 * (of_b[j] + of_i[j]) + own);
                        float gain = sqrtf(new_a) + sqrtf(new_b) - lengths[a] - lengths[b];
                        if (gain > best_gain) {
                            best_gain = gain, best_position = q, best_cluster = b;
                            best_a = new_a, best_b = new_b;
                        }
                    }
                }
                if (best_position < 0) continue;
                int64_t j = order[best_position];
                order[position] = j, order[best_position] = i;
                squares[a] = best_a, lengths[a] = sqrtf(best_a);
                squares[best_cluster] = best_b, lengths[best_cluster] = sqrtf(best_b);
                float *of_best = sums + best_cluster * n;
                const float *of_j = cosines + j * n;
                for (int64_t row = 0; row < n; row++) {
                    float change = of_j[row] - of_i[row];
                    of_a[row] += change, of_best[row] -= change;
                }
                n_exchanged++;
            }
        }
    }
}

/* Exchange labels between a few clusters, which have the n labels from `start` on; whether there was memory for it. */
static int exchange_group(Rows rows, int32_t *labels, int64_t n, const int64_t *ends, int64_t start,
                          int64_t n_clusters, Word *words) {
    Rows copy;
    int done = 0;
    int32_t *chosen = malloc((n + 1) * 2 * sizeof *chosen), *order = chosen + n;
    float *cosines = malloc((n * n + 1) * sizeof *cosines), *dense = NULL;
    float *sums = calloc((n + 2) * n_clusters, sizeof *sums), *squares = sums + n * n_clusters;
    if (allocate_copy(rows, labels, n, &copy) && chosen && cosines && sums) {
        dense = calloc(compact(rows, labels, n, words, copy) + 1, sizeof *dense);
        if (dense) {
            write_cosines(copy, n, dense, cosines);
            memcpy(chosen, labels, n * sizeof *chosen);
            for (int64_t i = 0; i < n; i++) order[i] = i;
            exchange(cosines, n, order, ends, start, n_clusters, sums, squares, squares + n_clusters);
            for (int64_t i = 0; i < n; i++) labels[i] = chosen[order[i]];
            done = 1;
        }
    }
    free_copy(copy), free(chosen), free(cosines), free(sums), free(dense);
    return done;
}

/* Exchange labels between clusters that are close in the tree. */
static int exchange_all(Rows rows, int32_t *labels, int64_t n, const int64_t *ends, int64_t n_clusters, Word *words) {
    int64_t n_together = 1, start = 0;
    while (2 * n_together * n <= EXCHANGED_ROWS * n_clusters) n_together *= 2;
    for (int64_t first = 0; first < n_clusters; first += n_together) {
        int64_t last = first + n_together < n_clusters ? first + n_together : n_clusters, end = ends[last - 1];
        if (last > first + 1 &&
            !exchange_group(rows, labels + start, end - start, ends + first, start, last - first, words)) {
            return 0;
        }
        start = end;
    }
    return 1;
}

/* Split a node, and write its labels, and copies of its halves, in the new order; the number of words of each half. */
static void split_node(Rows here, Rows there, int64_t start, Node node, uint64_t seed, int32_t *labels,
                       int32_t *order, Word *words, Work work, Node *halves) {
    int64_t n = node.end - start, n_left = rows_of_left(n, node.n_clusters), to_left = 0, to_right = n_left;
    Rows rows = from(here, start);
    split_rows(rows, n, node.n_words, n_left, seed, work);
    for (int64_t i = 0; i < n; i++) order[work.is_left[i] ? to_left++ : to_right++] = i;
    int64_t left_clusters = (node.n_clusters + 1) / 2, middle = start + n_left;
    int64_t left_words = compact(rows, order, n_left, words, from(there, start));
    int64_t right_words = compact(rows, order + n_left, n - n_left, words, from(there, middle));
    halves[0] = (Node){middle, left_clusters, left_words};
    halves[1] = (Node){node.end, node.n_clusters - left_clusters, right_words};
    memcpy(work.positions, labels + start, n * sizeof *labels);
    for (int64_t i = 0; i < n; i++) labels[start + i] = work.positions[order[i]];
}

/* Goes level by level over compact copies of the nodes. Those of the next level are packed into a second buffer, which
always has room because copies only shrink; then the buffers change places. */
static int64_t grow_subtree(const Argument *arguments) {
    Rows rows = rows_of(arguments), here, there = {0};
    int64_t n = arguments[5].n, n_clusters = arguments[6].integer;
    ARRAY(int32_t, labels, 5);
    uint64_t seed = arguments[7].integer;
    ARRAY(int64_t, cluster_ends, 8);
    Work work = {0};
    Word *words = calloc(arguments[4].integer + 1, sizeof *words);
    Node *nodes = malloc((2 * n_clusters + 1) * sizeof *nodes), *next_nodes = nodes + n_clusters, *all_nodes = nodes;
    int32_t *order = malloc((n + 1) * sizeof *order);
    int done = allocate_copy(rows, labels, n, &here) && words && nodes && order;
    if (done) {
        int64_t n_words = compact(rows, labels, n, words, here);
        done = allocate_copy(rows, labels, n, &there) && allocate_work(n, n_words, &work);
        nodes[0] = (Node){n, n_clusters, n_words};
    }
    for (int64_t n_nodes = 1; done && n_nodes < n_clusters;) {
        int64_t n_next = 0;
        for (int64_t i = 0, start = 0; i < n_nodes; start = nodes[i++].end) {
            if (nodes[i].n_clusters == 1) {
                next_nodes[n_next++] = nodes[i];
                for (int64_t row = start; row < nodes[i].end; row++) there.indptr[row + 1] = there.indptr[start];
                continue;
            }
            uint64_t own_seed = mix(seed ^ mix((uint64_t)start << 32 | (uint64_t)n_nodes));
            split_node(here, there, start, nodes[i], own_seed, labels, order, words, work, next_nodes + n_next);
            n_next += 2;
        }
        Rows rows_before = here;
        Node *nodes_before = nodes;
        here = there, there = rows_before;
        nodes = next_nodes, next_nodes = nodes_before;
        n_nodes = n_next;
    }
    if (done) {
        for (int64_t cluster = 0; cluster < n_clusters; cluster++) cluster_ends[cluster] = nodes[cluster].end;
        done = exchange_all(rows, labels, n, cluster_ends, n_clusters, words);
    }
    free_copy(here), free_copy(there), free_work(work), free(words), free(all_nodes), free(order);
    return done ? 0 : -1;
}

static int64_t exchange_labels(const Argument *arguments) {
    ARRAY(int32_t, labels, 5);
    ARRAY(const int64_t, ends, 6);
    Word *words = calloc(arguments[4].integer + 1, sizeof *words);
    int done = words && exchange_all(rows_of(arguments), labels, arguments[5].n, ends, arguments[6].n, words);
    free(words);
    return done ? 0 : -1;
}

static int64_t sample_direction(const Argument *arguments) {
    Rows rows = rows_of(arguments), copy;
    int64_t n_words = arguments[4].integer, n = arguments[5].n;
    ARRAY(const int32_t, sample, 5);
    ARRAY(float, direction, 8);
    Work work = {0};
    Word *words = calloc(n_words + 1, sizeof *words);
    int done = allocate_copy(rows, sample, n, &copy) && words && allocate_work(n, n_words, &work);
    if (done) {
        split_rows(copy, n, compact(rows, sample, n, words, copy), arguments[6].integer, arguments[7].integer, work);
        memset(work.sums, 0, n_words * sizeof *work.sums);
        for (int64_t i = 0; i < n; i++) add_to_sums(rows, sample[i], work.is_left[i], !work.is_left[i], work.sums);
        write_direction(work.sums, n_words, 0, 0, direction);
    }
    free_copy(copy), free_work(work), free(words);
    return done ? 0 : -1;
}

static int64_t score_labels(const Argument *arguments) {
    Rows rows = rows_of(arguments);
    ARRAY(const int32_t, chosen, 4);
    ARRAY(float, scores, 6);
    for (int64_t i = 0; i < arguments[4].n; i++) scores[i] = row_dot(rows, chosen[i], arguments[5].data);
    return 0;
}

static int64_t scaled_rows(const Argument *arguments) {
    ARRAY(const int64_t, indptr, 0);
    ARRAY(const int32_t, indices, 1);
    ARRAY(const float, data, 2);
    double length = arguments[5].real;
    ARRAY(const int32_t, new_word, 6);
    Rows into = rows_of(arguments + 7);
    for (int64_t row = arguments[3].integer; row < arguments[4].integer; row++) {
        double square = length * length;
        for (int64_t p = indptr[row]; length == 0 && p < indptr[row + 1]; p++) square += (double)data[p] * data[p];
        double scale = square > 0 ? GRID / sqrt(square) : 0;
        for (int64_t p = indptr[row]; p < indptr[row + 1]; p++) {
            into.indices[p] = new_word[indices[p]];
            into.data[p] = rint(data[p] * scale) / GRID;
        }
        into.private[row] = 0;
    }
    return 0;
}

static int64_t left_size(const Argument *arguments) { return rows_of_left(arguments[0].integer, arguments[1].integer); }

const Kernel TREE_KERNELS[] = {
    {"scaled_rows", "lifIIDil=i=f=f", scaled_rows, 0},
    {"score_labels", "liffif=f", score_labels, 0},
    {"sample_direction", "liffIiII=f", sample_direction, 0},
    {"grow_subtree", "liffI=iII=l", grow_subtree, 0},
    {"exchange_labels", "liffI=il", exchange_labels, 0},
    {"left_size", "II", left_size, 1},
    {0},
};
