/* Training of label rows: see kernels/label_rows.py. */

#include "native.h"

enum { MOMENTUM = 10, MEMORY = 1000 }; /* as in label_rows.py */

/* Rows that learn, with the optimiser's state: three arrays for row-adam, whose third is of integers; four for adam. */
typedef struct {
    float *weights, *biases;
    void *state[4];
    int n_state;
    int64_t n_features;
    float rate, bias_rate, epsilon;
} Rows;

static inline Rows rows_of(const Argument *arguments, int n_state, const Argument *rates) {
    Rows rows = {arguments[0].data, arguments[1].data, {0}, n_state, arguments[0].m, rates[0].real, rates[1].real,
                 rates[2].real};
    for (int i = 0; i < n_state; i++) rows.state[i] = arguments[2 + i].data;
    return rows;
}

/* Divide the gradient of a row, and that of its bias, by the root of its mean square. */
static inline void row_adam(const Rows *rows, int64_t row, const float *restrict gradient, float bias_gradient) {
    int64_t n = rows->n_features;
    float *restrict weights = rows->weights + row * n;
    float *mean_square = (float *)rows->state[0] + row, *bias_square = (float *)rows->state[1] + row;
    int32_t seen = ++((int32_t *)rows->state[2])[row];
    float share = seen < MEMORY ? 1.0f / seen : 1.0f / MEMORY, square = float_dot(gradient, gradient, n);
    *mean_square += share * (square / n - *mean_square);
    *bias_square += share * (bias_gradient * bias_gradient - *bias_square);
    float factor = rows->rate / (sqrtf(*mean_square) + rows->epsilon);
    for (int64_t i = 0; i < n; i++) weights[i] -= factor * gradient[i];
    rows->biases[row] -= rows->bias_rate * bias_gradient / (sqrtf(*bias_square) + rows->epsilon);
}

/* Adam with both moments for every weight. */
static inline void adam(const Rows *rows, int64_t row, const float *restrict gradient, float bias_gradient) {
    int64_t n = rows->n_features;
    float *restrict weights = rows->weights + row * n, *restrict means = (float *)rows->state[0] + row * n;
    float *restrict squares = (float *)rows->state[1] + row * n;
    float *bias_mean = (float *)rows->state[2] + row, *bias_square = (float *)rows->state[3] + row;
    float rate = rows->rate, epsilon = rows->epsilon, new = 1.0f / MOMENTUM, new_square = 1.0f / MEMORY;
    for (int64_t i = 0; i < n; i++) {
        means[i] += new * (gradient[i] - means[i]);
        squares[i] += new_square * (gradient[i] * gradient[i] - squares[i]);
        weights[i] -= rate * means[i] / (sqrtf(squares[i]) + epsilon);
    }
    *bias_mean += new * (bias_gradient - *bias_mean);
    *bias_square += new_square * (bias_gradient * bias_gradient - *bias_square);
    rows->biases[row] -= rows->bias_rate * *bias_mean / (sqrtf(*bias_square) + epsilon);
}

static inline void move_row(const Rows *rows, int64_t row, const float *gradient, float bias_gradient) {
    if (rows->n_state == 3) row_adam(rows, row, gradient, bias_gradient);
    else adam(rows, row, gradient, bias_gradient);
}

