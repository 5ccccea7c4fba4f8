/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One client is killed while its jobs run; another goes on. */
#include "npu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TASKS = 200, JOBS = 20, DEATHS = 3 };

/* Hands over more than could be done by the time it is killed. */
static void busy(int told)
{
    struct device device = open_plain();
    struct shape shape = {INT8, 256, 512, 256, 0, 0};
    struct work work;
    work_new(&work, &device, shape, 9);
    struct task tasks[TASKS];
    for (unsigned task = 0; task < TASKS; task++)
        tasks[task] = (struct task){work.regcmd.address, PROGRAM_WORDS};
    work_submit(&work);
    work.job.tasks = (uintptr_t)tasks;
    work.job.task_count = TASKS;
    for (unsigned job = 0; job < JOBS; job++)
        EXPECT(submit_jobs(&device, &work.job, 1, sizeof work.job) == 0, "SUBMIT");
    EXPECT(write(told, "", 1) == 1, "write");
    bo_prep(&work.c, INT64_MAX);
    /* Only if all of it was done before the end came. */
    pause();
}

int main(void)
{
    struct device device = open_plain();
    for (unsigned death = 0; death < DEATHS; death++) {
        int told[2], status;
        char byte;
        EXPECT(pipe(told) == 0, "pipe");
        pid_t child = fork();
        EXPECT(child >= 0, "fork");
        if (child == 0) {
            close(told[0]);
            busy(told[1]);
            _exit(1);
        }
        close(told[1]);
        EXPECT(read(told[0], &byte, 1) == 1, "the child failed");
        close(told[0]);
        matmul(&device, INT8, 10 + death);
        EXPECT(kill(child, SIGKILL) == 0, "kill");
        matmul(&device, FP16, 20 + death);
        EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
                   WTERMSIG(status) == SIGKILL,
               "status 0x%x", status);
        matmul(&device, CONV, 30 + death);
        struct device fresh = open_plain();
        matmul(&fresh, INT4, 40 + death);
        EXPECT(close(fresh.fd) == 0, "close");
    }
    EXPECT(close(device.fd) == 0, "close");
    puts("ok");
    return 0;
}
