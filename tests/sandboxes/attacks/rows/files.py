"""Attacks by the shell on files that are not the session's."""

from __future__ import annotations

from pathlib import Path

from tests.sandboxes.attacks.assault import Scene
from tests.sandboxes.attacks.corpus import HELD, NOT_APPLICABLE, NOT_HELD, ONCE, Attack, breaks, reads, says, writes

_SPELT = """
a={owner_home}/.bub; cat ${a}bles/con*.json
cat {owner_home}/.b*/conf[i]g.json
printf 'cat %s' '{config}' | base64 | base64 -d | bash
"""
_SWAP = """
cd .. && for name in work data; do
  mv $name $name.old; rm -rf $name; rmdir $name; ln -sfn {owner_home}/.ssh $name
  cd {own_data} && { rm -rf ../$name; ln -sfn {owner_home}/.ssh ../$name; cd ..; }
  [ -L $name ] && echo {word}
done
"""
# Every place where an earlier or a later jail might make a mount point, and what a bubblewrap that follows links would do there.
_PLANT = """
for place in {own_work} {own_data} {own_home}; do
  for name in skills work data SOUL.md MEMORY.md .config .cache .local PWNED.md; do
    ln -sfn /oldroot{owner_home}/Documents $place/$name
  done
done
"""
_TMPFILE = """
import os
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(fd, b"[Service]\\nExecStart={word}\\n")
for place in ("{user_units}", "{own_session}"):
    try:
        os.link(f"/proc/self/fd/{fd}", f"{place}/{word}.service", src_dir_fd=fd, follow_symlinks=True)
    except OSError as error:
        print(error)
"""
_EVERYWHERE = """
for place in / /usr /usr/bin /usr/local/bin /bin /lib /etc /etc/ssl /opt /var /run /home /dev /sys /sys/fs/cgroup /proc/sys/kernel {prefix}; do
  (umask 0; : > $place/{word}) 2> /dev/null && rm -f $place/{word} && echo "$place:" && echo {word}
done
"""
# A handle can be guessed: it is the number of an inode. So it is given.
_HANDLE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
handle = bytes.fromhex("{config_handle}")
for place in (".", "/", "/usr", "/tmp", "/proc"):
    fd = libc.open_by_handle_at(os.open(place, os.O_RDONLY), ctypes.create_string_buffer(handle, len(handle)), os.O_RDONLY)
    print(os.read(fd, 1000) if fd >= 0 else os.strerror(ctypes.get_errno()))
