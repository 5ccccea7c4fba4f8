// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A host of ggml backends, the way node-llama-cpp is one: loads ggml with
// RTLD_LOCAL, lets it load its backends, and computes matmuls of weights of
// several types on our device and on the CPU.
//
//     ggml_host LIMIT LIBGGML [DIRECTORY]
//
// LIMIT is how far matmuls may be from the CPU's: mean square of the difference,
// in units of the mean square of the CPU's. LIBGGML is libggml.so or what it is
// called there; DIRECTORY is where its CPU backends are, else ggml searches by
// itself. Prints one line a fact, the
// first word of which says which; the status is 0 unless something that every
// ggml can do fails.

#include <dirent.h>
#include <time.h>

#include "ggml_net.h"

static double limit;

// Weights that lie in memory already, as a model's file is mapped.
static struct net lend_net(void *device, int type, uint32_t seed) {
    enum { ALIGNMENT = 4096 };
    struct net net = describe_net(type);
    void *bytes[2];
    size_t sizes[2];
    quantize(net.first, type, K, K, seed, &bytes[0], &sizes[0]);
    quantize(net.second, type, MIDDLE, K, seed + 1, &bytes[1], &sizes[1]);
    size_t total = (sizes[0] + sizes[1] + 2 * ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    net.lent = aligned_alloc(ALIGNMENT, total);
    require(net.lent, "memory");
    char *second = (char *)net.lent + (sizes[0] + 63) / 64 * 64;
    memcpy(net.lent, bytes[0], sizes[0]);
    memcpy(second, bytes[1], sizes[1]);
    free(bytes[0]);
    free(bytes[1]);
    net.weights = ggml_backend_dev_buffer_from_host_ptr(device, net.lent, total, sizes[0]);
    require(net.weights, "ggml_backend_dev_buffer_from_host_ptr");
    ggml_backend_buffer_set_usage(net.weights, USAGE_WEIGHTS);
    require(ggml_backend_tensor_alloc(net.weights, net.first, net.lent) == STATUS_SUCCESS,
            "ggml_backend_tensor_alloc");
    require(ggml_backend_tensor_alloc(net.weights, net.second, second) == STATUS_SUCCESS,
            "ggml_backend_tensor_alloc");
    return net;
}

// Computes three times and says how far each result is from the CPU's: with
// fresh weights, with those that are packed by then, and (not where they are
// lent) after others were written over them.
static void compare(const char *name, int type, bool lent, void *rocket, void *cpu) {
    void *both[] = {ggml_backend_dev_init(rocket, NULL), ggml_backend_dev_init(cpu, NULL)};
    require(both[0] && both[1], "ggml_backend_dev_init");
    struct net net = lent ? lend_net(cpu, type, FIRST_SEED)
                          : new_net(choose_buffer_type(cpu, type), type, FIRST_SEED);
    const char *place = ggml_backend_buft_name(ggml_backend_buffer_get_type(net.weights));
    printf("matmul %s %s in %s:", name, lent ? "lent" : "own", place);

    bool good = true;
    void *scheduler = new_scheduler(both, 2);
    for (int round = 0; round < (lent ? 2 : 3); round++) {
        uint32_t seed = round < 2 ? FIRST_SEED : SECOND_SEED;
        if (round == 2) {
            set_weights(&net, seed, write_by_ggml);
        }
        char on[64];
        float *expected = expect(type, seed, cpu);
        float *got = run(&net, scheduler, on, sizeof on);
        require(got, "aborted");
        double error = distance(got, expected, MIDDLE * ROWS);
        printf(" %.3g on %s", error, on);
        good = good && error <= limit && begins(on, OURS);
        free(got);
        free(expected);
    }
    printf(" %s\n", good ? "good" : "BAD");
    ggml_backend_sched_free(scheduler);
    free_net(&net);
    ggml_backend_synchronize(both[0]);
    ggml_backend_free(both[0]);
    ggml_backend_free(both[1]);
}

// Attention of queries that a matmul makes, in heads that share half as many of keys and values.
enum { HEAD = 64, HEADS = K / HEAD, KV_HEADS = HEADS / 2, KEYS = 256, QUERIES = 64 };

// Keys and values in memory that holds no weights, as a KV cache.
struct cache {
    void *context, *buffer;
    void *keys, *values;
};

static struct cache new_cache(void *cpu) {
    struct cache cache = {.context = new_context()};
    void **both[] = {&cache.keys, &cache.values};
    for (int i = 0; i < 2; i++) {
        *both[i] = ggml_new_tensor_3d(cache.context, TYPE_F16, HEAD, KEYS, KV_HEADS);
    }
    void *buffer_type = ggml_backend_dev_buffer_type(cpu);
    cache.buffer = ggml_backend_alloc_ctx_tensors_from_buft(cache.context, buffer_type);
    require(cache.buffer, "ggml_backend_alloc_ctx_tensors_from_buft");
    for (int i = 0; i < 2; i++) {
        void *bytes;
        size_t size;
        quantize(*both[i], TYPE_F16, KEYS * KV_HEADS, HEAD, 11 + i, &bytes, &size);
        write_by_ggml(*both[i], bytes, size);
        free(bytes);
    }
    return cache;
}

// Runs attention between two matmuls; returns its MIDDLE x QUERIES results, and in `on` whose
// backend computed it.
static float *run_attention(struct net *net, struct cache *cache, void *scheduler, char *on,
                            size_t on_size) {
    void *context = new_context();
    void *x = ggml_new_tensor_2d(context, TYPE_F32, K, QUERIES);
    void *mask = ggml_new_tensor_2d(context, TYPE_F16, KEYS, QUERIES);
    ggml_set_input(x);
    ggml_set_input(mask);
    void *queries = ggml_mul_mat(context, net->first, x);
    queries = ggml_reshape_3d(context, queries, HEAD, HEADS, QUERIES);
    queries = ggml_permute(context, queries, 0, 2, 1, 3);
    // Scores that stay small, whatever the queries were computed in.
    void *attention = ggml_flash_attn_ext(context, queries, cache->keys, cache->values, mask,
                                          1.0f / 32, 0, 0);
    void *out = ggml_reshape_2d(context, attention, K, QUERIES);
    out = ggml_mul_mat(context, net->second, out);
    ggml_set_output(out);
    void *graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, out);
    ggml_backend_sched_reset(scheduler);
    require(ggml_backend_sched_alloc_graph(scheduler, graph), "ggml_backend_sched_alloc_graph");

