/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* How programs find out what chip this is, and that the device is one. */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include "uapi.h"

static void is_node(const struct stat *stat)
{
	CHECK(S_ISCHR(stat->st_mode));
	CHECK(major(stat->st_rdev) == 261 && minor(stat->st_rdev) == 0);
}

static size_t slurp(const char *path, char *into, size_t room)
{
	FILE *file = fopen(path, "r");
	CHECK(file);
	size_t len = fread(into, 1, room - 1, file);
	into[len] = 0;
	CHECK(fclose(file) == 0);
	return len;
}

int main(void)
{
	char text[PATH_MAX];
	/* Nodes: one, and no others. */
	int found = 0;
	for (int number = 0; number < 256; number++) {
		snprintf(text, sizeof text, "/dev/accel/accel%d", number);
		int fd = open(text, O_RDWR | O_CLOEXEC);
		CHECK((fd >= 0) == (number == 0));
		if (fd >= 0) {
			found++;
			CHECK(close(fd) == 0);
		}
	}
	CHECK(found == 1);
	struct stat by_path, by_fd, by_empty;
	struct statx extended;
	CHECK(stat(NODE, &by_path) == 0 && lstat(NODE, &by_fd) == 0);
	is_node(&by_path);
	is_node(&by_fd);
	int fd = open(NODE, O_RDWR);
	CHECK(fd >= 0 && fstat(fd, &by_fd) == 0 && fstatat(fd, "", &by_empty, AT_EMPTY_PATH) == 0);
	is_node(&by_fd);
	is_node(&by_empty);
	CHECK(statx(AT_FDCWD, NODE, 0, STATX_ALL, &extended) == 0 && S_ISCHR(extended.stx_mode));
	CHECK(extended.stx_rdev_major == 261 && extended.stx_rdev_minor == 0);
	CHECK(access(NODE, R_OK | W_OK) == 0 && faccessat(AT_FDCWD, NODE, R_OK, 0) == 0);
	FAILS(access("/dev/accel/accel1", F_OK), ENOENT);
	FAILS(open(NODE, O_RDWR | O_DIRECTORY), ENOTDIR);
	CHECK(realpath("/dev//accel/./accel0", text) == text && strcmp(text, NODE) == 0);
	snprintf(text, sizeof text, "/proc/self/fd/%d", fd);
	char link[PATH_MAX] = "";
	CHECK(readlink(text, link, sizeof link) == (ssize_t)strlen(NODE) && strcmp(link, NODE) == 0);

	/* The directory, and the node in it. */
	DIR *directory = opendir("/dev/accel");
	CHECK(directory);
	for (struct dirent *entry; (entry = readdir(directory));)
		CHECK(entry->d_name[0] == '.' || strcmp(entry->d_name, "accel0") == 0);
	int in_directory = openat(dirfd(directory), "accel0", O_RDWR);
	CHECK(in_directory >= 0);
	struct version version = {0};
	CHECK(ioctl(in_directory, VERSION, &version) == 0 && version.name_len == 6);
	CHECK(close(in_directory) == 0 && closedir(directory) == 0);

	/* By number, as some do it. */
	int by_number = syscall(SYS_openat, AT_FDCWD, NODE, O_RDWR, 0);
	CHECK(by_number >= 0);
	CHECK(syscall(SYS_ioctl, by_number, VERSION, &version) == 0);
	CHECK(syscall(SYS_ioctl, by_number, VERSION, 8) == -1 && errno == EFAULT);
	CHECK(close(by_number) == 0);

	/* What sysfs and the device tree tell. */
	size_t len = slurp("/proc/device-tree/compatible", text, sizeof text);
	CHECK(memmem(text, len, "rockchip,rk3588", 16));
	len = slurp("/sys/firmware/devicetree/base/compatible", text, sizeof text);
	CHECK(memmem(text, len, "rockchip,rk3588", 16));
	slurp("/sys/class/accel/accel0/dev", text, sizeof text);
	CHECK(strcmp(text, "261:0\n") == 0);
	slurp("/sys/dev/char/261:0/uevent", text, sizeof text);
	CHECK(strstr(text, "DEVNAME=accel/accel0\n"));
	CHECK(realpath("/sys/class/accel/accel0", text));
	CHECK(strcmp(text, "/sys/devices/platform/rknn/accel/accel0") == 0);
	slurp("/sys/bus/platform/drivers/rocket/fdab0000.npu/uevent", text, sizeof text);
	CHECK(strstr(text, "rockchip,rk3588-rknn-core"));

	/* All else is as it was. */
	FAILS(open((const char *)8, O_RDONLY), EFAULT);
	FAILS(open("", O_RDONLY), ENOENT);
	CHECK(stat("/", &by_path) == 0 && S_ISDIR(by_path.st_mode));
	CHECK(isatty(fd) == 0);
	CHECK(system("echo child | cat > /dev/null && test ! -e /dev/accel/accel7") == 0);
	puts("identify: all is well");
	return 0;
}
