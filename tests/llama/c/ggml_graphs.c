// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Random graphs: our device with the CPU against the CPU alone, and whole graphs against the same
// node by node.
//
//     ggml_graphs SEED SECONDS MOST LIBGGML
//
// Computes graphs from SEED on until SECONDS are over or MOST graphs are done. Weights stay for
// some graphs; then they are written again, as a whole, in part, from a tensor or by a graph, or
// freed and made again, mostly at the same addresses. Each graph has the same inputs on both sides.
// A graph whose results differ is printed, and a last line tells how many there were. The status is
// 0 unless something that every ggml can do fails.

#include <stdarg.h>
#include <time.h>

// The nets of the header have other users.
#pragma GCC diagnostic ignored "-Wunused-function"
#include "ggml_net.h"

#define MORE(F)                                                                                   \
    F(void *, ggml_new_tensor_1d, (void *, int, int64_t))                                         \
    F(void *, ggml_mul_mat_id, (void *, void *, void *, void *))                                  \
    F(void *, ggml_add_inplace, (void *, void *, void *))                                         \
    F(void *, ggml_mul, (void *, void *, void *))                                                 \
    F(void *, ggml_mul_inplace, (void *, void *, void *))                                         \
    F(void *, ggml_rms_norm, (void *, void *, float))                                             \
    F(void *, ggml_rms_norm_inplace, (void *, void *, float))                                     \
    F(void *, ggml_norm, (void *, void *, float))                                                 \
    F(void *, ggml_scale_inplace, (void *, void *, float))                                        \
    F(void *, ggml_silu, (void *, void *))                                                        \
    F(void *, ggml_rope, (void *, void *, void *, int, int))                                      \
    F(void *, ggml_rope_inplace, (void *, void *, void *, int, int))                              \
    F(void *, ggml_cont_2d, (void *, void *, int64_t, int64_t))                                   \
    F(void *, ggml_transpose, (void *, void *))                                                   \
    F(void *, ggml_concat, (void *, void *, void *, int))                                         \
    F(void *, ggml_cast, (void *, void *, int))                                                   \
    F(void *, ggml_get_rows, (void *, void *, void *))                                            \
    F(void *, ggml_set_rows, (void *, void *, void *, void *))                                    \
    F(void *, ggml_soft_max_ext, (void *, void *, void *, float, float))                          \
    F(void, ggml_flash_attn_ext_add_sinks, (void *, void *))                                      \
    F(void *, ggml_view_2d, (void *, void *, int64_t, int64_t, size_t, size_t))                   \
    F(void *, ggml_new_tensor_4d, (void *, int, int64_t, int64_t, int64_t, int64_t))              \
    F(void *, ggml_reshape_4d, (void *, void *, int64_t, int64_t, int64_t, int64_t))              \
    F(void *, ggml_view_4d,                                                                       \
      (void *, void *, int64_t, int64_t, int64_t, int64_t, size_t, size_t, size_t, size_t))       \
    F(void, ggml_backend_tensor_copy, (void *, void *))                                           \
    F(size_t, ggml_row_size, (int, int64_t))                                                      \
    F(const char *, ggml_type_name, (int))                                                        \
    F(void, ggml_backend_sched_set_eval_callback,                                                 \
      (void *, bool (*)(void *, bool, void *), void *))
MORE(DECLARE)

enum { TYPE_Q8 = 8, TYPE_I32 = 26, TYPE_I64 = 27, TYPE_BF16 = 30 };
// Types of weights. Those from Q2_K on have blocks of 256.
static const int TYPES[] = {0, 1, 30, 2, 3, 6, 7, 8, 20, 39, 10, 11, 12, 13, 14, 23};
enum { SMALL_BLOCKS = 10, ALL_TYPES = sizeof TYPES / sizeof *TYPES };

// Elements of rows.
static const int WIDTHS[] = {64, 128, 256};
enum { HEAD = 32, CONTEXT = 64, EXPERTS = 4, MOST_USED = 3 };

static uint64_t state;

