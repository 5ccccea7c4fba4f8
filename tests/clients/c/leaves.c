/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Closes a file whose jobs hang: close waits until all were handed to a core. */
#include <poll.h>
#include <sys/syscall.h>
#include "uapi.h"

enum { JOBS = 3 };

int main(void)
{
	for (int way = 0; way < 2; way++) {
		int fd = open(NODE, O_RDWR), fences[JOBS];
		CHECK(fd >= 0);
		for (int job = 0; job < JOBS; job++) {
			struct create_bo bo = {.size = 4096};
			CHECK(ioctl(fd, CREATE_BO, &bo) == 0);
			submit_hang(fd, &bo);
			struct prime_handle prime = {.handle = bo.handle, .flags = O_RDWR};
			CHECK(ioctl(fd, HANDLE_TO_FD, &prime) == 0);
			struct dma_buf_sync_file sync = {.flags = 1};
			CHECK(ioctl(prime.fd, EXPORT_SYNC_FILE, &sync) == 0);
			fences[job] = sync.fd;
			struct gem_close gone = {.handle = bo.handle};
			CHECK(ioctl(fd, GEM_CLOSE, &gone) == 0 && close(prime.fd) == 0);
		}
		/* Not of a copy: the file is still there. */
		int copy = dup(fd);
		CHECK(copy >= 0 && close(copy) == 0);
		struct create_bo bo = {.size = 4096};
		CHECK(ioctl(fd, CREATE_BO, &bo) == 0);
		CHECK((way ? syscall(SYS_close, fd) : close(fd)) == 0);
		/* All but the last, which may still be in flight. */
		for (int job = 0; job < JOBS; job++) {
			struct pollfd fence = {.fd = fences[job], .events = POLLIN};
			CHECK(job == JOBS - 1 || poll(&fence, 1, 0) == 1);
			CHECK(close(fences[job]) == 0);
		}
		FAILS(close(fd), EBADF);
	}
	puts("leaves: all is well");
	return 0;
}
