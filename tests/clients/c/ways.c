/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every way to find the node, to open it and to call it. */
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include "npu.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

/* What a call with -D_FORTIFY_SOURCE becomes. */
int __open_2(const char *path, int flags);
int __openat_2(int directory, const char *path, int flags);

static int by_syscall(int fd, unsigned long request, void *argument)
{
    return (int)syscall(SYS_ioctl, fd, request, argument);
}

static void works(int fd, const char *way)
{
    EXPECT(fd >= 0, "%s", way);
    struct device device = {fd, call_plain};
    matmul(&device, INT8, 3);
    EXPECT(close(fd) == 0, "%s", way);
}

static void opens_in_every_way(void)
{
    int flags = O_RDWR | O_CLOEXEC;
    works(open(NODE, flags), "open");
    works(open64(NODE, flags), "open64");
    works(openat(AT_FDCWD, NODE, flags), "openat");
    works(openat64(AT_FDCWD, NODE, flags), "openat64");
    works(__open_2(NODE, flags), "__open_2");
    works(__openat_2(AT_FDCWD, NODE, flags), "__openat_2");
    works(open("/dev//accel/./accel0", flags), "a path in another form");
    works(open("/dev/accel/../accel/accel0", flags), "a path with ..");
    works((int)syscall(SYS_openat, AT_FDCWD, NODE, flags), "syscall");

    int directory = open("/dev/accel", O_RDONLY | O_DIRECTORY);
    EXPECT(directory >= 0, "the directory");
    works(openat(directory, "accel0", flags), "openat in the directory");
    EXPECT(openat(directory, "accel1", flags) < 0 && errno == ENOENT, "accel1");
    EXPECT(close(directory) == 0, "close");

    FILE *stream = fopen(NODE, "r+");
    EXPECT(stream, "fopen");
    struct device device = {fileno(stream), call_plain};
    matmul(&device, INT8, 4);
    EXPECT(fclose(stream) == 0, "fclose");

    int fd = open(NODE, flags);
    struct device direct = {fd, by_syscall};
    matmul(&direct, FP16, 5);
    EXPECT(close(fd) == 0, "close");
}

static int ioctl_number(int fd, unsigned long request)
{
    uint64_t argument[8] = {0};
    return call_plain(fd, request, argument) ? -errno : 0;
}

static void errors_are_the_kernels(void)
{
    EXPECT(open(NODE, O_RDWR | O_CREAT | O_EXCL, 0600) < 0 && errno == EEXIST, "O_EXCL");
    EXPECT(open(NODE, O_RDONLY | O_DIRECTORY) < 0 && errno == ENOTDIR, "O_DIRECTORY");
    EXPECT(open("/dev/accel/accel0/x", O_RDWR) < 0 && errno == ENOTDIR, "below the node");
    EXPECT(open("/dev/accel/", O_RDWR) < 0 && errno == EISDIR, "the directory");
    int fd = open(NODE, O_RDWR);
    EXPECT(ioctl_number(fd, 0x40046444u) == -EINVAL, "a driver's request that it has not");
    EXPECT(ioctl_number(fd, 0x5401u) == -ENOTTY, "a terminal's request");
    char byte;
    EXPECT(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "F_SETFL");
    EXPECT(read(fd, &byte, 1) == -1 && errno == EAGAIN, "read");
    struct device device = {fd, call_plain};
    matmul(&device, INT8, 6);
    EXPECT(close(fd) == 0, "close");
}

static void is_found_by_pattern(void)
{
    glob_t found;
    EXPECT(glob("/dev/accel/accel*", 0, NULL, &found) == 0, "glob");
    EXPECT(found.gl_pathc == 1 && strcmp(found.gl_pathv[0], NODE) == 0, "%zu nodes",
           found.gl_pathc);
    globfree(&found);
    /* Behind what there is already, and behind places kept free. */
    found.gl_offs = 2;
    EXPECT(glob("/dev/nul?", GLOB_DOOFFS, NULL, &found) == 0, "glob");
    EXPECT(glob("/dev/accel/*", GLOB_DOOFFS | GLOB_APPEND, NULL, &found) == 0, "glob");
    EXPECT(found.gl_pathc == 2 && strcmp(found.gl_pathv[2], "/dev/null") == 0 &&
               strcmp(found.gl_pathv[3], NODE) == 0,
           "%s, %s", found.gl_pathv[2], found.gl_pathv[3]);
    globfree(&found);
    EXPECT(glob("/dev/accel/accel1*", 0, NULL, &found) == GLOB_NOMATCH, "glob");
    EXPECT(glob("/dev/accel/x*", GLOB_NOCHECK, NULL, &found) == 0 &&
               strcmp(found.gl_pathv[0], "/dev/accel/x*") == 0,
           "%s", found.gl_pathv[0]);
    globfree(&found);
    struct dirent **entries;
    int count = scandir("/dev/accel", &entries, NULL, alphasort);
    EXPECT(count == 3 && strcmp(entries[2]->d_name, "accel0") == 0, "%d entries", count);
    while (count--)
        free(entries[count]);
    free(entries);
}

