/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opens the device where another user has the server's name or its lock file. */
#include "uapi.h"

int main(void)
{
	FAILS(open(NODE, O_RDWR), EACCES);
	return 0;
}
