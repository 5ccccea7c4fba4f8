/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Waits that signals interrupt, and do not: PREP_BO of jobs that hang. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include "uapi.h"

static void handler(int number)
{
	(void)number;
}

enum { MILLISECOND = 1000 * 1000, SECOND = 1000 * MILLISECOND };

/* Jobs that take the driver ten seconds together. */
enum { QUEUE = 20 };

static pthread_t waiter;
static atomic_bool waits;

/* Signals the thread as long as it waits: the first may come early. */
static void *pester(void *nothing)
{
	while (atomic_load(&waits)) {
		struct timespec pause = {.tv_nsec = 5 * MILLISECOND};
		nanosleep(&pause, NULL);
		pthread_kill(waiter, SIGUSR1);
	}
	return nothing;
}

static int prep_under_signals(int fd, uint32_t handle, int restart)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0};
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	waiter = pthread_self();
	atomic_store(&waits, true);
	pthread_t other;
	CHECK(pthread_create(&other, NULL, pester, NULL) == 0);
	struct prep_bo prep = {.handle = handle, .timeout_ns = INT64_MAX};
	int result = ioctl(fd, PREP_BO, &prep);
	int error = errno;
	atomic_store(&waits, false);
	CHECK(pthread_join(other, NULL) == 0);
	errno = error;
	return result;
}

int main(void)
{
	int fd = open(NODE, O_RDWR);
	CHECK(fd >= 0);
	struct create_bo bo = {.size = 4096};
	CHECK(ioctl(fd, CREATE_BO, &bo) == 0);

	submit_hang(fd, &bo);
	CHECK(prep_under_signals(fd, bo.handle, 1) == 0);
	struct prep_bo prep = {.handle = bo.handle};
	CHECK(ioctl(fd, PREP_BO, &prep) == 0);

	/* Nobody waits for the end of these. */
	for (int i = 0; i < QUEUE; i++)
		submit_hang(fd, &bo);
	FAILS(ioctl(fd, PREP_BO, &prep), EBUSY);
	for (long long moment = 20 * MILLISECOND;; moment *= 2) {
		struct timespec now;
		clock_gettime(CLOCK_MONOTONIC, &now);
		prep.timeout_ns = now.tv_sec * (long long)SECOND + now.tv_nsec + moment;
		CHECK(ioctl(fd, PREP_BO, &prep) == -1);
		/* The moment may be over before the driver looks. */
		if (errno != EBUSY)
			break;
	}
	CHECK(errno == ETIMEDOUT);
	CHECK(prep_under_signals(fd, bo.handle, 0) == -1 && errno == EINTR);

	/* Dies with jobs under way. */
	puts("signals: all is well");
	fflush(stdout);
	raise(SIGKILL);
	return 1;
}
