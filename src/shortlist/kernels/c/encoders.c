/* What follows a convolution: see kernels/encoders.py. */

#include "native.h"

/* x/2 (1 + erf(x / sqrt(2))), with Eigen's rational approximation of erf, which becomes SIMD instructions. */
static inline float gelu(float x, float flat) {
    float z = x * 0.707106781f;
    z = z < flat ? z : flat;
    z = z > -flat ? z : -flat;
    float s = z * z, above = -2.72614225801306e-10f;
    above = above * s + 2.77068142495902e-08f;
    above = above * s + -2.10102402082508e-06f;
    above = above * s + -5.69250639462346e-05f;
    above = above * s + -7.34990630326855e-04f;
    above = above * s + -2.95459980854025e-03f;
    above = above * s + -1.60960333262415e-02f;
    float below = -1.45660718464996e-05f;
    below = below * s + -2.13374055278905e-04f;
    below = below * s + -1.68282697438203e-03f;
    below = below * s + -7.37332916720468e-03f;
    below = below * s + -1.42647390514189e-02f;
    return 0.5f * x + 0.5f * x * (z * above / below);
}

static inline void gelu_row(float *restrict row, int64_t n) {
    volatile float constant = 4; /* erf is 1 in float32 from here on; see `entropy_row` in rows.c */
    float flat = constant;
    for (int64_t i = 0; i < n; i++) row[i] = gelu(row[i], flat);
}

static int64_t gelu_rows(const Argument *arguments) {
    gelu_row(arguments[0].data, arguments[0].n * arguments[0].m);
    return 0;
}

static int64_t join_taps(const Argument *arguments) {
    ARRAY(const float, products, 0);
    ARRAY(const int64_t, bounds, 1);
    ARRAY(const float, biases, 2);
    ARRAY(float, out, 3);
    int64_t n_products = arguments[0].m, width = arguments[0].p, n_taps = arguments[1].n - 1;
    int64_t n_positions = arguments[3].m, n_channels = arguments[3].p;
    for (int64_t text = 0; text < arguments[3].n; text++) {
        for (int64_t i = 0; i < n_positions; i++) {
            float *restrict row = out + (text * n_positions + i) * n_channels;
            memcpy(row, biases, n_channels * sizeof *row);
            for (int64_t tap = 0; tap < n_taps; tap++) {
                const float *restrict part = products + (text * n_products + i + tap) * width + bounds[tap];
                int64_t n = bounds[tap + 1] - bounds[tap], first = n_channels - n;
                for (int64_t c = 0; c < n; c++) row[first + c] += part[c];
            }
            gelu_row(row, n_channels);
        }
    }
    return 0;
}

const Kernel ENCODER_KERNELS[] = {
    {"gelu_rows", "=f", gelu_rows, 0},
    {"join_taps", "flf=f", join_taps, 0},
    {0},
};
