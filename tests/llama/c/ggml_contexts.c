// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Many contexts of one process: each with backends and a scheduler of its own,
// as llama.cpp's contexts have them, computed from several threads at once.
//
//     ggml_contexts LIBGGML [DIRECTORY]
//
// The arguments are those of ggml_host.c but for the first. Prints how many contexts that share
// their weights computed what the CPU does while all of them existed, then the
// same of contexts with weights of their own that come and go in rounds, and
// what memory and file descriptors the process had after an early round and
// after the last. The status is 0 unless something that every ggml can do
// fails.

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

#include "ggml_net.h"

enum { CONTEXTS = 64, THREADS = 4, ROUNDS = 64, EARLY_ROUND = 8 };

static void *rocket, *cpu;
// What the CPU computes with the weights of FIRST_SEED.
static float *expected;

struct context {
    void *backends[2];
    void *scheduler;
    struct net *net;
    bool good;
};

static void open_context(struct context *context, struct net *net) {
    context->backends[0] = ggml_backend_dev_init(rocket, NULL);
    context->backends[1] = ggml_backend_dev_init(cpu, NULL);
    require(context->backends[0] && context->backends[1], "ggml_backend_dev_init");
    // One thread each: many threads of the CPU's say nothing about the NPU's.
    set_n_threads_t set_n_threads;
    *(void **)&set_n_threads = offered(cpu, "ggml_backend_set_n_threads");
    require(set_n_threads, "ggml_backend_set_n_threads");
    set_n_threads(context->backends[1], 1);
    context->scheduler = new_scheduler(context->backends, 2);
    context->net = net;
    context->good = false;
}

static void close_context(struct context *context) {
    ggml_backend_sched_free(context->scheduler);
    ggml_backend_free(context->backends[0]);
    ggml_backend_free(context->backends[1]);
}

static void compute(struct context *context) {
    char on[64];
    float *got = run(context->net, context->scheduler, on, sizeof on);
    require(got, "aborted");
    context->good =
        distance(got, expected, MIDDLE * ROWS) <= LIMIT && begins(on, OURS);
    free(got);
}

// The contexts of one thread.
struct share {
    struct context *contexts;
    int count;
};

static void *compute_share(void *data) {
    struct share *share = data;
    for (int i = 0; i < share->count; i++) {
        compute(&share->contexts[i]);
    }
    return NULL;
}

// One context that comes and goes, with its weights.
static void *live(void *data) {
    struct context *context = data;
    struct net net = new_net(choose_buffer_type(cpu, TYPE_F16), TYPE_F16, FIRST_SEED);
    open_context(context, &net);
    compute(context);
    close_context(context);
    free_net(&net);
    return NULL;
}

static int count_good(const struct context *contexts, int count) {
    int good = 0;
    for (int i = 0; i < count; i++) {
        good += contexts[i].good;
    }
    return good;
}

// All contexts at once.
static void together(void) {
    static struct context contexts[CONTEXTS];
    struct net net = new_net(choose_buffer_type(cpu, TYPE_F16), TYPE_F16, FIRST_SEED);
    for (int i = 0; i < CONTEXTS; i++) {
        open_context(&contexts[i], &net);
    }
    pthread_t threads[THREADS];
    struct share shares[THREADS];
    for (int i = 0; i < THREADS; i++) {
        shares[i] = (struct share){&contexts[i * CONTEXTS / THREADS], CONTEXTS / THREADS};
        require(!pthread_create(&threads[i], NULL, compute_share, &shares[i]), "pthread_create");
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < CONTEXTS; i++) {
        close_context(&contexts[i]);
    }
    free_net(&net);
    printf("together %d of %d\n", count_good(contexts, CONTEXTS), CONTEXTS);
}

static int count_files(void) {
    int count = 0;
    DIR *files = opendir("/proc/self/fd");
    require(files, "/proc/self/fd");
    while (readdir(files)) {
        count++;
    }
    closedir(files);
    return count;
}

static long resident_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    require(file && fscanf(file, "%*d %ld", &pages) == 1, "/proc/self/statm");
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

// Contexts that come and go.
static void rounds(void) {
    int good = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        pthread_t threads[THREADS];
        struct context contexts[THREADS];
        for (int i = 0; i < THREADS; i++) {
            require(!pthread_create(&threads[i], NULL, live, &contexts[i]), "pthread_create");
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
        good += count_good(contexts, THREADS);
        if (round == EARLY_ROUND || round == ROUNDS) {
            printf("after %d: %ld KiB, %d files\n", round, resident_kib(), count_files());
        }
    }
    printf("rounds %d of %d\n", good, ROUNDS * THREADS);
}

int main(int count, char **arguments) {
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: ggml_contexts LIBGGML [DIRECTORY]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    find_functions(arguments[1]);
    if (count == 3) {
        ggml_backend_load_all_from_path(arguments[2]);
    } else {
        ggml_backend_load_all();
    }
    find_both(&cpu, &rocket);
    expected = expect(TYPE_F16, FIRST_SEED, cpu);
    together();
    rounds();
    free(expected);
    printf("end\n");
    return 0;
}
