/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* 512 threads that use the device together: half of them one file, half of them a
 * file each, as far as there are descriptors. */
#include <pthread.h>
#include "uapi.h"

enum { THREADS = 512 };

static int shared;
static pthread_barrier_t all;

static void *work(void *argument)
{
	long number = (long)argument;
	int fd = number % 2 ? open(NODE, O_RDWR) : shared;
	/* The server's descriptors, or ours, may be at their end. */
	if (fd < 0)
		CHECK(errno == EMFILE || errno == ENFILE || errno == EAGAIN);
	pthread_barrier_wait(&all);
	struct create_bo bo = {.size = 4096};
	if (fd >= 0) {
		if (ioctl(fd, CREATE_BO, &bo) == 0) {
			struct prep_bo prep = {.handle = bo.handle};
			if (ioctl(fd, PREP_BO, &prep) != 0)
				CHECK(errno == EMFILE || errno == ENFILE || errno == EAGAIN);
		} else {
			CHECK(errno == EMFILE || errno == ENFILE || errno == EAGAIN);
		}
	}
	pthread_barrier_wait(&all);
	if (fd >= 0 && fd != shared)
		CHECK(close(fd) == 0);
	return NULL;
}

int main(void)
{
	static pthread_t threads[THREADS];
	shared = open(NODE, O_RDWR);
	CHECK(shared >= 0 && pthread_barrier_init(&all, NULL, THREADS) == 0);
	for (long number = 0; number < THREADS; number++)
		CHECK(pthread_create(&threads[number], NULL, work, (void *)number) == 0);
	for (int number = 0; number < THREADS; number++)
		CHECK(pthread_join(threads[number], NULL) == 0);
	/* All is as it was. */
	struct create_bo bo = {.size = 4096};
	CHECK(ioctl(shared, CREATE_BO, &bo) == 0 && close(shared) == 0);
	puts("threads512: all is well");
	return 0;
}
