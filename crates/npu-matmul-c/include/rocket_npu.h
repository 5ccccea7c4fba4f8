/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Matrix products on the NPU of the RK3588: C = A x B^T, with A of m x k
 * (activations), B of n x k (weights: a row for each output channel) and C of m x n,
 * row after row. And attention, of a layer's heads at once.
 *
 * All functions may be called by several threads at once; only to free a handle while
 * another call has it is an error. Handles keep what they are made of: they may be freed
 * in any order. Those that can fail return a status; rocket_npu_error() has the reason.
 */


#ifndef ROCKET_NPU_H
#define ROCKET_NPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How a call ended.
typedef enum {
  // It did its work.
  ROCKET_NPU_STATUS_OK = 0,
  // An argument makes no sense; nothing was done.
  ROCKET_NPU_STATUS_INVALID = 1,
  // There is no such device, or it cannot be opened.
  ROCKET_NPU_STATUS_NO_DEVICE = 2,
  // The device or its driver failed, or memory is short.
  ROCKET_NPU_STATUS_FAILED = 3,
  // An error of this library: please report it.
  ROCKET_NPU_STATUS_INTERNAL = 4,
} rocket_npu_status;

// A device and what computes on it.
typedef struct rocket_npu_engine rocket_npu_engine;

// Weights and a number of rows, planned.
typedef struct rocket_npu_product rocket_npu_product;

// Weights in the device's memory.
typedef struct rocket_npu_weights rocket_npu_weights;

// The operands of rocket_npu_attend(): attention of a batch of rows for all heads of a
// layer. Sizes and strides count elements. Numbers of 16 bits are binary16, as their
// bits.
//
// The elements of a vector lie together. The vector of head h and row (or key) r begins
// h * head_stride + r * row_stride elements behind the first one, so that any order of
// heads and rows can be given, and a stride of 0 repeats a vector.
typedef struct {
  // Heads of the queries.
  size_t heads;
  // Heads of keys and values; they divide `heads`. Heads of queries that share one
  // follow each other.
  size_t kv_heads;
  // Rows: queries of a head.
  size_t rows;
  // Keys of a head.
  size_t keys;
  // Elements of a query and of a key.
  size_t head_dim;
  // Elements of a value.
  size_t value_dim;
  // Queries: a vector of head_dim elements for each head and row.
  const float *q;
  // From a head to the next.
  size_t q_head_stride;
  // From a row to the next.
  size_t q_row_stride;
  // Keys: a vector of head_dim elements for each KV head and key.
  const uint16_t *k;
  // From a head to the next.
  size_t k_head_stride;
  // From a key to the next.
  size_t k_row_stride;
  // Values: a vector of value_dim elements for each KV head and key.
  const uint16_t *v;
  // From a head to the next.
  size_t v_head_stride;
  // From a key to the next.
  size_t v_row_stride;
  // Null, or what is added to the scores: for each row a vector of `keys` elements.
  // Minus infinity hides the key from the row.
  const uint16_t *mask;
  // Heads of the mask: 1 if all heads have the same; head h has that of
  // h % mask_heads. Not read without a mask, like its strides.
  size_t mask_heads;
  // From a head of the mask to the next.
  size_t mask_head_stride;
  // From a row to the next.
  size_t mask_row_stride;
  // Null, or for each head what its mask is multiplied by (ALiBi).
  const float *slopes;
  // Null, or for each head a score that takes part in the softmax and has no value.
  const float *sinks;
  // What dot products are multiplied by, mostly 1 / sqrt(head_dim).
  float scale;
  // The bound c of c * tanh(score / c), before the mask is added; 0 for none.
  float softcap;
  // The result: rows x heads x value_dim elements without gaps.
  float *out;
} rocket_npu_attention;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens a device: the path of a node (`/dev/accel/accel0`), `model` for the software
// model, or `auto` for the NPU, or the model where there is none. Null is what the
// environment variable ROCKET_DEVICE says, else `auto`.
//
// # Safety
// `device` is null or a string that ends with a zero; `engine` may be written.
rocket_npu_status rocket_npu_open(const char *device, rocket_npu_engine **engine);

// Whether it is the software model, which is much slower than a CPU. False of null.
//
// # Safety
// `engine` is null or an engine that is not closed.
bool rocket_npu_is_model(const rocket_npu_engine *engine);

// Closes an engine; null is none.
//
// # Safety
// `engine` is null, or an engine that is not closed and that no other call has.
void rocket_npu_close(rocket_npu_engine *engine);

