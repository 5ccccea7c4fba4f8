/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Matmuls and a convolution by plain ioctls, and what the node looks like. */
#include "npu.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int main(void)
{
    struct device device = open_plain();
    char name[16] = "", description[32] = "";
    struct version version = {
        .name_len = sizeof name - 1,
        .name = (uintptr_t)name,
        .desc_len = sizeof description - 1,
        .desc = (uintptr_t)description,
    };
    EXPECT(call_plain(device.fd, VERSION, &version) == 0, "VERSION");
    EXPECT(strcmp(name, "rocket") == 0, "it is %s", name);
    EXPECT(version.major == 0 && version.minor == 0 && version.patchlevel == 0, "%d.%d.%d",
           version.major, version.minor, version.patchlevel);
    struct stat by_name, by_fd;
    EXPECT(stat(NODE, &by_name) == 0 && fstat(device.fd, &by_fd) == 0, "stat");
    EXPECT(S_ISCHR(by_name.st_mode) && S_ISCHR(by_fd.st_mode), "modes %o, %o",
           by_name.st_mode, by_fd.st_mode);
    EXPECT(by_name.st_rdev == makedev(261, 0) && by_fd.st_rdev == by_name.st_rdev,
           "numbers %u:%u", major(by_fd.st_rdev), minor(by_fd.st_rdev));
    for (unsigned round = 0; round < 2; round++)
        for (enum kind kind = 0; kind < KINDS; kind++)
            matmul(&device, kind, 10 * round + kind);
    EXPECT(close(device.fd) == 0, "close");
    puts("ok");
    return 0;
}
