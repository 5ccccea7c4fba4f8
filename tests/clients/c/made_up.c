/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two ioctls that no driver of today has; the one of the test has the first. */
#include "uapi.h"

#define MADE_UP _IOWR('d', 0x48, uint64_t)
#define UNKNOWN _IOWR('d', 0x49, uint64_t)

int main(void)
{
	int fd = open(NODE, O_RDWR);
	CHECK(fd >= 0);
	uint64_t value = 41;
	CHECK(ioctl(fd, MADE_UP, &value) == 0);
	CHECK(value == 42);
	FAILS(ioctl(fd, UNKNOWN, &value), EINVAL);
	CHECK(value == 42);
	return 0;
}
