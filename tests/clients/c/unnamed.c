/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One ioctl to a server that asks for what the ioctl does not name: it fails,
 * and neither memory nor descriptors have changed. */
#include "uapi.h"

enum { FILES = 64 };

static struct {
	uint64_t before;
	union {
		struct version version;
		struct submit submit;
		struct prime_handle prime;
	} arg;
	uint64_t after;
	char name[8], beyond[8];
	struct job jobs[2];
	struct task tasks[2];
	uint32_t handles[2];
	uint64_t end;
} memory;

static unsigned long prepare(const char *what)
{
	if (!strcmp(what, "version")) {
		memory.arg.version.name = (uintptr_t)memory.name;
		memory.arg.version.name_len = sizeof memory.name;
		return VERSION;
	}
	if (!strcmp(what, "import")) {
		memory.arg.prime.fd = 1;
		return FD_TO_HANDLE;
	}
	if (!strcmp(what, "export"))
		return HANDLE_TO_FD;
	for (int index = 0; index < 2; index++)
		memory.jobs[index] = (struct job){
			.tasks = (uintptr_t)&memory.tasks[index], .task_count = 1,
			.task_struct_size = sizeof(struct task),
			.out_bo_handles = (uintptr_t)&memory.handles[index],
			.out_bo_handle_count = 1,
		};
	memory.arg.submit = (struct submit){
		.jobs = (uintptr_t)memory.jobs, .job_count = 2,
		.job_struct_size = sizeof(struct job),
	};
	return SUBMIT;
}

/* Which of the first descriptors are open, as bits. */
static uint64_t open_files(void)
{
	uint64_t files = 0;
	for (int fd = 0; fd < FILES; fd++)
		files |= (uint64_t)(fcntl(fd, F_GETFD) >= 0) << fd;
	return files;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	static char as_before[sizeof memory];
	unsigned long request = prepare(argv[1]);
	int fd = open(NODE, O_RDWR);
	CHECK(fd >= 0);
	memcpy(as_before, &memory, sizeof memory);
	uint64_t files = open_files();
	FAILS(ioctl(fd, request, &memory.arg), EPROTO);
	CHECK(memcmp(as_before, &memory, sizeof memory) == 0);
	CHECK(open_files() == files);
	return 0;
}
