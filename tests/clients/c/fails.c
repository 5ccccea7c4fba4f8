/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Jobs that the driver kills or drops, among others that do their work. */
#include "npu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Submits the job of `work` changed somehow: the call succeeds. */
static void submit_changed(struct device *device, struct job job)
{
    EXPECT(submit_jobs(device, &job, 1, sizeof job) == 0, "SUBMIT");
}

int main(void)
{
    struct device device = open_plain();
    struct work work;
    work_new(&work, &device, shape_of(INT8), 1);
    work_submit(&work);
    work_check(&work);

    struct job job = work.job;
    /* Pointers to nowhere, no programs, an object twice, one that is not there. */
    job.tasks = 16;
    submit_changed(&device, job);
    job = work.job;
    job.task_count = 0;
    submit_changed(&device, job);
    job = work.job;
    uint32_t twice[2] = {work.c.handle, work.c.handle};
    job.out_bo_handles = (uintptr_t)twice;
    job.out_bo_handle_count = 2;
    submit_changed(&device, job);
    uint32_t nothing = 77;
    job.out_bo_handles = (uintptr_t)&nothing;
    job.out_bo_handle_count = 1;
    submit_changed(&device, job);

    /* A program that starts nothing: the driver resets the core. */
    struct bo empty = bo_new(&device, 4096);
    struct task task = {.regcmd = empty.address, .regcmd_count = 16};
    job = work.job;
    job.tasks = (uintptr_t)&task;
    submit_changed(&device, job);

    /* No list of what is written: there is nothing to wait for. */
    job = work.job;
    job.out_bo_handle_count = 0;
    submit_changed(&device, job);
    work_submit(&work);
    work_check(&work);
    bo_close(&empty);
    work_free(&work);
    EXPECT(close(device.fd) == 0, "close");
    puts("ok");
    return 0;
}
