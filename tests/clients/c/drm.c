/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The same through libdrm, and what libdrm has beyond ioctls: versions, device
 * lists, PRIME between two files. */
#include "npu.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xf86drm.h>

#define SYNC_READ 1u

static struct device open_drm(void)
{
    struct device device = {open(NODE, O_RDWR | O_CLOEXEC), drmIoctl};
    EXPECT(device.fd >= 0, "cannot open %s", NODE);
    return device;
}

static void says_what_it_is(int fd)
{
    drmVersionPtr version = drmGetVersion(fd);
    EXPECT(version, "drmGetVersion");
    EXPECT(strcmp(version->name, "rocket") == 0 && strcmp(version->desc, "rocket DRM") == 0,
           "%s, %s", version->name, version->desc);
    EXPECT(version->version_major == 0 && version->version_minor == 0 &&
               version->version_patchlevel == 0,
           "%d.%d.%d", version->version_major, version->version_minor,
           version->version_patchlevel);
    drmFreeVersion(version);

    uint64_t value = 0;
    EXPECT(drmGetCap(fd, DRM_CAP_PRIME, &value) == 0 && value == 3, "PRIME %llu",
           (unsigned long long)value);
    EXPECT(drmGetCap(fd, DRM_CAP_SYNCOBJ, &value) == 0 && value == 0, "SYNCOBJ %llu",
           (unsigned long long)value);
    uint32_t syncobj;
    int created = drmSyncobjCreate(fd, 0, &syncobj);
    EXPECT(created != 0 && (errno == EOPNOTSUPP || created == -EOPNOTSUPP), "syncobj %d", created);

    /* It knows nodes below /dev/dri only; whatever those are, none is ours. */
    drmDevicePtr devices[16];
    int count = drmGetDevices2(0, devices, 16);
    EXPECT(count <= 16, "%d devices", count);
    if (count > 0)
        drmFreeDevices(devices, count);
}

/* What one file computed is read through another one's dma-buf. */
static void shares_a_result(struct device *device)
{
    struct work work;
    work_new(&work, device, shape_of(INT8), 77);
    work_submit(&work);

    int shared = -1;
    EXPECT(drmPrimeHandleToFD(device->fd, work.c.handle, DRM_CLOEXEC | DRM_RDWR, &shared) == 0 &&
               shared >= 0,
           "export");
    EXPECT(fcntl(shared, F_GETFD) == FD_CLOEXEC, "flags %d", fcntl(shared, F_GETFD));
    EXPECT(lseek(shared, 0, SEEK_END) == (off_t)work.c.size, "length");

    struct dma_buf_sync_file fence = {SYNC_READ, -1};
    EXPECT(drmIoctl(shared, EXPORT_SYNC_FILE, &fence) == 0 && fence.fd >= 0, "sync_file");
    struct pollfd ended = {fence.fd, POLLIN, 0};
    EXPECT(poll(&ended, 1, 30000) == 1 && ended.revents == POLLIN, "events %x", ended.revents);
    EXPECT(close(fence.fd) == 0, "close of the sync_file");

    struct device other = open_drm();
    uint32_t handle = 0, again = 0;
    EXPECT(drmPrimeFDToHandle(other.fd, shared, &handle) == 0 && handle, "import");
    EXPECT(drmPrimeFDToHandle(other.fd, shared, &again) == 0 && again == handle, "%u, %u",
           handle, again);
    struct bo imported = {&other, handle, 0, 0, work.c.size};
    EXPECT(bo_prep(&imported, INT64_MAX) == 0, "PREP_BO of the import");

    uint8_t *map = mmap(NULL, work.c.size, PROT_READ, MAP_SHARED, shared, 0);
    EXPECT(map != MAP_FAILED, "mmap of the dma-buf");
    for (unsigned m = 0; m < work.shape.m; m++)
        for (unsigned n = 0; n < work.shape.n; n++)
            EXPECT(c_element(&work.shape, map, m, n) == work.expected[m * work.shape.n + n],
                   "C[%u][%u]", m, n);
    EXPECT(munmap(map, work.c.size) == 0, "munmap");
    EXPECT(drmCloseBufferHandle(other.fd, handle) == 0, "close of the import");
    EXPECT(drmCloseBufferHandle(other.fd, handle) != 0, "a closed handle");

    int pipes[2];
    EXPECT(pipe(pipes) == 0, "pipe");
    EXPECT(drmPrimeFDToHandle(other.fd, pipes[0], &handle) != 0 && errno == EINVAL, "a pipe");
    close(pipes[0]);
    close(pipes[1]);

    EXPECT(close(shared) == 0, "close of the dma-buf");
    work_check(&work);
    work_free(&work);
    EXPECT(drmClose(other.fd) == 0, "close of the other file");
}

int main(void)
{
    struct device device = open_drm();
    says_what_it_is(device.fd);
    for (enum kind kind = 0; kind < KINDS; kind++)
        matmul(&device, kind, 100 + kind);
    shares_a_result(&device);
    EXPECT(drmClose(device.fd) == 0, "close");
    puts("ok");
    return 0;
}
