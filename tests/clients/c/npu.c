/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "npu.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATOM = 16, BANK = 32768, BANKS = 12, TAPS = 9 };

/* What depends on the types. */
struct format {
    unsigned in, out;         /* precision codes of operands and of C */
    unsigned in_bits;         /* of an element */
    unsigned out_bytes;
    unsigned kernels;         /* of a weight group; it has 32 channels */
    unsigned qd, size_e, add; /* QD_EN, SIZE_E, SURFACE_ADD in pixels */
    unsigned to_half;         /* FP16 output */
    unsigned spare;           /* banks for data that are not needed */
};

static const struct format FORMATS[KINDS] = {
    [INT8] = {0, 4, 8, 4, 32, 0, 7, 8, 0, 1},
    [FP16] = {2, 5, 16, 4, 16, 1, 3, 4, 0, 0},
    [HALF] = {2, 2, 16, 2, 16, 1, 1, 2, 1, 0},
    [INT4] = {6, 1, 4, 2, 64, 0, 7, 8, 0, 0},
    [CONV] = {0, 4, 8, 4, 32, 0, 7, 8, 0, 1},
};

static unsigned up(unsigned a, unsigned b) { return (a + b - 1) / b; }
static unsigned taps(const struct shape *s) { return s->kind == CONV ? TAPS : 1; }

size_t a_bytes(const struct shape *s)
{
    return (size_t)s->m * s->k * FORMATS[s->kind].in_bits / 8;
}

size_t b_bytes(const struct shape *s)
{
    return (size_t)s->n * s->k * taps(s) * FORMATS[s->kind].in_bits / 8;
}

size_t c_bytes(const struct shape *s)
{
    return (size_t)s->m * s->n * FORMATS[s->kind].out_bytes;
}

struct writer {
    uint64_t *words;
    unsigned count;
};

static void put(struct writer *w, unsigned target, unsigned offset, uint32_t value)
{
    w->words[w->count++] = (uint64_t)target << 48 | (uint64_t)value << 16 | offset;
}

/* Registers from `first` to `last`, all 0. */
static void zeroes(struct writer *w, unsigned target, unsigned first, unsigned last)
{
    for (unsigned offset = first; offset <= last; offset += 4)
        put(w, target, offset, 0);
}

enum { PC = 0x0101, CNA = 0x0201, CORE = 0x0801, DPU = 0x1001, RDMA = 0x2001 };

