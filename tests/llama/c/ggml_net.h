// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the hosts in C have in common: the functions of a ggml that is loaded
// with RTLD_LOCAL, and a small net that one of its backends or several compute.
// The declarations are those of ggml.h and ggml-backend.h from 0.9.0 to 0.27.0,
// which agree in what is used here.

#pragma once

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q4_0 = 2, TYPE_Q8_0 = 8, TYPE_Q4_K = 12 };
enum { DEVICE_CPU = 0 };
enum { USAGE_WEIGHTS = 1 };
enum { STATUS_SUCCESS = 0, STATUS_ABORTED = 1 };

struct init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};

// The beginning of struct ggml_tensor.
struct tensor {
    int type;
    void *buffer;
};

struct feature {
    const char *name;
    const char *value;
};

// What a backend may offer beyond its tables, found by name.
typedef void **(*get_extra_bufts_t)(void *);
typedef void (*set_n_threads_t)(void *, int);
typedef bool (*abort_callback_t)(void *);
typedef void (*set_abort_callback_t)(void *, abort_callback_t, void *);
typedef const struct feature *(*get_features_t)(void *);

// Every function that is called: result, name, arguments.
#define FUNCTIONS(F)                                                                              \
    F(const char *, ggml_version, (void))                                                         \
    F(void *, ggml_init, (struct init_params))                                                    \
    F(void, ggml_free, (void *))                                                                  \
    F(void *, ggml_new_tensor_2d, (void *, int, int64_t, int64_t))                                \
    F(void *, ggml_new_tensor_3d, (void *, int, int64_t, int64_t, int64_t))                       \
    F(void *, ggml_mul_mat, (void *, void *, void *))                                             \
    F(void *, ggml_reshape_2d, (void *, void *, int64_t, int64_t))                                \
    F(void *, ggml_reshape_3d, (void *, void *, int64_t, int64_t, int64_t))                       \
    F(void *, ggml_permute, (void *, void *, int, int, int, int))                                 \
    F(void *, ggml_flash_attn_ext, (void *, void *, void *, void *, void *, float, float, float)) \
    F(void *, ggml_add, (void *, void *, void *))                                                 \
    F(void *, ggml_cpy, (void *, void *, void *))                                                 \
    F(void *, ggml_set_name, (void *, const char *))                                              \
    F(void, ggml_set_input, (void *))                                                             \
    F(void, ggml_set_output, (void *))                                                            \
    F(size_t, ggml_nbytes, (const void *))                                                        \
    F(void *, ggml_get_data, (const void *))                                                      \
    F(void *, ggml_new_graph, (void *))                                                           \
    F(void, ggml_build_forward_expand, (void *, void *))                                          \
    F(size_t, ggml_quantize_chunk,                                                                \
      (int, const float *, void *, int64_t, int64_t, int64_t, const float *))                     \
    F(void *, ggml_backend_load, (const char *))                                                  \
    F(void, ggml_backend_unload, (void *))                                                        \
    F(void, ggml_backend_load_all, (void))                                                        \
    F(void, ggml_backend_load_all_from_path, (const char *))                                      \
    F(size_t, ggml_backend_dev_count, (void))                                                     \
    F(void *, ggml_backend_dev_get, (size_t))                                                     \
    F(const char *, ggml_backend_dev_name, (void *))                                              \
    F(const char *, ggml_backend_dev_description, (void *))                                       \
    F(int, ggml_backend_dev_type, (void *))                                                       \
    F(bool, ggml_backend_dev_supports_op, (void *, const void *))                                 \
    F(void *, ggml_backend_dev_init, (void *, const char *))                                      \
    F(void *, ggml_backend_dev_backend_reg, (void *))                                             \
    F(void *, ggml_backend_reg_get_proc_address, (void *, const char *))                          \
    F(void *, ggml_backend_dev_buffer_type, (void *))                                             \
    F(void *, ggml_backend_dev_buffer_from_host_ptr, (void *, void *, size_t, size_t))            \
    F(void *, ggml_backend_get_device, (void *))                                                  \
    F(const char *, ggml_backend_name, (void *))                                                  \
    F(void, ggml_backend_free, (void *))                                                          \
    F(void, ggml_backend_synchronize, (void *))                                                   \
    F(void *, ggml_backend_alloc_ctx_tensors_from_buft, (void *, void *))                         \
    F(void *, ggml_backend_buft_alloc_buffer, (void *, size_t))                                   \
    F(const char *, ggml_backend_buft_name, (void *))                                             \
    F(void *, ggml_backend_buffer_get_type, (void *))                                             \
    F(void, ggml_backend_buffer_set_usage, (void *, int))                                         \
    F(void, ggml_backend_buffer_clear, (void *, uint8_t))                                         \
    F(void, ggml_backend_buffer_free, (void *))                                                   \
    F(int, ggml_backend_tensor_alloc, (void *, void *, void *))                                   \
    F(void, ggml_backend_tensor_set, (void *, const void *, size_t, size_t))                      \
    F(void, ggml_backend_tensor_get, (const void *, void *, size_t, size_t))                      \
    F(void *, ggml_backend_sched_new, (void **, void **, int, size_t, bool, bool))                \
    F(void, ggml_backend_sched_free, (void *))                                                    \
    F(void, ggml_backend_sched_reset, (void *))                                                   \
    F(bool, ggml_backend_sched_alloc_graph, (void *, void *))                                     \
    F(int, ggml_backend_sched_graph_compute, (void *, void *))                                    \
    F(void *, ggml_backend_sched_get_tensor_backend, (void *, void *))

