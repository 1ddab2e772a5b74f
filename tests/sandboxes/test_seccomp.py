"""The filter of system calls: what it answers to every call on both machines, what the kernel makes of it, and what still works under it."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.sandboxes.inside import seccomp

CALLED = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003, "arm": 0x40000028, "riscv64": 0xC00000F3}
MACHINES = ("x86_64", "aarch64")
HEADERS = {
    "x86_64": ("x86_64-linux-gnu/asm/unistd_64.h", "asm/unistd_64.h"),
    "aarch64": ("aarch64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h"),
}
ALLOW, KILL = "allow", "kill"
HERE = platform.machine()
ON_THIS_MACHINE = pytest.mark.skipif(HERE not in MACHINES or sys.platform != "linux", reason="there is no filter for this machine")
WORDS = st.integers(0, (1 << 64) - 1)
ARGUMENTS = st.lists(WORDS, min_size=6, max_size=6)

# By the names of the calls, so that the tables' numbers are not taken at their word.
FORBIDDEN = [
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
    "mount_setattr", "open_tree_attr", "pidfd_getfd", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "keyctl", "add_key", "request_key", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load",
    "iopl", "ioperm", "modify_ldt", "acct", "quotactl", "quotactl_fd", "swapon", "swapoff", "reboot", "settimeofday", "clock_settime", "adjtimex",
    "clock_adjtime", "syslog", "fanotify_init", "name_to_handle_at", "open_by_handle_at", "vmsplice", "mbind", "set_mempolicy", "get_mempolicy",
    "migrate_pages", "move_pages", "set_mempolicy_home_node", "sethostname", "setdomainname", "vhangup", "uselib", "ustat", "sysfs",
    "lookup_dcookie", "lsm_set_self_attr",
]  # fmt: skip
DEBUGGER = ["ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "personality"]
CHECKED = ["clone", "io_setup", "ioctl", "socket", "socketpair", "chmod", "fchmod", "fchmodat", "fchmodat2", "shmget", "semget", "fcntl"]


class Machine:
    """The kernel's little machine, as far as filters use it: a program, and what one call makes of it."""

    def __init__(self, program: bytes) -> None:
        self.steps = list(struct.iter_unpack("<HBBI", program))

    def answer(self, called: int, number: int, arguments: list[int] | None = None) -> tuple[int | str, int, set[int]]:
        """"allow", "kill" or an error's number; how many steps it took; which words of the call it looked at."""
        data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, called, 0x7F0000001000, *(arguments or [0] * 6))
        at = count = held = 0
        seen = set()
        while True:
            code, if_true, if_false, value = self.steps[at]
            at, count = at + 1, count + 1
            if code == 0x20:
                assert value % 4 == 0
                assert value + 4 <= len(data)
                held = struct.unpack_from("<I", data, value)[0]
                seen.add(value)
            elif code == 0x05:
                at += value
            elif code in (0x15, 0x35, 0x45):
                true = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
                at += if_true if true else if_false
            else:
                assert code == 0x06
                return {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(value) or self._error(value), count, seen

    @staticmethod
    def _error(value: int) -> int:
        assert value >> 16 == 5
        return value & 0xFFFF


@cache
def made(machine: str, debug: bool = False) -> Machine:
    return Machine(seccomp.program(machine, debug=debug))


def answer(machine: str, number: int, arguments: list[int] | None = None, *, debug: bool = False) -> int | str:
    return made(machine, debug).answer(CALLED[machine], number, arguments)[0]


@cache
def header(machine: str) -> dict[str, int]:
    """The calls of a machine by name, from the kernel's headers that are installed here."""
    for name in HEADERS[machine]:
        path = Path("/usr/include") / name
        if path.exists():
            found = re.findall(r"^#define\s+__NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(), flags=re.M)
            numbers = {call: int(number) for call, number in found if call not in ("syscalls", "arch_specific_syscall")}
            return {call: number for call, number in numbers.items() if not 403 <= number <= 423}  # these are for 32 bits only
    pytest.skip(f"the kernel's headers for {machine} are not installed")


# --- the program -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
def test_the_tables_numbers_are_the_kernels(machine: str) -> None:
    known = header(machine)
    column = MACHINES.index(machine)
    newest = max(known.values())
    for name, numbers in (seccomp.REFUSED | seccomp.DEBUGGING | seccomp.CHECKED).items():
        if numbers[column] is None or numbers[column] <= newest:
            assert known.get(name) == numbers[column], name


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("debug", [False, True])
def test_every_call_that_has_a_name_is_answered_as_its_name_says(machine: str, debug: bool) -> None:
    for name, number in header(machine).items():
        if name in FORBIDDEN or (name in DEBUGGER and not debug):
            expected: int | str = errno.EPERM
        elif name in ("clone3", "io_setup") or number > 469:
            expected = errno.ENOSYS
        elif name in CHECKED:
            continue
        else:
            expected = ALLOW
        assert answer(machine, number, [(1 << 64) - 1] * 6, debug=debug) == expected, name


@pytest.mark.parametrize("machine", MACHINES)
def test_every_rule_is_about_a_call_that_is_there(machine: str) -> None:
    column = MACHINES.index(machine)
    assert {*FORBIDDEN} == {*seccomp.REFUSED}
    assert {*DEBUGGER} == {*seccomp.DEBUGGING}
    numbers = [found[column] for found in (seccomp.REFUSED | seccomp.DEBUGGING | seccomp.CHECKED).values() if found[column] is not None]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_that_nobody_knows_are_not_there(machine: str) -> None:
    named = set(header(machine).values())
    gap = range(335 if machine == "x86_64" else 295, 424)
    assert not named & set(gap)
    for number in (*gap, *range(470, 4096), 1 << 30, (1 << 30) + 59, (1 << 30) + 520, 1 << 31, 0xFFFFFFFF, -1):
        assert answer(machine, number) == errno.ENOSYS, number


@given(machine=st.sampled_from(MACHINES), number=st.integers(0, 0xFFFFFFFF), arguments=ARGUMENTS, debug=st.booleans())
def test_x32_and_numbers_beyond_the_last_are_never_allowed(machine: str, number: int, arguments: list[int], debug: bool) -> None:
    if number > 469:
        assert answer(machine, number, arguments, debug=debug) == errno.ENOSYS


@given(machine=st.sampled_from(MACHINES), called=st.sampled_from(sorted(CALLED)) | st.integers(0, 0xFFFFFFFF), number=st.integers(0, 600))
def test_another_machines_calls_are_the_end_of_the_process(machine: str, called: str | int, number: int) -> None:
    token = CALLED[called] if isinstance(called, str) else called
    found = made(machine).answer(token, number)[0]
    assert (found == KILL) == (token != CALLED[machine])


@given(machine=st.sampled_from(MACHINES), flags=WORDS, rest=ARGUMENTS)
def test_clone_makes_processes_and_threads_but_no_namespaces(machine: str, flags: int, rest: list[int]) -> None:
    new = flags & (0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000)
    assert answer(machine, header(machine)["clone"], [flags, *rest[1:]]) == (errno.EPERM if new else ALLOW)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("flags", [0x1200011, 0x3D0F00, 0x4111, 0], ids=["fork", "thread", "vfork", "nothing"])
def test_what_c_libraries_hand_to_clone_is_allowed(machine: str, flags: int) -> None:
    assert answer(machine, header(machine)["clone"], [flags, 0, 0, 0, 0, 0]) == ALLOW


@given(
    machine=st.sampled_from(MACHINES),
    request=st.sampled_from([0x5412, 0x541C, 0x5423, 0x5401, 0x5413, 0x541B, 0x5411, 0x541D]) | st.integers(0, 0xFFFFFFFF),
    above=st.integers(0, 0xFFFFFFFF),
    rest=ARGUMENTS,
)
def test_nothing_is_typed_into_a_terminal_whatever_the_upper_half_says(machine: str, request: int, above: int, rest: list[int]) -> None:
    found = answer(machine, header(machine)["ioctl"], [rest[0], above << 32 | request, *rest[2:]])
    assert found == (errno.EPERM if request in (0x5412, 0x541C, 0x5423) else ALLOW)


@given(machine=st.sampled_from(MACHINES), name=st.sampled_from(["socket", "socketpair"]), family=st.integers(0, 64) | WORDS, rest=ARGUMENTS)
def test_sockets_are_of_four_families(machine: str, name: str, family: int, rest: list[int]) -> None:
    found = answer(machine, header(machine)[name], [family, *rest[1:]])
    assert found == (ALLOW if family & 0xFFFFFFFF in (1, 2, 10, 16) else errno.EAFNOSUPPORT)


@given(machine=st.sampled_from(MACHINES), mode=st.integers(0, 0o7777) | WORDS, rest=ARGUMENTS)
def test_no_file_is_made_to_run_as_its_owner(machine: str, mode: int, rest: list[int]) -> None:
    for name, place in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)):
        number = seccomp.CHECKED[name][MACHINES.index(machine)]
        if number is not None:
            found = answer(machine, number, [*rest[:place], mode, *rest[place + 1 :]])
            assert found == (errno.EPERM if mode & 0o4000 else ALLOW)


