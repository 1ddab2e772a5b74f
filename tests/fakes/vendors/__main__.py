"""One vendor's server in a process of its own, which answers by a script and remembers what it was asked.

    python -m tests.fakes.vendors VENDOR [--port 0] [--with-parent]

It prints the base URL that the vendor's official client wants. Scripts: tests/fakes/script.py; `/_seen`, `/_script`: tests/fakes/wire.py.
"""

from __future__ import annotations

import asyncio

from tests.fakes.vendors.anthropic import Anthropic
from tests.fakes.vendors.codex import ROOT, Codex
from tests.fakes.vendors.copilot import Copilot
from tests.fakes.vendors.gemini import Gemini
from tests.fakes.vendors.ollama import Ollama
from tests.fakes.vendors.openai import OpenAI
from tests.fakes.wire import Connection, arguments, serve

# By name: who speaks, and how the base URL ends.
SERVERS: dict[str, tuple[type[Connection], str]] = {
    "openai": (OpenAI, "/v1"),
    "anthropic": (Anthropic, ""),
    "gemini": (Gemini, ""),
    "ollama": (Ollama, ""),
    "codex": (Codex, ROOT),
    "copilot": (Copilot, ""),
}


def main() -> None:
    parser = arguments("tests.fakes.vendors", "a scripted server that speaks a vendor's protocol")
    parser.add_argument("vendor", choices=SERVERS)
    chosen = parser.parse_args()
    protocol, root = SERVERS[chosen.vendor]
    asyncio.run(serve(protocol, root, chosen.port, {}, chosen.with_parent))


if __name__ == "__main__":
    main()