/* The sum of binary cross-entropies if all labels are negative, and their slopes.

The library's exp and log are called number by number; this code becomes SIMD instructions. e^-|z| is 2^n * 2^f, with a
polynomial for f and n in the exponent's bits; log(1 + t) is the series of 2 atanh(t / (2 + t)). The coefficients are
those of 2^f for |f| up to 1/2 and of 2 atanh(u) for u up to 1/3, accurate to six digits. */
static float entropy_row(const float *restrict logits, float *restrict slopes, int64_t n, float scale) {
    volatile float constant = -126; /* if the compiler knew it, it would make a branch of it, not SIMD instructions */
    float least = constant, total = 0;
    for (int64_t i = 0; i < n; i++) {
        float z = logits[i], x = fabsf(z) * -1.44269504f;
        x = x > least ? x : least; /* also for NaN */
        int32_t whole = (int32_t)(x - 0.5f), bits = (whole + 127) << 23;
        float f = x - whole, power;
        memcpy(&power, &bits, sizeof power);
        float ff = f * f, t = 9.61812911e-3f + f * 1.33335581e-3f + ff * 1.54035304e-4f;
        t = power * (1 + f * 6.93147181e-1f + ff * (2.40226507e-1f + f * 5.55041087e-2f + ff * t));
        float u = t / (2 + t), s = u * u, ss = s * s;
        float log = 4.0e-1f + s * 2.85714286e-1f + ss * (2.22222222e-1f + s * 1.81818182e-1f);
        log = u * (2 + s * 6.66666667e-1f + ss * log);
        total += log + (z < 0 ? 0 : z);
        slopes[i] = scale * (z >= 0 ? 1 : t) / (1 + t);
    }
    return total;
}

static int64_t entropy(const Argument *arguments) {
    ARRAY(float, logits, 2);
    ARRAY(const float, biases, 3);
    float scale = arguments[4].real;
    ARRAY(float, slopes, 5);
    ARRAY(double, losses, 6);
    int64_t n = arguments[3].n;
    for (int64_t sample = arguments[0].integer; sample < arguments[1].integer; sample++) {
        float *own = logits + sample * n;
        for (int64_t i = 0; i < n; i++) own[i] += biases[i];
        losses[sample] += entropy_row(own, slopes + sample * n, n, scale);
    }
    return 0;
}

/* The dot products of four rows with x and with y, side by side: each number that is read is used for several. */
static inline void eight_dots(const float *const *rows, const float *restrict x, const float *restrict y, int64_t n,
                              float *of_x, float *of_y) {
    const float *restrict a = rows[0], *restrict b = rows[1], *restrict c = rows[2], *restrict d = rows[3];
    Floats ax = {0}, bx = {0}, cx = {0}, dx = {0}, ay = {0}, by = {0}, cy = {0}, dy = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        Floats u = load_float(x + i), v = load_float(y + i), row = load_float(a + i);
        ax += row * u, ay += row * v;
        row = load_float(b + i);
        bx += row * u, by += row * v;
        row = load_float(c + i);
        cx += row * u, cy += row * v;
        row = load_float(d + i);
        dx += row * u, dy += row * v;
    }
    of_x[0] = total(ax), of_x[1] = total(bx), of_x[2] = total(cx), of_x[3] = total(dx);
    of_y[0] = total(ay), of_y[1] = total(by), of_y[2] = total(cy), of_y[3] = total(dy);
    for (; i < n; i++) {
        of_x[0] += a[i] * x[i], of_y[0] += a[i] * y[i];
        of_x[1] += b[i] * x[i], of_y[1] += b[i] * y[i];
        of_x[2] += c[i] * x[i], of_y[2] += c[i] * y[i];
        of_x[3] += d[i] * x[i], of_y[3] += d[i] * y[i];
    }
}

/* out[j * n_rows + r] = the dot product of rows[r] and vectors[j]. */
static inline void multiply(const float *const *rows, int64_t n_rows, const float *const *vectors, int64_t n_vectors,
                            int64_t n, float *out) {
    int64_t r = 0, j;
    for (; r + 4 <= n_rows; r += 4) {
        for (j = 0; j + 2 <= n_vectors; j += 2) {
            eight_dots(rows + r, vectors[j], vectors[j + 1], n, out + j * n_rows + r, out + (j + 1) * n_rows + r);
        }
        const float *const *four = rows + r;
        if (j < n_vectors) four_float_dots(four[0], four[1], four[2], four[3], vectors[j], n, out + j * n_rows + r);
    }
    for (; r < n_rows; r++) {
        for (j = 0; j + 4 <= n_vectors; j += 4) {
            const float *const *four = vectors + j;
            float sums[4];
            four_float_dots(four[0], four[1], four[2], four[3], rows[r], n, sums);
            for (int i = 0; i < 4; i++) out[(j + i) * n_rows + r] = sums[i];
        }
        for (; j < n_vectors; j++) out[j * n_rows + r] = float_dot(rows[r], vectors[j], n);
    }
}

