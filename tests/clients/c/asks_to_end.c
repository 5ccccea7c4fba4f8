/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Asks whoever started it to end, before anything else, and waits. No signal is
 * blocked or ignored that should not be. */
#include <signal.h>
#include "uapi.h"

int main(void)
{
	sigset_t blocked;
	CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
	for (int number = 1; number < 32; number++)
		CHECK(sigismember(&blocked, number) == 0);
	struct sigaction pipe;
	CHECK(sigaction(SIGPIPE, NULL, &pipe) == 0 && pipe.sa_handler == SIG_DFL);
	CHECK(kill(getppid(), SIGTERM) == 0);
	for (;;)
		pause();
}
