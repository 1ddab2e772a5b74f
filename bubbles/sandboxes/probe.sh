#!/bin/bash
# What is tried inside a jail to see that it holds: a line a check, "name<TAB>ok|bad|skip<TAB>detail". It is run with UID CANARY HOME NETWORK PYTHON
# at the session's work/ (NETWORK: the name of the one outside), and needs bash and readlink; python3 and unshare where they are there. The last
# line says that it came to its end.
uid=$1 canary=$2 home=$3 outside=$4 python=$5

say() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }
field() { while read -r name value; do [[ $name == "$1:" ]] && echo "$value"; done < /proc/self/status; }
writable() { { : > "$1"; } 2> /dev/null; }

# -- who it is
if [[ $EUID == "$uid" && $(field CapEff) =~ ^0+$ ]]; then say uid ok "uid $EUID, no capabilities"
else say uid bad "uid $EUID instead of $uid, capabilities $(field CapEff)"; fi
if [[ $(field NoNewPrivs) == 1 && $(field Seccomp) == 2 ]]; then say filter ok "system calls are filtered, no setuid program gains rights"
else say filter bad "no_new_privs $(field NoNewPrivs), seccomp $(field Seccomp) instead of 1 and 2"; fi

# -- what it can read
left=
while IFS= read -r -d '' entry; do
  case $entry in PWD=* | OLDPWD=* | SHLVL=* | _=*) ;; *) left+=" ${entry%%=*}" ;; esac
done 2> /dev/null < /proc/1/environ
if [[ -z $left ]]; then say environ ok "process 1 tells nothing of the environment outside"
else say environ bad "process 1 tells of the environment outside:${left:0:200}"; fi
seen=
for path in "$canary" "/proc/1/root$canary" "/proc/self/root$canary" "/oldroot$canary" "$home/config.json" "$home/spool" "$home/log"; do
  [[ -e $path || -L $path ]] && seen+=" $path"
done
if [[ -z $seen ]]; then say canary ok "files outside the session do not exist"
else say canary bad "a file outside can be seen:$seen"; fi
shopt -s nullglob dotglob
held=(/run/user/*/* /run/user/*/.[!.]* /run/dbus/* /run/systemd/* /tmp/.X11-unix/*)
if ((${#held[@]} == 0)); then say sockets ok "no socket of a user's or the system's services"
else say sockets bad "these can be seen: ${held[*]:0:5}"; fi
pids=(/proc/[0-9]*)
first=$(< /proc/1/comm)
if [[ ${#pids[@]} -le 8 && $first == bwrap ]]; then say processes ok "only the jail's own processes (${#pids[@]})"
else say processes bad "${#pids[@]} processes can be seen, the first of them $first"; fi

# -- what it can write
open=
for path in / /dev/ /etc/ /usr/ /run/ "${PWD%/work}/"; do
  writable "${path}bubbles-probe" && open+=" $path"
done
for path in /etc/passwd /proc/sys/kernel/core_pattern /proc/sys/vm/swappiness /proc/sysrq-trigger; do
  # Opened only: whoever is root outside may write there without any capability, unless it is mounted read-only.
  [[ -e $path ]] && { : >> "$path"; } 2> /dev/null && open+=" $path"
done
if [[ -z $open ]]; then say writes ok "/ /dev /etc /usr cannot be written"
else say writes bad "these can be written:$open"; fi
if writable ./.bubbles-probe && writable "$HOME/.bubbles-probe" && writable /tmp/.bubbles-probe; then say work ok "work/, HOME and /tmp can be written"
else say work bad "one of these cannot be written: $PWD, $HOME, /tmp"; fi

# -- how it can get out
if ! type -P unshare > /dev/null; then say namespaces skip "no unshare here to try it with"
elif unshare -U true 2> /dev/null || unshare -m true 2> /dev/null; then say namespaces bad "a further namespace could be made"
else say namespaces ok "no further namespaces"; fi
interfaces=
while IFS=: read -r name rest; do [[ -n $rest && ${name// /} != lo ]] && interfaces+=" ${name// /}"; done < /proc/net/dev
if [[ -n $interfaces ]]; then say network bad "there are ways out:$interfaces"
elif [[ $(readlink /proc/self/ns/net) == "$outside" ]]; then say network bad "it is the network of the machine"
else say network ok "no network under the policy none"; fi
type -P "$python" > /dev/null || python=python3
if ! type -P "$python" > /dev/null; then say vsock skip "no python3 here to try it with"
else
  answer=$("$python" -I -S -c '
import socket
for family in (40, 38, 17):  # AF_VSOCK, AF_ALG, AF_PACKET
    try:
        socket.socket(family, socket.SOCK_SEQPACKET if family == 38 else socket.SOCK_STREAM)
        print("open", family)
    except OSError:
        pass
print("tried")' 2>&1)
  case $answer in
    tried) say vsock ok "no sockets to the host or the kernel (vsock, alg, packet)" ;;
    open*) say vsock bad "a family of sockets is open: ${answer//$'\n'/ }" ;;
    *) say vsock skip "python3 does not run here" ;;
  esac
fi
say end ok ""