void program(const struct shape *s, uint32_t a, uint32_t b, uint32_t c,
             uint32_t next, uint64_t *words)
{
    const struct format *f = &FORMATS[s->kind];
    struct writer writer = {words, 0}, *w = &writer;
    unsigned kernel = s->kind == CONV ? 3 : 1, pad = kernel / 2;
    unsigned width = s->kind == CONV ? s->width : 1;
    unsigned height = s->kind == CONV ? s->height : s->m;
    unsigned pixels = width * height;
    unsigned per_kernel = s->k * taps(s) * f->in_bits / 8;
    unsigned banks = up((unsigned)a_bytes(s), BANK) + f->spare;
    unsigned entries = up(width * s->k * f->in_bits / 8, 64);
    unsigned surface = height > 4 ? width * (height - 4) : 0;
    unsigned last = (height - 1) << 16 | (width - 1);
    unsigned e = f->size_e;

    put(w, DPU, 0x4004, 0xe);
    put(w, RDMA, 0x5004, 0xe);
    put(w, CNA, 0x100c, f->in << 7 | f->in << 4);
    put(w, CNA, 0x1010, (height + 1) << 4);
    put(w, CNA, 0x1014, 1 << 3 | 1);
    put(w, CNA, 0x1020, width << 16 | height);
    put(w, CNA, 0x1024, (s->k - 1) << 16 | s->k);
    put(w, CNA, 0x1028, width);
    put(w, CNA, 0x102c, pixels);
    put(w, CNA, 0x1030, per_kernel * s->n);
    put(w, CNA, 0x1034, per_kernel);
    put(w, CNA, 0x1038, kernel << 24 | kernel << 16 | s->n);
    put(w, CNA, 0x1040, (BANKS - banks) << 4 | banks);
    put(w, CNA, 0x1044, entries);
    put(w, CNA, 0x104c, 0xb);
    for (unsigned offset = 0x1050; offset <= 0x105c; offset += 4)
        put(w, CNA, offset, 1 << 16);
    zeroes(w, CNA, 0x1060, 0x1064);
    put(w, CNA, 0x1068, pad << 4 | pad);
    put(w, CNA, 0x1070, a);
    put(w, CNA, 0x1074, 0);
    put(w, CNA, 0x1078, 15 << 16 | 15);
    put(w, CNA, 0x107c, 4 * width);
    put(w, CNA, 0x1080, surface);
    put(w, CNA, 0x1084, width << 16 | height);
    put(w, CNA, 0x1088, s->k);
    zeroes(w, CNA, 0x1100, 0x1104);
    put(w, CNA, 0x1110, b);
    zeroes(w, CNA, 0x1140, 0x1184);
    put(w, CORE, 0x3010, f->in << 8 | f->qd);
    put(w, CORE, 0x3014, last);
    put(w, CORE, 0x3018, s->n - 1);
    put(w, CORE, 0x301c, 0);
    put(w, CORE, 0x3030, 0);
    put(w, DPU, 0x400c, 15 << 5 | 2 << 1);
    put(w, DPU, 0x4010, f->out << 29 | f->in << 26 | f->in);
    put(w, DPU, 0x4014, 0);
    put(w, DPU, 0x4020, c);
    put(w, DPU, 0x4024, pixels << 4);
    put(w, DPU, 0x4030, width - 1);
    put(w, DPU, 0x4034, height - 1);
    put(w, DPU, 0x4038, 0);
    put(w, DPU, 0x403c, (s->n - 1) << 16 | (s->n - 1));
    put(w, DPU, 0x4040, 0x53);
    zeroes(w, DPU, 0x4044, 0x404c);
    put(w, DPU, 0x4050, e << 8 | e << 5 | e << 2 | 1 << 1);
    put(w, DPU, 0x4054, 0);
    put(w, DPU, 0x4058, s->n - 1);
    put(w, DPU, 0x405c, last);
    put(w, DPU, 0x4060, 0x53);
    zeroes(w, DPU, 0x4064, 0x406c);
    put(w, DPU, 0x4070, 0x383);
    put(w, DPU, 0x4074, 0);
    put(w, DPU, 0x4078, 1);
    zeroes(w, DPU, 0x407c, 0x4080);
    put(w, DPU, 0x4084, f->to_half << 16 | 1);
    put(w, DPU, 0x4088, 0);
    zeroes(w, DPU, 0x4090, 0x40ac);
    put(w, DPU, 0x40c0, (f->add * pixels) << 4);
    put(w, DPU, 0x40c4, 0);
    zeroes(w, DPU, 0x4100, 0x412c);
    put(w, RDMA, 0x500c, width - 1);
    put(w, RDMA, 0x5010, height - 1);
    put(w, RDMA, 0x5014, s->n - 1);
    zeroes(w, RDMA, 0x5018, 0x5020);
    zeroes(w, RDMA, 0x5028, 0x502c);
    put(w, RDMA, 0x5034, 1);
    put(w, RDMA, 0x5038, 0);
    put(w, RDMA, 0x5040, 0);
    put(w, RDMA, 0x5044, 0x7810 + 8 * f->to_half);
    zeroes(w, RDMA, 0x5048, 0x504c);
    put(w, RDMA, 0x5064, 0);
    put(w, RDMA, 0x5068, 0x01010101);
    put(w, RDMA, 0x506c, 0);
    if (next)
        put(w, PC, 0x0010, next);
    else
        w->words[w->count++] = 0;
    put(w, PC, 0x0014, next ? PROGRAM_WORDS / 2 - 1 : 0);
    put(w, 0x0041, 0, 0);
    put(w, 0x0081, 0x0008, 0x1d);
    EXPECT(w->count == PROGRAM_WORDS, "%u words", w->count);
}

