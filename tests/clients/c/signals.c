/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Waits that signals interrupt, and do not: PREP_BO of a job that hangs. */
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include "uapi.h"

static volatile sig_atomic_t handled;

static void handler(int number)
{
	(void)number;
	handled++;
}

static pthread_t waiter;

/* Signals the thread that waits, again and again: the first may come early. */
static void *pester(void *times)
{
	for (int i = 0; i < *(int *)times; i++) {
		struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
		nanosleep(&pause, NULL);
		pthread_kill(waiter, SIGUSR1);
	}
	return NULL;
}

static int prep_under_signals(int fd, uint32_t handle, int restart)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0};
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	handled = 0;
	waiter = pthread_self();
	int times = 3;
	pthread_t other;
	CHECK(pthread_create(&other, NULL, pester, &times) == 0);
	struct prep_bo prep = {.handle = handle, .timeout_ns = INT64_MAX};
	int result = ioctl(fd, PREP_BO, &prep);
	int error = errno;
	CHECK(pthread_join(other, NULL) == 0);
	CHECK(handled > 0);
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
	struct prep_bo prep = {.handle = bo.handle};
	FAILS(ioctl(fd, PREP_BO, &prep), EBUSY);
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	prep.timeout_ns = now.tv_sec * 1000000000ll + now.tv_nsec + 20000000;
	FAILS(ioctl(fd, PREP_BO, &prep), ETIMEDOUT);
	CHECK(prep_under_signals(fd, bo.handle, 0) == -1 && errno == EINTR);
	CHECK(prep_under_signals(fd, bo.handle, 1) == 0);
	prep.timeout_ns = 0;
	CHECK(ioctl(fd, PREP_BO, &prep) == 0);

	/* Dies with a job under way. */
	submit_hang(fd, &bo);
	submit_hang(fd, &bo);
	puts("signals: all is well");
	fflush(stdout);
	raise(SIGKILL);
	return 1;
}
