/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What clients in the wild do, one habit a function. */
#include "npu.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Tries every node that could be an NPU; gives the one that is. */
static struct device scans_nodes(void)
{
    struct device found = {-1, call_plain};
    for (unsigned node = 0; node < 256; node++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/accel/accel%u", node);
        int fd = open(path, O_RDWR);
        if (node == 0) {
            EXPECT(fd >= 0 && access(path, R_OK | W_OK) == 0, "%s", path);
            found.fd = fd;
        } else {
            EXPECT(fd < 0 && errno == ENOENT, "%s gave %d", path, fd);
            EXPECT(access(path, F_OK) != 0 && errno == ENOENT, "%s", path);
        }
    }
    DIR *directory = opendir("/dev/accel");
    EXPECT(directory, "opendir");
    unsigned entries = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.') {
            EXPECT(strcmp(entry->d_name, "accel0") == 0, "%s", entry->d_name);
            entries++;
        }
    EXPECT(entries == 1, "%u entries", entries);
    closedir(directory);
    return found;
}

/* Keeps only a copy of the descriptor. */
static struct device uses_a_copy(struct device device)
{
    int copies[3] = {dup(device.fd), -1, -1};
    EXPECT(copies[0] >= 0 && close(device.fd) == 0, "dup");
    copies[1] = fcntl(copies[0], F_DUPFD_CLOEXEC, 200);
    EXPECT(copies[1] >= 200 && close(copies[0]) == 0, "F_DUPFD_CLOEXEC");
    copies[2] = dup2(copies[1], 150);
    EXPECT(copies[2] == 150 && close(copies[1]) == 0, "dup2");
    device.fd = copies[2];
    return device;
}

static void closes_what_is_mapped(struct device *device)
{
    struct bo bo = bo_new(device, 4096);
    uint8_t *map = bo_map(&bo);
    uint32_t address = bo.address;
    map[0] = 42;
    bo_close(&bo);
    struct bo next = bo_new(device, 4096);
    EXPECT(next.address != address, "0x%x is still mapped", address);
    EXPECT(map[0] == 42, "%d", map[0]);
    uint8_t *other = bo_map(&next);
    EXPECT(other[0] == 0, "%d", other[0]);
    map[0] = 43;
    EXPECT(other[0] == 0, "%d", other[0]);
    EXPECT(munmap(map, 4096) == 0, "munmap");
    bo_unmap(&next, other);
    bo_close(&next);
    struct bo again = bo_new(device, 4096);
    /* The lowest that is free; those of earlier jobs' objects may be by now. */
    EXPECT(again.address <= address || again.address <= next.address, "0x%x", again.address);
    bo_close(&again);
}

static void sends_larger_jobs(struct device *device)
{
    struct {
        struct job job;
        uint64_t more;
    } jobs[2];
    struct work works[2];
    EXPECT(sizeof jobs[0] == 48, "%zu", sizeof jobs[0]);
    for (unsigned index = 0; index < 2; index++) {
        work_new(&works[index], device, shape_of(INT8), 50 + index);
        work_submit(&works[index]);
        work_check(&works[index]);
        /* Computed once more, after what is there was forgotten. */
        memset(&jobs[index], 0xff, sizeof jobs[index]);
        jobs[index].job = works[index].job;
        uint8_t *c = calloc(1, works[index].c.size);
        bo_write(&works[index].c, c, works[index].c.size);
        free(c);
    }
    EXPECT(submit_jobs(device, jobs, 2, 48) == 0, "SUBMIT");
    for (unsigned index = 0; index < 2; index++) {
        work_check(&works[index]);
        work_free(&works[index]);
    }
    EXPECT(submit_jobs(device, jobs, 2, 32) == -EINVAL, "short jobs");
}

