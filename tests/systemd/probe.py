"""Tries, from inside a unit, what its confinement is to allow or to refuse. tests/systemd/test_confinement.py hands this text to `python -c`.

The variable PROBE holds a JSON object {name: [what, argument…]}; the answers, {name: "yes" or the error's name}, go into the file that
the variable ANSWERS names. A file that can be read is answered with its first line.
"""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)


def read(path):
    with open(path, "rb") as file:
        return file.readline().decode("utf-8", "replace").strip()


def write(path):
    with open(path, "ab") as file:
        file.write(b"was here\n")


def list_(path):
    return " ".join(sorted(os.listdir(path)))


def make(path):
    os.mkdir(path)


def rename(path):
    os.rename(path, path + ".moved")


def connect(path):
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(path)


def ask_network(host, port):
    with socket.create_connection((host, int(port)), timeout=5):
        pass


def family(name):
    socket.socket(getattr(socket, name), socket.SOCK_RAW if name in ("AF_PACKET", "AF_NETLINK") else socket.SOCK_STREAM).close()


def namespace(flag):
    _called(LIBC.unshare(int(flag)))


def mark_setuid(path):
    with open(path, "w"):
        pass
    os.chmod(path, 0o4755)


def memory():
    with mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC):
        pass


def call(number):
    _called(LIBC.syscall(int(number), 0, 0, 0, 0, 0))


def kill(pid):
    os.kill(int(pid), 0)


def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def status(field):
    with open("/proc/self/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)[field]


def _called(answer):
    if answer < 0:
        raise OSError(ctypes.get_errno(), "refused")


def tried(what, *arguments):
    try:
        found = globals()[what](*arguments)
        return "yes" if found is None else found
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    except subprocess.CalledProcessError as error:
        return error.stderr.strip() or str(error)


if __name__ == "__main__":
    signal.signal(signal.SIGSYS, signal.SIG_DFL)
    answers = {name: tried(*wanted) for name, wanted in json.loads(os.environ["PROBE"]).items()}
    with contextlib.suppress(OSError), open(os.environ["ANSWERS"] + ".new", "w") as file:
        json.dump(answers, file)
    os.rename(os.environ["ANSWERS"] + ".new", os.environ["ANSWERS"])
