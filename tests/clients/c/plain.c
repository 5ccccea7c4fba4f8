/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A client on plain ioctls: what the kernel says, and to what it says no. */
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "uapi.h"

int main(void)
{
	int fd = open("/dev/accel/accel0", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	FAILS(open("/dev/accel/accel1", O_RDWR), ENOENT);

	char name[32] = "";
	struct version version = {.name_len = sizeof name, .name = (uintptr_t)name};
	CHECK(ioctl(fd, VERSION, &version) == 0);
	CHECK(strcmp(name, "rocket") == 0 && version.major == 0);

	struct create_bo bo = {.size = 8192};
	CHECK(ioctl(fd, CREATE_BO, &bo) == 0);
	CHECK(bo.handle == 1 && bo.dma_address == 0 && bo.offset != 0);

	/* The same memory by each mapping, and by each copy of the descriptor. */
	uint8_t *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, bo.offset);
	CHECK(map != MAP_FAILED && map[0] == 0);
	int copy = dup(fd);
	uint8_t *again = mmap(NULL, 4096, PROT_READ, MAP_SHARED, copy, bo.offset);
	CHECK(again != MAP_FAILED);
	map[7] = 42;
	CHECK(again[7] == 42);
	CHECK(mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, bo.offset) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);

	/* Wild pointers and wrong handles: not mapped, and beyond user space. */
	static const uint64_t wild_names[] = {8, 1ull << 63, ~0ull << 12};
	for (int index = 0; index < 3; index++) {
		version = (struct version){.name_len = sizeof name, .name = wild_names[index]};
		FAILS(ioctl(fd, VERSION, &version), EFAULT);
	}
	version = (struct version){.name_len = sizeof name, .name = (uintptr_t)name};
	CHECK(ioctl(fd, VERSION, &version) == 0);
	FAILS(ioctl(fd, CREATE_BO, (void *)8), EFAULT);
	FAILS(ioctl(fd, CREATE_BO, NULL), EFAULT);
	struct submit wild = {.jobs = 16, .job_count = 3, .job_struct_size = 40};
	FAILS(ioctl(fd, SUBMIT, &wild), EFAULT);
	static const struct submit none; /* in memory that cannot be written */
	CHECK(ioctl(fd, SUBMIT, &none) == 0);
	struct prep_bo prep = {.handle = 9};
	FAILS(ioctl(fd, PREP_BO, &prep), ENOENT);
	FAILS(ioctl(fd, 0x5401, &prep), ENOTTY);
	FAILS(ioctl(fd, _IO('d', 0x7f), NULL), EINVAL);

	prep.handle = bo.handle;
	prep.timeout_ns = INT64_MAX;
	CHECK(ioctl(fd, PREP_BO, &prep) == 0);
	prep.timeout_ns = 0;
	CHECK(ioctl(fd, PREP_BO, &prep) == 0);
	struct fini_bo fini = {.handle = bo.handle};
	CHECK(ioctl(fd, FINI_BO, &fini) == 0);

	struct stat stat;
	CHECK(fstat(fd, &stat) == 0 && S_ISCHR(stat.st_mode));
	CHECK(major(stat.st_rdev) == 261 && minor(stat.st_rdev) == 0);

	/* A child uses the same open file. */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		map[8] = 43;
		_exit(ioctl(fd, FINI_BO, &fini) == 0 ? 0 : 1);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0 && again[8] == 43);

	/* The address is taken as long as anything is mapped, then free again. */
	struct gem_close close_bo = {.handle = bo.handle};
	CHECK(ioctl(fd, GEM_CLOSE, &close_bo) == 0);
	FAILS(ioctl(fd, GEM_CLOSE, &close_bo), EINVAL);
	CHECK(map[7] == 42);
	struct create_bo other = {.size = 8192};
	CHECK(ioctl(fd, CREATE_BO, &other) == 0 && other.dma_address == 8192);
	CHECK(munmap(map, 8192) == 0 && munmap(again, 4096) == 0);
	struct create_bo third = {.size = 8192};
	CHECK(ioctl(fd, CREATE_BO, &third) == 0 && third.dma_address == 0);

	/* Two files have nothing in common. */
	int second = open("/dev/accel/accel0", O_RDWR);
	struct create_bo first = {.size = 4096};
	CHECK(second >= 0 && ioctl(second, CREATE_BO, &first) == 0);
	CHECK(first.handle == 1 && first.dma_address == 0);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, second, third.offset) == MAP_FAILED && errno == EACCES);
	CHECK(close(second) == 0 && close(copy) == 0 && close(fd) == 0);
	/* qemu-user has no word for a request of a file that it does not know. */
	errno = 0;
	CHECK(ioctl(fd, FINI_BO, &fini) == -1 && (errno == EBADF || errno == ENOSYS));
	puts("plain: all is well");
	return 0;
}