static void passes_wild_pointers(struct device *device)
{
    void *wild[] = {NULL, (void *)16, (void *)(UINTPTR_MAX - 4095), (void *)(UINTPTR_MAX / 2 - 7)};
    uint32_t requests[] = {VERSION, CREATE_BO, SUBMIT, PREP_BO,
                           FINI_BO, GEM_CLOSE};
    char *text = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(text != MAP_FAILED, "mmap");
    for (unsigned request = 0; request < sizeof requests / sizeof *requests; request++) {
        for (unsigned pointer = 0; pointer < sizeof wild / sizeof *wild; pointer++)
            EXPECT(device->call(device->fd, requests[request], wild[pointer]) == -1 && errno == EFAULT,
                   "request 0x%x, pointer %p", requests[request], wild[pointer]);
        EXPECT(device->call(device->fd, requests[request], text) == -1 && errno == EFAULT,
               "request 0x%x", requests[request]);
    }
    for (unsigned pointer = 0; pointer < sizeof wild / sizeof *wild; pointer++)
        EXPECT(submit_jobs(device, wild[pointer], 1, 40) == -EFAULT, "jobs at %p", wild[pointer]);
    EXPECT(submit_jobs(device, text, 1, 40) == -EFAULT, "jobs at %p", (void *)text);
    EXPECT(munmap(text, 4096) == 0, "munmap");

    /* Within a job they are no error of the call; the job is gone. */
    struct work work;
    work_new(&work, device, shape_of(INT8), 60);
    work_submit(&work);
    work_check(&work);
    uint8_t *marked = malloc(work.c.size);
    memset(marked, 0x5a, work.c.size);
    bo_write(&work.c, marked, work.c.size);
    for (unsigned pointer = 0; pointer < sizeof wild / sizeof *wild; pointer++)
        for (unsigned field = 0; field < 3; field++) {
            struct job job = work.job;
            uint64_t *fields[] = {&job.tasks, &job.in_bo_handles, &job.out_bo_handles};
            *fields[field] = (uintptr_t)wild[pointer];
            EXPECT(submit_jobs(device, &job, 1, sizeof job) == 0, "field %u", field);
        }
    uint8_t *after = malloc(work.c.size);
    bo_read(&work.c, after, work.c.size);
    EXPECT(memcmp(marked, after, work.c.size) == 0, "a job ran");
    free(marked);
    free(after);
    work_submit(&work);
    work_check(&work);
    work_free(&work);
}

/* A graph as one SUBMIT: each job's output is the next one's input, and only
 * the buffers say so. Matrices with one +-1 a row keep all values small. */
static void submits_a_graph(struct device *device)
{
    enum { N = 64, LAYERS = 24 };
    struct shape shape = {HALF, N, N, N, 0, 0};
    struct bo x[LAYERS + 1], w[LAYERS], regcmd[LAYERS];
    struct task tasks[LAYERS];
    struct job jobs[LAYERS];
    uint32_t in[LAYERS][3], out[LAYERS];
    static int value[N][N], next[N][N];
    uint8_t *bytes = calloc(1, a_bytes(&shape));
    for (unsigned layer = 0; layer <= LAYERS; layer++)
        x[layer] = bo_new(device, a_bytes(&shape));
    for (unsigned m = 0; m < N; m++)
        for (unsigned k = 0; k < N; k++)
            put_a(&shape, bytes, m, k, value[m][k] = (int)(m * 31 + k * 7) % 201 - 100);
    bo_write(&x[0], bytes, a_bytes(&shape));
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        uint64_t words[PROGRAM_WORDS];
        memset(bytes, 0, b_bytes(&shape));
        for (unsigned n = 0; n < N; n++) {
            unsigned from = (n * 5 + layer * 11) % N;
            int sign = (n + layer) % 3 ? 1 : -1;
            put_b(&shape, bytes, n, from, 0, sign);
            for (unsigned m = 0; m < N; m++)
                next[m][n] = sign * value[m][from];
        }
        memcpy(value, next, sizeof value);
        w[layer] = bo_new(device, b_bytes(&shape));
        bo_write(&w[layer], bytes, b_bytes(&shape));
        regcmd[layer] = bo_new(device, sizeof words);
        program(&shape, x[layer].address, w[layer].address, x[layer + 1].address, 0, words);
        bo_write(&regcmd[layer], words, sizeof words);
        tasks[layer] = (struct task){regcmd[layer].address, PROGRAM_WORDS};
        in[layer][0] = x[layer].handle;
        in[layer][1] = w[layer].handle;
        in[layer][2] = regcmd[layer].handle;
        out[layer] = x[layer + 1].handle;
        jobs[layer] = (struct job){(uintptr_t)&tasks[layer], (uintptr_t)in[layer],
                                   (uintptr_t)&out[layer], 1, sizeof(struct task), 3, 1};
    }
    EXPECT(submit_jobs(device, jobs, LAYERS, sizeof *jobs) == 0, "SUBMIT");
    bo_read(&x[LAYERS], bytes, c_bytes(&shape));
    for (unsigned m = 0; m < N; m++)
        for (unsigned n = 0; n < N; n++)
            EXPECT(c_element(&shape, bytes, m, n) == value[m][n], "x[%u][%u] is %d, not %d", m, n,
                   c_element(&shape, bytes, m, n), value[m][n]);
    for (unsigned layer = 0; layer <= LAYERS; layer++)
        bo_close(&x[layer]);
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        bo_close(&w[layer]);
        bo_close(&regcmd[layer]);
    }
    free(bytes);
}