/* target += the sum of factors[j * step] * sources[j]; four at a time, so that the target is read once for four. */
static inline void add_rows(float *restrict target, const float *factors, int64_t step, const float *const *sources,
                            int64_t n_sources, int64_t n) {
    int64_t j = 0;
    for (; j + 4 <= n_sources; j += 4) {
        const float *restrict a = sources[j], *restrict b = sources[j + 1];
        const float *restrict c = sources[j + 2], *restrict d = sources[j + 3];
        const float *f = factors + j * step;
        float fa = f[0], fb = f[step], fc = f[2 * step], fd = f[3 * step];
        for (int64_t i = 0; i < n; i++) target[i] += fa * a[i] + fb * b[i] + fc * c[i] + fd * d[i];
    }
    for (; j < n_sources; j++) {
        const float *restrict source = sources[j];
        float factor = factors[j * step];
        for (int64_t i = 0; i < n; i++) target[i] += factor * source[i];
    }
}

/* Both gradients of a row and the n vectors that it was multiplied with: moves += factors[j] * sources[j], and
targets[j] += factors[j] * row. Two at a time, so that row and moves are read once for both. */
static inline void add_both(float *restrict moves, const float *restrict row, const float *factors,
                            const float *const *sources, float *const *targets, int64_t n_sources, int64_t n) {
    int64_t j = 0;
    for (; j + 2 <= n_sources; j += 2) {
        const float *restrict a = sources[j], *restrict b = sources[j + 1];
        float *restrict to_a = targets[j], *restrict to_b = targets[j + 1], fa = factors[j], fb = factors[j + 1];
        for (int64_t i = 0; i < n; i++) {
            moves[i] += fa * a[i] + fb * b[i];
            to_a[i] += fa * row[i], to_b[i] += fb * row[i];
        }
    }
    if (j < n_sources) {
        const float *restrict a = sources[j];
        float *restrict to_a = targets[j], fa = factors[j];
        for (int64_t i = 0; i < n; i++) moves[i] += fa * a[i], to_a[i] += fa * row[i];
    }
}

/* Move a row along its gradient, after it was added to those of the vectors; not at all if n is 0. */
static inline void learn_row(const Rows *rows, int64_t row, const float *factors, const float *const *sources,
                             float *const *targets, int64_t n, float *moves) {
    if (!n) return;
    float of_bias = 0;
    for (int64_t j = 0; j < n; j++) of_bias += factors[j];
    memset(moves, 0, rows->n_features * sizeof *moves);
    add_both(moves, rows->weights + row * rows->n_features, factors, sources, targets, n, rows->n_features);
    move_row(rows, row, moves, of_bias);
}

/* Rows are all over the memory: fetch one while another is worked on. */
static inline void fetch_row(const Rows *rows, int64_t row) {
    const float *weights = rows->weights + row * rows->n_features;
    for (int64_t i = 0; i < rows->n_features; i += 16) __builtin_prefetch(weights + i);
}

/* The first place whose value is not below the one given. */
#define DEFINE_SEARCH(name, type)                                                                                      \
    static inline int64_t name(const type *values, int64_t n, type value) {                                            \
        int64_t low = 0;                                                                                               \
        while (low < n) {                                                                                              \
            int64_t middle = (low + n) / 2;                                                                            \
            if (values[middle] < value) low = middle + 1;                                                              \
            else n = middle;                                                                                           \
        }                                                                                                              \
        return low;                                                                                                    \
    }
DEFINE_SEARCH(place_of_row, int64_t)
DEFINE_SEARCH(place_of_sample, int32_t)