    static float in[K * QUERIES];
    static uint16_t hidden[KEYS * QUERIES];
    float *results = malloc(sizeof(float) * MIDDLE * QUERIES);
    require(results, "memory");
    fill(in, K * QUERIES, 3);
    for (int row = 0; row < QUERIES; row++) {
        for (int key = 0; key < KEYS; key++) {
            enum { MINUS_INFINITY = 0xfc00 };
            hidden[row * KEYS + key] = key > KEYS - QUERIES + row ? MINUS_INFINITY : 0;
        }
    }
    ggml_backend_tensor_set(x, in, 0, sizeof in);
    ggml_backend_tensor_set(mask, hidden, 0, sizeof hidden);
    void *backend = ggml_backend_sched_get_tensor_backend(scheduler, attention);
    snprintf(on, on_size, "%s", backend ? ggml_backend_name(backend) : "nobody");
    require(ggml_backend_sched_graph_compute(scheduler, graph) == STATUS_SUCCESS,
            "ggml_backend_sched_graph_compute");
    ggml_backend_tensor_get(out, results, 0, sizeof(float) * MIDDLE * QUERIES);
    ggml_free(context);
    return results;
}

// Says how far attention is from the CPU's.
static void attend(void *rocket, void *cpu) {
    void *both[] = {ggml_backend_dev_init(rocket, NULL), ggml_backend_dev_init(cpu, NULL)};
    require(both[0] && both[1], "ggml_backend_dev_init");
    struct net net = new_net(ggml_backend_dev_buffer_type(cpu), TYPE_F16, FIRST_SEED);
    struct cache cache = new_cache(cpu);
    char on[64];
    float *results[2];
    for (int ours = 0; ours < 2; ours++) {
        void *scheduler = ours ? new_scheduler(both, 2) : new_scheduler(&both[1], 1);
        results[ours] = run_attention(&net, &cache, scheduler, on, sizeof on);
        ggml_backend_sched_free(scheduler);
    }
    double error = distance(results[1], results[0], MIDDLE * QUERIES);
    bool good = error <= limit && begins(on, OURS);
    printf("attention %.3g on %s %s\n", error, on, good ? "good" : "BAD");
    free(results[0]);
    free(results[1]);
    ggml_backend_buffer_free(cache.buffer);
    ggml_free(cache.context);
    free_net(&net);
    ggml_backend_free(both[0]);
    ggml_backend_free(both[1]);
}

// How many threads of this process have a name that begins with `prefix`.
static int count_threads(const char *prefix) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    require(tasks, "/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file) {
            count += fgets(name, sizeof name, file) && begins(name, prefix);
            fclose(file);
        }
    }
    closedir(tasks);
    return count;
}

// Waits until there are `expected` threads of the backend: they end a while
// after their pool. Prints how many there are then.
static void see_threads(int expected) {
    struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    int count = count_threads("rocket-");
    for (int left = 500; left > 0 && count != expected; left--) {
        nanosleep(&pause, NULL);
        count = count_threads("rocket-");
    }
    printf("threads %d of %d\n", count, expected);
}

// Counts how often it is asked, and says stop when that is `stop_at`.
struct questions {
    int asked, stop_at;
};

static bool ask(void *data) {
    struct questions *questions = data;
    return ++questions->asked == questions->stop_at;
}

