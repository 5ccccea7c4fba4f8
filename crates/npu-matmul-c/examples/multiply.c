/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Multiplies on the NPU, or on the software model: cc multiply.c -lrocket_npu */
#include <stdio.h>
#include <stdlib.h>

#include <rocket_npu.h>

static void check(rocket_npu_status status)
{
    if (status == ROCKET_NPU_STATUS_OK)
        return;
    fprintf(stderr, "%s\n", rocket_npu_error());
    exit(1);
}

int main(void)
{
    enum { M = 2, N = 3, K = 4 };
    const int8_t a[M * K] = {1, 2, 3, 4, -1, 0, 1, 0};
    const int8_t b[N * K] = {1, 1, 1, 1, 0, 0, 0, 2, -1, 1, -1, 1};
    int32_t c[M * N] = {0};
    rocket_npu_engine *engine;
    rocket_npu_weights *weights;
    rocket_npu_matmul *matmul;

    check(rocket_npu_open(NULL, &engine));
    printf("on %s\n", rocket_npu_is_model(engine) ? "the software model" : "the NPU");
    /* The weights stay in the device's memory; the plan is for M rows. */
    check(rocket_npu_load_i8(engine, N, K, b, &weights));
    check(rocket_npu_prepare(weights, M, &matmul));
    check(rocket_npu_run_i8(matmul, a, c));
    for (int m = 0; m < M; m++)
        printf("%d %d %d\n", (int)c[m * N], (int)c[m * N + 1], (int)c[m * N + 2]);

    /* Calls that do not fit the weights return an error. */
    float floats[M * K] = {0}, results[M * N];
    if (rocket_npu_run_f32(matmul, floats, results) == ROCKET_NPU_STATUS_INVALID)
        printf("refused: %s\n", rocket_npu_error());

    rocket_npu_free_matmul(matmul);
    rocket_npu_free_weights(weights);
    rocket_npu_close(engine);
    return 0;
}