// Loads 8-bit integers, for products that are exact: k of up to 131,071, since sums
// have 32 bits. `b` is n x k, and is not needed after the call.
//
// # Safety
// `engine` is null or not closed; `b` has n * k elements; `weights` may be written.
rocket_npu_status rocket_npu_load_i8(const rocket_npu_engine *engine,
                                     size_t n,
                                     size_t k,
                                     const int8_t *b,
                                     rocket_npu_weights **weights);

// Loads binary16 numbers, as their bits. `b` is n x k, and is not needed after the call.
//
// # Safety
// `engine` is null or not closed; `b` has n * k elements; `weights` may be written.
rocket_npu_status rocket_npu_load_f16(const rocket_npu_engine *engine,
                                      size_t n,
                                      size_t k,
                                      const uint16_t *b,
                                      rocket_npu_weights **weights);

// Loads floats, which become 8-bit integers with a scale for each row, as the
// activations will. `rotated` spreads outliers over a row, which loses less. `b` is
// n x k, and is not needed after the call.
//
// A row whose largest magnitude is below 127 * 2^-126 (1.5e-36) becomes zeros: its
// scale would be no normal number. A rotation adds up a row: with numbers above
// 3.4e38 / sqrt(k) it can overflow.
//
// # Safety
// `engine` is null or not closed; `b` has n * k elements; `weights` may be written.
rocket_npu_status rocket_npu_load_w8a8(const rocket_npu_engine *engine,
                                       size_t n,
                                       size_t k,
                                       const float *b,
                                       bool rotated,
                                       rocket_npu_weights **weights);

// Frees weights; null is none.
//
// # Safety
// `weights` is null, or weights that are not freed and that no other call has.
void rocket_npu_free_weights(rocket_npu_weights *weights);

// Plans products of m rows of activations with these weights.
//
// # Safety
// `weights` is null or not freed; `product` may be written.
rocket_npu_status rocket_npu_prepare(const rocket_npu_weights *weights,
                                     size_t m,
                                     rocket_npu_product **product);

// Multiplies 8-bit integers with weights of rocket_npu_load_i8(). `a` is m x k, `c` is
// m x n: the exact sums.
//
// # Safety
// `product` is null or not freed; `a` has m * k elements, `c` m * n, and no other
// thread looks at these.
rocket_npu_status rocket_npu_run_i8(const rocket_npu_product *product, const int8_t *a, int32_t *c);

// Multiplies binary16 numbers with weights of rocket_npu_load_f16(). `a` is m x k, `c`
// is m x n.
//
// # Safety
// `product` is null or not freed; `a` has m * k elements, `c` m * n, and no other
// thread looks at these.
rocket_npu_status rocket_npu_run_f16(const rocket_npu_product *product,
                                     const uint16_t *a,
                                     float *c);

// Multiplies floats with weights of rocket_npu_load_w8a8(). `a` is m x k, `c` is m x n.
//
// # Safety
// `product` is null or not freed; `a` has m * k elements, `c` m * n, and no other
// thread looks at these.
rocket_npu_status rocket_npu_run_f32(const rocket_npu_product *product, const float *a, float *c);

// Frees a product; null is none.
//
// # Safety
// `product` is null, or a product that is not freed and that no other call has.
void rocket_npu_free_product(rocket_npu_product *product);

// Computes attention: for head h and row r, with its query q and the keys k and values
// v of its KV head,
//
//     s[n] = scale * (q . k[n])              with softcap c: c * tanh(s[n] / c)
//     s[n] = s[n] + slopes[h] * mask[r][n]
//     p[n] = exp(s[n])
//     out  = sum of p[n] * v[n] / (sum of p[n] + exp(sinks[h]))
//
// A row that sees no key gives zeros. Keys and values that a mask hides from a row do
// not reach its result, whatever they are; a row that sees a key with a NaN or an
// infinity in its vector or in its value gives NaN. Scores are rounded to binary16.
//
// Invalid: sizes that do not fit each other, and more keys than a job of the NPU can
// have. Nothing was written then.
//
// # Safety
// `engine` is null or not closed. `attention` is null or has pointers to as many
// elements as its sizes and strides say, which no other thread looks at if they are
// written; `out` has no element of another operand.
rocket_npu_status rocket_npu_attend(const rocket_npu_engine *engine,
                                    const rocket_npu_attention *attention);

// Why the latest call of this thread that failed did so: a sentence, empty if none
// has. It stays valid until the next call of this thread fails.
const char *rocket_npu_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ROCKET_NPU_H */