/* A job of many tasks, each of which names the next one in its trailer although
 * the kernel kicks each by itself. */
static void submits_512_tasks(struct device *device)
{
    enum { TASKS = 512, STRIDE = 1024 };
    struct shape tile = {INT8, 4, 64, 32, 0, 0};
    size_t a_size = a_bytes(&tile), c_size = c_bytes(&tile);
    struct bo a = bo_new(device, TASKS * a_size), b = bo_new(device, b_bytes(&tile));
    struct bo c = bo_new(device, TASKS * c_size), regcmd = bo_new(device, TASKS * STRIDE);
    static struct task tasks[TASKS];
    uint8_t *a_data = calloc(TASKS, a_size), *b_data = calloc(1, b_bytes(&tile));
    uint8_t *programs = calloc(TASKS, STRIDE), *c_data = malloc(TASKS * c_size);
    for (unsigned n = 0; n < tile.n; n++)
        for (unsigned k = 0; k < tile.k; k++)
            put_b(&tile, b_data, n, k, 0, (int)(n * 3 + k) % 11 - 5);
    for (unsigned task = 0; task < TASKS; task++) {
        for (unsigned m = 0; m < tile.m; m++)
            for (unsigned k = 0; k < tile.k; k++)
                put_a(&tile, a_data + task * a_size, m, k, (int)(task + m * 5 + k) % 15 - 7);
        uint32_t here = regcmd.address + task * STRIDE;
        program(&tile, a.address + task * (uint32_t)a_size, b.address,
                c.address + task * (uint32_t)c_size, task + 1 < TASKS ? here + STRIDE : 0,
                (uint64_t *)(void *)(programs + task * STRIDE));
        tasks[task] = (struct task){here, PROGRAM_WORDS};
    }
    bo_write(&a, a_data, TASKS * a_size);
    bo_write(&b, b_data, b_bytes(&tile));
    bo_write(&regcmd, programs, TASKS * STRIDE);
    uint32_t in[] = {a.handle, b.handle, regcmd.handle}, out[] = {c.handle};
    struct job job = {(uintptr_t)tasks, (uintptr_t)in, (uintptr_t)out, TASKS, sizeof *tasks, 3, 1};
    EXPECT(submit_jobs(device, &job, 1, sizeof job) == 0, "SUBMIT");
    bo_read(&c, c_data, TASKS * c_size);
    for (unsigned task = 0; task < TASKS; task++)
        for (unsigned m = 0; m < tile.m; m++)
            for (unsigned n = 0; n < tile.n; n++) {
                int sum = 0;
                for (unsigned k = 0; k < tile.k; k++)
                    sum += ((int)(task + m * 5 + k) % 15 - 7) * ((int)(n * 3 + k) % 11 - 5);
                int is = c_element(&tile, c_data + task * c_size, m, n);
                EXPECT(is == sum, "task %u: C[%u][%u] is %d, not %d", task, m, n, is, sum);
            }
    free(a_data);
    free(b_data);
    free(c_data);
    free(programs);
    bo_close(&a);
    bo_close(&b);
    bo_close(&c);
    bo_close(&regcmd);
}

