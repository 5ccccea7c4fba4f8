/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A child works on its parent's file, which outlives it; another takes over a
 * file that its parent closes; programs started in between are no clients. */
#include "npu.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void wait_for(pid_t child)
{
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
           "status 0x%x", status);
}

int main(void)
{
    struct device device = open_plain();
    struct work work;
    work_new(&work, &device, shape_of(INT8), 5);

    pid_t child = fork();
    EXPECT(child >= 0, "fork");
    if (child == 0) {
        /* The parent's buffers, by the parent's handles and addresses. */
        work_submit(&work);
        work_check(&work);
        matmul(&device, FP16, 6);
        _exit(0);
    }
    wait_for(child);
    /* What the child had computed is there, and the file works as before. */
    work_check(&work);
    matmul(&device, INT4, 7);

    EXPECT(system("test \"$(echo from sh)\" = 'from sh' && nice true && test ! -e /dev/accel/accel1") == 0,
           "programs that are no clients");

    int done[2];
    EXPECT(pipe(done) == 0, "pipe");
    child = fork();
    EXPECT(child >= 0, "fork");
    if (child == 0) {
        char byte;
        close(done[1]);
        EXPECT(read(done[0], &byte, 1) == 0, "read");
        /* Only this process has the file now. */
        work_submit(&work);
        work_check(&work);
        work_free(&work);
        EXPECT(close(device.fd) == 0, "close");
        _exit(0);
    }
    EXPECT(close(device.fd) == 0, "close");
    close(done[0]);
    close(done[1]);
    wait_for(child);
    puts("ok");
    return 0;
}