#define DECLARE(result, name, arguments) static result(*name) arguments;
FUNCTIONS(DECLARE)

// Where the tests of ggml itself draw the line for matmuls.
#define LIMIT 5e-4

enum { K = 256, MIDDLE = 192, ROWS = 40 };

static void fail(const char *what) {
    printf("error %s\n", what);
    exit(1);
}

static void require(bool condition, const char *what) {
    if (!condition) {
        fail(what);
    }
}

static void find_functions(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fail(dlerror());
    }
    // A handle finds what its dependencies export, too: libggml-base.
#define FIND(result, name, arguments)                                                             \
    *(void **)&name = dlsym(library, #name);                                                      \
    if (!name) {                                                                                  \
        fail("no function " #name);                                                               \
    }
    FUNCTIONS(FIND)
}

// How the name of our device begins: ROCKET0, or ROCKET-MODEL0.
#define OURS "ROCKET"

static bool begins(const char *text, const char *beginning) {
    return !strncmp(text, beginning, strlen(beginning));
}

static void *find_device(const char *beginning, int type) {
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        void *device = ggml_backend_dev_get(i);
        bool found = beginning ? begins(ggml_backend_dev_name(device), beginning)
                               : ggml_backend_dev_type(device) == type;
        if (found) {
            return device;
        }
    }
    return NULL;
}

// Finds the CPU's device and ours, which must be there.
static inline void find_both(void **cpu, void **rocket) {
    *cpu = find_device(NULL, DEVICE_CPU);
    *rocket = find_device(OURS, 0);
    require(*cpu && *rocket, "no CPU backend, or no device of ours");
}

// Numbers in -1..1 that repeat from run to run.
static void fill(float *values, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)seed / 2147483648.0f;
    }
}

static void *new_context(void) {
    struct init_params params = {.mem_size = 4 << 20, .mem_buffer = NULL, .no_alloc = true};
    void *context = ggml_init(params);
    require(context, "ggml_init");
    return context;
}

static void *new_scheduler(void **backends, int count) {
    void *scheduler = ggml_backend_sched_new(backends, NULL, count, 2048, false, true);
    require(scheduler, "ggml_backend_sched_new");
    return scheduler;
}

// A layer and another, with a sum between that is not a matmul:
// second * (first * x + x), as far as the shapes go.
struct net {
    int type;
    void *weights_context;
    void *weights;
    void *first, *second;
    // Not the host's, but lent to it.
    void *lent;
};

static void *offered(void *device, const char *name) {
    return ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), name);
}

// Whether `device` computes matmuls of weights in buffers of that type.
static bool takes(void *device, void *buffer_type, int type) {
    void *context = new_context();
    struct tensor *weights = ggml_new_tensor_2d(context, type, K, K);
    void *matmul = ggml_mul_mat(context, weights, ggml_new_tensor_2d(context, TYPE_F32, K, 512));
    weights->buffer = ggml_backend_buft_alloc_buffer(buffer_type, 0);
    bool answer = ggml_backend_dev_supports_op(device, matmul);
    ggml_backend_buffer_free(weights->buffer);
    ggml_free(context);
    return answer;
}

// Where llama.cpp puts weights of that type: the buffer types in which the CPU
// rearranges them, or plain memory.
static void *choose_buffer_type(void *cpu, int type) {
    get_extra_bufts_t get_extra_bufts;
    *(void **)&get_extra_bufts = offered(cpu, "ggml_backend_dev_get_extra_bufts");
    void **extra = get_extra_bufts ? get_extra_bufts(cpu) : NULL;
    for (; extra && *extra; extra++) {
        if (takes(cpu, *extra, type)) {
            return *extra;
        }
    }
    return ggml_backend_dev_buffer_type(cpu);
}

static void quantize(void *tensor, int type, int64_t rows, int64_t row, uint32_t seed,
                     void **bytes, size_t *size) {
    float *values = malloc((size_t)(rows * row) * sizeof(float));
    *size = ggml_nbytes(tensor);
    *bytes = malloc(*size);
    require(values && *bytes, "memory");
    fill(values, (size_t)(rows * row), seed);
    size_t written = ggml_quantize_chunk(type, values, *bytes, 0, rows, row, NULL);
    require(written == *size, "ggml_quantize_chunk");
    free(values);
}