/* Half precision of an integer from -2048 to 2048. */
uint16_t half_of(int value)
{
    unsigned sign = value < 0 ? 0x8000 : 0, size = (unsigned)abs(value), exponent = 0;
    if (size == 0)
        return 0;
    while (size >> (exponent + 1))
        exponent++;
    return (uint16_t)(sign | (exponent + 15) << 10 | ((size << (10 - exponent)) & 0x3ff));
}

static int32_t of_half(uint16_t bits)
{
    int exponent = (bits >> 10 & 31) - 15;
    double size = exponent == -15 ? 0 : ldexp(1024 + (bits & 0x3ff), exponent - 10);
    EXPECT(size == floor(size), "0x%04x is no integer", bits);
    return (int32_t)(bits & 0x8000 ? -size : size);
}

/* The place of an element, in elements, and its value there. */
static void put_element(const struct format *f, uint8_t *bytes, size_t at, int value)
{
    if (f->in_bits == 4) {
        unsigned shift = at % 2 * 4;
        bytes[at / 2] = (uint8_t)((bytes[at / 2] & ~(15 << shift)) | (value & 15) << shift);
    } else if (f->in_bits == 8) {
        bytes[at] = (uint8_t)value;
    } else {
        uint16_t half = half_of(value);
        memcpy(bytes + 2 * at, &half, sizeof half);
    }
}

void put_a(const struct shape *s, uint8_t *a, unsigned m, unsigned k, int value)
{
    const struct format *f = &FORMATS[s->kind];
    unsigned channels = 8 * ATOM / f->in_bits;
    put_element(f, a, ((size_t)(k / channels) * s->m + m) * channels + k % channels, value);
}

void put_b(const struct shape *s, uint8_t *b, unsigned n, unsigned k, unsigned tap, int value)
{
    const struct format *f = &FORMATS[s->kind];
    unsigned g = f->kernels, i = 32;
    size_t group = (size_t)(n / g) * (s->k / i) + k / i;
    put_element(f, b, (group * taps(s) + tap) * g * i + n % g * i + k % i, value);
}

int32_t c_element(const struct shape *s, const uint8_t *c, unsigned m, unsigned n)
{
    const struct format *f = &FORMATS[s->kind];
    unsigned channels = ATOM / f->out_bytes;
    const uint8_t *at = c + ((size_t)(n / channels) * s->m + m) * ATOM + n % channels * f->out_bytes;
    int32_t word;
    int16_t half;
    float number;
    switch (s->kind) {
    case INT4:
        memcpy(&half, at, sizeof half);
        return half;
    case HALF:
        memcpy(&half, at, sizeof half);
        return of_half((uint16_t)half);
    case FP16:
        memcpy(&number, at, sizeof number);
        EXPECT(number == floorf(number), "%g is no integer", (double)number);
        return (int32_t)number;
    default:
        memcpy(&word, at, sizeof word);
        return word;
    }
}

/* Numerical Recipes' linear congruential generator, upper bits. */
static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

struct shape shape_of(enum kind kind)
{
    if (kind == CONV)
        return (struct shape){CONV, 16 * 12, 64, 64, 16, 12};
    return (struct shape){kind, 64, 64, 64, 0, 0};
}

static int limit(enum kind kind)
{
    return kind == INT4 ? 8 : kind == FP16 ? 16 : kind == HALF ? 4 : 128;
}

/* C by the definition of a matmul, or of a convolution. */
static void expect(struct work *work, const int *a, const int *b)
{
    const struct shape *s = &work->shape;
    for (unsigned m = 0; m < s->m; m++)
        for (unsigned n = 0; n < s->n; n++) {
            int32_t sum = 0;
            for (unsigned tap = 0; tap < taps(s); tap++) {
                long pixel = m;
                if (s->kind == CONV) {
                    long x = m % s->width + (long)(tap % 3) - 1;
                    long y = m / s->width + (long)(tap / 3) - 1;
                    if (x < 0 || y < 0 || x >= s->width || y >= s->height)
                        continue;
                    pixel = y * s->width + x;
                }
                for (unsigned k = 0; k < s->k; k++)
                    sum += a[pixel * s->k + k] * b[(n * taps(s) + tap) * s->k + k];
            }
            work->expected[(size_t)m * s->n + n] = sum;
        }
}

