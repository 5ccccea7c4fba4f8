/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Attention on the NPU, or on the software model, beside the same in plain C:
 * cc attend.c -lrocket_npu -lm
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocket_npu.h>

/* Two query heads share each of two KV heads; a batch of the last rows of a prompt. */
enum { HEADS = 4, KV_HEADS = 2, ROWS = 24, KEYS = 70, DIM = 64, VALUE_DIM = 48 };

static float q[ROWS][HEADS][DIM], out[ROWS][HEADS][VALUE_DIM], sinks[HEADS], slopes[HEADS];
static uint16_t k[KEYS][KV_HEADS][DIM], v[KEYS][KV_HEADS][VALUE_DIM], mask[ROWS][KEYS];

/* A multiple of 1/16 between -1 and 1. */
static float number(void)
{
    static uint32_t state = 1;

    state = state * 1664525u + 1013904223u;
    return (float)((int)(state >> 16) % 33 - 16) / 16;
}

/* The bits in binary16 of a number that it has exactly; -INFINITY too. */
static uint16_t to_half(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    if (x == 0)
        return 0;
    if (isinf(x))
        return (uint16_t)(bits >> 16 & 0x8000u) | 0x7c00u;
    return (uint16_t)((bits >> 16 & 0x8000u) | ((bits >> 13 & 0x3ffffu) - (112u << 10)));
}

/* The number with these bits, which is normal, 0 or -infinity. */
static double from_half(uint16_t bits)
{
    double sign = bits & 0x8000u ? -1 : 1;
    int exponent = bits >> 10 & 31;

    if (exponent == 31)
        return sign * HUGE_VAL;
    return exponent ? sign * ldexp(1024 + (bits & 1023), exponent - 25) : 0;
}

/* Attention of one row of a head, as it is defined. */
static void reference(const rocket_npu_attention *a, size_t head, size_t row, double *result)
{
    size_t kv = head / (a->heads / a->kv_heads);
    double s[KEYS], most = sinks[head], sum;

    for (size_t n = 0; n < a->keys; n++) {
        const float *query = a->q + head * a->q_head_stride + row * a->q_row_stride;
        const uint16_t *key = a->k + kv * a->k_head_stride + n * a->k_row_stride;

        s[n] = 0;
        for (size_t i = 0; i < a->head_dim; i++)
            s[n] += query[i] * from_half(key[i]);
        s[n] = a->softcap * tanh(a->scale * s[n] / a->softcap);
        s[n] += a->slopes[head] * from_half(a->mask[row * a->mask_row_stride + n]);
        most = fmax(most, s[n]);
    }
    sum = exp(a->sinks[head] - most);
    memset(result, 0, a->value_dim * sizeof(*result));
    for (size_t n = 0; n < a->keys; n++) {
        const uint16_t *value = a->v + kv * a->v_head_stride + n * a->v_row_stride;
        double p = exp(s[n] - most);

        sum += p;
        for (size_t i = 0; i < a->value_dim; i++)
            result[i] += p * from_half(value[i]);
    }
    for (size_t i = 0; i < a->value_dim; i++)
        result[i] /= sum;
}

static void check(rocket_npu_status status)
{
    if (status == ROCKET_NPU_STATUS_OK)
        return;
    fprintf(stderr, "%s\n", rocket_npu_error());
    exit(1);
}

int main(void)
{
    /* Strides count elements: the heads of a row lie together, and so do those of a key. */
    rocket_npu_attention a = {
        .heads = HEADS,
        .kv_heads = KV_HEADS,
        .rows = ROWS,
        .keys = KEYS,
        .head_dim = DIM,
        .value_dim = VALUE_DIM,
        .q = &q[0][0][0],
        .q_head_stride = DIM,
        .q_row_stride = HEADS * DIM,
        .k = &k[0][0][0],
        .k_head_stride = DIM,
        .k_row_stride = KV_HEADS * DIM,
        .v = &v[0][0][0],
        .v_head_stride = VALUE_DIM,
        .v_row_stride = KV_HEADS * VALUE_DIM,
        /* One mask for all heads. */
        .mask = &mask[0][0],
        .mask_heads = 1,
        .mask_row_stride = KEYS,
        .slopes = slopes,
        .sinks = sinks,
        .scale = 0.125f,
        .softcap = 20,
        .out = &out[0][0][0],
    };
    rocket_npu_engine *engine;
    double worst = 0;

    for (size_t i = 0; i < sizeof(q) / sizeof(float); i++)
        (&q[0][0][0])[i] = number();
    for (size_t i = 0; i < sizeof(k) / 2; i++)
        (&k[0][0][0])[i] = to_half(number());
    for (size_t i = 0; i < sizeof(v) / 2; i++)
        (&v[0][0][0])[i] = to_half(number());
    /* Row r is that of key KEYS - ROWS + r. It sees that key and those before it, less
       the farther away they are (ALiBi). */
    for (int row = 0; row < ROWS; row++)
        for (int key = 0; key < KEYS; key++) {
            int distance = KEYS - ROWS + row - key;

            mask[row][key] = to_half(distance < 0 ? -INFINITY : (float)-distance);
        }
    for (int head = 0; head < HEADS; head++) {
        slopes[head] = ldexpf(1, -2 - head);
        sinks[head] = number();
    }

    check(rocket_npu_open(NULL, &engine));
    check(rocket_npu_attend(engine, &a));
    for (int row = 0; row < ROWS; row++)
        for (int head = 0; head < HEADS; head++) {
            double expected[VALUE_DIM];

            reference(&a, head, row, expected);
            for (int i = 0; i < VALUE_DIM; i++)
                worst = fmax(worst, fabs(out[row][head][i] - expected[i]));
        }
    /* Scores and probabilities are rounded to binary16. */
    printf("%s\n", worst < 2e-3 ? "as in plain C" : "wrong");

    a.kv_heads = 3;
    a.k_head_stride = a.v_head_stride = 0;
    if (rocket_npu_attend(engine, &a) == ROCKET_NPU_STATUS_INVALID)
        printf("refused: %s\n", rocket_npu_error());
    rocket_npu_close(engine);
    return !(worst < 2e-3);
}
