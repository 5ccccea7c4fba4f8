/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opens the device until there are no descriptors left, and again. */
#include "uapi.h"

enum { MOST = 512 };

int main(void)
{
	static int files[MOST];
	for (int round = 0; round < 3; round++) {
		int count = 0;
		while (count < MOST && (files[count] = open(NODE, O_RDWR)) >= 0)
			count++;
		CHECK(count > 4 && count < MOST);
		CHECK(errno == EMFILE || errno == ENFILE);
		/* The others are as they were. */
		for (int index = 0; index < count; index++) {
			struct create_bo bo = {.size = 4096};
			if (ioctl(files[index], CREATE_BO, &bo) != 0)
				CHECK(errno == EMFILE || errno == ENFILE || errno == ENOMEM);
			CHECK(close(files[index]) == 0);
		}
		/* Closed ones go in the server behind close. */
		int fd;
		do
			fd = open(NODE, O_RDWR);
		while (fd < 0 && (errno == EMFILE || errno == ENFILE));
		CHECK(fd >= 0 && close(fd) == 0);
	}
	puts("full: all is well");
	return 0;
}
