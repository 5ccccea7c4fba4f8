// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A program that gives up a graph of two matmuls, at each question whether it does.
//
//     ggml_abort LIBGGML
//
// Prints a line for each number of the question that it answers so, until the graph is computed
// before that question comes: then how far its result is from the CPU's.

#include "ggml_net.h"

// More questions than a graph can have.
enum { MOST = 64 };

// Counts how often it is asked, and says stop when that is `stop_at`.
struct questions {
    int asked, stop_at;
};

static bool ask(void *data) {
    struct questions *questions = data;
    return ++questions->asked == questions->stop_at;
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: ggml_abort LIBGGML\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    find_functions(arguments[1]);
    ggml_backend_load_all();
    void *cpu, *rocket;
    find_both(&cpu, &rocket);
    void *both[] = {ggml_backend_dev_init(rocket, NULL), ggml_backend_dev_init(cpu, NULL)};
    require(both[0] && both[1], "ggml_backend_dev_init");
    set_abort_callback_t set_abort_callback;
    *(void **)&set_abort_callback = offered(rocket, "ggml_backend_set_abort_callback");
    require(set_abort_callback, "no abort callback");
    float *expected = expect(TYPE_F16, FIRST_SEED, cpu);
    void *scheduler = new_scheduler(both, 2);
    struct net net = new_net(choose_buffer_type(cpu, TYPE_F16), TYPE_F16, FIRST_SEED);
    char on[64];
    for (int stop_at = 1; stop_at <= MOST; stop_at++) {
        struct questions questions = {0, stop_at};
        set_abort_callback(both[0], ask, &questions);
        float *got = run(&net, scheduler, on, sizeof on);
        if (got) {
            printf("asked %d, computed %.3g on %s\n", questions.asked,
                   distance(got, expected, MIDDLE * ROWS), on);
            free(got);
            break;
        }
        printf("asked %d, aborted\n", questions.asked);
    }
    ggml_backend_sched_free(scheduler);
    free_net(&net);
    ggml_backend_free(both[0]);
    ggml_backend_free(both[1]);
    free(expected);
    printf("end\n");
    return 0;
}