@given(machine=st.sampled_from(MACHINES), asked=st.sampled_from([1024, 1025, 1030, 0, 6, 37]) | st.integers(0, 0xFFFFFFFF), above=st.integers(0, 9))
def test_nobody_outside_is_kept_waiting_by_a_lease(machine: str, asked: int, above: int) -> None:
    found = answer(machine, header(machine)["fcntl"], [3, above << 32 | asked, 1, 0, 0, 0])
    assert found == (errno.EPERM if asked == 1024 else ALLOW)


@given(machine=st.sampled_from(MACHINES), size=st.integers(0, 70_000) | WORDS, rest=ARGUMENTS)
def test_memory_that_belongs_to_no_process_is_given_in_small_pieces(machine: str, size: int, rest: list[int]) -> None:
    asked = [rest[0], size, *rest[2:]]
    assert answer(machine, header(machine)["shmget"], asked) == (ALLOW if size <= 65536 else errno.EINVAL)
    assert answer(machine, header(machine)["semget"], asked) == (ALLOW if size & 0xFFFFFFFF <= 32 else errno.EINVAL)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_kernel_need_not_run_it_for_what_is_always_allowed(machine: str) -> None:
    """It tries each number once with nothing but number and machine to look at; what is allowed so is never asked about again."""
    checked = {number for name in CHECKED if (number := header(machine).get(name, seccomp.CHECKED[name][0])) is not None}
    for number in range(512):
        _, steps, seen = made(machine).answer(CALLED[machine], number)
        assert steps <= 16
        assert number in checked or seen <= {0, 4}, number


