/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Matrix multiplication on the NPU of the RK3588: C = A x B^T. A is m x k (activations),
 * B is n x k (weights: one row for each output channel), C is m x n; all are row major.
 * Also attention, for all heads of a layer at once.
 *
 * Several threads may call all functions at once, but must not free a handle while another
 * call uses it. Handles may be freed in any order: each keeps the objects that it needs.
 * Functions that can fail return a status; rocket_npu_error() returns the reason.
 */


#ifndef ROCKET_NPU_H
#define ROCKET_NPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Result of a call.
typedef enum {
  // The call succeeded.
  ROCKET_NPU_STATUS_OK = 0,
  // An argument is invalid; nothing was done.
  ROCKET_NPU_STATUS_INVALID = 1,
  // The device does not exist or cannot be opened.
  ROCKET_NPU_STATUS_NO_DEVICE = 2,
  // The device or its driver failed, or memory ran out.
  ROCKET_NPU_STATUS_FAILED = 3,
  // A bug in this library; please report it.
  ROCKET_NPU_STATUS_INTERNAL = 4,
} rocket_npu_status;

// An open device with its engine.
typedef struct rocket_npu_engine rocket_npu_engine;

// A planned matmul: weights with a number of rows.
typedef struct rocket_npu_matmul rocket_npu_matmul;

// Weights in device memory.
typedef struct rocket_npu_weights rocket_npu_weights;

// Operands of rocket_npu_attend(): attention of a batch of rows for all heads of a layer. Sizes
// and strides count elements. 16-bit numbers are binary16, passed as their bits.
//
// The elements of a vector are contiguous. The vector of head h and row (or key) r begins at
// element h * head_stride + r * row_stride. So heads and rows may have any order, and a stride of
// 0 repeats a vector.
typedef struct {
  // Number of query heads.
  size_t heads;
  // Number of KV heads, a divisor of `heads`. Query heads that share a KV head are adjacent.
  size_t kv_heads;
  // Rows (queries) of each head.
  size_t rows;
  // Keys of each head.
  size_t keys;
  // Elements of each query and key.
  size_t head_dim;
  // Elements of each value.
  size_t value_dim;
  // Queries: a vector of head_dim elements for each head and row.
  const float *q;
  // Stride from one head to the next.
  size_t q_head_stride;
  // Stride from one row to the next.
  size_t q_row_stride;
  // Keys: a vector of head_dim elements for each KV head and key.
  const uint16_t *k;
  // Stride from one head to the next.
  size_t k_head_stride;
  // Stride from one key to the next.
  size_t k_row_stride;
  // Values: a vector of value_dim elements for each KV head and key.
  const uint16_t *v;
  // Stride from one head to the next.
  size_t v_head_stride;
  // Stride from one key to the next.
  size_t v_row_stride;
  // Null, or added to the scores: a vector of `keys` elements for each row. Minus infinity hides
  // the key from the row.
  const uint16_t *mask;
  // Heads of the mask: 1 if all heads share it. Head h uses mask h % mask_heads. Ignored, like
  // the mask's strides, if the mask is null.
  size_t mask_heads;
  // Stride from one mask head to the next.
  size_t mask_head_stride;
  // Stride from one row to the next.
  size_t mask_row_stride;
  // Null, or the factor of the mask for each head (ALiBi).
  const float *slopes;
  // Null, or a score for each head that takes part in the softmax and has no value.
  const float *sinks;
  // Factor of the dot products, mostly 1 / sqrt(head_dim).
  float scale;
  // The bound c of c * tanh(score / c), applied before the mask; 0 disables it.
  float softcap;
  // The result: rows x heads x value_dim elements without gaps.
  float *out;
} rocket_npu_attention;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens a device: the path of a node (`/dev/accel/accel0`), `model` for the software model, or
// `auto` for the NPU if there is one and the model otherwise. If null, the environment variable
// ROCKET_DEVICE is used, else `auto`.
//
// # Safety
// `device` is null or a string that ends with a zero; `engine` may be written.
rocket_npu_status rocket_npu_open(const char *device, rocket_npu_engine **engine);

// Whether the device is the software model, which is much slower than a CPU. False for null.
//
// # Safety
// `engine` is null or an engine that is not closed.
bool rocket_npu_is_model(const rocket_npu_engine *engine);

// Closes an engine; does nothing for null.
//
// # Safety
// `engine` is null, or an engine that is not closed and that no other call uses.
void rocket_npu_close(rocket_npu_engine *engine);

