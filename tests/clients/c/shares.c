/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What descriptors, values and texts are in a call go both ways. */
#include "uapi.h"

struct get_cap { uint64_t capability, value; };

#define GET_CAP _IOWR('d', 0x0c, struct get_cap)
#define SYNCOBJ_CREATE _IOWR('d', 0xbf, uint64_t)

int main(void)
{
	int first = open(NODE, O_RDWR), second = open(NODE, O_RDWR);
	CHECK(first >= 0 && second >= 0);

	/* Texts without a terminator, as far as there is room. */
	char name[8] = "-------", description[4] = "---";
	struct version version = {
		.name_len = 4, .name = (uintptr_t)name,
		.desc_len = 0, .desc = (uintptr_t)description,
		.date_len = 99,
	};
	CHECK(ioctl(first, VERSION, &version) == 0);
	CHECK(strcmp(name, "rock---") == 0 && strcmp(description, "---") == 0);
	CHECK(version.name_len == 6 && version.desc_len == 10 && version.date_len == 1);
	version.name = 16;
	FAILS(ioctl(first, VERSION, &version), EFAULT);

	struct get_cap cap = {.capability = 5};
	CHECK(ioctl(first, GET_CAP, &cap) == 0 && cap.value == 3);
	cap.capability = 77;
	FAILS(ioctl(first, GET_CAP, &cap), EOPNOTSUPP);
	uint64_t nothing = 0;
	FAILS(ioctl(first, SYNCOBJ_CREATE, &nothing), EOPNOTSUPP);
	FAILS(ioctl(first, _IOWR('d', 0x50, uint64_t), &nothing), EINVAL);
	FAILS(ioctl(first, _IOWR('e', 0x40, uint64_t), &nothing), ENOTTY);

	/* A dma-buf: the same object everywhere. */
	struct create_bo bo = {.size = 8192};
	CHECK(ioctl(first, CREATE_BO, &bo) == 0 && bo.handle == 1);
	uint8_t *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, first, bo.offset);
	CHECK(map != MAP_FAILED);
	map[4097] = 42;
	FAILS(mmap(NULL, 8192, PROT_READ, MAP_SHARED, second, bo.offset) == MAP_FAILED ? -1 : 0, EACCES);
	struct prime_handle prime = {.handle = 9, .flags = O_RDWR};
	FAILS(ioctl(first, HANDLE_TO_FD, &prime), ENOENT);
	prime = (struct prime_handle){.handle = bo.handle, .flags = O_APPEND};
	FAILS(ioctl(first, HANDLE_TO_FD, &prime), EINVAL);
	int close_on_exec[2] = {0, O_CLOEXEC};
	for (int time = 0; time < 2; time++) {
		prime.flags = O_RDWR | close_on_exec[time];
		CHECK(ioctl(first, HANDLE_TO_FD, &prime) == 0);
		CHECK(fcntl(prime.fd, F_GETFD) == (time ? FD_CLOEXEC : 0));
		CHECK(lseek(prime.fd, 0, SEEK_END) == 8192);
		uint8_t *again = mmap(NULL, 8192, PROT_READ, MAP_SHARED, prime.fd, 0);
		CHECK(again != MAP_FAILED && again[4097] == 42);
		CHECK(munmap(again, 8192) == 0);
		struct prime_handle import = {.fd = prime.fd};
		CHECK(ioctl(first, FD_TO_HANDLE, &import) == 0 && import.handle == bo.handle);
		CHECK(ioctl(second, FD_TO_HANDLE, &import) == 0 && import.handle == 1);
		CHECK(close(prime.fd) == 0);
	}
	uint8_t *theirs = mmap(NULL, 8192, PROT_READ, MAP_SHARED, second, bo.offset);
	CHECK(theirs != MAP_FAILED && theirs[4097] == 42);
	struct prime_handle import = {.fd = -1};
	FAILS(ioctl(second, FD_TO_HANDLE, &import), EBADF);
	import.fd = 0;
	FAILS(ioctl(second, FD_TO_HANDLE, &import), EINVAL);

	/* What was imported is used and closed as what was made here. */
	struct prep_bo prep = {.handle = 1};
	CHECK(ioctl(second, PREP_BO, &prep) == 0);
	struct gem_close gone = {.handle = 1};
	CHECK(ioctl(second, GEM_CLOSE, &gone) == 0);
	FAILS(ioctl(second, GEM_CLOSE, &gone), EINVAL);
	FAILS(ioctl(second, PREP_BO, &prep), ENOENT);
	map[0] = 7;
	CHECK(theirs[0] == 7);
	CHECK(close(first) == 0 && map[4097] == 42);
	puts("shares: all is well");
	return 0;
}
