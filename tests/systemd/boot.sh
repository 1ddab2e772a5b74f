#!/bin/sh
# Boots systemd on a copy of this machine's files, as process 1 of the namespaces that tests/systemd/machine.py has made.
#
#     boot.sh STORE CGROUP [PATH…]
#
# STORE is a directory in memory that outlives a boot: what the machine writes stays in STORE/upper. CGROUP becomes the root of its cgroups.
# PATHs (directories) are there at their places, and everybody in the machine can read them.
set -eu
if [ "${IN_CGROUP:-}" != yes ]; then # a namespace of cgroups begins where the process is that makes it
  echo 0 >"$2/cgroup.procs"
  IN_CGROUP=yes exec unshare --cgroup "$0" "$@"
fi
umask 022
store=$1 new=$1/root
shift 2

mkdir -p "$store/upper" "$store/work" "$new"
mount -t overlay machine -o "lowerdir=/,upperdir=$store/upper,workdir=$store/work" "$new"

mount -t proc -o nosuid,nodev,noexec proc "$new/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sys "$new/sys"
mount -t cgroup2 -o nosuid,nodev,noexec cgroup "$new/sys/fs/cgroup"
mount -t tmpfs -o mode=0755,nosuid,nodev run "$new/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmp "$new/tmp"
mount -t tmpfs -o mode=0755,nosuid dev "$new/dev"
mkdir "$new/dev/pts" "$new/dev/shm" "$new/dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 pts "$new/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev shm "$new/dev/shm"
ln -s pts/ptmx "$new/dev/ptmx"
ln -s /proc/self/fd "$new/dev/fd"
for stream in stdin:0 stdout:1 stderr:2; do ln -s "fd/${stream#*:}" "$new/dev/${stream%:*}"; done
for device in null zero full random urandom tty; do
  : >"$new/dev/$device"
  mount --bind "/dev/$device" "$new/dev/$device"
done
for path in "$@"; do # another file system than that of /, or hidden by one of those above
  case $(stat -c %d "$path"):$path in
    "$(stat -c %d /)":/tmp/* | "$(stat -c %d /)":/run/* | "$(stat -c %d /)":/dev/*) ;;
    "$(stat -c %d /)":*) continue ;;
  esac
  layer=$store/layers$path # a change of a mode in there is not to be one of the file that is shown
  mkdir -p "$new$path" "$layer/upper" "$layer/work"
  mount -t overlay machine -o "lowerdir=$path,upperdir=$layer/upper,workdir=$layer/work" "$new$path"
done

if [ ! -e "$store/prepared" ]; then
  # Nothing that this machine's owner has switched on runs in the copy, and nothing touches what the kernel has only one of.
  rm -rf "$new"/etc/systemd/system/*.wants "$new"/etc/systemd/user/*.wants "$new/var/log/journal" "$new/var/lib/systemd/linger"
  mkdir -p "$new/var/log/journal" "$new/etc/systemd/journald.conf.d"
  for unit in systemd-sysctl systemd-binfmt systemd-modules-load systemd-random-seed systemd-pstore systemd-repart systemd-firstboot \
    systemd-udevd systemd-udev-trigger systemd-hwdb-update systemd-update-utmp systemd-update-utmp-runlevel systemd-sysusers \
    systemd-tmpfiles-setup-dev systemd-machine-id-commit kmod-static-nodes ldconfig e2scrub_reap polkit networking; do
    ln -sf /dev/null "$new/etc/systemd/system/$unit.service"
  done
  for unit in getty.target remote-fs.target cryptsetup.target systemd-tmpfiles-clean.timer systemd-initctl.socket systemd-journald-audit.socket \
    systemd-udevd-kernel.socket systemd-udevd-control.socket dev-hugepages.mount dev-mqueue.mount sys-fs-fuse-connections.mount \
    sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount proc-sys-fs-binfmt_misc.automount \
    systemd-ask-password-console.path systemd-ask-password-wall.path; do
    ln -sf /dev/null "$new/etc/systemd/system/$unit"
  done
  : >"$new/etc/fstab"
  tr -d - </proc/sys/kernel/random/uuid >"$new/etc/machine-id"
  for path in "$@"; do
    find "$new$path" -xdev -name .git -prune -o ! -type l \( ! -perm -o=r -o -type d ! -perm -o=x \) -exec chmod o+rX {} +
    while [ "$path" != / ]; do
      path=$(dirname "$path")
      [ -n "$(find "$new$path" -prune -perm -o=x)" ] || chmod o+x "$new$path"
    done
  done
  : >"$store/prepared"
fi

cd "$new"
mkdir -p .old
pivot_root . .old
exec <"/dev/null" >"/dev/null" 2>&1
umount -l /.old
exec env -i container=lxc PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin /usr/lib/systemd/systemd systemd.unit=multi-user.target