def test_a_machine_without_a_table_is_told() -> None:
    with pytest.raises(ValueError, match="no table of system calls for 'riscv64'"):
        seccomp.program("riscv64")


def test_long_ways_are_jumped() -> None:
    """More ranges than there are today: tests reach 255 steps at most, so the search must do without them where it is further."""
    starts = [(number * 2, [(0x06, 0, 0, 0x50000 | number % 4096)]) for number in range(3000)]
    machine = Machine(b"".join(struct.pack("<HBBI", *step) for step in [(0x20, 0, 0, 0), *seccomp._search(starts)]))
    for number in range(0, 6000, 7):
        found, steps, _ = machine.answer(0, number)
        assert found == number // 2 % 4096
        assert steps < 32


# --- in the kernel -----------------------------------------------------------------------------------------------------------------

LOADED = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
program = bytes.fromhex(sys.argv[1])
kept = ctypes.create_string_buffer(program, len(program))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
it = Filter(len(program) // 8, ctypes.addressof(kept))
loaded = libc.prctl(22, 2, ctypes.byref(it), 0, 0)
assert loaded == 0, ctypes.get_errno()
def call(number, *arguments):
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
    return ctypes.get_errno() if done == -1 else 0
"""


def loaded(code: str, *arguments: str, program: bytes) -> subprocess.CompletedProcess[str]:
    """Python under the filter, which it loads itself; `call(number, …)` is there: an error's number, or 0."""
    return subprocess.run([sys.executable, "-I", "-c", LOADED + code, program.hex(), *arguments], capture_output=True, text=True, timeout=60)


@ON_THIS_MACHINE
@pytest.mark.parametrize("debug", [False, True])
def test_the_kernel_takes_it_and_refuses_for_real(debug: bool) -> None:
    column = MACHINES.index(HERE)
    named = {name: numbers[column] for name, numbers in (seccomp.REFUSED | seccomp.DEBUGGING).items() if numbers[column] is not None}
    code = "print(json.dumps({name: call(number, -1, -1, -1, -1, -1, -1) for name, number in json.loads(sys.argv[2]).items()}))"
    done = loaded(code, json.dumps(named), program=seccomp.program(HERE, debug=debug))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name for name, code in found.items() if code != errno.EPERM} == (set(DEBUGGER) if debug else set())


