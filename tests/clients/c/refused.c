/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opens the device of a server that has no descriptors, many times. */
#include "uapi.h"

enum { TIMES = 2000 };

int main(void)
{
	for (int time = 0; time < TIMES; time++) {
		int fd = open(NODE, O_RDWR);
		int why = errno;
		CHECK(fd < 0);
		errno = why;
		CHECK(errno == EMFILE);
	}
	return 0;
}
