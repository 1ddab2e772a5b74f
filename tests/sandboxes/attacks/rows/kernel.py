"""Attacks on the kernel: other namespaces, calls with a history, devices, and what a process may say of itself."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from bubbles.sandboxes.inside import seccomp
from tests.sandboxes.attacks.corpus import FOR_ROOT, NOT_APPLICABLE, NOT_HELD, Attack, reads, says

_COLUMN = ("x86_64", "aarch64").index(platform.machine()) if platform.machine() in ("x86_64", "aarch64") else 0
_CALL = "import ctypes, os, struct\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def _number(name: str) -> int:
    number = (seccomp.REFUSED | seccomp.DEBUGGING | seccomp.CHECKED)[name][_COLUMN]
    assert number is not None
    return number


def _child(call: str) -> str:
    """A program in which `call` is a fork of some kind; the child tells."""
    return f"""{_CALL}pid = {call}
if pid == 0:
    os.write(1, b"{{word}}\\n")
    os._exit(0)
if pid > 0:
    os.waitpid(pid, 0)
"""


def _asks(name: str, arguments: str, before: str = "") -> str:
    """A program that makes a call, and tells where it is given."""
    return f'{_CALL}{before}\nif libc.syscall({_number(name)}, {arguments}) >= 0:\n    print("{{word}}")\n'


# struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, …
_CLONE3 = _child('libc.syscall(435, ctypes.create_string_buffer(struct.pack("<11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88), 88)')
_CLONE = _child(f"libc.syscall({_number('clone')}, 0x10000000 | 17, 0, 0, 0, 0)")

_OUT_OF_ONE = f"""{_CALL}
for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
    for pid in (1, os.getppid()):
        try:
            fd = os.open(f"/proc/{{pid}}/ns/{{kind}}", os.O_RDONLY)
        except OSError:
            continue
        if os.stat(fd).st_ino != os.stat(f"/proc/self/ns/{{kind}}").st_ino and libc.setns(fd, 0) == 0:
            print("{{word}}")
""".replace("{{pid}}", "{pid}").replace("{{kind}}", "{kind}").replace("{{word}}", "{word}")

_MOUNT = _CALL + 'libc.unshare(0x20000)\nif libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0:\n    print("{word}")\n'
_CHROOT = 'import os\nos.chroot("/tmp")\nprint("{word}")\n'
_NODE = 'import os, stat\nos.mknod("n82", 0o600 | stat.S_IFBLK, os.makedev(7, 0))\nprint("{word}")\n'
_PERF = _asks("perf_event_open", "ctypes.create_string_buffer(struct.pack('<IIQQQQQ', 1, 112, 0, 0, 0, 0, 0x62), 112), 0, -1, -1, 0")
_BPF = _asks("bpf", "0, ctypes.create_string_buffer(struct.pack('<4I', 2, 4, 8, 1), 128), 128")
_TRACE = f"""{_CALL}
pid = os.fork()
if not pid:
    __import__("signal").pause()
print("{{word}}" if libc.ptrace(16, pid, 0, 0) == 0 else "refused", flush=True)
os.kill(pid, 9)
""".replace("{{word}}", "{word}")

_BORROWED = """
for way in "sudo -n id -u" "timeout -s KILL 0.7 su root -c 'id -u'" "pkexec --disable-internal-agent id -u" "newgrp root" "doas -n id -u"; do
    [ "$(eval "$way" < /dev/null 2> /dev/null)" = 0 ] && echo {word}
