// SPDX-License-Identifier: MIT OR Apache-2.0
// Has the stock libwhisper hear a sound and predict tokens.
//
//     whisper_logits MODEL THREADS FILE
//     whisper_logits MODEL THREADS FILE SOUND FLASH STEPS [TOKENS]
//
// Writes logits, binary32, into FILE. The first form has it hear five seconds of a rising tone and
// writes what it predicts behind 64 tokens. The second has it hear the samples in SOUND, binary32,
// with flash attention (FLASH is 1) or without (0), and writes what it predicts at each of STEPS
// steps: behind what it predicted itself, or behind the numbers in TOKENS. Without whisper.cpp's
// headers: its functions are looked up by name.

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

// Samples a second that whisper takes.
enum { RATE = 16000, TONE = 5 * RATE, MOST_SAMPLES = 30 * RATE };
enum { TOKENS = 64, FIRST_TOKEN = 100 };

// `struct whisper_context_params` of whisper.h.
struct parameters {
    bool use_gpu, flash_attn;
    int gpu_device;
    bool dtw_token_timestamps;
    int dtw_aheads_preset, dtw_n_top;
    struct {
        size_t n_heads;
        const void *heads;
    } dtw_aheads;
    size_t dtw_mem_size;
};

static void fail(const char *what) {
    fprintf(stderr, "whisper_logits: %s\n", what);
    exit(1);
}

static void *library(const char *name) {
    void *handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!handle)
        fail(dlerror());
    return handle;
}

static void *function(void *handle, const char *name) {
    void *address = dlsym(handle, name);
    if (!address)
        fail(dlerror());
    return address;
}

static size_t read_all(const char *name, void *values, size_t size, size_t most) {
    FILE *file = fopen(name, "rb");
    if (!file)
        fail("a file cannot be read");
    size_t count = fread(values, size, most, file);
    fclose(file);
    return count;
}

int main(int count, char **words) {
    bool has_sound = count == 7 || count == 8;
    if (count != 4 && !has_sound)
        fail("usage: whisper_logits MODEL THREADS FILE [SOUND FLASH STEPS [TOKENS]]");
    void *ggml = library("libggml.so.0"), *whisper = library("libwhisper.so.1");
    void (*load_backends)(void) = function(ggml, "ggml_backend_load_all");
    struct parameters (*defaults)(void) = function(whisper, "whisper_context_default_params");
    void *(*open)(const char *, struct parameters)
        = function(whisper, "whisper_init_from_file_with_params");
    int (*listen)(void *, const float *, int, int) = function(whisper, "whisper_pcm_to_mel");
    int (*encode)(void *, int, int) = function(whisper, "whisper_encode");
    int (*decode)(void *, const int *, int, int, int) = function(whisper, "whisper_decode");
    float *(*get_logits)(void *) = function(whisper, "whisper_get_logits");
    int (*vocabulary)(void *) = function(whisper, "whisper_n_vocab");
    int (*start)(void *) = function(whisper, "whisper_token_sot");
    int (*no_times)(void *) = function(whisper, "whisper_token_not");
    void (*close)(void *) = function(whisper, "whisper_free");

    static float sound[MOST_SAMPLES];
    int samples = TONE;
    for (int i = 0; i < TONE; i++)
        sound[i] = 0.4f * sinf((0.05f + 0.35f * i / TONE) * i);
    if (has_sound)
        samples = (int)read_all(words[4], sound, sizeof *sound, MOST_SAMPLES);

    load_backends();
    struct parameters parameters = defaults();
    if (has_sound)
        parameters.flash_attn = atoi(words[5]);
    void *context = open(words[1], parameters);
    if (!context)
        fail("the model cannot be loaded");
    int tokens[TOKENS], given = TOKENS, steps = 1;
    if (has_sound) {
        tokens[0] = start(context);
        tokens[1] = no_times(context);
        given = 2;
        steps = atoi(words[6]);
    } else {
        for (int i = 0; i < TOKENS; i++)
            tokens[i] = FIRST_TOKEN + i;
    }
    int *followed = calloc((size_t)steps, sizeof *followed);
    if (!followed || (count == 8 && read_all(words[7], followed, sizeof *followed, (size_t)steps)
                                        != (size_t)steps))
        fail("there are too few tokens");

    int threads = atoi(words[2]);
    if (listen(context, sound, samples, threads) || encode(context, 0, threads))
        fail("the sound cannot be encoded");
    FILE *file = fopen(words[3], "wb");
    size_t size = (size_t)vocabulary(context);
    for (int step = 0, past = 0; step < steps; step++) {
        if (decode(context, tokens, given, past, threads))
            fail("the tokens cannot be decoded");
        // Only those behind the last token are computed.
        const float *last = get_logits(context) + (size_t)(given - 1) * size;
        if (!file || fwrite(last, sizeof *last, size, file) != size)
            fail("the logits cannot be written");
        past += given;
        given = 1;
        tokens[0] = 0;
        for (size_t i = 1; i < size; i++)
            if (last[i] > last[tokens[0]])
                tokens[0] = (int)i;
        if (count == 8)
            tokens[0] = followed[step];
    }
    if (fclose(file))
        fail("the logits cannot be written");
    free(followed);
    close(context);
    return 0;
}