static uint32_t any(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static void restart(uint64_t seed) {
    state = seed * 0x9e3779b97f4a7c15u + 0x1234567u;
    for (int i = 0; i < 8; i++) {
        any(2);
    }
}

// The description of the graph.
static char story[1 << 16];
static size_t told;

static void tell(const char *format, ...) {
    va_list values;
    va_start(values, format);
    int length = vsnprintf(story + told, sizeof story - told, format, values);
    va_end(values);
    if (length > 0 && told + (size_t)length < sizeof story) {
        told += (size_t)length;
    }
}

static void *rocket, *cpu;

enum place { PLAIN, REARRANGED, LENT, PLACES };
static const char *const PLACE_NAMES[] = {"plain", "rearranged", "lent"};

struct weight {
    void *tensor;
    int type, in, out, experts;
    enum place place;
};

enum { WEIGHTS = 24 };

// Weights that stay for some graphs.
struct model {
    void *contexts[PLACES], *buffers[PLACES];
    void *lent;
    struct weight weights[WEIGHTS];
    int count;
};

// Bytes for the weight, from new numbers.
static void *new_bytes(const struct weight *weight) {
    size_t count = (size_t)weight->in * weight->out * weight->experts;
    float *values = malloc(count * sizeof *values);
    size_t size = ggml_nbytes(weight->tensor);
    void *bytes = malloc(size);
    require(values && bytes, "memory");
    fill(values, count, any(1u << 31));
    // Results of about the size of the activations.
    float factor = 1.7f / sqrtf((float)weight->in);
    for (size_t i = 0; i < count; i++) {
        values[i] *= factor;
    }
    int64_t rows = (int64_t)weight->out * weight->experts;
    size_t written = ggml_quantize_chunk(weight->type, values, bytes, 0, rows, weight->in, NULL);
    require(written == size, "ggml_quantize_chunk");
    free(values);
    return bytes;
}

static void write_weight(const struct weight *weight) {
    void *bytes = new_bytes(weight);
    ggml_backend_tensor_set(weight->tensor, bytes, 0, ggml_nbytes(weight->tensor));
    free(bytes);
}

static void *rearranging(int type) {
    void *buffer_type = choose_buffer_type(cpu, type);
    return buffer_type == ggml_backend_dev_buffer_type(cpu) ? NULL : buffer_type;
}

static void make_model(struct model *model) {
    enum { ALIGNMENT = 4096 };
    *model = (struct model){0};
    void *extra = rearranging(TYPE_Q4_0);
    for (int place = 0; place < PLACES; place++) {
        model->contexts[place] = new_context();
    }
    size_t lent = 0;
    for (; model->count < WEIGHTS; model->count++) {
        struct weight *weight = &model->weights[model->count];
        weight->in = WIDTHS[any(3)];
        weight->out = WIDTHS[any(3)];
        weight->experts = any(3) ? 1 : EXPERTS;
        bool any_type = weight->in == 256;
        weight->type = TYPES[any(any_type ? ALL_TYPES : SMALL_BLOCKS)];
        weight->place = any(PLACES);
        if (weight->place == REARRANGED &&
            (!extra || weight->experts > 1 || rearranging(weight->type) != extra)) {
            weight->place = PLAIN;
        }
        void *context = model->contexts[weight->place];
        weight->tensor = ggml_new_tensor_3d(context, weight->type, weight->in, weight->out,
                                            weight->experts);
        char name[32];
        snprintf(name, sizeof name, "blk.%d.ffn_up.weight", model->count);
        ggml_set_name(weight->tensor, name);
        if (weight->place == LENT) {
            lent += (ggml_nbytes(weight->tensor) + 63) / 64 * 64;
        }
    }
    lent = (lent + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    model->lent = aligned_alloc(ALIGNMENT, lent);
    require(model->lent, "memory");
    memset(model->lent, 0, lent);
    void *plain = ggml_backend_dev_buffer_type(cpu);
    // Null if nothing lies there.
    model->buffers[PLAIN] =
        ggml_backend_alloc_ctx_tensors_from_buft(model->contexts[PLAIN], plain);
    if (extra) {
        model->buffers[REARRANGED] =
            ggml_backend_alloc_ctx_tensors_from_buft(model->contexts[REARRANGED], extra);
    }
    model->buffers[LENT] = ggml_backend_dev_buffer_from_host_ptr(cpu, model->lent, lent, lent);
    require(model->buffers[LENT], "ggml_backend_dev_buffer_from_host_ptr");
    for (int place = 0; place < PLACES; place++) {
        if (model->buffers[place]) {
            ggml_backend_buffer_set_usage(model->buffers[place], USAGE_WEIGHTS);
        }
    }
    char *next = model->lent;
    for (int i = 0; i < model->count; i++) {
        struct weight *weight = &model->weights[i];
        if (weight->place == LENT) {
            require(ggml_backend_tensor_alloc(model->buffers[LENT], weight->tensor, next) ==
                        STATUS_SUCCESS,
                    "ggml_backend_tensor_alloc");
            next += (ggml_nbytes(weight->tensor) + 63) / 64 * 64;
        }
        write_weight(weight);
    }
}

// Changes a weight in one of the ways in which programs do it.
static void change_weight(const struct weight *weight, void *scheduler) {
    size_t size = ggml_nbytes(weight->tensor);
    void *plain = ggml_backend_dev_buffer_type(cpu);
    bool is_plain = weight->place != REARRANGED;
    switch (any(is_plain ? 4 : 1)) {
    case 1: {
        // Some of its rows.
        size_t row = ggml_row_size(weight->type, weight->in), rows = size / row;
        size_t first = any((uint32_t)rows), count = 1 + any((uint32_t)(rows - first));
        char *bytes = new_bytes(weight);
        ggml_backend_tensor_set(weight->tensor, bytes + first * row, first * row, count * row);
        free(bytes);
        return;
    }
    case 2: {
        // From another tensor.
        void *context = new_context();
        void *source = ggml_new_tensor_3d(context, weight->type, weight->in, weight->out,
                                          weight->experts);
        void *buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, plain);
        require(buffer, "a buffer");
        void *bytes = new_bytes(weight);
        ggml_backend_tensor_set(source, bytes, 0, size);
        ggml_backend_tensor_copy(source, weight->tensor);
        free(bytes);
        ggml_backend_buffer_free(buffer);
        ggml_free(context);
        return;
    }
    case 3: {
        if (weight->type != TYPE_F32 && weight->type != TYPE_F16) {
            break;
        }
        // By a graph, which leaves it to the CPU.
        void *context = new_context(), *graph = ggml_new_graph(context);
        void *source = ggml_new_tensor_3d(context, weight->type, weight->in, weight->out,
                                          weight->experts);
        ggml_set_input(source);
        ggml_build_forward_expand(graph, ggml_cpy(context, source, weight->tensor));
        ggml_backend_sched_reset(scheduler);
        require(ggml_backend_sched_alloc_graph(scheduler, graph),
                "ggml_backend_sched_alloc_graph");
        void *bytes = new_bytes(weight);
        ggml_backend_tensor_set(source, bytes, 0, size);
        require(ggml_backend_sched_graph_compute(scheduler, graph) == STATUS_SUCCESS,
                "ggml_backend_sched_graph_compute");
        free(bytes);
        ggml_free(context);
        return;
    }
    default:
        break;
    }
    write_weight(weight);
}

static void free_model(struct model *model) {
    for (int place = 0; place < PLACES; place++) {
        if (model->buffers[place]) {
            ggml_backend_buffer_free(model->buffers[place]);
        }
        ggml_free(model->contexts[place]);
    }
    free(model->lent);
}

// Keys after its own that a row sees, of those that a mask may hide.
static const size_t SEEN = 9;

enum { MOST_INPUTS = 64, MOST_VALUES = 64, MOST_RESULTS = 3 };

enum kind { NUMBERS, POSITIONS, ROW_NUMBERS, EXPERT_NUMBERS, HALF_MASK, FLOAT_MASK, CACHE };

struct input {
    void *tensor;
    enum kind kind;
    size_t count;
    // Of a cache with cells that the mask hides from all rows: elements of a cell, and rows of each
    // sequence.
    size_t width, rows;
};

// A matrix that is computed: a row of `width` elements for each token.
struct value {
    void *tensor;
    int width;
    bool whole;
};

struct graph {
    void *context, *graph;
    struct input inputs[MOST_INPUTS];
    int input_count;
    struct value values[MOST_VALUES];
    int value_count;
    struct value results[MOST_RESULTS];
    int result_count;
    int tokens;
    // Which experts each token chose, and the positions of tokens; made when they are needed.
    void *experts, *positions;
};

static void *add_input(struct graph *graph, void *tensor, enum kind kind, size_t count) {
    require(graph->input_count < MOST_INPUTS, "room for inputs");
    ggml_set_input(tensor);
    graph->inputs[graph->input_count++] = (struct input){tensor, kind, count, 0, 0};
    return tensor;
}

// Adds a node, which is computed after those that were added before.
static void *add_node(struct graph *graph, void *tensor) {
    ggml_build_forward_expand(graph->graph, tensor);
    return tensor;
}

static void keep(struct graph *graph, void *tensor, int width, bool whole) {
    int at = graph->value_count < MOST_VALUES ? graph->value_count++ : (int)any(MOST_VALUES);
    graph->values[at] = (struct value){tensor, width, whole};
    tell(" -> %d [%d]\n", at, width);
}

static int choose(struct graph *graph) {
    // Mostly one of the last.
    int last = graph->value_count - 1;
    int back = (int)any(any(3) ? 3 : MOST_VALUES);
    return back > last ? 0 : last - back;
}

static void *contiguous(struct graph *graph, struct value *value) {
    if (value->whole) {
        return value->tensor;
    }
    return add_node(graph, ggml_cont_2d(graph->context, value->tensor, value->width,
                                        graph->tokens));
}

static void *experts_of(struct graph *graph) {
    if (!graph->experts) {
        void *ids = ggml_new_tensor_2d(graph->context, TYPE_I32, MOST_USED, graph->tokens);
        graph->experts = add_input(graph, ids, EXPERT_NUMBERS, (size_t)MOST_USED * graph->tokens);
    }
    return graph->experts;
}

static void *positions_of(struct graph *graph) {
    if (!graph->positions) {
        void *positions = ggml_new_tensor_1d(graph->context, TYPE_I32, graph->tokens);
        graph->positions = add_input(graph, positions, POSITIONS, (size_t)graph->tokens);
    }
    return graph->positions;
}

// A weight of the model for rows of `in`; NULL without one.
static struct weight *find_weight(struct model *model, int in, bool experts) {
    int start = (int)any((uint32_t)model->count);
    for (int i = 0; i < model->count; i++) {
        struct weight *weight = &model->weights[(start + i) % model->count];
        if (weight->in == in && (weight->experts > 1) == experts) {
            return weight;
        }
    }
    return NULL;
}

// Up to three matmuls of the same rows, as query, key and value.
static void add_matmuls(struct graph *graph, struct model *model) {
    int at = choose(graph);
    struct value value = graph->values[at];
    for (int count = 1 + (int)any(3); count > 0; count--) {
        struct weight *weight = find_weight(model, value.width, false);
        if (!weight) {
            return;
        }
        tell("matmul of %d with weights %d (%s %s)", at, (int)(weight - model->weights),
             ggml_type_name(weight->type), PLACE_NAMES[weight->place]);
        // ggml's kernels for rearranged weights read four rows as if they had no gaps.
        void *rows = weight->place == REARRANGED ? contiguous(graph, &value) : value.tensor;
        void *node = ggml_mul_mat(graph->context, weight->tensor, rows);
        keep(graph, add_node(graph, node), weight->out, true);
    }
}

// Up to three matmuls of the same rows with experts, of which each token uses some.
static void add_experts(struct graph *graph, struct model *model) {
    void *context = graph->context;
    int at = choose(graph);
    int width = graph->values[at].width, tokens = graph->tokens;
    // Rows of one token, for one expert each.
    int given = !any(3) && width == 256 ? 2 : 1;
    width /= given;
    void *rows = contiguous(graph, &graph->values[at]);
    rows = ggml_reshape_3d(context, rows, width, given, tokens);
    for (int count = 1 + (int)any(3); count > 0; count--) {
        struct weight *weight = find_weight(model, width, true);
        if (!weight) {
            return;
        }
        int used = given == 2 ? 2 : 1 + (int)any(MOST_USED);
        void *all = experts_of(graph);
        void *ids = used < MOST_USED || any(2)
                        ? ggml_view_2d(context, all, used, tokens, sizeof(int32_t) * MOST_USED, 0)
                        : all;
        tell("%d of experts %d (%s) for %d rows of each token of %d", used,
             (int)(weight - model->weights), ggml_type_name(weight->type), given, at);
        void *node = add_node(graph, ggml_mul_mat_id(context, weight->tensor, rows, ids));
        // The results of one of the experts.
        size_t row = sizeof(float) * (size_t)weight->out;
        node = ggml_view_2d(context, node, weight->out, tokens, row * used, row * any(used));
        keep(graph, node, weight->out, used == 1);
    }
}

static void add_elementwise(struct graph *graph) {
    void *context = graph->context;
    int at = choose(graph), width = graph->values[at].width;
    int other = choose(graph);
    bool pairs = graph->values[other].width == width;
    void *x = contiguous(graph, &graph->values[at]);
    void *y = pairs ? contiguous(graph, &graph->values[other]) : NULL;
    void *node;
    switch (any(9)) {
    case 0:
        tell("sum of %d and %d", at, pairs ? other : at);
        node = ggml_add(context, x, pairs ? y : x);
        break;
    case 1:
        tell("sum of %d and %d in place", at, pairs ? other : at);
        node = ggml_add_inplace(context, x, pairs ? y : x);
        break;
    case 2:
        tell("product of %d and %d", at, pairs ? other : at);
        node = ggml_mul(context, x, pairs ? y : x);
        node = ggml_rms_norm(context, node, 1e-3f);
        break;
    case 3:
        tell("product of %d and %d in place", at, pairs ? other : at);
        node = ggml_mul_inplace(context, x, pairs ? y : x);
        node = ggml_rms_norm_inplace(context, node, 1e-3f);
        break;
    case 4:
        tell("rms norm of %d", at);
        node = ggml_rms_norm(context, x, 1e-5f);
        break;
    case 5:
        tell("rms norm of %d in place", at);
        node = ggml_rms_norm_inplace(context, x, 1e-5f);
        break;
    case 6:
        tell("norm of %d", at);
        node = ggml_norm(context, x, 1e-3f);
        break;
    case 7:
        tell("%d scaled in place", at);
        node = ggml_scale_inplace(context, x, 0.75f);
        break;
    default:
        tell("silu of %d", at);
        node = ggml_silu(context, x);
    }
    keep(graph, add_node(graph, node), width, true);
}

static void add_rotation(struct graph *graph) {
    void *context = graph->context;
    int at = choose(graph), width = graph->values[at].width, tokens = graph->tokens;
    bool in_place = any(2);
    int mode = any(2) ? 2 : 0;
    void *x = contiguous(graph, &graph->values[at]);
    x = ggml_reshape_3d(context, x, HEAD, width / HEAD, tokens);
    void *positions = positions_of(graph);
    tell("rotation of %d, mode %d%s", at, mode, in_place ? ", in place" : "");
    void *node = in_place ? ggml_rope_inplace(context, x, positions, HEAD, mode)
                          : ggml_rope(context, x, positions, HEAD, mode);
    node = ggml_reshape_2d(context, add_node(graph, node), width, tokens);
    keep(graph, node, width, true);
}

static void add_view(struct graph *graph) {
    void *context = graph->context;
    int at = choose(graph), other = choose(graph), tokens = graph->tokens;
    struct value *value = &graph->values[at];
    int width = value->width;
    switch (any(5)) {
    case 0: {
        if (!value->whole || width == 64) {
            return;
        }
        int half = (int)any(2) * width / 2;
        tell("half of %d from %d", at, half);
        size_t row = sizeof(float) * (size_t)width;
        void *node = ggml_view_2d(context, value->tensor, width / 2, tokens, row,
                                  sizeof(float) * (size_t)half);
        keep(graph, node, width / 2, false);
        return;
    }
    case 1: {
        if (width > 128 || graph->values[other].width != width) {
            return;
        }
        void *x = contiguous(graph, value);
        void *y = contiguous(graph, &graph->values[other]);
        tell("%d and %d side by side", at, other);
        keep(graph, add_node(graph, ggml_concat(context, x, y, 0)), 2 * width, true);
        return;
    }
    case 2: {
        void *x = contiguous(graph, value);
        tell("%d as F16 and back", at);
        void *node = ggml_cast(context, add_node(graph, ggml_cast(context, x, TYPE_F16)), TYPE_F32);
        keep(graph, add_node(graph, node), width, true);
        return;
    }
    case 3: {
        void *x = contiguous(graph, value);
        x = ggml_reshape_3d(context, x, HEAD, width / HEAD, tokens);
        x = ggml_permute(context, x, 0, 2, 1, 3);
        tell("%d with its heads in another order", at);
        keep(graph, add_node(graph, ggml_cont_2d(context, x, width, tokens)), width, true);
        return;
    }
    default: {
        void *x = contiguous(graph, value);
        void *numbers = ggml_new_tensor_1d(context, TYPE_I32, tokens);
        add_input(graph, numbers, ROW_NUMBERS, (size_t)tokens);
        tell("chosen rows of %d", at);
        keep(graph, add_node(graph, ggml_get_rows(context, x, numbers)), width, true);
    }
    }
}

// Attention over a cache, to which the tokens are added.
static void add_attention(struct graph *graph, void *cache_context) {
    void *context = graph->context;
    int at = choose(graph), tokens = graph->tokens;
    int width = graph->values[at].width, heads = width / HEAD;
    int kv_heads = any(2) ? heads : heads / 2, kv_width = kv_heads * HEAD;
    bool flash = any(3), by_rows = any(2);
    static const int CACHE_TYPES[] = {TYPE_F16, TYPE_F16, TYPE_Q8, TYPE_F32, TYPE_BF16};
    int type = flash ? CACHE_TYPES[any(5)] : TYPE_F16;
    int first = (int)any((uint32_t)(CONTEXT - tokens + 1)), keys = CONTEXT;
    // A cache with a part for each of some sequences, which have as many tokens each.
    int streams = 1 + (int)any(3);
    if (tokens % streams) {
        streams = 1;
    }
    size_t stream = any((uint32_t)streams);
    int rows = tokens / streams;
    // Keys and values of the tokens: parts of a value.
    int from = choose(graph);
    if (graph->values[from].width < kv_width) {
        from = at;
    }
    size_t row = ggml_row_size(type, kv_width);
    void *stored = contiguous(graph, &graph->values[from]);
    size_t stored_row = sizeof(float) * (size_t)graph->values[from].width;
    stored = ggml_view_2d(context, stored, kv_width, tokens, stored_row, 0);
    void *caches[2];
    struct input *cache_inputs[2];
    for (int i = 0; i < 2; i++) {
        bool transposed = i == 1 && !flash;
        int cache_rows = (transposed ? kv_width : CONTEXT) * streams;
        int cache_width = transposed ? CONTEXT : kv_width;
        void *cache = ggml_new_tensor_2d(cache_context, type, cache_width, cache_rows);
        caches[i] = cache;
        require(graph->input_count < MOST_INPUTS, "room for inputs");
        graph->inputs[graph->input_count++] =
            (struct input){cache, CACHE, (size_t)kv_width * CONTEXT * (size_t)streams, 0, 0};
        cache_inputs[i] = &graph->inputs[graph->input_count - 1];
        if (transposed) {
            size_t column = ggml_row_size(type, CONTEXT);
            void *part = ggml_view_2d(context, cache, tokens, kv_width, column,
                                      column * (size_t)kv_width * stream +
                                          ggml_row_size(type, 1) * (size_t)first);
            add_node(graph, ggml_cpy(context, ggml_transpose(context, stored), part));
        } else if (by_rows) {
            void *numbers = ggml_new_tensor_1d(context, TYPE_I64, tokens);
            add_input(graph, numbers, POSITIONS, (size_t)tokens);
            add_node(graph, ggml_set_rows(context, cache, stored, numbers));
        } else {
            size_t at_row = CONTEXT * stream + (size_t)first;
            void *part = ggml_view_2d(context, cache, kv_width, tokens, row, row * at_row);
            add_node(graph, ggml_cpy(context, stored, part));
        }
    }
    void *queries = contiguous(graph, &graph->values[at]);
    queries = ggml_reshape_4d(context, queries, HEAD, heads, rows, streams);
    queries = ggml_permute(context, queries, 0, 2, 1, 3);
    size_t head = ggml_row_size(type, HEAD), each = row * CONTEXT;
    void *k = ggml_view_4d(context, caches[0], HEAD, keys, kv_heads, streams, row, head, each, 0);
    size_t masked = (size_t)keys * tokens;
    float scale = 0.5f / sqrtf(HEAD);
    void *node;
    if (flash) {
        bool has_mask = any(3), has_sinks = !any(4);
        float max_bias = has_mask && !any(4) ? 8.0f : 0, softcap = any(4) ? 0 : 20.0f;
        void *v =
            ggml_view_4d(context, caches[1], HEAD, keys, kv_heads, streams, row, head, each, 0);
        void *mask = NULL;
        if (has_mask) {
            mask = ggml_new_tensor_4d(context, TYPE_F16, keys, rows, 1, streams);
            add_input(graph, mask, HALF_MASK, masked);
            for (int i = 0; i < 2; i++) {
                cache_inputs[i]->width = (size_t)kv_width;
                cache_inputs[i]->rows = (size_t)rows;
            }
        }
        tell("attention of %d in %d parts over %s with %d rows of %d written by %s at %d%s%s%s%s, "
             "%d heads",
             at, streams, ggml_type_name(type), tokens, from, by_rows ? "rows" : "a copy", first,
             has_mask ? ", mask" : "", has_sinks ? ", sinks" : "", max_bias > 0 ? ", ALiBi" : "",
             softcap > 0 ? ", cap" : "", kv_heads);
        node = ggml_flash_attn_ext(context, queries, k, v, mask, scale, max_bias, softcap);
        if (has_sinks) {
            void *sinks = ggml_new_tensor_1d(context, TYPE_F32, heads);
            add_input(graph, sinks, NUMBERS, (size_t)heads);
            ggml_flash_attn_ext_add_sinks(node, sinks);
        }
        node = ggml_reshape_2d(context, add_node(graph, node), width, tokens);
    } else {
        tell("attention of %d in %d parts in matmuls with %d rows of %d at %d, %d heads", at,
             streams, tokens, from, first, kv_heads);
        size_t column = ggml_row_size(type, CONTEXT);
        void *v = ggml_view_4d(context, caches[1], keys, HEAD, kv_heads, streams, column,
                               column * HEAD, column * (size_t)kv_width, 0);
        void *mask = ggml_new_tensor_4d(context, TYPE_F32, keys, rows, 1, streams);
        add_input(graph, mask, FLOAT_MASK, masked);
        node = add_node(graph, ggml_mul_mat(context, k, queries));
        node = add_node(graph, ggml_soft_max_ext(context, node, mask, scale, 0));
        node = add_node(graph, ggml_mul_mat(context, v, node));
        node = ggml_permute(context, node, 0, 2, 1, 3);
        node = add_node(graph, ggml_cont_2d(context, node, width, tokens));
    }
    keep(graph, node, width, true);
}

static const int TOKENS[] = {1, 2, 5, 16, 33, 48};

static struct graph build(struct model *model, void *cache_context, uint64_t seed) {
    struct graph graph = {.context = new_context()};
    graph.graph = ggml_new_graph(graph.context);
    told = 0;
    restart(seed);
    graph.tokens = TOKENS[any(6)];
    tell("%d tokens\n", graph.tokens);
    for (int i = 0; i < 2; i++) {
        int width = WIDTHS[i + 1];
        void *rows = ggml_new_tensor_2d(graph.context, TYPE_F32, width, graph.tokens);
        add_input(&graph, rows, NUMBERS, (size_t)width * graph.tokens);
        tell("input");
        keep(&graph, rows, width, true);
    }
    for (int steps = 4 + (int)any(14); steps > 0 && graph.input_count < MOST_INPUTS - 8; steps--) {
        switch (any(10)) {
        case 0:
        case 1:
        case 2:
            add_matmuls(&graph, model);
            break;
        case 3:
        case 4:
            add_experts(&graph, model);
            break;
        case 5:
        case 6:
            add_elementwise(&graph);
            break;
        case 7:
            add_rotation(&graph);
            break;
        case 8:
            add_view(&graph);
            break;
        default:
            add_attention(&graph, cache_context);
        }
    }
    // The last value, and any others: a result keeps its memory, which others could have had.
    for (; graph.result_count < MOST_RESULTS; graph.result_count++) {
        int at = graph.result_count ? (int)any((uint32_t)graph.value_count)
                                    : graph.value_count - 1;
        struct value result = graph.values[at];
        result.tensor = ggml_cont_2d(graph.context, result.tensor, result.width, graph.tokens);
        ggml_set_output(result.tensor);
        add_node(&graph, result.tensor);
        tell("result %d\n", at);
        graph.results[graph.result_count] = result;
    }
    return graph;
}

static uint16_t half_of(float value) {
    // Only for numbers that a mask has.
    return isinf(value) ? 0xfc00 : value == 0 ? 0 : 0xb800;
}

static void set_input(const struct input *input, int tokens, uint32_t seed) {
    size_t count = input->count;
    if (!((struct tensor *)input->tensor)->buffer) {
        return;
    }
    float *values = malloc(count * sizeof *values);
    int64_t *numbers = malloc(count * sizeof *numbers);
    uint16_t *halves = malloc(count * sizeof *halves);
    size_t size = ggml_nbytes(input->tensor);
    void *bytes = malloc(size);
    require(values && numbers && halves && bytes, "memory");
    fill(values, count, seed);
    int32_t *small = (int32_t *)numbers;
    int type = ((struct tensor *)input->tensor)->type;
    for (size_t i = 0; i < count; i++) {
        int64_t number = (int64_t)i;
        if (input->kind == EXPERT_NUMBERS) {
            // A token chooses each expert once.
            size_t token = i / MOST_USED;
            number = (int64_t)((token * 7 + seed % 5 + token / 3 + i % MOST_USED) % EXPERTS);
        } else if (input->kind == ROW_NUMBERS) {
            number = (int64_t)((i * 5 + seed) % (uint32_t)tokens);
        } else if (input->kind == POSITIONS && type == TYPE_I64) {
            number = (int64_t)(CONTEXT - 1 - i);
        }
        if (type == TYPE_I64) {
            numbers[i] = number;
        } else if (type == TYPE_I32) {
            small[i] = (int32_t)number;
        }
        size_t row = i / CONTEXT, key = i % CONTEXT;
        // Each row sees its first keys at least.
        float hidden = key > row + SEEN ? -INFINITY : key % 5 ? 0 : -0.5f;
        if (input->kind == HALF_MASK) {
            halves[i] = half_of(hidden);
        } else if (input->kind == FLOAT_MASK) {
            values[i] = hidden;
        }
    }
    switch (input->kind) {
    case NUMBERS:
    case FLOAT_MASK:
        ggml_backend_tensor_set(input->tensor, values, 0, size);
        break;
    case HALF_MASK:
        ggml_backend_tensor_set(input->tensor, halves, 0, size);
        break;
    case CACHE:
        for (size_t i = 0; input->width && i < count; i++) {
            size_t cell = i / input->width;
            if (cell % CONTEXT >= (cell / CONTEXT + 1) * input->rows + SEEN) {
                values[i] *= type == TYPE_F16 ? 3e4f : type == TYPE_Q8 ? 1e6f : 1e30f;
            }
        }
        require(ggml_quantize_chunk(type, values, bytes, 0, (int64_t)count / HEAD, HEAD, NULL) ==
                    size,
                "ggml_quantize_chunk");
        ggml_backend_tensor_set(input->tensor, bytes, 0, size);
        break;
    default:
        ggml_backend_tensor_set(input->tensor, numbers, 0, size);
    }
    free(values);
    free(numbers);
    free(halves);
    free(bytes);
}

static bool each_node(void *tensor, bool ask, void *data) {
    (void)tensor, (void)ask, (void)data;
    return true;
}

struct results {
    float *values[MOST_RESULTS];
    int status;
};

static void free_results(struct results *results) {
    for (int i = 0; i < MOST_RESULTS; i++) {
        free(results->values[i]);
    }
}

// Computes the graph of `seed` with this scheduler, `times` times.
static struct results compute(struct model *model, void *scheduler, uint64_t seed, int times) {
    void *cache_context = new_context();
    struct graph graph = build(model, cache_context, seed);
    void *plain = ggml_backend_dev_buffer_type(cpu);
    // Null without a cache.
    void *caches = ggml_backend_alloc_ctx_tensors_from_buft(cache_context, plain);
    ggml_backend_sched_reset(scheduler);
    require(ggml_backend_sched_alloc_graph(scheduler, graph.graph),
            "ggml_backend_sched_alloc_graph");
    struct results results = {.status = STATUS_SUCCESS};
    for (; times > 0 && results.status == STATUS_SUCCESS; times--) {
        for (int i = 0; i < graph.input_count; i++) {
            set_input(&graph.inputs[i], graph.tokens, (uint32_t)(seed * 64 + (uint64_t)i));
        }
        results.status = ggml_backend_sched_graph_compute(scheduler, graph.graph);
    }
    for (int i = 0; i < MOST_RESULTS && results.status == STATUS_SUCCESS; i++) {
        struct value *result = &graph.results[i];
        results.values[i] = malloc(ggml_nbytes(result->tensor));
        require(results.values[i], "memory");
        ggml_backend_tensor_get(result->tensor, results.values[i], 0, ggml_nbytes(result->tensor));
    }
    if (caches) {
        ggml_backend_buffer_free(caches);
    }
    ggml_free(cache_context);
    ggml_free(graph.context);
    return results;
}

// The largest mean square difference of a row, in units of the mean square of all rows.
static double worst_row(const float *left, const float *right, int rows, int width) {
    double all = 0, worst = 0;
    for (int row = 0; row < rows; row++) {
        double error = 0;
        for (int i = row * width; i < (row + 1) * width; i++) {
            error += ((double)left[i] - right[i]) * ((double)left[i] - right[i]);
            all += (double)right[i] * right[i];
        }
        // A NaN is the worst.
        worst = error <= worst ? worst : error;
    }
    return worst / (all / rows + 1e-30);
}

// Quantised activations and weights add about 1e-4 for each matmul, here and on the CPU. A row that
// was computed from other rows or weights is about 2 apart.
static const double FROM_CPU = 0.05;
// The same backends compute both.
static const double FROM_NODES = 1e-3;

// Prints the graph, if results are too far apart.
static bool agree(struct model *model, uint64_t seed, const char *what, struct results *got,
                  struct results *expected, double limit) {
    void *cache_context = new_context();
    struct graph graph = build(model, cache_context, seed);
    bool good = got->status == STATUS_SUCCESS;
    if (!good) {
        printf("BAD seed %llu: %s failed with %d\n", (unsigned long long)seed, what, got->status);
    }
    for (int i = 0; good && i < MOST_RESULTS; i++) {
        double error = worst_row(got->values[i], expected->values[i], graph.tokens,
                                 graph.results[i].width);
        if (!(error <= limit)) {
            printf("BAD seed %llu: %s is %g apart in result %d\n", (unsigned long long)seed, what,
                   error, i);
            good = false;
        }
    }
    if (!good) {
        printf("%s", story);
    }
    ggml_free(cache_context);
    ggml_free(graph.context);
    return good;
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "usage: ggml_graphs SEED SECONDS MOST LIBGGML\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    uint64_t first = strtoull(arguments[1], NULL, 10), most = strtoull(arguments[3], NULL, 10);
    time_t end = time(NULL) + (time_t)strtol(arguments[2], NULL, 10);
    find_functions(arguments[4]);
    void *library = dlopen(arguments[4], RTLD_NOW | RTLD_LOCAL);
    MORE(FIND)
    ggml_backend_load_all();
    find_both(&cpu, &rocket);
    void *backends[] = {ggml_backend_dev_init(rocket, NULL), ggml_backend_dev_init(cpu, NULL)};
    void *alone = ggml_backend_dev_init(cpu, NULL);
    require(backends[0] && backends[1] && alone, "ggml_backend_dev_init");
    set_n_threads_t set_n_threads;
    *(void **)&set_n_threads = offered(cpu, "ggml_backend_set_n_threads");
    require(set_n_threads, "ggml_backend_set_n_threads");
    set_n_threads(backends[1], 2);
    set_n_threads(alone, 2);
    void *both = new_scheduler(backends, 2);
    void *reference = new_scheduler(&alone, 1);
    void *by_nodes = new_scheduler(backends, 2);
    ggml_backend_sched_set_eval_callback(by_nodes, each_node, NULL);

    struct model model;
    restart(first);
    make_model(&model);
    uint64_t seed = first, bad = 0;
    for (; seed < first + most && time(NULL) < end; seed++) {
        if (seed > first) {
            // A seed alone has other weights than in a series; a bad graph is mostly bad with any.
            restart(seed + (1ull << 40));
            if (!any(12)) {
                free_model(&model);
                make_model(&model);
            } else if (!any(3)) {
                change_weight(&model.weights[any(WEIGHTS)], both);
            }
        }
        struct results expected = compute(&model, reference, seed, 1);
        require(expected.status == STATUS_SUCCESS, "the CPU failed");
        struct results got = compute(&model, both, seed, 1 + (int)(seed % 3 == 0));
        bool good = agree(&model, seed, "the graph", &got, &expected, FROM_CPU);
        if (good && seed % 2 == 0) {
            struct results nodes = compute(&model, by_nodes, seed, 1);
            good = agree(&model, seed, "node by node", &nodes, &got, FROM_NODES);
            free_results(&nodes);
        }
        bad += !good;
        free_results(&expected);
        free_results(&got);
    }
    free_model(&model);
    ggml_backend_sched_free(both);
    ggml_backend_sched_free(reference);
    ggml_backend_sched_free(by_nodes);
    for (int i = 0; i < 2; i++) {
        ggml_backend_free(backends[i]);
    }
    ggml_backend_free(alone);
    printf("graphs %llu, bad %llu\nend\n", (unsigned long long)(seed - first),
           (unsigned long long)bad);
    return 0;
}
