/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opens the device where another user has the server's name. */
#include "uapi.h"

int main(void)
{
	FAILS(open(NODE, O_RDWR), EACCES);
	return 0;
}
