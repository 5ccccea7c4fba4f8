/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Register programs of the NPU, made as librocketnpu makes them: every register
 * of CNA, CORE, DPU and DPU_RDMA, with DPU_RDMA enabled and its engines off. */
#ifndef NPU_H
#define NPU_H

#include "rocket.h"

enum { PROGRAM_WORDS = 126 };

enum kind {
    INT8, /* int8 x int8 -> int32 */
    FP16, /* fp16 x fp16 -> fp32 */
    HALF, /* fp16 x fp16 -> fp16 */
    INT4, /* int4 x int4 -> int16 */
    CONV, /* int8 3x3, padding 1 -> int32 */
    KINDS,
};

/* C[m][n] = A[m][k] x B[n][k]; of a convolution: m = width x height pixels,
 * k channels in, n channels out. */
struct shape {
    enum kind kind;
    unsigned m, k, n;
    unsigned width, height; /* CONV */
};

size_t a_bytes(const struct shape *shape);
size_t b_bytes(const struct shape *shape);
size_t c_bytes(const struct shape *shape);

/* Writes PROGRAM_WORDS words for operands at these addresses. `next` is where
 * the trailer says that another program follows, 0 for none. */
void program(const struct shape *shape, uint32_t a, uint32_t b, uint32_t c,
             uint32_t next, uint64_t *words);

/* A matmul with buffers, random operands and what is to come out. */
struct work {
    struct shape shape;
    struct device *device;
    struct bo a, b, c, regcmd;
    struct task task;
    struct job job;
    uint32_t in[3], out[1];
    int32_t *expected; /* [m][n] */
};

struct shape shape_of(enum kind kind);
void work_new(struct work *work, struct device *device, struct shape shape,
              unsigned seed);
void work_submit(struct work *work);
/* Waits, and compares all of C. */
void work_check(struct work *work);
void work_free(struct work *work);
/* All of it. */
void matmul(struct device *device, enum kind kind, unsigned seed);

/* Element of C, which are integers in all that is computed here. */
int32_t c_element(const struct shape *shape, const uint8_t *c, unsigned m,
                  unsigned n);
void put_a(const struct shape *shape, uint8_t *a, unsigned m, unsigned k,
           int value);
void put_b(const struct shape *shape, uint8_t *b, unsigned n, unsigned k,
           unsigned tap, int value);
uint16_t half_of(int value);

#endif
