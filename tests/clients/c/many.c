/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* 64 processes, each with a file of its own, at once. With an argument, one of
 * them: started anew, so that the library is loaded into each (an emulator may
 * not be able to start programs; then the copy of the process goes on). */
#include "npu.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 64 };

static void one_of_them(unsigned number)
{
    struct device device = open_plain();
    matmul(&device, number % KINDS, number);
    matmul(&device, INT8, number + PROCESSES);
    EXPECT(close(device.fd) == 0, "close");
}

int main(int count, char **arguments)
{
    if (count > 1) {
        one_of_them((unsigned)atoi(arguments[1]));
        return 0;
    }
    pid_t children[PROCESSES];
    for (unsigned number = 0; number < PROCESSES; number++) {
        children[number] = fork();
        EXPECT(children[number] >= 0, "fork");
        if (children[number] == 0) {
            char text[16];
            snprintf(text, sizeof text, "%u", number);
            execl("/proc/self/exe", arguments[0], text, (char *)NULL);
            one_of_them(number);
            _exit(0);
        }
    }
    for (unsigned number = 0; number < PROCESSES; number++) {
        int status;
        EXPECT(waitpid(children[number], &status, 0) == children[number] && WIFEXITED(status) &&
                   WEXITSTATUS(status) == 0,
               "process %u: status 0x%x", number, status);
    }
    puts("ok");
    return 0;
}