@ON_THIS_MACHINE
def test_arguments_are_looked_at_for_real() -> None:
    calls = header(HERE)
    asked = {
        "namespace by clone": [calls["clone"], 0x10000000 | 17, 0, 0, 0, 0],
        "clone3": [435, 0, 0],
        "requests for all": [calls["io_setup"], 1, 0],
        "typing": [calls["ioctl"], 0, 0x5412, 0],
        "typing with another bit": [calls["ioctl"], 0, 1 << 32 | 0x5412, 0],
        "linux console": [calls["ioctl"], 0, 0x541C, 0],
        "vsock": [calls["socket"], 40, 1, 0],
        "alg": [calls["socket"], 38, 5, 0],
        "packet": [calls["socket"], 17, 3, 0],
        "tipc pair": [calls["socketpair"], 30, 1, 0, 0],
        "unix": [calls["socket"], 1, 1, 0],
        "inet6": [calls["socket"], 10, 1, 0],
        "netlink": [calls["socket"], 16, 3, 0],
        "as owner": [calls["fchmod"], -1, 0o4755],
        "as owner by another call": [452, -100, 0, 0o4755, 0],
        "lease": [calls["fcntl"], 0, 1024, 0],
        "large segment": [calls["shmget"], 0, 1 << 20, 0o1600],
        "large set": [calls["semget"], 0, 32000, 0o1600],
        "unknown": [470],
        "x32": [(1 << 30) + 39],
    }
    done = loaded("print(json.dumps({name: call(*a) for name, a in json.loads(sys.argv[2]).items()}))", json.dumps(asked), program=made_here())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [found.pop(name) for name in ("vsock", "alg", "packet", "tipc pair")] == [errno.EAFNOSUPPORT] * 4
    assert [found.pop(name) for name in ("clone3", "requests for all", "unknown", "x32")] == [errno.ENOSYS] * 4
    assert [found.pop(name) for name in ("large segment", "large set")] == [errno.EINVAL] * 2
    assert [found.pop(name) for name in ("unix", "inet6", "netlink")] == [0] * 3
    assert found == dict.fromkeys(found, errno.EPERM)


def made_here() -> bytes:
    return seccomp.program(HERE)


@ON_THIS_MACHINE
def test_under_the_other_machines_filter_nothing_runs() -> None:
    """The kernel takes the other program as well, whose numbers would mean something else here: the first call ends the process."""
    other = next(machine for machine in MACHINES if machine != HERE)
    assert loaded("", program=seccomp.program(other)).returncode == -signal.SIGSYS


@pytest.mark.skipif(HERE != "x86_64" or shutil.which("gcc") is None, reason="32-bit calls of this kind are x86_64's, and gcc makes the program")
def test_32_bit_calls_are_the_end_of_the_process(tmp_path: Path) -> None:
    """`int 0x80` from a 64-bit program: getpid has the number of writev there, and 41 is not socket."""
    source = tmp_path / "compat.c"
    source.write_text('int main(void) { long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory"); return r > 0 ? 7 : 8; }\n')
    subprocess.run(["gcc", "-o", tmp_path / "compat", source], check=True)
    plain = subprocess.run([tmp_path / "compat"]).returncode
    if plain == -signal.SIGSEGV:
        pytest.skip("this kernel has no 32-bit calls")
    assert plain == 7
    done = loaded("import os; os.execv(sys.argv[2], sys.argv[2:])", str(tmp_path / "compat"), program=made_here())
    assert done.returncode == -signal.SIGSYS


# --- what works under it -----------------------------------------------------------------------------------------------------------

