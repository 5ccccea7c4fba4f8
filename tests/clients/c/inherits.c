/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Prints what a process inherits: limits, signals, descriptors. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

int main(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return 1;
	printf("files %llu %llu\n", (unsigned long long)limit.rlim_cur,
	       (unsigned long long)limit.rlim_max);
	sigset_t blocked;
	if (sigprocmask(SIG_SETMASK, NULL, &blocked) != 0)
		return 1;
	for (int number = 1; number < 32; number++) {
		struct sigaction action;
		if (sigaction(number, NULL, &action) == 0)
			printf("signal %d %d %d\n", number, sigismember(&blocked, number),
			       action.sa_handler == SIG_IGN);
	}
	for (int fd = 3; fd < 64; fd++)
		if (fcntl(fd, F_GETFD) != -1)
			printf("descriptor %d\n", fd);
	return 0;
}
