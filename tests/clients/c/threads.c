/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Three files, a thread for each, and a fourth thread that uses all three. */
#include "npu.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { FILES = 3, ROUNDS = 6 };

static struct device devices[FILES];

static void *on_one(void *number)
{
    unsigned file = (unsigned)(uintptr_t)number;
    for (unsigned round = 0; round < ROUNDS; round++)
        matmul(&devices[file], (file + round) % KINDS, 100 * file + round);
    return NULL;
}

static void *on_all(void *nothing)
{
    struct work works[FILES];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned file = 0; file < FILES; file++) {
            work_new(&works[file], &devices[file], shape_of(INT8), 1000 + round);
            work_submit(&works[file]);
        }
        for (unsigned file = 0; file < FILES; file++) {
            work_check(&works[file]);
            work_free(&works[file]);
        }
    }
    return nothing;
}

int main(void)
{
    pthread_t threads[FILES + 1];
    for (unsigned file = 0; file < FILES; file++)
        devices[file] = open_plain();
    for (unsigned file = 0; file < FILES; file++)
        EXPECT(pthread_create(&threads[file], NULL, on_one, (void *)(uintptr_t)file) == 0, "thread");
    EXPECT(pthread_create(&threads[FILES], NULL, on_all, NULL) == 0, "thread");
    for (unsigned thread = 0; thread <= FILES; thread++)
        EXPECT(pthread_join(threads[thread], NULL) == 0, "join");
    for (unsigned file = 0; file < FILES; file++)
        EXPECT(close(devices[file].fd) == 0, "close");
    puts("ok");
    return 0;
}
