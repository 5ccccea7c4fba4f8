/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* mmap of a dma-buf as the kernel does it: dma_buf_mmap_internal refuses what
 * lies beyond the end, drm_gem_shmem_mmap a private mapping, and a mapping from
 * an offset on shows the object from its start. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include "uapi.h"

#define REFUSED(length, flags, fd, offset, error) \
	do { \
		errno = 0; \
		CHECK(mmap(NULL, length, PROT_READ, flags, fd, offset) == MAP_FAILED); \
		CHECK(errno == (error)); \
	} while (0)

static int export(int device, uint32_t handle, uint32_t flags)
{
	struct prime_handle prime = {.handle = handle, .flags = flags | O_CLOEXEC};
	CHECK(ioctl(device, HANDLE_TO_FD, &prime) == 0);
	return prime.fd;
}

int main(void)
{
	int device = open(NODE, O_RDWR);
	CHECK(device >= 0);
	struct create_bo bo = {.size = 3 * 4096 - 1}, constant = {.size = 4096};
	CHECK(ioctl(device, CREATE_BO, &bo) == 0 && ioctl(device, CREATE_BO, &constant) == 0);
	int fd = export(device, bo.handle, O_RDWR);

	/* Up to the end, which is that of a page. */
	uint8_t *whole = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(whole != MAP_FAILED);
	whole[0] = 1;
	whole[4096] = 2;
	whole[2 * 4096] = 3;

	/* Beyond it, from inside and outside. */
	REFUSED(3 * 4096 + 1, MAP_SHARED, fd, 0, EINVAL);
	REFUSED(2 * 4096 + 1, MAP_SHARED, fd, 4096, EINVAL);
	REFUSED(4096, MAP_SHARED, fd, 3 * 4096, EINVAL);
	REFUSED(1, MAP_SHARED, fd, 1ll << 40, EINVAL);
	REFUSED(4096, MAP_SHARED, fd, 1, EINVAL);
	REFUSED(0, MAP_SHARED, fd, 0, EINVAL);

	/* Copies on write are none of a device's memory. */
	REFUSED(4096, MAP_PRIVATE, fd, 0, EINVAL);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) == MAP_FAILED);
	CHECK(errno == EINVAL);
	CHECK(syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == -1 && errno == EINVAL);

	/* From an offset on: the start of the object. */
	uint8_t *part = mmap(NULL, 2 * 4096, PROT_READ, MAP_SHARED, fd, 4096);
	CHECK(part != MAP_FAILED && part[0] == 1 && part[4096] == 2);
	whole[5] = 4;
	CHECK(part[5] == 4 && munmap(part, 2 * 4096) == 0);
	part = mmap(NULL, 100, PROT_READ, MAP_SHARED, fd, 2 * 4096);
	CHECK(part != MAP_FAILED && part[0] == 1 && munmap(part, 100) == 0);

	/* Of one that can only be read, that is found first. */
	int only_read = export(device, constant.handle, 0);
	CHECK(mmap(NULL, 9000, PROT_READ | PROT_WRITE, MAP_SHARED, only_read, 0) == MAP_FAILED);
	CHECK(errno == EACCES);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, only_read, 0) == MAP_FAILED);
	CHECK(errno == EINVAL);

	/* A file of the program that looks like one is the program's. */
	int own = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(own >= 0 && ftruncate(own, 2 * 4096) == 0 && pwrite(own, "x", 1, 4096) == 1);
	CHECK(fcntl(own, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	errno = 0;
	part = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, own, 4096);
	CHECK(part != MAP_FAILED && part[0] == 'x' && errno == 0);

	/* A mapping outlives descriptor and device. */
	CHECK(close(fd) == 0 && close(device) == 0 && whole[4096] == 2);
	puts("maps: all is well");
	return 0;
}
