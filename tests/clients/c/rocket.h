/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The rocket driver as a C program sees it that has no kernel header for it:
 * numbers and layouts of drm/rocket_accel.h, Linux 6.18 to 7.2. */
#ifndef ROCKET_H
#define ROCKET_H

#include <stddef.h>
#include <stdint.h>

#define ACCEL_NODE "/dev/accel/accel0"

/* The NPU's addresses belong to an open file: one file, one address space. */
struct create_bo {
    uint32_t size;
    uint32_t handle;
    uint64_t dma_address;
    uint64_t offset;
};
struct submit {
    uint64_t jobs;
    uint32_t job_count;
    uint32_t job_struct_size;
    uint64_t reserved;
};
struct prep_bo {
    uint32_t handle;
    uint32_t reserved;
    int64_t timeout_ns; /* absolute, CLOCK_MONOTONIC */
};
struct fini_bo {
    uint32_t handle;
    uint32_t reserved;
};
struct job {
    uint64_t tasks;
    uint64_t in_handles;
    uint64_t out_handles;
    uint32_t task_count;
    uint32_t task_struct_size;
    uint32_t in_count;
    uint32_t out_count;
};
struct task {
    uint32_t regcmd;
    uint32_t regcmd_count;
};
struct gem_close {
    uint32_t handle;
    uint32_t pad;
};

#define IOCTL_VERSION 0xc0406400u
#define IOCTL_GEM_CLOSE 0x40086409u
#define IOCTL_CREATE_BO 0xc0186440u
#define IOCTL_SUBMIT 0x40186441u
#define IOCTL_PREP_BO 0x40106442u
#define IOCTL_FINI_BO 0x40086443u

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
