// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Runs a program for which prctl(PR_GET_AUXV) fails, as on kernels before 6.4.
//
//     without_auxv PROGRAM [ARGUMENT ...]
//
// valgrind takes the vDSO out of what it shows a program of its auxiliary
// vector, in memory and in /proc/self/auxv, since it unmaps it; but PR_GET_AUXV
// goes to the kernel, which names the vDSO that is gone. Who looks for the
// clock's function there, as the Rust crate rustix does, then reads memory that
// is not mapped.

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_GET_AUXV
#define PR_GET_AUXV 0x41555856
#endif

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: without_auxv PROGRAM [ARGUMENT ...]\n");
        return 2;
    }
    // The low half of an argument comes first on both of our architectures,
    // which are little-endian.
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_GET_AUXV, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof steps[0], steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("without_auxv: seccomp");
        return 1;
    }
    execvp(arguments[1], arguments + 1);
    perror(arguments[1]);
    return 1;
}
