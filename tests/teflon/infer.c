// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs a TensorFlow Lite model once: infer RUNTIME MODEL INPUT OUTPUT [DELEGATE]
//
// INPUT has a byte for each value of all inputs, and is read again from its
// start where it is too short. A float is a 256th of its byte. OUTPUT gets all
// outputs, one after the other. Printed are the milliseconds of preparing and
// computing, then of each output type, bytes, scale and name.
//
// RUNTIME is libtensorflow-lite.so, DELEGATE an external delegate. Both are
// loaded at run time, so that this builds without their headers and for
// another C library than theirs. The functions are those of TensorFlow Lite's
// C API, which is stable.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STATUS_OK 0
#define FLOAT32 1

typedef struct {
    float scale;
    int32_t zero_point;
} quantization;

static void *load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "infer: %s\n", dlerror());
        exit(2);
    }
    return library;
}

static void *find(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "infer: %s\n", dlerror());
        exit(2);
    }
    return function;
}

static void check(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "infer: %s failed\n", what);
        exit(1);
    }
}

static void report(const char *message) {
    fprintf(stderr, "infer: delegate: %s\n", message);
}

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static uint8_t next(FILE *file) {
    int byte = getc(file);
    if (byte == EOF) {
        rewind(file);
        byte = getc(file);
    }
    check(byte != EOF, "reading the input");
    return byte;
}

int main(int argc, char **argv) {
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: %s RUNTIME MODEL INPUT OUTPUT [DELEGATE]\n", argv[0]);
        return 2;
    }
    void *lite = load(argv[1]);
    void *(*model_create)(const char *) = find(lite, "TfLiteModelCreateFromFile");
    void *(*options_create)(void) = find(lite, "TfLiteInterpreterOptionsCreate");
    void (*add_delegate)(void *, void *) = find(lite, "TfLiteInterpreterOptionsAddDelegate");
    void *(*create)(void *, void *) = find(lite, "TfLiteInterpreterCreate");
    int (*allocate)(void *) = find(lite, "TfLiteInterpreterAllocateTensors");
    int (*invoke)(void *) = find(lite, "TfLiteInterpreterInvoke");
    int (*inputs)(void *) = find(lite, "TfLiteInterpreterGetInputTensorCount");
    int (*outputs)(void *) = find(lite, "TfLiteInterpreterGetOutputTensorCount");
    void *(*input_of)(void *, int) = find(lite, "TfLiteInterpreterGetInputTensor");
    void *(*output_of)(void *, int) = find(lite, "TfLiteInterpreterGetOutputTensor");
    int (*type_of)(void *) = find(lite, "TfLiteTensorType");
    const char *(*type_name)(int) = find(lite, "TfLiteTypeGetName");
    const char *(*name_of)(void *) = find(lite, "TfLiteTensorName");
    quantization (*quantization_of)(void *) = find(lite, "TfLiteTensorQuantizationParams");
    size_t (*bytes_of)(void *) = find(lite, "TfLiteTensorByteSize");
    void *(*data_of)(void *) = find(lite, "TfLiteTensorData");

    void *model = model_create(argv[2]);
    check(model != NULL, "reading the model");
    void *options = options_create();
    double start = milliseconds();
    if (argc == 6) {
        void *library = load(argv[5]);
        void *(*delegate_create)(char **, char **, size_t, void (*)(const char *)) =
            find(library, "tflite_plugin_create_delegate");
        void *delegate = delegate_create(NULL, NULL, 0, report);
        check(delegate != NULL, "making the delegate");
        add_delegate(options, delegate);
    }
    void *interpreter = create(model, options);
    check(interpreter != NULL, "making the interpreter");
    check(allocate(interpreter) == STATUS_OK, "allocating the tensors");
    double prepared = milliseconds() - start;

    FILE *file = fopen(argv[3], "rb");
    check(file != NULL, "opening the input");
    for (int i = 0; i < inputs(interpreter); i++) {
        void *input = input_of(interpreter, i), *data = data_of(input);
        size_t bytes = bytes_of(input);
        if (type_of(input) == FLOAT32) {
            for (size_t j = 0; j < bytes / sizeof(float); j++)
                ((float *)data)[j] = next(file) / 256.0f;
        } else {
            for (size_t j = 0; j < bytes; j++)
                ((uint8_t *)data)[j] = next(file);
        }
    }
    fclose(file);
    start = milliseconds();
    check(invoke(interpreter) == STATUS_OK, "the inference");
    printf("%.1f %.1f\n", prepared, milliseconds() - start);

    file = fopen(argv[4], "wb");
    check(file != NULL, "opening the output");
    for (int i = 0; i < outputs(interpreter); i++) {
        void *output = output_of(interpreter, i);
        size_t bytes = bytes_of(output);
        check(fwrite(data_of(output), 1, bytes, file) == bytes, "writing the output");
        printf("%s %zu %g ", type_name(type_of(output)), bytes, quantization_of(output).scale);
        printf("%s\n", name_of(output) ? name_of(output) : "");
    }
    check(fclose(file) == 0, "writing the output");
    // The interpreter is not freed: the process ends here.
    return 0;
}