static void opens_65_files(void)
{
    enum { FILES = 65 };
    struct device devices[FILES];
    struct work works[FILES];
    for (unsigned file = 0; file < FILES; file++) {
        devices[file] = open_plain();
        work_new(&works[file], &devices[file], shape_of(file % KINDS), file);
        EXPECT(works[file].a.address == 0, "0x%x", works[file].a.address);
    }
    for (unsigned file = 0; file < FILES; file++)
        work_submit(&works[file]);
    for (unsigned file = 0; file < FILES; file++) {
        work_check(&works[file]);
        work_free(&works[file]);
        EXPECT(close(devices[file].fd) == 0, "close");
    }
}

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    (void)number;
    signals++;
}

/* Waits with timeouts of both ends, while a timer interrupts the waits. */
static void waits_in_every_way(struct device *device)
{
    enum { TASKS = 60 };
    struct shape shape = {INT8, 256, 512, 256, 0, 0};
    struct work work;
    work_new(&work, device, shape, 70);
    EXPECT(bo_prep(&work.c, 0) == 0 && bo_prep(&work.c, -1) == 0, "an idle buffer");
    struct task tasks[TASKS];
    for (unsigned task = 0; task < TASKS; task++)
        tasks[task] = (struct task){work.regcmd.address, PROGRAM_WORDS};
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    for (unsigned restart = 0; restart < 2; restart++) {
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = restart ? SA_RESTART : 0};
        EXPECT(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
        work_submit(&work);
        work.job.tasks = (uintptr_t)tasks;
        work.job.task_count = TASKS;
        EXPECT(submit_jobs(device, &work.job, 1, sizeof work.job) == 0, "SUBMIT");
        int poll = bo_prep(&work.c, 0), interrupted = 0, result;
        EXPECT(poll == 0 || poll == -EBUSY, "PREP 0: %d", poll);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        int timed = bo_prep(&work.c, now.tv_sec * 1000000000ll + now.tv_nsec + 1000000);
        /* -EBUSY where the millisecond was over before the kernel looked. */
        EXPECT(timed == 0 || timed == -ETIMEDOUT || timed == -EBUSY, "PREP 1 ms: %d", timed);
        signals = 0;
        EXPECT(setitimer(ITIMER_REAL, &every, NULL) == 0, "setitimer");
        while ((result = bo_prep(&work.c, INT64_MAX)) == -EINTR)
            interrupted++;
        EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0, "setitimer");
        EXPECT(result == 0, "PREP INT64_MAX: %d", result);
        EXPECT(!restart || interrupted == 0, "%d times in spite of SA_RESTART", interrupted);
        /* The end of the job may come before the first signal. */
        EXPECT(interrupted == 0 || signals > 0, "%d times without a signal", interrupted);
        work_check(&work);
    }
    work_free(&work);
}

static void makes_a_large_buffer(struct device *device)
{
    size_t size = 500u << 20;
    struct bo bo = bo_new(device, size);
    uint8_t *map = bo_map(&bo);
    EXPECT(map[0] == 0 && map[size - 1] == 0, "fresh memory");
    map[size - 1] = 7;
    bo_unmap(&bo, map);
    map = bo_map(&bo);
    EXPECT(map[size - 1] == 7, "%d", map[size - 1]);
    bo_unmap(&bo, map);
    bo_close(&bo);
}

int main(void)
{
    struct device device = uses_a_copy(scans_nodes());
    matmul(&device, INT8, 1);
    closes_what_is_mapped(&device);
    sends_larger_jobs(&device);
    passes_wild_pointers(&device);
    submits_a_graph(&device);
    submits_512_tasks(&device);
    opens_65_files();
    waits_in_every_way(&device);
    makes_a_large_buffer(&device);
    EXPECT(close(device.fd) == 0, "close");
    puts("ok");
    return 0;
}
