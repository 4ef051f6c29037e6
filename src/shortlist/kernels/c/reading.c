/* Reading sparse rows, `label,label column:value column:value`: see kernels/sparse_text.py.

The data may be anything. Only whole lines of it are read, so that every loop ends at a newline at the latest; and a label
or a pair takes two bytes at least, which bounds their number. */

#include "native.h"

enum { OK, NOT_A_PAIR, COLUMN_TOO_LARGE, LABEL_TOO_LARGE, NOT_A_LABEL };
enum { MAX_DIGITS = 18, MAX_POWER = 22 };
#define MAX_VALUE 3.4e38 /* of float32 */

static inline int is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

static inline int is_separator(uint8_t byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'; }

/* Each of these moves the cursor behind what it has read. */

/* -1 if there is none. */
static inline int64_t parse_integer(const uint8_t **cursor) {
    const uint8_t *start = *cursor, *at = start;
    int64_t value = 0;
    for (; is_digit(*at) && at - start < MAX_DIGITS; at++) value = 10 * value + (*at - '0');
    *cursor = at;
    return at > start ? value : -1;
}

static double times_power_of_ten(double value, int64_t power) {
    static const double POWERS[MAX_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (value == 0) return 0; /* 0 times 10^625 would be 0 times infinity */
    return power <= 0 && power >= -MAX_POWER ? value / POWERS[-power] : value * pow(10, power);
}

/* NaN if there is none. */
static double parse_decimal(const uint8_t **cursor) {
    const uint8_t *at = *cursor;
    int is_negative = *at == '-', n_digits = 0;
    at += is_negative || *at == '+';
    double mantissa = 0;
    int64_t power = 0;
    for (; is_digit(*at); at++, n_digits = 1) mantissa = 10 * mantissa + (*at - '0');
    if (*at == '.') {
        for (at++; is_digit(*at); at++, power--, n_digits = 1) mantissa = 10 * mantissa + (*at - '0');
    }
    if (n_digits && (*at == 'e' || *at == 'E')) {
        at++;
        int is_small = *at == '-';
        at += is_small || *at == '+';
        int64_t exponent = parse_integer(&at);
        if (exponent < 0) n_digits = 0;
        power += is_small ? -exponent : exponent;
    }
    *cursor = at;
    if (!n_digits) return NAN;
    double value = times_power_of_ten(mantissa, power);
    return is_negative ? -value : value;
}

/* `label,label,...` up to a separator: the error, and how many there are. */
static int parse_labels(const uint8_t **cursor, int64_t n_labels, int32_t *labels, int64_t *n) {
    const uint8_t *start = *cursor;
    *n = 0;
    while (!is_separator(**cursor)) {
        if (*n && *(*cursor)++ != ',') return NOT_A_LABEL;
        int64_t label = parse_integer(cursor);
        if (label < 0) return NOT_A_LABEL;
        if (!*n && **cursor == ':') { /* no labels, and not the leading space either */
            *cursor = start;
            return OK;
        }
        if (label >= n_labels) return LABEL_TOO_LARGE;
        labels[(*n)++] = label;
    }
    return OK;
}

/* `column:value` or just `column`, up to the end of the line: the error, and how many there are. */
static int parse_pairs(const uint8_t **cursor, int64_t n_columns, int32_t *columns, float *values, int64_t *n) {
    for (*n = 0;; (*n)++) {
        while (is_separator(**cursor) && **cursor != '\n') (*cursor)++;
        if (**cursor == '\n') return OK;
        int64_t column = parse_integer(cursor);
        if (column < 0) return NOT_A_PAIR;
        if (column >= n_columns) return COLUMN_TOO_LARGE;
        double value = 1;
        if (**cursor == ':') {
            (*cursor)++;
            value = parse_decimal(cursor);
        }
        if (!(fabs(value) <= MAX_VALUE) || !is_separator(**cursor)) return NOT_A_PAIR;
        columns[*n] = column, values[*n] = value;
    }
}

static int64_t parse_rows(const Argument *arguments) {
    ARRAY(const uint8_t, data, 0);
    int64_t size = arguments[0].n, n_labels = arguments[1].integer, n_columns = arguments[2].integer;
    ARRAY(int32_t, columns, 3);
    ARRAY(float, values, 4);
    ARRAY(int32_t, labels, 5);
    ARRAY(int64_t, pair_counts, 6);
    ARRAY(int64_t, label_counts, 7);
    ARRAY(int64_t, errors, 8);
    while (size && data[size - 1] != '\n') size--;
    const uint8_t *at = data, *end = data + size;
    for (int64_t row = 0; row < arguments[8].n && at < end; row++) {
        int64_t n_own = 0, n_pairs = 0;
        errors[row] = n_labels < 0 ? OK : parse_labels(&at, n_labels, labels, &n_own);
        if (errors[row] == OK) errors[row] = parse_pairs(&at, n_columns, columns, values, &n_pairs);
        if (errors[row] == OK) {
            label_counts[row] = n_own, pair_counts[row] = n_pairs;
            labels += n_own, columns += n_pairs, values += n_pairs;
        }
        at = (const uint8_t *)memchr(at, '\n', end - at) + 1;
    }
    return 0;
}

const Kernel READING_KERNELS[] = {
    {"parse_rows", "BII=i=f=i=l=l=l", parse_rows, 0},
    {0},
};
