/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Buffers and jobs of the rocket driver, for clients that compute. */
#ifndef ROCKET_H
#define ROCKET_H

#include <stddef.h>

#include "uapi.h"

/* How requests reach the driver: ioctl(), or drmIoctl(). */
struct device {
    int fd;
    int (*call)(int fd, unsigned long request, void *argument);
};

struct bo {
    struct device *device;
    uint32_t handle;
    uint32_t address;
    uint64_t offset;
    size_t size;
};

/* Ends the program with a message where `truth` does not hold. */
#define EXPECT(truth, ...)                                                     \
    do {                                                                       \
        if (!(truth))                                                          \
            fail(__FILE__, __LINE__, #truth, __VA_ARGS__);                     \
    } while (0)
_Noreturn void fail(const char *file, int line, const char *truth,
                    const char *format, ...)
    __attribute__((format(printf, 4, 5)));

struct device open_plain(void);
int call_plain(int fd, unsigned long request, void *argument);

struct bo bo_new(struct device *device, size_t size);
/* A mapping of its own for each call. */
uint8_t *bo_map(const struct bo *bo);
void bo_unmap(const struct bo *bo, uint8_t *map);
void bo_write(const struct bo *bo, const void *data, size_t size);
void bo_read(const struct bo *bo, void *data, size_t size);
/* 0 or -errno. */
int bo_prep(const struct bo *bo, int64_t timeout_ns);
int bo_fini(const struct bo *bo);
void bo_close(struct bo *bo);
/* One SUBMIT of `count` jobs, `stride` bytes apart; 0 or -errno. */
int submit_jobs(struct device *device, const void *jobs, unsigned count,
                unsigned stride);

#endif
