"""Which system calls a jail has: a program for the kernel's seccomp filter, as the bytes that `bwrap --seccomp FD` reads.

It does not load the program, and does not know which machine it is on: it makes the one for the machine that is named.

What is refused is what no ordinary program of a user needs and what has often been the way out: other namespaces and mounts, other
processes' memory, the kernel's own setup. Everything else that was known in Linux 6.18 is allowed. What came later answers ENOSYS, as an
older kernel would: programs and C libraries ask for the new call, hear that, and take the old one; so nobody has to know it before it is let in.

The numbers are searched by halves: eight comparisons, some 60 ns. Since 5.11 the kernel tries the program once for each number
when it is loaded, and never runs it for those that it allows without a look at an argument: of these, some 40 ns remain.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence

# Of each machine: what the kernel calls it (AUDIT_ARCH_…), its column in the tables below, and the first number that is none:
# between there and 424, where all machines number alike, is a gap.
_MACHINES = {"x86_64": (0xC000003E, 0, 335), "aarch64": (0xC00000B7, 1, 295)}
_ALIKE = 424
_HIGHEST = 469  # file_setattr, of 6.17

# Calls by their numbers on x86_64 and on aarch64, as in the kernel's asm/unistd_64.h and asm-generic/unistd.h; None: not there.
Numbers = dict[str, tuple[int | None, int | None]]
REFUSED: Numbers = {
    # Another view of the machine: what a jail is made of cannot be made again inside, with more rights or with other mounts.
    "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51), "pivot_root": (155, 41), "mount": (165, 40), "umount2": (166, 39),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "sethostname": (170, 161), "setdomainname": (171, 162),
    # Files by a handle instead of a path: how containers were left before.
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    # Calls that are made without passing here, or that stop the kernel in mid-work for as long as a program likes.
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "userfaultfd": (323, 282),
    # Parts of the kernel with a history of faults, and those that see more than the jail.
    "bpf": (321, 280), "perf_event_open": (298, 241), "vmsplice": (278, 75), "pidfd_getfd": (438, 438), "lookup_dcookie": (212, 18),
    "syslog": (103, 116),
    # Keyrings belong to the user, not to the jail: they outlive it, and other sessions have the same.
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # Memory by the node it is on.
    "mbind": (237, 235), "set_mempolicy": (238, 237), "get_mempolicy": (239, 236), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "set_mempolicy_home_node": (450, 450),
    # The machine itself: modules, another kernel, swap, quotas, accounting, the clock, ports, security modules.
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "vhangup": (153, 58),
    "lsm_set_self_attr": (460, 460), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    # Left over from long ago.
    "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None),
}  # fmt: skip
# What a debugger needs of others' memory. Allowed, it also reaches the jail's first process, which runs without this filter (but within the jail).
DEBUGGING: Numbers = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272), "personality": (135, 92),
}  # fmt: skip
# Calls that are refused or not by an argument, of which the kernel looks at the low half only; clone3 has its flags in memory, where no
# filter can see them: it is answered as a kernel before 5.3 would, and every C library falls back to clone. io_setup is answered as a kernel
# that was built without it: the machine has one number of such requests for all (fs.aio-max-nr), and one program could ask for them all.
CHECKED: Numbers = {
    "clone": (56, 220), "clone3": (435, 435), "ioctl": (16, 29), "socket": (41, 198), "socketpair": (53, 199),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "shmget": (29, 194), "semget": (64, 190), "fcntl": (72, 25), "io_setup": (206, 0),
}  # fmt: skip

NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
TERMINAL = (0x5412, 0x541C, 0x5423)  # TIOCSTI and TIOCLINUX type for whoever sits there; TIOCSETD loads a line's protocol into the kernel
# S_ISUID: a program left behind outside that makes whoever starts it the owner. By other calls it comes only onto an empty file, and the
# first byte that is written takes it away.
AS_OWNER = 0o4000
# Memory of System V is in no process's share, so only a control group bounds it, and there may be none: what fakeroot and PostgreSQL need
# is given. Bytes of a segment, semaphores of a set; a jail has 4096 and 32 000 of these.
SEGMENT, SET = 64 << 10, 32
LEASE = (1024,)  # F_SETLEASE: whoever has one, also on a file that is read-only, keeps everybody outside from opening it
FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

_LOAD, _GO, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_KILL, _ERROR, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16  # where they are in struct seccomp_data

Step = tuple[int, int, int, int]  # struct sock_filter: code, steps over if true, steps over if false, value
ALLOW, KILL = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _KILL)


def program(machine: str, *, debug: bool = False) -> bytes:
    """The filter for a `machine` as os.uname() names it, an array of struct sock_filter; `debug` lets programs trace each other.

    ValueError where the machine is neither x86_64 nor aarch64.
    """
    if machine not in _MACHINES:
        raise ValueError(f"no table of system calls for {machine!r}: there is one for {' and for '.join(_MACHINES)}")
    called, column, gap = _MACHINES[machine]
    ruled = _ruled(column, debug)
    starts: list[tuple[int, list[Step]]] = []
    for number in range(_HIGHEST + 2):  # what is beyond the last goes on for ever: also x32's calls, whose numbers begin at 1 << 30
        known = number < gap or _ALIKE <= number <= _HIGHEST
        steps = ruled.get(number, [ALLOW]) if known else [_refuse(errno.ENOSYS)]
        if not starts or starts[-1][1] != steps:
            starts.append((number, steps))
    # Another machine's calls, 32-bit programs' among them, have other numbers: nothing that follows would mean what it says.
    head = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, called), KILL, (_LOAD, 0, 0, _NUMBER)]
    return b"".join(struct.pack("<HBBI", *step) for step in head + _search(starts))


def _refuse(code: int) -> Step:
    return (_RETURN, 0, 0, _ERROR | code)


def _ruled(column: int, debug: bool) -> dict[int, list[Step]]:
    """What is done at the numbers that are not simply allowed."""
    refused = REFUSED if debug else REFUSED | DEBUGGING
    found = {numbers[column]: [_refuse(errno.EPERM)] for numbers in refused.values()}
    families = _among(0, FAMILIES, ALLOW, _refuse(errno.EAFNOSUPPORT))
    found |= {CHECKED[name][column]: families for name in ("socket", "socketpair")}
    found[CHECKED["ioctl"][column]] = _among(1, TERMINAL, _refuse(errno.EPERM), ALLOW)
    found[CHECKED["fcntl"][column]] = _among(1, LEASE, _refuse(errno.EPERM), ALLOW)
    found[CHECKED["clone"][column]] = _without(0, NEW_NAMESPACES)
    found |= {CHECKED[name][column]: _without(1, AS_OWNER) for name in ("chmod", "fchmod")}
    found |= {CHECKED[name][column]: _without(2, AS_OWNER) for name in ("fchmodat", "fchmodat2")}
    found |= {CHECKED[name][column]: [_refuse(errno.ENOSYS)] for name in ("clone3", "io_setup")}
    found[CHECKED["shmget"][column]] = [(_LOAD, 0, 0, _ARGUMENTS + 12), (_EQUAL, 1, 0, 0), _refuse(errno.EINVAL), *_at_most(1, SEGMENT)]
    found[CHECKED["semget"][column]] = _at_most(1, SET)
    return {number: steps for number, steps in found.items() if number is not None}


def _among(argument: int, values: Sequence[int], then: Step, otherwise: Step) -> list[Step]:
    """`then` where the low half of an argument is one of `values`."""
    tests = [(_EQUAL, len(values) - n, 0, value) for n, value in enumerate(values)]
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), *tests, otherwise, then]


def _without(argument: int, bits: int) -> list[Step]:
    """Allowed where none of `bits` is set in the low half of an argument."""
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (_ANY_BIT, 0, 1, bits), _refuse(errno.EPERM), ALLOW]


def _at_most(argument: int, most: int) -> list[Step]:
    """As a kernel answers that is set up to give no more than `most`."""
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (_AT_LEAST, 0, 1, most + 1), _refuse(errno.EINVAL), ALLOW]


def _search(starts: Sequence[tuple[int, list[Step]]]) -> list[Step]:
    """Find the number's range by halves; each range reaches from its start to the next one's."""
    if len(starts) == 1:
        return starts[0][1]
    middle = len(starts) // 2
    below, rest = _search(starts[:middle]), _search(starts[middle:])
    if len(below) < 256:  # a test steps over a byte's worth at most; a plain jump over any number
        return [(_AT_LEAST, len(below), 0, starts[middle][0]), *below, *rest]
    return [(_AT_LEAST, 0, 1, starts[middle][0]), (_GO, 0, 0, len(below)), *below, *rest]
