/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ends with the exit code that it is given, or by SIGKILL. */
#include <signal.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
	(void)count;
	int code = atoi(arguments[1]);
	if (code == 0)
		raise(SIGKILL);
	return code;
}