done; cp /usr/bin/id i81 && chmod 6755 i81 && [ "$(./i81 -u)" = 0 ] && echo {word}
"""
# Only opened, never written to: as root's, outside, this would be the machine's end.
_KNOBS = """
import os
mine = {str(os.getpid()), "self", "thread-self"}
for directory, names, files in os.walk("/proc"):
    names[:] = [name for name in names if not name.isdigit() and name not in ("self", "thread-self")]
    for file in files:
        try:
            os.close(os.open(f"{directory}/{file}", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            continue
        print(f"{directory}/{file}")
        print("{word}")
for directory, names, files in os.walk("/sys"):
    if files:
        print("there is a /sys:", directory)
        print("{word}")
        break
"""
_USUAL = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
_DEVICES = f"""
import os, stat
for directory, names, files in os.walk("/dev"):
    for file in files:
        path = f"{{directory}}/{{file}}"
        mode = os.lstat(path).st_mode
        if file not in {_USUAL!r} and not directory.startswith("/dev/pts") and (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
            try:
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            except OSError:
                continue
            print(path)
            print("WORD")
""".replace("{{", "{").replace("}}", "}").replace("WORD", "{word}")
_LOADER = """
cp /bin/cat ./harmless
for loader in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do [ -e $loader ] && $loader ./harmless {config}; done
"""
# By its mode as it is made, too; what is empty is no program, and what is written to it takes the mode away.
_AS_OWNER = """
import contextlib, mmap, os
os.umask(0)
program = os.open("/bin/true", os.O_RDONLY)
ways = [
    lambda fd: os.write(fd, b"#!"), lambda fd: os.copy_file_range(program, fd, 4096), lambda fd: os.sendfile(fd, program, 0, 4096),
    lambda fd: (os.posix_fallocate(fd, 0, 4096), mmap.mmap(fd, 4096).write(b"#!")), lambda fd: os.write(os.open("s0", os.O_WRONLY), b"#!"),
    lambda fd: (os.write(fd, b"#!"), os.fchmod(fd, 0o4755)), lambda fd: (os.write(fd, b"#!"), os.chmod("s0", 0o4755)),
]
for n, way in enumerate(ways):
    fd = os.open("s0", os.O_CREAT | os.O_RDWR, 0o4755)
    with contextlib.suppress(OSError):
        way(fd)
    found = os.fstat(fd)
    if found.st_mode & 0o4000 and found.st_size:
        print(n)
        print("{word}")
    os.unlink("s0")
"""
_REAL_TIME = """
import os
for policy in (os.SCHED_FIFO, os.SCHED_RR):
    try:
        os.sched_setscheduler(0, policy, os.sched_param(50))
        print("{word}")
    except OSError as error:
        print(error)
try:
    os.nice(-10)
    print("{word}")
except OSError as error:
    print(error)
"""
_X32 = _CALL + "if libc.syscall((1 << 30) + 39) > 0:\n    print('{word}')\n"


def _others() -> bool:
    """Whether the machine has devices, beside those that every jail has, that all its users may open."""
    found = (path for path in Path("/dev").iterdir() if path.is_char_device() and path.name not in _USUAL)
    return any(os.stat(path).st_mode & 0o004 for path in found)


_NO_DEVICE = "" if _others() else "this machine has no device that everybody may open"
_MAYBE = "the kernel may refuse it to every ordinary user, by a setting of the machine"

ATTACKS = [
    Attack("75", "a new user namespace", "unshare -Ur true && echo {word}", says(), NOT_HELD, NOT_HELD, "filter"),
    Attack("76", "a jail of its own making", "bwrap --dev-bind / / --unshare-user -- echo {word}", says(), NOT_HELD, NOT_HELD, "filter"),
    Attack("76m", "a mount", _MOUNT, says(), NOT_APPLICABLE, NOT_APPLICABLE, "capabilities", python=True),
    Attack("77", "clone3 with a namespace", _CLONE3, says(), NOT_HELD, NOT_HELD, "filter", python=True),
    Attack("77c", "clone with a namespace", _CLONE, says(), NOT_HELD, NOT_HELD, "filter", python=True),
    Attack("77s", "out of a namespace, by another process's", _OUT_OF_ONE, says(), NOT_APPLICABLE, NOT_APPLICABLE, "", python=True,
           uncontrolled="there is nobody in a jail, its first process neither, who is in another namespace and may be followed there"),
    Attack("78", "io_uring, whose calls no filter sees", _asks("io_uring_setup", "4, ctypes.create_string_buffer(120)"), says(),
           NOT_APPLICABLE, NOT_APPLICABLE, "", python=True, uncontrolled=_MAYBE),
    Attack("79", "keep something in a keyring", _asks("add_key", "b'user', b'{word}', b'x', 1, -2"), says(), NOT_HELD, NOT_HELD, "filter",
           python=True),
    Attack("80", "bpf", _BPF, says(), NOT_APPLICABLE, NOT_APPLICABLE, "", python=True, uncontrolled=_MAYBE),
    Attack("80p", "watch the processor's counters", _PERF, says(), NOT_APPLICABLE, NOT_APPLICABLE, "", python=True, uncontrolled=_MAYBE),
    Attack("80u", "stop the kernel at a page of its own", _asks("userfaultfd", "1"), says(), NOT_APPLICABLE, NOT_APPLICABLE, "filter", python=True),
    Attack("80t", "trace its own child", _TRACE, says(), NOT_HELD, NOT_HELD, "filter", python=True),
    Attack("81", "programs that run as root", _BORROWED, says(), FOR_ROOT, FOR_ROOT, "", uncontrolled="nobody has a password to give to them"),
    Attack("82", "chroot", _CHROOT, says(), FOR_ROOT, FOR_ROOT, "capabilities", python=True),
    Attack("82n", "make a node of a disk", _NODE, says(), FOR_ROOT, FOR_ROOT, "", python=True,
           uncontrolled="the kernel makes none in a user namespace, whatever else is missing"),
    Attack("83", "devices", _DEVICES, says(), NOT_APPLICABLE, NOT_APPLICABLE, "" if _NO_DEVICE else "devices", python=True, uncontrolled=_NO_DEVICE),
    Attack("84", "the kernel's settings, sysrq, and /sys", _KNOBS, says(), NOT_APPLICABLE, NOT_APPLICABLE, "", python=True,
           uncontrolled="an ordinary user's kernel keeps them anyway; of root's jail they are kept by a /proc that is read-only"),
    Attack("87", "a renamed program by the loader", _LOADER, reads("config"), NOT_HELD, NOT_HELD, "files"),
    Attack("K1", "a program that runs as the owner, for whoever finds it", _AS_OWNER, says(), NOT_HELD, NOT_HELD, "filter", python=True),
    Attack("K2", "real-time priority", _REAL_TIME, says(), FOR_ROOT, FOR_ROOT, "", python=True,
           uncontrolled="in a user namespace nobody has the right, whatever else is missing"),
    Attack("K3", "calls by x32's numbers", _X32, says(), NOT_APPLICABLE, NOT_APPLICABLE, "", python=True, uncontrolled="most kernels have none"),
]  # fmt: skip
