// SPDX-License-Identifier: MIT OR Apache-2.0
// Has the stock libwhisper hear five seconds of a rising tone and predict what follows some tokens.
//
//     whisper_logits MODEL THREADS FILE
//
// Writes the logits, binary32, into FILE. Without whisper.cpp's headers: its functions are looked up
// by name.

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// Samples a second that whisper takes.
enum { RATE = 16000, SAMPLES = 5 * RATE, TOKENS = 64, FIRST_TOKEN = 100 };

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

int main(int count, char **words) {
    if (count != 4)
        fail("usage: whisper_logits MODEL THREADS FILE");
    void *ggml = library("libggml.so.0"), *whisper = library("libwhisper.so.1");
    void (*load_backends)(void) = function(ggml, "ggml_backend_load_all");
    void *(*open)(const char *) = function(whisper, "whisper_init_from_file");
    int (*listen)(void *, const float *, int, int) = function(whisper, "whisper_pcm_to_mel");
    int (*encode)(void *, int, int) = function(whisper, "whisper_encode");
    int (*decode)(void *, const int *, int, int, int) = function(whisper, "whisper_decode");
    float *(*get_logits)(void *) = function(whisper, "whisper_get_logits");
    int (*vocabulary)(void *) = function(whisper, "whisper_n_vocab");
    void (*close)(void *) = function(whisper, "whisper_free");

    static float sound[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        sound[i] = 0.4f * sinf((0.05f + 0.35f * i / SAMPLES) * i);
    int tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = FIRST_TOKEN + i;

    load_backends();
    void *context = open(words[1]);
    if (!context)
        fail("the model cannot be loaded");
    int threads = atoi(words[2]);
    if (listen(context, sound, SAMPLES, threads) || encode(context, 0, threads)
        || decode(context, tokens, TOKENS, 0, threads))
        fail("the model cannot be computed");

    // Only those behind the last token are computed.
    size_t size = (size_t)vocabulary(context);
    const float *last = get_logits(context) + (TOKENS - 1) * size;
    FILE *file = fopen(words[3], "wb");
    if (!file || fwrite(last, sizeof *last, size, file) != size || fclose(file))
        fail("the logits cannot be written");
    close(context);
    return 0;
}