// Loads 8-bit integers for exact matmuls. k is at most 131,071, because sums have 32 bits. `b` is
// n x k; it is not needed after the call.
//
// # Safety
// `engine` is null or not closed; `b` has n * k elements; `weights` may be written.
rocket_npu_status rocket_npu_load_i8(const rocket_npu_engine *engine,
                                     size_t n,
                                     size_t k,
                                     const int8_t *b,
                                     rocket_npu_weights **weights);

// Loads binary16 numbers, as their bits. `b` is n x k; it is not needed after the call.
//
// # Safety
// `engine` is null or not closed; `b` has n * k elements; `weights` may be written.
rocket_npu_status rocket_npu_load_f16(const rocket_npu_engine *engine,
                                      size_t n,
                                      size_t k,
                                      const uint16_t *b,
                                      rocket_npu_weights **weights);

// Loads floats and quantises them to 8-bit integers with a scale for each row, as the activations
// will be. `rotated` spreads outliers over a row, which is more accurate. `b` is n x k; it is not
// needed after the call.
//
// A row whose largest magnitude is below 127 * 2^-126 (1.5e-36) becomes zeros, because its scale
// would be subnormal. A rotation adds up numbers of a row: it may overflow if they exceed
// 3.4e38 / sqrt(k).
//
// # Safety
// `engine` is null or not closed; `b` has n * k elements; `weights` may be written.
rocket_npu_status rocket_npu_load_w8a8(const rocket_npu_engine *engine,
                                       size_t n,
                                       size_t k,
                                       const float *b,
                                       bool rotated,
                                       rocket_npu_weights **weights);

// Frees weights; does nothing for null.
//
// # Safety
// `weights` is null, or weights that are not freed and that no other call uses.
void rocket_npu_free_weights(rocket_npu_weights *weights);

// Plans a matmul of m rows of activations with these weights.
//
// # Safety
// `weights` is null or not freed; `matmul` may be written.
rocket_npu_status rocket_npu_prepare(const rocket_npu_weights *weights,
                                     size_t m,
                                     rocket_npu_matmul **matmul);

// Multiplies 8-bit integers by weights of rocket_npu_load_i8(). `a` is m x k; `c`, m x n, gets the
// exact sums.
//
// # Safety
// `matmul` is null or not freed; `a` has m * k elements, `c` m * n. No other thread accesses `c`
// or changes `a` during the call.
rocket_npu_status rocket_npu_run_i8(const rocket_npu_matmul *matmul, const int8_t *a, int32_t *c);

// Multiplies binary16 numbers by weights of rocket_npu_load_f16(). `a` is m x k, `c` is m x n.
//
// # Safety
// `matmul` is null or not freed; `a` has m * k elements, `c` m * n. No other thread accesses `c`
// or changes `a` during the call.
rocket_npu_status rocket_npu_run_f16(const rocket_npu_matmul *matmul, const uint16_t *a, float *c);

// Multiplies floats by weights of rocket_npu_load_w8a8(). `a` is m x k, `c` is m x n.
//
// # Safety
// `matmul` is null or not freed; `a` has m * k elements, `c` m * n. No other thread accesses `c`
// or changes `a` during the call.
rocket_npu_status rocket_npu_run_f32(const rocket_npu_matmul *matmul, const float *a, float *c);

// Frees a planned matmul; does nothing for null.
//
// # Safety
// `matmul` is null, or a planned matmul that is not freed and that no other call uses.
void rocket_npu_free_matmul(rocket_npu_matmul *matmul);

// Computes attention. For head h and row r, q is the query; k and v are the keys and values of its
// KV head:
//
//     s[n] = scale * (q . k[n])              with softcap c: c * tanh(s[n] / c)
//     s[n] = s[n] + slopes[h] * mask[r][n]
//     p[n] = exp(s[n])
//     out  = sum of p[n] * v[n] / (sum of p[n] + exp(sinks[h]))
//
// A row that sees no key gives zeros. A key or value that the mask hides from a row has no effect
// on that row, even if it is a NaN. If a visible key or its value contains a NaN or infinity, the
// row's result is NaN. Scores are rounded to binary16.
//
// Returns ROCKET_NPU_STATUS_INVALID, and writes nothing, if sizes do not fit each other or
// one NPU job cannot hold the keys.
//
// # Safety
// `engine` is null or not closed. `attention` is null or has pointers to as many elements as its
// sizes and strides say. No other thread changes them, or accesses `out`, during the call; `out`
// does not overlap another operand.
rocket_npu_status rocket_npu_attend(const rocket_npu_engine *engine,
                                    const rocket_npu_attention *attention);

// Text of this thread's latest error; empty if no call has failed. The string is valid until the
// next call of this thread fails.
const char *rocket_npu_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ROCKET_NPU_H */