static struct net describe_net(int type) {
    struct net net = {.type = type, .weights_context = new_context()};
    net.first = ggml_new_tensor_2d(net.weights_context, type, K, K);
    net.second = ggml_new_tensor_2d(net.weights_context, type, K, MIDDLE);
    ggml_set_name(net.first, "first.weight");
    ggml_set_name(net.second, "second.weight");
    return net;
}

// Writes into a tensor: as programs do, or straight into its bytes.
typedef void (*write_t)(void *tensor, const void *bytes, size_t size);

static void write_by_ggml(void *tensor, const void *bytes, size_t size) {
    ggml_backend_tensor_set(tensor, bytes, 0, size);
}

static void set_weights(struct net *net, uint32_t seed, write_t write) {
    struct {
        void *tensor;
        int64_t rows;
    } all[] = {{net->first, K}, {net->second, MIDDLE}};
    for (int i = 0; i < 2; i++) {
        void *bytes;
        size_t size;
        quantize(all[i].tensor, net->type, all[i].rows, K, seed + i, &bytes, &size);
        write(all[i].tensor, bytes, size);
        free(bytes);
    }
}

// Weights in a buffer of that type, without data.
static struct net allocate_net(void *buffer_type, int type) {
    struct net net = describe_net(type);
    net.weights = ggml_backend_alloc_ctx_tensors_from_buft(net.weights_context, buffer_type);
    require(net.weights, "ggml_backend_alloc_ctx_tensors_from_buft");
    ggml_backend_buffer_set_usage(net.weights, USAGE_WEIGHTS);
    return net;
}

// The same with their data.
static struct net new_net(void *buffer_type, int type, uint32_t seed) {
    struct net net = allocate_net(buffer_type, type);
    ggml_backend_buffer_clear(net.weights, 0);
    set_weights(&net, seed, write_by_ggml);
    return net;
}

static void free_net(struct net *net) {
    ggml_backend_buffer_free(net->weights);
    ggml_free(net->weights_context);
    free(net->lent);
}

// Runs the graph; returns its MIDDLE x ROWS results, and in `on` whose backend
// computed the first matmul. NULL if it was aborted.
static float *run(struct net *net, void *scheduler, char *on, size_t on_size) {
    void *context = new_context();
    void *x = ggml_new_tensor_2d(context, TYPE_F32, K, ROWS);
    ggml_set_input(x);
    void *first = ggml_mul_mat(context, net->first, x);
    void *sum = ggml_add(context, first, x);
    void *second = ggml_mul_mat(context, net->second, sum);
    ggml_set_name(first, "first");
    ggml_set_name(second, "second");
    ggml_set_output(second);
    void *graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, second);
    ggml_backend_sched_reset(scheduler);
    require(ggml_backend_sched_alloc_graph(scheduler, graph), "ggml_backend_sched_alloc_graph");

    float *in = malloc(sizeof(float) * K * ROWS);
    float *out = malloc(sizeof(float) * MIDDLE * ROWS);
    require(in && out, "memory");
    fill(in, K * ROWS, 3);
    ggml_backend_tensor_set(x, in, 0, sizeof(float) * K * ROWS);
    free(in);
    void *backend = ggml_backend_sched_get_tensor_backend(scheduler, first);
    snprintf(on, on_size, "%s", backend ? ggml_backend_name(backend) : "nobody");
    int status = ggml_backend_sched_graph_compute(scheduler, graph);
    require(status == STATUS_SUCCESS || status == STATUS_ABORTED,
            "ggml_backend_sched_graph_compute");
    if (status == STATUS_SUCCESS) {
        ggml_backend_tensor_get(second, out, 0, sizeof(float) * MIDDLE * ROWS);
    } else {
        free(out);
        out = NULL;
    }
    ggml_free(context);
    return out;
}

// Mean square of the difference, in units of the mean square of `right`.
static double distance(const float *left, const float *right, size_t count) {
    double error = 0, scale = 0;
    for (size_t i = 0; i < count; i++) {
        error += ((double)left[i] - right[i]) * ((double)left[i] - right[i]);
        scale += (double)right[i] * right[i];
    }
    return error / scale;
}

enum { FIRST_SEED = 1, SECOND_SEED = 101 };

// What the CPU computes by itself.
static float *expect(int type, uint32_t seed, void *cpu) {
    char on[64];
    void *backend = ggml_backend_dev_init(cpu, NULL);
    require(backend, "ggml_backend_dev_init");
    struct net net = new_net(ggml_backend_dev_buffer_type(cpu), type, seed);
    void *scheduler = new_scheduler(&backend, 1);
    float *out = run(&net, scheduler, on, sizeof on);
    require(out && !strcmp(on, ggml_backend_name(backend)), "the CPU did not compute");
    ggml_backend_sched_free(scheduler);
    free_net(&net);
    ggml_backend_free(backend);
    return out;
}
