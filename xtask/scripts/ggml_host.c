// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A host of ggml backends, the way node-llama-cpp is one: loads ggml with
// RTLD_LOCAL, lets it load its backends, and computes products of weights of
// several types on ROCKET0 and on the CPU.
//
//     ggml_host LIBGGML [DIRECTORY]
//
// LIBGGML is libggml.so or what it is called there; DIRECTORY is where its CPU
// backends are, else ggml searches by itself. Prints one line a fact, the
// first word of which says which; the status is 0 unless something that every
// ggml can do fails. The declarations are those of ggml.h and ggml-backend.h
// from 0.9.0 to 0.27.0, which agree in what is used here.

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q8_0 = 8 };
enum { DEVICE_CPU = 0 };
enum { USAGE_WEIGHTS = 1 };
enum { STATUS_SUCCESS = 0 };

struct init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};

// Every function that is called: result, name, arguments.
#define FUNCTIONS(F)                                                                              \
    F(const char *, ggml_version, (void))                                                         \
    F(void *, ggml_init, (struct init_params))                                                    \
    F(void, ggml_free, (void *))                                                                  \
    F(void *, ggml_new_tensor_2d, (void *, int, int64_t, int64_t))                                \
    F(void *, ggml_mul_mat, (void *, void *, void *))                                             \
    F(void *, ggml_add, (void *, void *, void *))                                                 \
    F(void *, ggml_set_name, (void *, const char *))                                              \
    F(void, ggml_set_input, (void *))                                                             \
    F(void, ggml_set_output, (void *))                                                            \
    F(size_t, ggml_nbytes, (const void *))                                                        \
    F(void *, ggml_new_graph, (void *))                                                           \
    F(void, ggml_build_forward_expand, (void *, void *))                                          \
    F(size_t, ggml_quantize_chunk,                                                                \
      (int, const float *, void *, int64_t, int64_t, int64_t, const float *))                     \
    F(void, ggml_backend_load_all, (void))                                                        \
    F(void, ggml_backend_load_all_from_path, (const char *))                                      \
    F(size_t, ggml_backend_dev_count, (void))                                                     \
    F(void *, ggml_backend_dev_get, (size_t))                                                     \
    F(const char *, ggml_backend_dev_name, (void *))                                              \
    F(const char *, ggml_backend_dev_description, (void *))                                       \
    F(int, ggml_backend_dev_type, (void *))                                                       \
    F(void *, ggml_backend_dev_init, (void *, const char *))                                      \
    F(void *, ggml_backend_dev_buffer_type, (void *))                                             \
    F(void *, ggml_backend_dev_buffer_from_host_ptr, (void *, void *, size_t, size_t))            \
    F(const char *, ggml_backend_name, (void *))                                                  \
    F(void, ggml_backend_free, (void *))                                                          \
    F(void, ggml_backend_synchronize, (void *))                                                   \
    F(size_t, ggml_backend_get_alignment, (void *))                                               \
    F(void *, ggml_backend_alloc_ctx_tensors_from_buft, (void *, void *))                         \
    F(void *, ggml_backend_buffer_get_type, (void *))                                             \
    F(void *, ggml_backend_buffer_get_base, (void *))                                             \
    F(size_t, ggml_backend_buffer_get_size, (void *))                                             \
    F(void, ggml_backend_buffer_set_usage, (void *, int))                                         \
    F(void, ggml_backend_buffer_clear, (void *, uint8_t))                                         \
    F(void, ggml_backend_buffer_free, (void *))                                                   \
    F(int, ggml_backend_tensor_alloc, (void *, void *, void *))                                   \
    F(void, ggml_backend_tensor_set, (void *, const void *, size_t, size_t))                      \
    F(void, ggml_backend_tensor_get, (const void *, void *, size_t, size_t))                      \
    F(void, ggml_backend_tensor_memset, (void *, uint8_t, size_t, size_t))                        \
    F(void, ggml_backend_tensor_copy, (void *, void *))                                           \
    F(void *, ggml_backend_sched_new, (void **, void **, int, size_t, bool, bool))                \
    F(void, ggml_backend_sched_free, (void *))                                                    \
    F(void, ggml_backend_sched_reset, (void *))                                                   \
    F(bool, ggml_backend_sched_alloc_graph, (void *, void *))                                     \
    F(int, ggml_backend_sched_graph_compute, (void *, void *))                                    \
    F(void *, ggml_backend_sched_get_tensor_backend, (void *, void *))

#define DECLARE(result, name, arguments) static result(*name) arguments;
FUNCTIONS(DECLARE)

// Since 0.10; absent before.
static void (*ggml_backend_tensor_set_2d)(void *, const void *, size_t, size_t, size_t, size_t,
                                          size_t);

// Where the tests of ggml itself draw the line for products.
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
    *(void **)&ggml_backend_tensor_set_2d = dlsym(library, "ggml_backend_tensor_set_2d");
}

