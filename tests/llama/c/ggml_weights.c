// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Weights that come or change in ways of which backends are not told.
//
//     ggml_weights LIBGGML
//
// Prints one line for each: how far the matmuls are from the CPU's with the same weights, and which
// backend computes them. The status is 0 unless something that every ggml can do fails.

#include "ggml_net.h"

static void *backends[2], *scheduler, *rocket, *cpu;

// A program that reads a file straight into the memory of a tensor.
static void write_by_hand(void *tensor, const void *bytes, size_t size) {
    memcpy(ggml_get_data(tensor), bytes, size);
}

// Computes with `net`, whose weights are now those of `seed`.
static void compare(const char *what, struct net *net, uint32_t seed) {
    char on[64];
    float *expected = expect(net->type, seed, cpu);
    float *got = run(net, scheduler, on, sizeof on);
    require(got, "aborted");
    printf("%s: %.3g on %s\n", what, distance(got, expected, MIDDLE * ROWS), on);
    free(got);
    free(expected);
}

// The encoder of images of llama.cpp loads its model so: after its backends are made.
static void read_late(void) {
    struct net net = allocate_net(ggml_backend_dev_buffer_type(cpu), TYPE_F16);
    set_weights(&net, FIRST_SEED, write_by_hand);
    compare("read late", &net, FIRST_SEED);
    free_net(&net);
}

// The same with weights that ggml puts where they belong.
static void set_late(void) {
    struct net net = new_net(choose_buffer_type(cpu, TYPE_Q4_0), TYPE_Q4_0, FIRST_SEED);
    compare("set late", &net, FIRST_SEED);
    free_net(&net);
}

// A graph copies another tensor into one of F16.
static void write_by_graph(void *tensor, const void *bytes, size_t size) {
    void *context = new_context();
    int64_t rows = (int64_t)(size / (K * sizeof(uint16_t)));
    void *source = ggml_new_tensor_2d(context, TYPE_F16, K, rows);
    ggml_set_input(source);
    void *copy = ggml_cpy(context, source, tensor);
    ggml_set_output(copy);
    void *graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, copy);
    ggml_backend_sched_reset(scheduler);
    require(ggml_backend_sched_alloc_graph(scheduler, graph), "ggml_backend_sched_alloc_graph");
    ggml_backend_tensor_set(source, bytes, 0, size);
    require(ggml_backend_sched_graph_compute(scheduler, graph) == STATUS_SUCCESS,
            "ggml_backend_sched_graph_compute");
    ggml_free(context);
}

// Weights that were used change.
static void change(const char *before, const char *after, write_t write) {
    struct net net = new_net(ggml_backend_dev_buffer_type(cpu), TYPE_F16, FIRST_SEED);
    compare(before, &net, FIRST_SEED);
    set_weights(&net, SECOND_SEED, write);
    compare(after, &net, SECOND_SEED);
    free_net(&net);
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: ggml_weights LIBGGML\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    find_functions(arguments[1]);
    ggml_backend_load_all();
    find_both(&cpu, &rocket);
    backends[0] = ggml_backend_dev_init(rocket, NULL);
    backends[1] = ggml_backend_dev_init(cpu, NULL);
    require(backends[0] && backends[1], "ggml_backend_dev_init");
    scheduler = new_scheduler(backends, 2);
    read_late();
    set_late();
    change("before a graph", "written by a graph", write_by_graph);
    change("before a hand", "written by hand", write_by_hand);
    ggml_backend_sched_free(scheduler);
    ggml_backend_free(backends[0]);
    ggml_backend_free(backends[1]);
    printf("end\n");
    return 0;
}
