/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Objects and fences across files and processes; descriptors passed on. */
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "uapi.h"

static void send_fd(int socket, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof fd)] = "";
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof control,
	};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(head), &fd, sizeof fd);
	CHECK(sendmsg(socket, &message, 0) == 1);
}

static int take_fd(int socket)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof control,
	};
	CHECK(recvmsg(socket, &message, 0) == 1);
	int fd;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static int other_process(int socket)
{
	/* The device as somebody else opened it, and a dma-buf. */
	int passed = take_fd(socket), dma_buf = take_fd(socket);
	struct create_bo bo = {.size = 4096};
	CHECK(ioctl(passed, CREATE_BO, &bo) == 0 && bo.dma_address == 8192);
	int own = open(NODE, O_RDWR);
	CHECK(own >= 0);
	struct prime_handle prime = {.fd = dma_buf};
	CHECK(ioctl(own, FD_TO_HANDLE, &prime) == 0 && prime.handle == 1);
	struct fini_bo fini = {.handle = prime.handle};
	CHECK(ioctl(own, FINI_BO, &fini) == 0);
	uint8_t *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, dma_buf, 0);
	CHECK(map != MAP_FAILED && map[1] == 5);
	map[2] = 6;
	return 0;
}

int main(void)
{
	int fd = open(NODE, O_RDWR), second = open(NODE, O_RDWR);
	CHECK(fd >= 0 && second >= 0);
	struct create_bo bo = {.size = 8192};
	CHECK(ioctl(fd, CREATE_BO, &bo) == 0);
	uint8_t *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, bo.offset);
	CHECK(map != MAP_FAILED);
	map[1] = 5;

	struct prime_handle prime = {.handle = 77};
	FAILS(ioctl(fd, HANDLE_TO_FD, &prime), ENOENT);
	prime = (struct prime_handle){.handle = bo.handle, .flags = O_RDWR | O_CLOEXEC};
	CHECK(ioctl(fd, HANDLE_TO_FD, &prime) == 0 && prime.fd > second);
	CHECK(fcntl(prime.fd, F_GETFD) == FD_CLOEXEC);
	int dma_buf = prime.fd;
	CHECK(lseek(dma_buf, 0, SEEK_END) == 8192);

	/* Without O_RDWR it can only be read; the first one decides. */
	struct create_bo constant = {.size = 4096};
	CHECK(ioctl(second, CREATE_BO, &constant) == 0);
	int flags[2] = {O_CLOEXEC, O_RDWR | O_CLOEXEC};
	for (int time = 0; time < 2; time++) {
		prime = (struct prime_handle){.handle = constant.handle, .flags = flags[time]};
		CHECK(ioctl(second, HANDLE_TO_FD, &prime) == 0);
		CHECK((fcntl(prime.fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
		CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, prime.fd, 0) == MAP_FAILED);
		CHECK(errno == EACCES);
		uint8_t *only_read = mmap(NULL, 4096, PROT_READ, MAP_SHARED, prime.fd, 0);
		CHECK(only_read != MAP_FAILED && only_read[0] == 0);
		CHECK(munmap(only_read, 4096) == 0 && close(prime.fd) == 0);
	}
	struct gem_close gone = {.handle = constant.handle};
	CHECK(ioctl(second, GEM_CLOSE, &gone) == 0);

	struct prime_handle import = {.fd = dma_buf};
	CHECK(ioctl(fd, FD_TO_HANDLE, &import) == 0 && import.handle == bo.handle);
	CHECK(ioctl(second, FD_TO_HANDLE, &import) == 0 && import.handle == 1);
	uint8_t *theirs = mmap(NULL, 4096, PROT_READ, MAP_SHARED, second, bo.offset);
	CHECK(theirs != MAP_FAILED && theirs[1] == 5);
	import.fd = 0;
	FAILS(ioctl(fd, FD_TO_HANDLE, &import), EINVAL);
	import.fd = -1;
	FAILS(ioctl(fd, FD_TO_HANDLE, &import), EBADF);
	import.fd = 999;
	FAILS(ioctl(fd, FD_TO_HANDLE, &import), EBADF);

	/* A fence in a file, which polls when the job has ended. */
	struct dma_buf_sync_file sync = {.flags = 1};
	/* The job waits until it is let go. */
	int timeline = open(SW_SYNC, O_RDWR);
	CHECK(timeline > dma_buf && fcntl(timeline, F_GETFD) == 0);
	struct sw_sync_fence hold = {.value = 1};
	CHECK(ioctl(timeline, SW_SYNC_CREATE_FENCE, &hold) == 0);
	struct dma_buf_sync_file held = {.flags = 2, .fd = hold.fd};
	CHECK(ioctl(dma_buf, IMPORT_SYNC_FILE, &held) == 0);
	submit_hang(fd, &bo);
	CHECK(ioctl(dma_buf, EXPORT_SYNC_FILE, &sync) == 0 && sync.fd > dma_buf);
	struct pollfd wait = {.fd = sync.fd, .events = POLLIN};
	CHECK(poll(&wait, 1, 0) == 0);
	struct dma_buf_sync_file back = {.flags = 2, .fd = sync.fd};
	CHECK(ioctl(dma_buf, IMPORT_SYNC_FILE, &back) == 0);
	struct prep_bo busy = {.handle = bo.handle};
	FAILS(ioctl(fd, PREP_BO, &busy), EBUSY);
	uint32_t one = 1;
	CHECK(ioctl(timeline, SW_SYNC_INC, &one) == 0);
	CHECK(close(timeline) == 0 && close(hold.fd) == 0);
	CHECK(poll(&wait, 1, -1) == 1 && wait.revents & POLLIN);
	struct prep_bo prep = {.handle = bo.handle, .timeout_ns = INT64_MAX};
	CHECK(ioctl(fd, PREP_BO, &prep) == 0);
	FAILS(ioctl(dma_buf, EXPORT_SYNC_FILE, (void *)8), EFAULT);
	/* qemu-user has no word for a request of a file that it does not know. */
	errno = 0;
	CHECK(ioctl(0, EXPORT_SYNC_FILE, &sync) == -1 && (errno == ENOTTY || errno == ENOSYS));

	int pair[2], status;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(other_process(pair[1]));
	send_fd(pair[0], fd);
	send_fd(pair[0], dma_buf);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(map[2] == 6);
	puts("sharing: all is well");
	return 0;
}
