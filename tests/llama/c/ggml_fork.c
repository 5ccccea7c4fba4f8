// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Children of a process that computes on our device.
//
//     ggml_fork LIBGGML
//
// Prints one line for each child: whether what it computed is what the CPU computes, and whose
// backend had the first matmul; and at last a line for the parent, after its children are gone. A
// child has 60 seconds. The status is 0 unless something that every ggml can do fails.

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ggml_net.h"

static void *rocket, *cpu, *backends[2], *scheduler;
static struct net net;
static float *expected[2];

static void open_scheduler(void) {
    backends[0] = ggml_backend_dev_init(rocket, NULL);
    backends[1] = ggml_backend_dev_init(cpu, NULL);
    require(backends[0] && backends[1], "ggml_backend_dev_init");
    scheduler = new_scheduler(backends, 2);
}

static void close_scheduler(void) {
    ggml_backend_sched_free(scheduler);
    ggml_backend_free(backends[0]);
    ggml_backend_free(backends[1]);
}

static void compare(const char *who, struct net *with, int seed) {
    char on[64];
    float *got = run(with, scheduler, on, sizeof on);
    require(got, "aborted");
    double error = distance(got, expected[seed], MIDDLE * ROWS);
    printf("%s: %s on %s\n", who, error <= LIMIT ? "good" : "BAD", on);
    free(got);
}

// A graph that its scheduler has divided among the backends: a program computes it again and again.
static struct {
    void *context, *scheduler, *graph, *x, *out;
} kept;

static void keep_graph(void) {
    kept.context = new_context();
    kept.scheduler = new_scheduler(backends, 2);
    kept.x = ggml_new_tensor_2d(kept.context, TYPE_F32, K, ROWS);
    ggml_set_input(kept.x);
    void *first = ggml_mul_mat(kept.context, net.first, kept.x);
    kept.out = ggml_mul_mat(kept.context, net.second, ggml_add(kept.context, first, kept.x));
    ggml_set_output(kept.out);
    kept.graph = ggml_new_graph(kept.context);
    ggml_build_forward_expand(kept.graph, kept.out);
    require(ggml_backend_sched_alloc_graph(kept.scheduler, kept.graph),
            "ggml_backend_sched_alloc_graph");
    printf("kept graph on %s\n", ggml_backend_name(ggml_backend_sched_get_tensor_backend(
                                     kept.scheduler, first)));
}

static void *compute_kept(void *data) {
    static float in[K * ROWS], out[MIDDLE * ROWS];
    fill(in, K * ROWS, 3);
    ggml_backend_tensor_set(kept.x, in, 0, sizeof in);
    require(ggml_backend_sched_graph_compute(kept.scheduler, kept.graph) == STATUS_SUCCESS,
            "ggml_backend_sched_graph_compute");
    ggml_backend_tensor_get(kept.out, out, 0, sizeof out);
    double error = distance(out, expected[0], MIDDLE * ROWS);
    printf("kept graph: %s\n", error <= LIMIT ? "good" : "BAD");
    return data;
}

// The weights and the scheduler of the parent.
static void *compute_inherited(void *data) {
    (void)data;
    compare("inherited", &net, 0);
    return NULL;
}

// The same, and then new weights in their place and new backends.
static void *compute_all(void *data) {
    compute_inherited(data);
    set_weights(&net, SECOND_SEED, write_by_ggml);
    compare("rewritten", &net, 1);
    free_net(&net);
    close_scheduler();
    open_scheduler();
    struct net own = new_net(choose_buffer_type(cpu, TYPE_Q4_0), TYPE_Q4_0, FIRST_SEED);
    compare("new", &own, 0);
    free_net(&own);
    close_scheduler();
    return NULL;
}

// Runs `body` on a new thread: OpenMP's threads of this one are those of the parent.
static void in_child(void *(*body)(void *)) {
    fflush(stdout);
    pid_t child = fork();
    require(child >= 0, "fork");
    if (!child) {
        alarm(60);
        pthread_t thread;
        require(!pthread_create(&thread, NULL, body, NULL), "pthread_create");
        pthread_join(thread, NULL);
        exit(0);
    }
    int status;
    require(waitpid(child, &status, 0) == child, "waitpid");
    printf("child ended with %d\n", status);
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: ggml_fork LIBGGML\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    find_functions(arguments[1]);
    ggml_backend_load_all();
    find_both(&cpu, &rocket);
    expected[0] = expect(TYPE_Q4_0, FIRST_SEED, cpu);
    expected[1] = expect(TYPE_Q4_0, SECOND_SEED, cpu);
    open_scheduler();
    net = new_net(choose_buffer_type(cpu, TYPE_Q4_0), TYPE_Q4_0, FIRST_SEED);
    // Before the parent computes, and after.
    in_child(compute_all);
    compare("parent", &net, 0);
    keep_graph();
    compute_kept(NULL);
    in_child(compute_kept);
    in_child(compute_inherited);
    in_child(compute_all);
    compare("parent", &net, 0);
    compute_kept(NULL);
    ggml_backend_sched_free(kept.scheduler);
    ggml_free(kept.context);
    free_net(&net);
    close_scheduler();
    printf("end\n");
    return 0;
}
