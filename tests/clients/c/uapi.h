/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The rocket driver as a C program sees it that has no kernel header for it: numbers and
 * layouts of drm/rocket_accel.h, Linux 6.18 to 7.2. And checks that end the program. */
#ifndef UAPI_H
#define UAPI_H
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct create_bo { uint32_t size, handle; uint64_t dma_address, offset; };
struct submit { uint64_t jobs; uint32_t job_count, job_struct_size; uint64_t reserved; };
struct job {
	uint64_t tasks, in_bo_handles, out_bo_handles;
	uint32_t task_count, task_struct_size, in_bo_handle_count, out_bo_handle_count;
};
struct task { uint32_t regcmd, regcmd_count; };
struct prep_bo { uint32_t handle, reserved; int64_t timeout_ns; /* absolute, CLOCK_MONOTONIC */ };
struct fini_bo { uint32_t handle, reserved; };
struct gem_close { uint32_t handle, pad; };
struct prime_handle { uint32_t handle, flags; int32_t fd; };
struct dma_buf_sync_file { uint32_t flags; int32_t fd; };
struct sw_sync_fence { uint32_t value; char name[32]; int32_t fd; };
struct version {
	int32_t major, minor, patchlevel, pad;
	uint64_t name_len, name, date_len, date, desc_len, desc;
};

#define VERSION _IOWR('d', 0x00, struct version)
#define GEM_CLOSE _IOW('d', 0x09, struct gem_close)
#define HANDLE_TO_FD _IOWR('d', 0x2d, struct prime_handle)
#define FD_TO_HANDLE _IOWR('d', 0x2e, struct prime_handle)
#define CREATE_BO _IOWR('d', 0x40, struct create_bo)
#define SUBMIT _IOW('d', 0x41, struct submit)
#define PREP_BO _IOW('d', 0x42, struct prep_bo)
#define FINI_BO _IOW('d', 0x43, struct fini_bo)
#define EXPORT_SYNC_FILE _IOWR('b', 2, struct dma_buf_sync_file)
#define IMPORT_SYNC_FILE _IOW('b', 3, struct dma_buf_sync_file)

#define SW_SYNC_CREATE_FENCE _IOWR('W', 0, struct sw_sync_fence)
#define SW_SYNC_INC _IOW('W', 1, uint32_t)

#define SW_SYNC "/sys/kernel/debug/sync/sw_sync"
#define NODE "/dev/accel/accel0"

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "line %d: check failed: %s (errno %d)\n", __LINE__, #what, errno); \
			exit(1); \
		} \
	} while (0)

#define FAILS(what, error) \
	do { \
		errno = 0; \
		CHECK((what) == -1 && errno == (error)); \
	} while (0)

/* Submits a job that ends in the driver's timeout: a program of zeroes. It
 * writes `bo`, in which it lies. */
static inline void submit_hang(int fd, const struct create_bo *bo)
{
	struct task task = {.regcmd = bo->dma_address, .regcmd_count = 16};
	struct job job = {
		.tasks = (uintptr_t)&task, .task_count = 1, .task_struct_size = sizeof task,
		.out_bo_handles = (uintptr_t)&bo->handle, .out_bo_handle_count = 1,
	};
	struct submit submit = {
		.jobs = (uintptr_t)&job, .job_count = 1, .job_struct_size = sizeof job,
	};
	CHECK(ioctl(fd, SUBMIT, &submit) == 0);
}
#endif