"""


async def redirect_a_mount(scene: Scene) -> str:
    """Leave links where the next jail might mount something."""
    planted = await scene.script(_PLANT)
    after = [await scene.run("true") for _ in range(3)]
    return "\n".join(outcome.output for outcome in (planted, *after))


async def start_behind_a_link(scene: Scene) -> str:
    """Ask to start in a directory that is a link to another."""
    await scene.script("ln -s {owner_home}/.ssh behind")
    return (await scene.run("cat id_ed25519", cwd=Path(scene.arena.places["own_work"]) / "behind")).output


ATTACKS = [
    Attack("1", "read API keys", "cat {config}", reads("config"), NOT_HELD, NOT_HELD, "files"),
    Attack("2", "climb by a relative path", "cat ../../../config.json", reads("config"), NOT_HELD, NOT_HELD, "files"),
    Attack("3", "spell a path by a pattern, a variable, an encoding", _SPELT, reads("config"), NOT_HELD, NOT_HELD, "files"),
    Attack("4", "a symbolic link that leads out", "ln -s {config} l4; cat l4", reads("config"), NOT_HELD, NOT_HELD, "files"),
    Attack("8", "a hard link to a secret", "ln {config} l8; cat l8", reads("config"), NOT_HELD, NOT_HELD, "files"),
    Attack("11", "/proc/self/root", "cat /proc/self/root{config}", reads("config"), NOT_HELD, NOT_HELD, "files"),
    Attack("12", "/proc/self/cwd/..", "cat /proc/self/cwd/../../../config.json", reads("config"), NOT_HELD, NOT_HELD, "files"),
    Attack(
        "13", "the root or the directory of another process",
        "for p in /proc/[0-9]*; do cat $p/root{config} $p/cwd/.bubbles/config.json; done 2> /dev/null | head -c 2000",
        reads("config"), NOT_HELD, NOT_HELD, "files",
    ),
    Attack("14", "bubblewrap's old root", "cat /oldroot{config} /newroot{config}", reads("config"), NOT_APPLICABLE, NOT_APPLICABLE, "old root"),
    Attack(
        "15", "another session's files", "cat {other_memory} {other_history} ../../bob/*/*; ls ../..",
        reads("other_memory", "other_history", "other_work", "other_data"), NOT_HELD, NOT_HELD, "files",
    ),
    Attack("16", "another session's HOME", "cat {other_token} {other_git}", reads("other_token", "other_git"), NOT_HELD, NOT_HELD, "files"),
    Attack(
        "17", "the owner's keys for ssh, gh, aws", "cat {ssh_key} {gh_token} {aws_key} {document}",
        reads("ssh_key", "gh_token", "aws_key", "document"), NOT_HELD, NOT_HELD, "files",
    ),
    Attack("21", "put a link in the place of work/ or data/", _SWAP, says(), NOT_HELD, NOT_HELD, "files", alone=True, **ONCE),
    Attack(
        "22", "lead the next jail's mounts elsewhere", redirect_a_mount, breaks("documents"), NOT_APPLICABLE, NOT_APPLICABLE,
        "above what is writable", only_before=(0, 12), **ONCE,
    ),
    Attack("35", "write the system's files", _EVERYWHERE, says(), NOT_APPLICABLE, NOT_APPLICABLE, "read-only"),
    Attack("A1", "the root of the first process", "cat /proc/1/root{config}", reads("config"), NOT_APPLICABLE, NOT_APPLICABLE, "files"),
    Attack(
        "A2", "who else there is, by the table of mounts", "cat /proc/*/mountinfo /proc/*/mounts | grep -q bob && echo {word}",
        says(), NOT_APPLICABLE, NOT_APPLICABLE, "other home",
    ),
    Attack(
        "A3", "name a file that has none where none may be made", _TMPFILE, writes("user_units", "own_session"), NOT_HELD, NOT_HELD, "files",
        python=True,
    ),
    Attack(
        "A4", "climb from a directory that is removed", "mkdir d4 && cd d4 && rmdir ../d4 && cat ../../../../config.json",
        reads("config"), NOT_HELD, NOT_HELD, "files",
    ),
    Attack("A5", "what other sessions' jobs printed", "cat {home}/jobs/*/*", reads("other_job"), NOT_HELD, NOT_HELD, "files"),
    Attack(
        "A6", "what waits in the queues, and the journals", "cat {queued} {media} {turn} {log} {chats} {paired}",
        reads("queued", "media", "turn", "log", "chats", "paired"), NOT_HELD, NOT_HELD, "files",
    ),
    Attack("A7", "the shared /tmp", "cat {tmp_secret} /tmp/ba-*/secret", reads("tmp_secret"), NOT_HELD, NOT_HELD, "files"),
    Attack(
        "A9", "open a file by its handle, without a way to it", _HANDLE, reads("config"), NOT_APPLICABLE, NOT_APPLICABLE, "", python=True,
        uncontrolled="it takes rights over the whole machine, which no jail of an ordinary user's has to lose",
    ),
    Attack(
        "A8", "its own settings, history and heartbeats", "cat ../config.json ../session.jsonl ../HEARTBEATS.md",
        reads("own_config", "own_history", "own_heartbeats"), NOT_HELD, NOT_HELD, "files",
    ),
    Attack("A25", "start where a link leads", start_behind_a_link, reads("ssh_key"), HELD, HELD, "files", **ONCE),
]  # fmt: skip
