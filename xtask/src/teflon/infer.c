// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs a TensorFlow Lite model once: infer RUNTIME MODEL INPUT OUTPUT [DELEGATE]
//
// RUNTIME is libtensorflow-lite.so, DELEGATE an external delegate. Both are
// loaded at run time, so that this builds without their headers and for
// another C library than theirs. The functions are those of TensorFlow Lite's
// C API, which is stable.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define STATUS_OK 0

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
    void *(*input_of)(void *, int) = find(lite, "TfLiteInterpreterGetInputTensor");
    void *(*output_of)(void *, int) = find(lite, "TfLiteInterpreterGetOutputTensor");
    size_t (*bytes_of)(void *) = find(lite, "TfLiteTensorByteSize");
    void *(*data_of)(void *) = find(lite, "TfLiteTensorData");

    void *model = model_create(argv[2]);
    check(model != NULL, "reading the model");
    void *options = options_create();
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

    void *input = input_of(interpreter, 0);
    FILE *file = fopen(argv[3], "rb");
    check(file != NULL, "opening the input");
    check(fread(data_of(input), 1, bytes_of(input), file) == bytes_of(input), "reading the input");
    fclose(file);
    check(invoke(interpreter) == STATUS_OK, "the inference");
    const void *output = output_of(interpreter, 0);
    file = fopen(argv[4], "wb");
    check(file != NULL, "opening the output");
    size_t bytes = bytes_of((void *)output);
    check(fwrite(data_of((void *)output), 1, bytes, file) == bytes, "writing the output");
    check(fclose(file) == 0, "writing the output");
    // The interpreter is not freed: the process ends here.
    return 0;
}
