/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "rocket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(struct create_bo) == 24, "create_bo");
_Static_assert(sizeof(struct submit) == 24, "submit");
_Static_assert(sizeof(struct prep_bo) == 16, "prep_bo");
_Static_assert(sizeof(struct job) == 40, "job");

void fail(const char *file, int line, const char *truth, const char *format, ...)
{
    int error = errno;
    va_list arguments;
    fprintf(stderr, "%s:%d: check failed: %s: ", file, line, truth);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, " (errno %d, %s)\n", error, strerror(error));
    exit(1);
}

int call_plain(int fd, unsigned long request, void *argument)
{
    return ioctl(fd, request, argument);
}

struct device open_plain(void)
{
    struct device device = {open(NODE, O_RDWR | O_CLOEXEC), call_plain};
    EXPECT(device.fd >= 0, "cannot open %s", NODE);
    return device;
}

struct bo bo_new(struct device *device, size_t size)
{
    struct create_bo create = {.size = (uint32_t)size};
    EXPECT(device->call(device->fd, CREATE_BO, &create) == 0,
           "no buffer of %zu bytes", size);
    EXPECT(create.handle != 0 && create.dma_address <= UINT32_MAX,
           "handle %u at 0x%llx", create.handle,
           (unsigned long long)create.dma_address);
    return (struct bo){device, create.handle, (uint32_t)create.dma_address,
                       create.offset, size};
}

uint8_t *bo_map(const struct bo *bo)
{
    void *map = mmap(NULL, bo->size, PROT_READ | PROT_WRITE, MAP_SHARED,
                     bo->device->fd, (off_t)bo->offset);
    EXPECT(map != MAP_FAILED, "cannot map buffer %u", bo->handle);
    return map;
}

void bo_unmap(const struct bo *bo, uint8_t *map)
{
    EXPECT(munmap(map, bo->size) == 0, "cannot unmap buffer %u", bo->handle);
}

int bo_prep(const struct bo *bo, int64_t timeout_ns)
{
    struct prep_bo prep = {.handle = bo->handle, .timeout_ns = timeout_ns};
    return bo->device->call(bo->device->fd, PREP_BO, &prep) ? -errno : 0;
}

int bo_fini(const struct bo *bo)
{
    struct fini_bo fini = {.handle = bo->handle};
    return bo->device->call(bo->device->fd, FINI_BO, &fini) ? -errno : 0;
}

void bo_write(const struct bo *bo, const void *data, size_t size)
{
    EXPECT(bo_prep(bo, INT64_MAX) == 0, "PREP_BO of %u", bo->handle);
    uint8_t *map = bo_map(bo);
    memcpy(map, data, size);
    bo_unmap(bo, map);
    EXPECT(bo_fini(bo) == 0, "FINI_BO of %u", bo->handle);
}

void bo_read(const struct bo *bo, void *data, size_t size)
{
    EXPECT(bo_prep(bo, INT64_MAX) == 0, "PREP_BO of %u", bo->handle);
    uint8_t *map = bo_map(bo);
    memcpy(data, map, size);
    bo_unmap(bo, map);
    EXPECT(bo_fini(bo) == 0, "FINI_BO of %u", bo->handle);
}

void bo_close(struct bo *bo)
{
    struct gem_close close = {.handle = bo->handle};
    EXPECT(bo->device->call(bo->device->fd, GEM_CLOSE, &close) == 0,
           "GEM_CLOSE of %u", bo->handle);
    bo->handle = 0;
}

int submit_jobs(struct device *device, const void *jobs, unsigned count,
                unsigned stride)
{
    struct submit submit = {(uintptr_t)jobs, count, stride, 0};
    return device->call(device->fd, SUBMIT, &submit) ? -errno : 0;
}