static inline int64_t cluster_step(const Argument *arguments, int n_state) {
    int64_t begin = arguments[0].integer, end = arguments[1].integer;
    Rows rows = rows_of(arguments + 2, n_state, arguments + 13 + n_state);
    int64_t d = rows.n_features;
    arguments += n_state;
    ARRAY(const float, features, 4);
    ARRAY(const int64_t, starts, 5);
    ARRAY(const int32_t, wanted, 6);
    ARRAY(const int64_t, bounds, 7);
    ARRAY(const int32_t, samples, 8);
    ARRAY(const int64_t, positive_rows, 9);
    ARRAY(const int32_t, positive_samples, 10);
    ARRAY(const float, targets, 11);
    ARRAY(const int64_t, cuts, 12);
    float scale = arguments[16].real, least = arguments[17].real;
    ARRAY(float, gradients, 18);
    ARRAY(double, losses, 19);
    int64_t n_samples = arguments[4].n, n_positives = arguments[9].n;
    for (int64_t share = begin; share < end; share++) {
        int64_t most_samples = 0, most_rows = 0, most_logits = 0;
        for (int64_t i = cuts[share]; i < cuts[share + 1]; i++) {
            int64_t n = bounds[i + 1] - bounds[i], n_rows = starts[wanted[i] + 1] - starts[wanted[i]];
            if (n > most_samples) most_samples = n;
            if (n_rows > most_rows) most_rows = n_rows;
            if (n * n_rows > most_logits) most_logits = n * n_rows;
        }
        const float **of_samples = malloc((2 * most_samples + most_rows + 1) * sizeof *of_samples);
        const float **cluster = of_samples + most_samples, **sources = cluster + most_rows;
        float **targets_of = malloc((most_samples + 1) * sizeof *targets_of);
        float *logits = malloc((2 * most_logits + most_samples + d + 1) * sizeof *logits); /* sample by sample */
        if (!of_samples || !targets_of || !logits) return free(of_samples), free(targets_of), free(logits), -1;
        float *slopes = logits + most_logits, *factors = slopes + most_logits, *moves = factors + most_samples;
        float *own_gradients = gradients + share * n_samples * d;
        double loss = 0;
        for (int64_t i = cuts[share]; i < cuts[share + 1]; i++) {
            if (i + 1 < cuts[share + 1]) fetch_row(&rows, starts[wanted[i + 1]]);
            const int32_t *who = samples + bounds[i];
            int64_t first = starts[wanted[i]], n = bounds[i + 1] - bounds[i], n_rows = starts[wanted[i] + 1] - first;
            for (int64_t j = 0; j < n; j++) of_samples[j] = features + who[j] * d;
            for (int64_t r = 0; r < n_rows; r++) cluster[r] = rows.weights + (first + r) * d;
            multiply(cluster, n_rows, of_samples, n, d, logits);
            for (int64_t j = 0; j < n; j++) {
                for (int64_t r = 0; r < n_rows; r++) logits[j * n_rows + r] += rows.biases[first + r];
            }
            loss += entropy_row(logits, slopes, n * n_rows, scale);
            int64_t positive = place_of_row(positive_rows, n_positives, first);
            for (; positive < n_positives && positive_rows[positive] < first + n_rows; positive++) {
                int64_t r = positive_rows[positive] - first;
                int64_t at = place_of_sample(who, n, positive_samples[positive]) * n_rows + r;
                slopes[at] -= targets[positive] * scale;
                loss -= targets[positive] * logits[at];
            }
            for (int64_t r = 0; r < n_rows; r++) {
                int64_t m = 0;
                for (int64_t j = 0; j < n; j++) {
                    float slope = slopes[j * n_rows + r];
                    factors[m] = slope, sources[m] = of_samples[j], targets_of[m] = own_gradients + who[j] * d;
                    m += fabsf(slope) >= least;
                }
                learn_row(&rows, first + r, factors, sources, targets_of, m, moves);
            }
        }
        losses[share] = loss;
        free(of_samples), free(targets_of), free(logits);
    }
    return 0;
}

static inline int64_t move_rows(const Argument *arguments, int n_state) {
    int64_t begin = arguments[0].integer, end = arguments[1].integer;
    Rows rows = rows_of(arguments + 2, n_state, arguments + 6 + n_state);
    arguments += n_state;
    ARRAY(const float, gradients, 4);
    ARRAY(const float, bias_gradients, 5);
    for (int64_t row = begin; row < end; row++) {
        move_row(&rows, row, gradients + row * rows.n_features, bias_gradients[row]);
    }
    return 0;
}