static void *find_device(const char *name, int type) {
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        void *device = ggml_backend_dev_get(i);
        bool found = name ? !strcmp(ggml_backend_dev_name(device), name)
                          : ggml_backend_dev_type(device) == type;
        if (found) {
            return device;
        }
    }
    return NULL;
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

// A layer and another, with a sum between that is not a product:
// second * (first * x + x), as far as the shapes go.
struct net {
    void *weights_context;
    void *weights;
    void *first, *second;
};

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

// The weights in a buffer of `device`, or with `lent` set in memory lent to it.
static struct net new_net(void *device, int type, void **lent) {
    struct net net = {.weights_context = new_context()};
    net.first = ggml_new_tensor_2d(net.weights_context, type, K, K);
    net.second = ggml_new_tensor_2d(net.weights_context, type, K, MIDDLE);
    ggml_set_name(net.first, "first.weight");
    ggml_set_name(net.second, "second.weight");
    void *bytes[2];
    size_t sizes[2];
    quantize(net.first, type, K, K, 1, &bytes[0], &sizes[0]);
    quantize(net.second, type, MIDDLE, K, 2, &bytes[1], &sizes[1]);
    if (lent) {
        // As a model's file is mapped: each tensor where its data is already.
        const size_t alignment = 4096;
        size_t total = (sizes[0] + sizes[1] + 2 * alignment) / alignment * alignment;
        *lent = aligned_alloc(alignment, total);
        require(*lent, "memory");
        char *second = (char *)*lent + (sizes[0] + 63) / 64 * 64;
        memcpy(*lent, bytes[0], sizes[0]);
        memcpy(second, bytes[1], sizes[1]);
        net.weights = ggml_backend_dev_buffer_from_host_ptr(device, *lent, total, sizes[0]);
        require(net.weights, "ggml_backend_dev_buffer_from_host_ptr");
        ggml_backend_buffer_set_usage(net.weights, USAGE_WEIGHTS);
        require(ggml_backend_tensor_alloc(net.weights, net.first, *lent) == STATUS_SUCCESS,
                "ggml_backend_tensor_alloc");
        require(ggml_backend_tensor_alloc(net.weights, net.second, second) == STATUS_SUCCESS,
                "ggml_backend_tensor_alloc");
    } else {
        void *buffer_type = ggml_backend_dev_buffer_type(device);
        net.weights = ggml_backend_alloc_ctx_tensors_from_buft(net.weights_context, buffer_type);
        require(net.weights, "ggml_backend_alloc_ctx_tensors_from_buft");
        ggml_backend_buffer_set_usage(net.weights, USAGE_WEIGHTS);
        ggml_backend_tensor_set(net.first, bytes[0], 0, sizes[0]);
        ggml_backend_tensor_set(net.second, bytes[1], 0, sizes[1]);
    }
    free(bytes[0]);
    free(bytes[1]);
    return net;
}

static void free_net(struct net *net) {
    ggml_backend_buffer_free(net->weights);
    ggml_free(net->weights_context);
}

// Runs the graph; returns its MIDDLE x ROWS results, and in `on` whose backend
// computed the first product.
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
    void *backend = ggml_backend_sched_get_tensor_backend(scheduler, first);
    snprintf(on, on_size, "%s", backend ? ggml_backend_name(backend) : "nobody");
    require(ggml_backend_sched_graph_compute(scheduler, graph) == STATUS_SUCCESS,
            "ggml_backend_sched_graph_compute");
    ggml_backend_tensor_get(second, out, 0, sizeof(float) * MIDDLE * ROWS);
    free(in);
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

static void compare(const char *name, int type, bool lent, void *rocket, void *cpu) {
    char on_rocket[64], on_cpu[64];
    void *cpu_backend = ggml_backend_dev_init(cpu, NULL);
    void *rocket_backend = ggml_backend_dev_init(rocket, NULL);
    require(cpu_backend && rocket_backend, "ggml_backend_dev_init");
    void *both[] = {rocket_backend, cpu_backend};

    struct net on_the_cpu = new_net(cpu, type, NULL);
    void *scheduler = new_scheduler(&cpu_backend, 1);
    float *expected = run(&on_the_cpu, scheduler, on_cpu, sizeof on_cpu);
    ggml_backend_sched_free(scheduler);
    free_net(&on_the_cpu);

    void *memory = NULL;
    struct net net = new_net(rocket, type, lent ? &memory : NULL);
    scheduler = new_scheduler(both, 2);
    float *got = run(&net, scheduler, on_rocket, sizeof on_rocket);
    double first = distance(got, expected, MIDDLE * ROWS);
    // Once more: the packed weights are kept from the first time.
    char again[64];
    free(got);
    got = run(&net, scheduler, again, sizeof again);
    double second = distance(got, expected, MIDDLE * ROWS);
    ggml_backend_sched_free(scheduler);
    free_net(&net);
    free(memory);
    ggml_backend_synchronize(rocket_backend);
    ggml_backend_free(rocket_backend);
    ggml_backend_free(cpu_backend);

    bool good = first <= LIMIT && second <= LIMIT && !strcmp(on_rocket, "ROCKET0") &&
                !strcmp(again, "ROCKET0") && strcmp(on_cpu, "ROCKET0");
    printf("product %s %s %s nmse %.3g %.3g %s\n", name, lent ? "lent" : "own", on_rocket, first,
           second, good ? "good" : "BAD");
    free(got);
    free(expected);
}