// What programs set and ask beside the tables: threads, features, when to stop.
static void extras(void *rocket, void *cpu) {
    void *both[] = {ggml_backend_dev_init(rocket, NULL), ggml_backend_dev_init(cpu, NULL)};
    require(both[0] && both[1], "ggml_backend_dev_init");
    // Programs begin with the backend.
    void *device = ggml_backend_get_device(both[0]);
    set_n_threads_t set_n_threads;
    set_abort_callback_t set_abort_callback;
    get_features_t get_features;
    *(void **)&set_n_threads = offered(device, "ggml_backend_set_n_threads");
    *(void **)&set_abort_callback = offered(device, "ggml_backend_set_abort_callback");
    *(void **)&get_features = offered(device, "ggml_backend_get_features");
    require(set_n_threads && set_abort_callback && get_features, "a function is not offered");
    require(!offered(device, "ggml_backend_no_such_function"), "any function is offered");

    void *registry = ggml_backend_dev_backend_reg(rocket);
    for (const struct feature *feature = get_features(registry); feature->name; feature++) {
        printf("feature %s = %s\n", feature->name, feature->value);
    }

    struct net net = new_net(choose_buffer_type(cpu, TYPE_F16), TYPE_F16, FIRST_SEED);
    void *scheduler = new_scheduler(both, 2);
    char on[64];
    for (int threads = 1; threads <= 3; threads += 2) {
        set_n_threads(both[0], threads);
        free(run(&net, scheduler, on, sizeof on));
        see_threads(threads);
    }
    // Two matmuls: the first is asked about once, and is over when the second
    // is.
    struct questions questions = {0, 2};
    set_abort_callback(both[0], ask, &questions);
    float *out = run(&net, scheduler, on, sizeof on);
    printf("abort after %d: %s\n", questions.asked, out ? "computed" : "aborted");
    free(out);
    set_abort_callback(both[0], NULL, NULL);
    out = run(&net, scheduler, on, sizeof on);
    printf("abort after %d: %s\n", questions.asked - 2, out ? "computed" : "aborted");
    free(out);
    ggml_backend_sched_free(scheduler);
    free_net(&net);
    ggml_backend_free(both[0]);
    ggml_backend_free(both[1]);
    see_threads(0);
}

// Whether the CPU computes what it should with the second weights of a net.
static bool on_cpu(struct net *net, void *cpu) {
    void *backend = ggml_backend_dev_init(cpu, NULL);
    require(backend, "ggml_backend_dev_init");
    void *scheduler = new_scheduler(&backend, 1);
    char on[64];
    float *expected = expect(net->type, SECOND_SEED, cpu);
    float *got = run(net, scheduler, on, sizeof on);
    bool good = got && distance(got, expected, MIDDLE * ROWS) <= LIMIT;
    free(got);
    free(expected);
    ggml_backend_sched_free(scheduler);
    ggml_backend_free(backend);
    return good;
}

// Unloads the backend, whose threads may still run, and loads it once more.
static void load_again(void *rocket, void *cpu) {
    // Weights that outlive the backend: what it did to their buffer is called
    // when they are written, and when they are freed.
    void *buffer_type = choose_buffer_type(cpu, TYPE_F16);
    struct net left = new_net(buffer_type, TYPE_F16, FIRST_SEED);
    struct net freed = new_net(buffer_type, TYPE_F16, FIRST_SEED);
    ggml_backend_unload(ggml_backend_dev_backend_reg(rocket));
    require(!find_device(OURS, 0), "our device is listed after unloading");
    struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    nanosleep(&pause, NULL);
    set_weights(&left, SECOND_SEED, write_by_ggml);
    free_net(&freed);
    printf("left on_cpu %s\n", on_cpu(&left, cpu) ? "good" : "BAD");
    require(ggml_backend_load(getenv("GGML_BACKEND_PATH")), "ggml_backend_load");
    rocket = find_device(OURS, 0);
    require(rocket, "our device is not listed after loading again");
    compare("F16", TYPE_F16, false, rocket, cpu);
    free_net(&left);
    printf("loaded again\n");
}

int main(int count, char **arguments) {
    char *rest = NULL;
    limit = count < 2 ? 0 : strtod(arguments[1], &rest);
    if (count < 3 || count > 4 || *rest || !(limit > 0)) {
        fprintf(stderr, "usage: ggml_host LIMIT LIBGGML [DIRECTORY]\n");
        return 2;
    }
    // Whatever happens, what was printed until then is seen.
    setvbuf(stdout, NULL, _IOLBF, 0);
    find_functions(arguments[2]);
    printf("ggml %s\n", ggml_version());
    if (count == 4) {
        ggml_backend_load_all_from_path(arguments[3]);
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
    void *rocket = find_device(OURS, 0);
    if (rocket) {
        // Another one would make it a device that can hold parts of tensors.
        require(ggml_backend_dev_buffer_type(rocket) == ggml_backend_dev_buffer_type(cpu),
                "our device has a buffer type of its own");
        compare("F16", TYPE_F16, false, rocket, cpu);
        compare("F16", TYPE_F16, true, rocket, cpu);
        compare("Q8_0", TYPE_Q8_0, false, rocket, cpu);
        compare("Q8_0", TYPE_Q8_0, true, rocket, cpu);
        compare("Q4_0", TYPE_Q4_0, false, rocket, cpu);
        compare("Q4_K", TYPE_Q4_K, false, rocket, cpu);
        attend(rocket, cpu);
        extras(rocket, cpu);
        load_again(rocket, cpu);
    }
    printf("end\n");
    return 0;
}