static void has_no_events(void)
{
    int pipes[2], fd = open(NODE, O_RDWR);
    EXPECT(pipe(pipes) == 0, "pipe");
    struct pollfd files[] = {{fd, POLLIN | POLLOUT, -1}, {pipes[0], POLLIN, -1}};
    EXPECT(poll(files, 2, 0) == 0 && !files[0].revents && !files[1].revents, "poll");
    EXPECT(poll(files, 1, 1) == 0, "poll, with a time");
    EXPECT(ppoll(files, 2, &(struct timespec){0, 1}, NULL) == 0, "ppoll");
    EXPECT(write(pipes[1], "", 1) == 1, "write");
    EXPECT(poll(files, 2, -1) == 1 && !files[0].revents && files[1].revents == POLLIN,
           "poll of two");
    struct pollfd other = {pipes[1], POLLOUT, 0};
    EXPECT(poll(&other, 1, 0) == 1 && other.revents == POLLOUT, "poll of a pipe");
    struct pollfd *volatile wild = (void *)16;
    EXPECT(poll(wild, 1, 0) == -1 && errno == EFAULT, "poll of a wild pointer");

    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT}, seen;
    EXPECT(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    EXPECT(event.events == (EPOLLIN | EPOLLOUT), "the program's own is not changed");
    EXPECT(epoll_wait(epoll, &seen, 1, 0) == 0, "epoll_wait");
    EXPECT(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0, "epoll_ctl");
    EXPECT(epoll_wait(epoll, &seen, 1, 1) == 0, "epoll_wait");
    EXPECT(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL) == 0, "epoll_ctl");
    close(epoll);
    close(pipes[0]);
    close(pipes[1]);
    EXPECT(close(fd) == 0, "close");
}

static void is_a_character_device(void)
{
    DIR *directory = opendir("/dev/accel");
    EXPECT(directory, "opendir");
    for (struct dirent *entry; (entry = readdir(directory));)
        EXPECT(entry->d_type == (entry->d_name[0] == '.' ? DT_DIR : DT_CHR), "%s: %d",
               entry->d_name, entry->d_type);
    closedir(directory);
    /* What ls -l asks for; ENOENT would be an error. */
    char value[64];
    EXPECT(lgetxattr(NODE, "security.selinux", value, sizeof value) >= 0 || errno != ENOENT,
           "lgetxattr");
    EXPECT(getxattr(NODE, "system.posix_acl_access", value, sizeof value) >= 0 ||
               errno != ENOENT,
           "getxattr");
    EXPECT(listxattr(NODE, value, sizeof value) >= 0 || errno != ENOENT, "listxattr");
}

/* By the time that munmap returns nothing is left of the mapping anywhere: the
 * next object gets the same addresses. */
static void what_is_unmapped_is_gone(void)
{
    enum { ROUNDS = 1000, BYTES = 4096 };
    struct device device = open_plain();
    struct bo first = bo_new(&device, BYTES);
    bo_close(&first);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct bo bo = bo_new(&device, BYTES);
        EXPECT(bo.address == first.address && bo.offset == first.offset, "round %u: at 0x%x, 0x%llx",
               round, bo.address, (unsigned long long)bo.offset);
        bo_unmap(&bo, bo_map(&bo));
        bo_close(&bo);
    }
    EXPECT(close(device.fd) == 0, "close");
}

int main(void)
{
    opens_in_every_way();
    errors_are_the_kernels();
    is_found_by_pattern();
    has_no_events();
    is_a_character_device();
    what_is_unmapped_is_gone();
    puts("ok");
    return 0;
}