// The functions that move data, in a buffer of the device's own type.
static void move_data(void *rocket, void *cpu) {
    enum { COUNT = 64 };
    uint8_t in[COUNT * 4], out[COUNT * 4], expected[COUNT * 4];
    for (size_t i = 0; i < sizeof in; i++) {
        in[i] = (uint8_t)(i * 7 + 1);
    }
    void *context = new_context();
    void *tensor = ggml_new_tensor_2d(context, TYPE_F32, COUNT, 1);
    void *buffer_type = ggml_backend_dev_buffer_type(rocket);
    void *buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, buffer_type);
    require(buffer, "ggml_backend_alloc_ctx_tensors_from_buft");
    require(ggml_backend_buffer_get_base(buffer), "ggml_backend_buffer_get_base");
    require(ggml_backend_buffer_get_size(buffer) >= sizeof in, "ggml_backend_buffer_get_size");

    ggml_backend_buffer_clear(buffer, 0x5a);
    memset(expected, 0x5a, sizeof expected);
    ggml_backend_tensor_get(tensor, out, 0, sizeof out);
    require(!memcmp(out, expected, sizeof out), "what was cleared");
    ggml_backend_tensor_set(tensor, in, 0, sizeof in);
    ggml_backend_tensor_memset(tensor, 0xa5, 16, 32);
    memcpy(expected, in, sizeof in);
    memset(expected + 16, 0xa5, 32);
    if (ggml_backend_tensor_set_2d) {
        // Four times 8 bytes, every 32nd, from data that lie close together.
        ggml_backend_tensor_set_2d(tensor, in, 64, 8, 4, 32, 8);
        for (size_t i = 0; i < 4; i++) {
            memcpy(expected + 64 + i * 32, in + i * 8, 8);
        }
    }
    ggml_backend_tensor_get(tensor, out, 0, sizeof out);
    require(!memcmp(out, expected, sizeof out), "what was set");

    void *other_context = new_context();
    void *other = ggml_new_tensor_2d(other_context, TYPE_F32, COUNT, 1);
    void *other_buffer = ggml_backend_alloc_ctx_tensors_from_buft(
        other_context, ggml_backend_dev_buffer_type(cpu));
    require(other_buffer, "ggml_backend_alloc_ctx_tensors_from_buft");
    ggml_backend_tensor_copy(tensor, other);
    ggml_backend_tensor_get(other, out, 0, sizeof out);
    require(!memcmp(out, expected, sizeof out), "what was copied to the CPU");
    ggml_backend_tensor_set(other, in, 0, sizeof in);
    ggml_backend_tensor_copy(other, tensor);
    ggml_backend_tensor_get(tensor, out, 0, sizeof out);
    require(!memcmp(out, in, sizeof out), "what was copied from the CPU");

    ggml_backend_buffer_free(other_buffer);
    ggml_free(other_context);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
    printf("data moved%s\n", ggml_backend_tensor_set_2d ? ", in strides too" : "");
}

int main(int count, char **arguments) {
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: ggml_host LIBGGML [DIRECTORY]\n");
        return 2;
    }
    // Whatever happens, what was printed until then is seen.
    setvbuf(stdout, NULL, _IOLBF, 0);
    find_functions(arguments[1]);
    printf("ggml %s\n", ggml_version());
    if (count == 3) {
        ggml_backend_load_all_from_path(arguments[2]);
    } else {
        ggml_backend_load_all();
    }
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        void *device = ggml_backend_dev_get(i);
        printf("device %s %d %s\n", ggml_backend_dev_name(device), ggml_backend_dev_type(device),
               ggml_backend_dev_description(device));
    }
    void *cpu = find_device(NULL, DEVICE_CPU);
    require(cpu, "no CPU backend");
    void *rocket = find_device("ROCKET0", 0);
    if (rocket) {
        move_data(rocket, cpu);
        compare("F16", TYPE_F16, false, rocket, cpu);
        compare("F16", TYPE_F16, true, rocket, cpu);
        compare("Q8_0", TYPE_Q8_0, false, rocket, cpu);
        compare("Q8_0", TYPE_Q8_0, true, rocket, cpu);
    }
    printf("end\n");
    return 0;
}
