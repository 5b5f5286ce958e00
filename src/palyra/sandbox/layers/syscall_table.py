"""System call numbers, for the names that launch plans and seccomp programs use.

A name that an architecture lacks is absent from its table: a filter has nothing to block there.
"""

from typing import Final

# AUDIT_ARCH_*: the machine's ELF number, with the bits for 64-bit and little-endian.
AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Set in the number of a call that enters through the x32 interface of x86-64.
X32_BIT: Final = 0x40000000

# Name, number on x86-64, number on aarch64.
_NUMBERS: Final = """
_sysctl 156 -
acct 163 89
add_key 248 217
adjtimex 159 171
bpf 321 280
capset 126 91
chdir 80 49
chmod 90 -
chroot 161 51
clock_adjtime 305 266
clock_settime 227 112
clone 56 220
clone3 435 435
close 3 57
creat 85 -
create_module 174 -
delete_module 176 106
dup3 292 24
execve 59 221
execveat 322 281
exit_group 231 94
fanotify_init 300 262
fchmod 91 52
fchmodat 268 53
fchmodat2 452 452
fcntl 72 25
finit_module 313 273
fsconfig 431 431
fsmount 432 432
fsopen 430 430
fspick 433 433
get_kernel_syms 177 -
getpid 39 172
init_module 175 105
io_uring_enter 426 426
io_uring_register 427 427
io_uring_setup 425 425
ioctl 16 29
ioperm 173 -
iopl 172 -
kcmp 312 272
kexec_file_load 320 294
kexec_load 246 104
keyctl 250 219
landlock_add_rule 445 445
landlock_create_ruleset 444 444
landlock_restrict_self 446 446
lookup_dcookie 212 18
lsm_set_self_attr 460 460
mbind 237 235
migrate_pages 256 238
mkdirat 258 34
mknod 133 -
mknodat 259 33
modify_ldt 154 -
mount 165 40
mount_setattr 442 442
move_mount 429 429
move_pages 279 239
name_to_handle_at 303 264
nfsservctl 180 42
open 2 -
open_by_handle_at 304 265
open_tree 428 428
open_tree_attr 467 467
openat 257 56
openat2 437 437
perf_event_open 298 241
personality 135 92
pidfd_getfd 438 438
pivot_root 155 41
prctl 157 167
pread64 17 67
prlimit64 302 261
process_madvise 440 440
process_mrelease 448 448
process_vm_readv 310 270
process_vm_writev 311 271
ptrace 101 117
query_module 178 -
quotactl 179 60
quotactl_fd 443 443
reboot 169 142
recvmsg 47 212
request_key 249 218
rt_sigaction 13 134
sendfile 40 71
sendmmsg 307 269
sendmsg 46 211
sendto 44 206
set_mempolicy 238 237
set_mempolicy_home_node 450 450
setdomainname 171 162
sethostname 170 161
setns 308 268
setrlimit 160 164
setsid 112 157
settimeofday 164 170
socket 41 198
socketpair 53 199
swapoff 168 225
swapon 167 224
symlinkat 266 36
sysfs 139 -
syslog 103 116
umask 95 166
umount2 166 39
unshare 272 97
uselib 134 -
userfaultfd 323 282
ustat 136 -
vhangup 153 58
write 1 64
"""
_ROWS: Final = tuple(line.split() for line in _NUMBERS.split("\n") if line)

ARCHITECTURES: Final = ("x86_64", "aarch64")
SYSCALLS: Final = {
    machine: {row[0]: int(row[column]) for row in _ROWS if row[column] != "-"}
    for column, machine in enumerate(ARCHITECTURES, start=1)
}