THREADS = """
import concurrent.futures as f, multiprocessing as m, subprocess, threading, sqlite3, asyncio, socket, tempfile, ssl
def double(n): return 2 * n
if __name__ == "__main__":
    with f.ThreadPoolExecutor(8) as pool: assert list(pool.map(double, range(8))) == list(range(0, 16, 2))
    for way in ("fork", "spawn", "forkserver"):
        with m.get_context(way).Pool(2) as pool: assert pool.map(double, [1, 2]) == [2, 4]
    assert subprocess.run(["true"], close_fds=True, start_new_session=True).returncode == 0
    async def chat():
        server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
        await asyncio.open_connection(*server.sockets[0].getsockname())
        server.close()
    asyncio.run(chat())
    a, b = socket.socketpair()
    print("fine")
"""
PROGRAMS = {
    "bash": "x=$(echo a | tr a b); [ $x = b ] && (sleep 0 & wait) && diff <(echo 1) <(echo 1) && echo fine",
    "python": "cat > t.py <<'EOF'\n" + THREADS + "\nEOF\n" + "PYTHON -I t.py",
    "git": "export HOME=$PWD; git init -q r && cd r && git config user.email a@b && git config user.name a && echo 1 > f && git add f"
    " && git commit -qm x && git gc -q && git log --oneline | wc -l | grep -q 1 && echo fine",
    "gcc": "printf '#include <stdio.h>\\n#include <pthread.h>\\nvoid *f(void *x) { return x; }\\nint main(void) { pthread_t t;"
    ' pthread_create(&t, 0, f, 0); pthread_join(t, 0); puts("fine"); }\\n\' > a.c && gcc -O1 -pthread a.c -o a && ./a',
    "make": "printf 'all: a b\\na b:\\n\\t@true\\n' > Makefile && make -s -j4 && echo fine",
    "node": 'node -e \'const w = require("worker_threads"), fs = require("fs");'
    ' new w.Worker("1", {eval: true}).on("exit", () => fs.promises.writeFile("x", "1").then(() =>'
    ' require("child_process").execFile("true", () => console.log("fine"))))\'',
    "java": "printf 'class A { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> System.out.println(\"fine\"));"
    " t.start(); t.join(); } }' > A.java && java A.java",
    "sqlite3": "sqlite3 a.db 'pragma journal_mode=wal; create table t(x); insert into t values(1); select x from t' | grep -q 1 && echo fine",
    "tar": "mkdir d && echo 1 > d/f && tar czf d.tgz d && rm -r d && tar xzf d.tgz && sed -i s/1/2/ d/f && grep -q 2 d/f && echo fine",
    "fakeroot": "fakeroot sh -c 'touch a && stat -c %u a' | grep -qx 0 && echo fine",
    "perl": "perl -e 'my $p = fork; exit 0 unless $p; waitpid $p, 0; print \"fine\\n\"'",
    "ps": "ps ax > p && ls -lR /proc/self/fd > l && df . > f && id > i && echo fine",
    "curl": "python3 -m http.server 8099 --bind 127.0.0.1 >/dev/null 2>&1 &"
    " until curl -fs http://127.0.0.1:8099/ >o; do sleep 0.05; done; kill $!; echo fine",
}
NEEDS_MORE = {"java": ("javac",), "curl": ("python3",)}


def jailed(command: str, cwd: Path, *, debug: bool = False) -> subprocess.CompletedProcess[str]:
    """Bash in bubblewrap with the filter and little else: what fails here fails for the filter."""
    read, write = os.pipe()
    os.write(write, seccomp.program(HERE, debug=debug))
    os.close(write)
    walls = ["--unshare-user", "--unshare-pid", "--unshare-net", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    view = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--bind", str(cwd), str(cwd), "--chdir", str(cwd), "--seccomp", str(read)]
    try:
        return subprocess.run(
            ["bwrap", *walls, *view, "--", "/bin/bash", "--noprofile", "--norc", "-c", command],
            pass_fds=[read], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    finally:
        os.close(read)


@ON_THIS_MACHINE
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_ordinary_program_works_under_it(name: str, tmp_path: Path) -> None:
    for needed in (name if name != "python" else sys.executable, *NEEDS_MORE.get(name, ())):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    done = jailed(PROGRAMS[name].replace("PYTHON", sys.executable), tmp_path)
    assert done.stdout.splitlines()[-1:] == ["fine"], done.stdout + done.stderr


TRACE = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if not child:
    signal.pause()
print("traced" if libc.ptrace(16, child, 0, 0) == 0 else "refused", flush=True)
os.kill(child, 9)
"""


@ON_THIS_MACHINE
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize(("debug", "said"), [(False, "refused"), (True, "traced")])
def test_tracing_is_for_those_who_asked_for_it(tmp_path: Path, debug: bool, said: str) -> None:
    (tmp_path / "t.py").write_text(TRACE)
    assert jailed(f"{sys.executable} -I t.py", tmp_path, debug=debug).stdout.split() == [said]
