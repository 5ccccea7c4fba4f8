/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* 64 processes, 65 files, threads on one file, objects of 500 MB. */
#include <pthread.h>
#include <sys/wait.h>
#include "uapi.h"

enum { PROCESSES = 64, FILES = 65, THREADS = 4, ROUNDS = 50 };

static void use(int fd, uint32_t size)
{
	struct create_bo bo = {.size = size};
	CHECK(ioctl(fd, CREATE_BO, &bo) == 0);
	uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, bo.offset);
	CHECK(map != MAP_FAILED && map[size - 1] == 0);
	map[size - 1] = 1;
	struct gem_close close_bo = {.handle = bo.handle};
	CHECK(ioctl(fd, GEM_CLOSE, &close_bo) == 0);
	CHECK(map[size - 1] == 1 && munmap(map, size) == 0);
}

static void *thread(void *fd)
{
	for (int round = 0; round < ROUNDS; round++)
		use(*(int *)fd, 4096 + 64 * round);
	return NULL;
}

int main(void)
{
	for (int process = 0; process < PROCESSES; process++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			int fd = open(NODE, O_RDWR);
			CHECK(fd >= 0);
			for (int round = 0; round < 5; round++)
				use(fd, 8192);
			_exit(0);
		}
	}
	for (int process = 0; process < PROCESSES; process++) {
		int status;
		CHECK(wait(&status) > 0 && status == 0);
	}

	int files[FILES];
	for (int file = 0; file < FILES; file++) {
		files[file] = open(NODE, O_RDWR | O_NONBLOCK);
		CHECK(files[file] >= 0);
		use(files[file], 4096);
	}
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, thread, &files[0]) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);

	/* Mapped anew for each access; all of it is given back in the end. */
	struct create_bo bo = {.size = 4096};
	CHECK(ioctl(files[1], CREATE_BO, &bo) == 0 && bo.dma_address == 0);
	for (int round = 0; round < 200; round++) {
		uint8_t *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, files[1], bo.offset);
		CHECK(map != MAP_FAILED && map[0] == (uint8_t)round);
		map[0]++;
		CHECK(munmap(map, 4096) == 0);
	}
	use(files[2], 500u << 20);
	puts("crowd: all is well");
	return 0;
}