static inline int64_t move_some_rows(const Argument *arguments, int n_state) {
    int64_t begin = arguments[0].integer, end = arguments[1].integer;
    Rows moved = rows_of(arguments + 2, n_state, arguments + 9 + n_state);
    int64_t d = moved.n_features, most = 0;
    arguments += n_state;
    ARRAY(const int32_t, rows, 4);
    ARRAY(const int64_t, bounds, 5);
    ARRAY(const int32_t, which, 6);
    ARRAY(const float, factors, 7);
    ARRAY(const float, gradients, 8);
    for (int64_t i = begin; i < end; i++) most = bounds[i + 1] - bounds[i] > most ? bounds[i + 1] - bounds[i] : most;
    const float **sources = malloc((most + 1) * sizeof *sources);
    float *gradient = malloc((d + 1) * sizeof *gradient);
    for (int64_t i = begin; sources && gradient && i < end; i++) {
        if (i + 1 < end) fetch_row(&moved, rows[i + 1]);
        for (int64_t j = bounds[i]; j < bounds[i + 1]; j++) sources[j - bounds[i]] = gradients + which[j] * d;
        memset(gradient, 0, d * sizeof *gradient);
        add_rows(gradient, factors + bounds[i], 1, sources, bounds[i + 1] - bounds[i], d);
        move_row(&moved, rows[i], gradient, 0);
    }
    int64_t failed = sources && gradient ? 0 : -1;
    free(sources), free(gradient);
    return failed;
}

/* The same for both optimisers. */
#define FOR_BOTH(name)                                                                                                 \
    static int64_t name##_row_adam(const Argument *arguments) { return name(arguments, 3); }                           \
    static int64_t name##_adam(const Argument *arguments) { return name(arguments, 4); }
FOR_BOTH(cluster_step)
FOR_BOTH(move_rows)
FOR_BOTH(move_some_rows)

static int64_t count_samples(const Argument *arguments) {
    ARRAY(const int32_t, clusters, 0);
    ARRAY(int64_t, counts, 1);
    for (int64_t i = 0; i < arguments[0].n * arguments[0].m; i++) {
        if (clusters[i] >= 0) counts[clusters[i]]++;
    }
    return 0;
}

static int64_t place_samples(const Argument *arguments) {
    ARRAY(const int32_t, clusters, 0);
    ARRAY(int64_t, filled, 1);
    ARRAY(int32_t, samples, 2);
    int64_t width = arguments[0].m;
    for (int64_t sample = 0; sample < arguments[0].n; sample++) {
        for (int64_t i = sample * width; i < (sample + 1) * width; i++) {
            if (clusters[i] >= 0) samples[filled[clusters[i]]++] = sample;
        }
    }
    return 0;
}

/* The arrays that learn, weights, biases and the optimiser's state: row-adam's and adam's. */
#define ROW_ADAM "=f=f=f=f=i"
#define ADAM "=f=f=f=f=f=f"

const Kernel ROW_KERNELS[] = {
    {"count_samples", "i=l", count_samples, 0},
    {"place_samples", "i=l=i", place_samples, 0},
    {"entropy", "II=ffD=f=d", entropy, 0},
    {"cluster_step", "II" ROW_ADAM "flililiflDDDDD=f=d", cluster_step_row_adam, 0},
    {"cluster_step", "II" ADAM "flililiflDDDDD=f=d", cluster_step_adam, 0},
    {"move_rows", "II" ROW_ADAM "ffDDD", move_rows_row_adam, 0},
    {"move_rows", "II" ADAM "ffDDD", move_rows_adam, 0},
    {"move_some_rows", "II" ROW_ADAM "iliffDDD", move_some_rows_row_adam, 0},
    {"move_some_rows", "II" ADAM "iliffDDD", move_some_rows_adam, 0},
    {0},
};
