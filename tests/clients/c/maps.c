/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* mmap of a dma-buf as the kernel does it: dma_buf_mmap_internal refuses what
 * lies beyond the end, drm_gem_shmem_mmap a private mapping, and a mapping from
 * an offset on shows the object from its start. And mremap as the kernel does it of
 * mappings with VM_DONTEXPAND, which cannot grow. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include "uapi.h"

#define REFUSED(length, flags, fd, offset, error) \
	do { \
		errno = 0; \
		CHECK(mmap(NULL, length, PROT_READ, flags, fd, offset) == MAP_FAILED); \
		CHECK(errno == (error)); \
	} while (0)

#define NOT_REMAPPED(address, old_length, new_length, flags, error) \
	do { \
		errno = 0; \
		CHECK(mremap(address, old_length, new_length, flags) == MAP_FAILED); \
		CHECK(errno == (error)); \
	} while (0)

/* Of a mapping of at least three pages, whose first bytes are 1, 2 and 3. */
static void remap(uint8_t *whole)
{
	/* To grow it, in place or elsewhere, even if the object goes on there, or to map it again. */
	NOT_REMAPPED(whole, 3 * 4096, 4 * 4096, 0, EFAULT);
	NOT_REMAPPED(whole, 3 * 4096, 4 * 4096, MREMAP_MAYMOVE, EFAULT);
	NOT_REMAPPED(whole, 4096, 4097, MREMAP_MAYMOVE, EFAULT);
	NOT_REMAPPED(whole + 4096, 4096, 2 * 4096, MREMAP_MAYMOVE, EFAULT);
	NOT_REMAPPED(whole, 0, 3 * 4096, MREMAP_MAYMOVE, EFAULT);
	CHECK(syscall(SYS_mremap, whole, 4096, 8192, MREMAP_MAYMOVE, 0) == -1 && errno == EFAULT);
	NOT_REMAPPED(whole, 4096, 4096, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, EINVAL);

	/* What is refused of any mapping. */
	NOT_REMAPPED(whole + 1, 4096, 8192, MREMAP_MAYMOVE, EINVAL);
	NOT_REMAPPED(whole, 4096, 0, MREMAP_MAYMOVE, EINVAL);
	NOT_REMAPPED(whole, 4096, 8192, 64, EINVAL);
	NOT_REMAPPED(whole, 4096, 8192, MREMAP_FIXED, EINVAL);

	/* To move it, and to shrink it. */
	errno = 0;
	uint8_t *other = mmap(NULL, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(other != MAP_FAILED);
	CHECK(mremap(whole, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, other) == other);
	CHECK(other[0] == 1 && other[4096] == 2 && whole[2 * 4096] == 3);
	CHECK(mremap(other, 8192, 4096, 0) == other && other[0] == 1 && errno == 0);
	NOT_REMAPPED(other, 4096, 8192, MREMAP_MAYMOVE, EFAULT);
}

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

	/* Of what is mapped of the dma-buf, and by the device. */
	uint8_t *mapped = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(mapped != MAP_FAILED);
	remap(mapped);
	mapped = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, device, bo.offset);
	CHECK(mapped != MAP_FAILED);
	remap(mapped);

	/* Memory of the program grows. */
	uint8_t *own_pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(own_pages != MAP_FAILED);
	own_pages[0] = 7;
	own_pages = mremap(own_pages, 4096, 1 << 20, MREMAP_MAYMOVE);
	CHECK(own_pages != MAP_FAILED && own_pages[0] == 7 && own_pages[(1 << 20) - 1] == 0);

	/* A file of the program that looks like one is the program's. */
	int own = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(own >= 0 && ftruncate(own, 2 * 4096) == 0 && pwrite(own, "x", 1, 4096) == 1);
	CHECK(fcntl(own, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	errno = 0;
	part = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, own, 4096);
	CHECK(part != MAP_FAILED && part[0] == 'x' && errno == 0);
	part = mremap(part, 4096, 2 * 4096, MREMAP_MAYMOVE);
	CHECK(part != MAP_FAILED && part[0] == 'x' && errno == 0);

	/* A mapping outlives descriptor and device. */
	CHECK(close(fd) == 0 && close(device) == 0 && whole[4096] == 2);
	puts("maps: all is well");
	return 0;
}
