"""llama.cpp's HTTP server in a process of its own: what the embedded provider starts, and nobody by hand.

One line of JSON comes on standard input: {"model", "context_tokens", "threads", "key", "parent"}. One line goes to standard
output once the model is loaded: {"address": URL} or {"error": TEXT}. It listens on 127.0.0.1 only, asks for the key with
every request but /health, and ends with its parent. llama.cpp's own lines go to standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_CACHE_MIB = 256  # of prompts that were read before


def main() -> None:
    """Serve until standard input ends."""
    wanted = json.loads(sys.stdin.readline())
    _end_with(wanted["parent"])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the library prints is not our answer
    try:
        server = _serve(wanted)
        _tell(out, {"address": server.listening_address})
    except Exception as error:
        _tell(out, {"error": str(error) or type(error).__name__})
        sys.exit(1)
    sys.stdin.read()
    os._exit(0)  # nothing is to be saved, and unloading takes its time


def _serve(wanted: dict[str, Any]) -> Any:
    import xllamacpp  # here, so that its absence is told in words

    params = xllamacpp.CommonParams()
    params.model.path = wanted["model"]
    params.n_ctx = wanted["context_tokens"]
    params.n_parallel = 1  # the whole window for one request; others wait their turn
    params.cache_ram_mib = _CACHE_MIB
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [wanted["key"]]
    params.cors_origins = ""
    params.ui = params.endpoint_slots = False
    params.offline = True
    params.sampling.penalty_repeat, params.sampling.min_p = 1.1, 0.2  # small models repeat themselves, and stray
    if wanted["threads"]:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted["threads"]
    return xllamacpp.Server(params)


def _end_with(parent: int) -> None:
    """Die when the parent does, however it does; and let no other process of the user's read the key from memory."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _tell(out: Any, body: dict[str, Any]) -> None:
    out.write(json.dumps(body) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