void work_new(struct work *work, struct device *device, struct shape shape, unsigned seed)
{
    struct shape *s = &shape;
    size_t a_count = (size_t)s->m * s->k, b_count = (size_t)s->n * s->k * taps(s);
    int *a = malloc(a_count * sizeof *a), *b = malloc(b_count * sizeof *b);
    uint8_t *a_data = calloc(1, a_bytes(s)), *b_data = calloc(1, b_bytes(s));
    uint64_t words[PROGRAM_WORDS];
    int size = limit(s->kind);

    memset(work, 0, sizeof *work);
    work->shape = shape;
    work->device = device;
    work->expected = malloc(sizeof(int32_t) * s->m * s->n);
    EXPECT(a && b && a_data && b_data && work->expected, "no memory");
    for (unsigned m = 0; m < s->m; m++)
        for (unsigned k = 0; k < s->k; k++) {
            int value = (int)(next_random(&seed) % (2 * size)) - size;
            put_a(s, a_data, m, k, a[m * s->k + k] = value);
        }
    for (unsigned n = 0; n < s->n; n++)
        for (unsigned tap = 0; tap < taps(s); tap++)
            for (unsigned k = 0; k < s->k; k++) {
                int value = (int)(next_random(&seed) % (2 * size)) - size;
                put_b(s, b_data, n, k, tap, b[(n * taps(s) + tap) * s->k + k] = value);
            }
    expect(work, a, b);
    work->a = bo_new(device, a_bytes(s));
    work->b = bo_new(device, b_bytes(s));
    work->c = bo_new(device, c_bytes(s));
    work->regcmd = bo_new(device, sizeof words);
    bo_write(&work->a, a_data, a_bytes(s));
    bo_write(&work->b, b_data, b_bytes(s));
    program(s, work->a.address, work->b.address, work->c.address, 0, words);
    bo_write(&work->regcmd, words, sizeof words);
    free(a);
    free(b);
    free(a_data);
    free(b_data);
}

void work_submit(struct work *work)
{
    work->task = (struct task){work->regcmd.address, PROGRAM_WORDS};
    work->in[0] = work->a.handle;
    work->in[1] = work->b.handle;
    work->in[2] = work->regcmd.handle;
    work->out[0] = work->c.handle;
    work->job = (struct job){
        .tasks = (uintptr_t)&work->task,
        .in_bo_handles = (uintptr_t)work->in,
        .out_bo_handles = (uintptr_t)work->out,
        .task_count = 1,
        .task_struct_size = sizeof(struct task),
        .in_bo_handle_count = 3,
        .out_bo_handle_count = 1,
    };
    int result = submit_jobs(work->device, &work->job, 1, sizeof work->job);
    EXPECT(result == 0, "SUBMIT: %d", result);
}

void work_check(struct work *work)
{
    const struct shape *s = &work->shape;
    uint8_t *c = malloc(c_bytes(s));
    EXPECT(c, "no memory");
    bo_read(&work->c, c, c_bytes(s));
    for (unsigned m = 0; m < s->m; m++)
        for (unsigned n = 0; n < s->n; n++) {
            int32_t is = c_element(s, c, m, n), should = work->expected[(size_t)m * s->n + n];
            EXPECT(is == should, "kind %d: C[%u][%u] is %d, not %d", s->kind, m, n, is, should);
        }
    free(c);
}

void work_free(struct work *work)
{
    bo_close(&work->a);
    bo_close(&work->b);
    bo_close(&work->c);
    bo_close(&work->regcmd);
    free(work->expected);
}

void matmul(struct device *device, enum kind kind, unsigned seed)
{
    struct work work;
    work_new(&work, device, shape_of(kind), seed);
    work_submit(&work);
    work_check(&work);
    work_free(&work);
}
