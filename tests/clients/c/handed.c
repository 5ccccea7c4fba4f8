/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A file that goes from process to process: through exec, through posix_spawn,
 * and in a message to a process that never opened one. */
#include "npu.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void wait_for(pid_t child)
{
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
           "status 0x%x", status);
}

static void send_fd(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    EXPECT(sendmsg(socket, &message, 0) == 1, "sendmsg");
}

static int receive_fd(int socket)
{
    int fd;
    char control[CMSG_SPACE(sizeof fd)], byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    EXPECT(recvmsg(socket, &message, 0) == 1, "recvmsg");
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    EXPECT(header && header->cmsg_type == SCM_RIGHTS, "no descriptor");
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

int main(int count, char **arguments)
{
    if (count > 1) {
        struct device device = {atoi(arguments[1]), call_plain};
        matmul(&device, CONV, 1);
        return 0;
    }
    /* Waits for a descriptor; started before there is one. */
    int sockets[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
    pid_t receiver = fork();
    EXPECT(receiver >= 0, "fork");
    if (receiver == 0) {
        close(sockets[0]);
        struct device device = {receive_fd(sockets[1]), call_plain};
        matmul(&device, FP16, 2);
        _exit(0);
    }
    close(sockets[1]);

    struct device device = {open(NODE, O_RDWR), call_plain};
    struct work work;
    work_new(&work, &device, shape_of(INT8), 3);
    char number[16];
    snprintf(number, sizeof number, "%d", device.fd);
    char *with[] = {arguments[0], number, NULL};

    pid_t child = fork();
    EXPECT(child >= 0, "fork");
    if (child == 0) {
        execv("/proc/self/exe", with);
        _exit(127);
    }
    wait_for(child);
    pid_t spawned;
    EXPECT(posix_spawn(&spawned, "/proc/self/exe", NULL, NULL, with, environ) == 0, "posix_spawn");
    wait_for(spawned);

    send_fd(sockets[0], device.fd);
    wait_for(receiver);
    work_submit(&work);
    work_check(&work);
    work_free(&work);
    EXPECT(close(device.fd) == 0, "close");
    puts("ok");
    return 0;
}
