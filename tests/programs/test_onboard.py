"""`bubbles onboard`: what it writes, what it keeps, what it asks, and what it says when a model does not answer."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bubbles import config
from bubbles.config.tools import Sandbox
from bubbles.errors import TryAgain
from bubbles.paths import Home
from bubbles.programs import servers
from bubbles.programs.onboard import planned
from bubbles.programs.plan import Wish
from bubbles.programs.weights import SMOLLM2
from bubbles.sandboxes import probe
from bubbles.starter import start
from tests.fakes.start import model as fake_model
from tests.fakes.start import vendor
from tests.programs.built_channel import COMMAND, ENV
from tests.programs.run import ROOT, bubbles
from tests.programs.terminal_under_test import Terminal
from tests.sandboxes.refusing import needs_a_jail, without_namespaces

KEY = "sk-test-0123456789"


def raw(home: Home) -> Any:
    return json.loads(home.config.read_text())


def fresh(home: Home) -> Any:
    """What a first run writes on this machine."""
    found = config.defaults()
    found["tools"]["sandbox"]["backend"] = "bwrap" if probe.verdict(home, Sandbox()).ok else "local_isolated"
    return found


def copies(home: Home) -> list[Path]:
    return sorted(home.root.glob("config.json.*"))


def put(home: Home, text: str) -> bytes:
    home.config.write_text(text)
    home.config.chmod(0o600)
    return home.config.read_bytes()


def session(home: Home) -> dict[Path, bytes]:
    """A session with everything in it, as bytes by path."""
    place = home.session("my")
    place.mkdir()
    for name in ("session.jsonl", "SOUL.md", "MEMORY.md", "config.json"):
        (place / name).write_text(f'{{"what": "{name}"}}')
    return {path: path.read_bytes() for path in place.iterdir()}


# -- without questions ---------------------------------------------------------------------------------


def test_a_first_run_makes_a_home_and_a_whole_private_configuration(home: Home, tmp_path: Path) -> None:
    made = Home(tmp_path / "fresh" / "home")
    done = bubbles("onboard", "--yes", BUBBLES_HOME=str(made.root))
    assert (done.returncode, done.stderr) == (0, "")
    assert raw(made) == fresh(home)
    assert made.root.stat().st_mode & 0o777 == 0o700
    assert made.config.stat().st_mode & 0o777 == 0o600
    assert made.sessions.is_dir()
    assert re.search(r"Next:\n  bubbles onboard +.+\n  bubbles models fetch", done.stdout)
    assert copies(made) == []


def test_again_is_a_refresh_and_changes_nothing_that_is_set(home: Home) -> None:
    held = session(home)
    before = put(home, '{"mine": [1], "agents": {"defaults": {"maxTokens": 5, "language": "zh"}}, "tools": {"sandbox": {"backend": "local"}}}')
    done = bubbles("onboard", "--yes")
    assert done.returncode == 0
    now = raw(home)
    assert (now["mine"], now["agents"]["defaults"]["max_tokens"], now["agents"]["defaults"]["language"]) == ([1], 5, "zh")
    assert now["agents"]["defaults"]["api_retries"] == 2
    assert now["tools"]["sandbox"]["backend"] == "local"
    (copy,) = copies(home)
    assert re.fullmatch(r"config\.json\.\d{4}-\d\d-\d\d-\d{6}", copy.name)
    assert (copy.read_bytes(), copy.stat().st_mode & 0o777) == (before, 0o600)
    assert str(copy) in done.stdout
    assert {path: path.read_bytes() for path in home.session("my").iterdir()} == held


def test_a_third_run_has_nothing_to_do(home: Home) -> None:
    bubbles("onboard", "--yes")
    before = home.config.stat()
    done = bubbles("onboard", "--yes")
    assert done.returncode == 0
    assert "nothing had to be changed" in done.stdout
    assert home.config.stat().st_ino == before.st_ino
    assert copies(home) == []


def test_overwriting_keeps_a_copy_and_no_session_is_touched(home: Home) -> None:
    held = session(home)
    before = put(home, '{"agents": {"defaults": {"model": "mine"}}}')
    assert bubbles("onboard", "--yes", "--overwrite").returncode == 0
    assert raw(home) == fresh(home)
    assert [copy.read_bytes() for copy in copies(home)] == [before]
    assert {path: path.read_bytes() for path in home.session("my").iterdir()} == held


@pytest.mark.parametrize(
    "text", ["{,", '{"agents": {"defaults": {"temperature": 9}}}', '{"version": 99}', '{"channels": {"slack": {"enabled": true}}}']
)
def test_what_cannot_be_refreshed_is_left_alone_until_it_is_said_to_go(home: Home, text: str) -> None:
    before = put(home, text)
    done = bubbles("onboard", "--yes")
    assert done.returncode == 78
    assert str(home.config) in done.stderr
    assert "bubbles onboard --overwrite" in done.stderr
    assert home.config.read_bytes() == before
    assert copies(home) == []
    assert bubbles("onboard", "--yes", "--overwrite").returncode == 0
    assert [copy.read_bytes() for copy in copies(home)] == [before]


def test_a_directory_in_the_files_place_is_no_bug(home: Home) -> None:
    home.config.mkdir()
    done = bubbles("onboard", "--yes", "--overwrite")
    assert done.returncode == 78
    assert "cannot read" in done.stderr


def test_a_change_by_somebody_else_meanwhile_is_not_lost(home: Home) -> None:
    put(home, "{}")
    plan = planned(home, None, asking=False)
    before = put(home, '{"agents": {"defaults": {"model": "theirs"}}}')
    plan.set_up(Wish(model="mine"))
    with pytest.raises(TryAgain, match="changed meanwhile"):
        plan.write()
    assert home.config.read_bytes() == before


# -- the sandbox ---------------------------------------------------------------------------------------


def backend(home: Home) -> str:
    return str(raw(home)["tools"]["sandbox"]["backend"])


def test_a_jail_is_what_is_written_where_one_holds_and_a_line_says_so(home: Home) -> None:
    needs_a_jail(home)
    done = bubbles("onboard", "--yes")
    assert backend(home) == "bwrap"
    assert re.search(r"^Sandbox: each command gets a jail .*, tried here with /.*bwrap [\d.]+ \(tools\.sandbox\.backend: bwrap\)$", done.stdout, re.M)
    assert "Note" not in done.stdout


def test_where_no_jail_holds_the_next_best_is_written_and_why_and_what_to_do(home: Home) -> None:
    done = without_namespaces("onboard", "--yes")
    assert done.returncode == 0, done.stderr
    assert backend(home) == "local_isolated"
    assert "tools.sandbox.backend: local_isolated" in done.stdout
    assert re.search(r"^Note: a jail .* none can be made here: .*max_user_namespaces", done.stdout, re.M)
    assert re.search(r"^  try: sudo sysctl -w user\.max_user_namespaces=.*; then: bubbles onboard --sandbox bwrap$", done.stdout, re.M)


def test_the_owners_choice_stays_whatever_would_hold(home: Home) -> None:
    put(home, '{"tools": {"sandbox": {"backend": "local"}}}')
    done = bubbles("onboard", "--yes")
    assert backend(home) == "local"
    assert ("bubbles onboard --sandbox bwrap" in done.stdout) == (fresh(home)["tools"]["sandbox"]["backend"] == "bwrap")
    put(home, '{"tools": {"sandbox": {"backend": "bwrap"}}}')
    done = without_namespaces("onboard", "--yes")
    assert (done.returncode, backend(home)) == (0, "bwrap")
    assert "commands are refused until a jail can be made here" in done.stdout
    assert "or: bubbles onboard --sandbox local_isolated" in done.stdout


def test_a_file_that_says_nothing_of_it_gets_what_a_first_run_gets(home: Home) -> None:
    put(home, '{"tools": {"sandbox": {"pass_env": ["EDITOR"]}}}')
    assert bubbles("onboard", "--yes").returncode == 0
    assert raw(home)["tools"]["sandbox"]["pass_env"] == ["EDITOR"]
    assert backend(home) == fresh(home)["tools"]["sandbox"]["backend"]


@pytest.mark.parametrize("name", ["local", "local_isolated"])
def test_a_sandbox_that_is_asked_for_is_written_over_another(home: Home, name: str) -> None:
    put(home, '{"tools": {"sandbox": {"backend": "bwrap"}}}')
    done = bubbles("onboard", "--yes", "--sandbox", name)
    assert (done.returncode, backend(home)) == (0, name)
    assert f"tools.sandbox.backend: {name}" in done.stdout


def test_a_jail_that_is_asked_for_and_does_not_hold_is_an_error_and_nothing_is_written(home: Home) -> None:
    before = put(home, '{"tools": {"sandbox": {"backend": "local"}}}')
    done = without_namespaces("onboard", "--yes", "--sandbox", "bwrap")
    assert done.returncode == 78
    assert "no jail can be made here" in done.stderr
    assert "try: sudo sysctl -w user.max_user_namespaces" in done.stderr
    assert home.config.read_bytes() == before


# -- a model -------------------------------------------------------------------------------------------


def test_an_endpoint_is_asked_once_with_its_key(home: Home) -> None:
    with fake_model({"key": KEY, "models": ["glm"], "default": {"reply": "Ready."}}) as model:
        done = bubbles("onboard", "--yes", "--base-url", model.url, "--model", "glm", "--api-key-stdin", stdin=f"{KEY}\n")
        seen = model.seen()
    assert (done.returncode, done.stderr) == (0, "")
    assert seen["requests"] == 1
    assert seen["bodies"][0]["model"] == "glm"
    assert "It answers: Ready." in done.stdout
    assert KEY not in done.stdout
    assert raw(home)["providers"]["custom"]["api_key"] == KEY
    assert raw(home)["agents"]["defaults"]["model"] == "custom/glm"
    assert re.search(r"Next:\n  bubbles agent ", done.stdout)


@pytest.mark.parametrize(
    ("script", "status", "said", "remedy"),
    [
        ({"key": "another"}, 78, "not authorized", "api_key"),
        ({"default": {"status": 429}}, 75, "rate limited", "wait a little"),
        ({"default": {"status": 503}}, 75, "model down", "base_url"),
        ({"default": {"status": 404}}, 78, "rejected", "model's name"),
        ({"default": {"body": "<html><title>Router login</title>"}}, 78, "Router login", "/v1"),
    ],
)
def test_a_model_that_does_not_answer_is_told_of_with_what_to_do(home: Home, script: dict[str, Any], status: int, said: str, remedy: str) -> None:
    with fake_model(script) as model:
        done = bubbles("onboard", "--yes", "--base-url", model.url, "--model", "glm", "--api-key-stdin", stdin=KEY)
        assert model.seen()["requests"] == 1
    assert done.returncode == status
    assert said in done.stderr
    assert remedy in done.stderr.split("try: ")[1]
    assert KEY not in done.stdout + done.stderr
    assert raw(home)["agents"]["defaults"]["model"] == "custom/glm"


def test_without_a_test_nobody_is_asked(home: Home) -> None:
    done = bubbles("onboard", "--yes", "--base-url", "http://127.0.0.1:9/v1", "--model", "glm", "--no-test")
    assert (done.returncode, done.stderr) == (0, "")


def test_nobody_at_the_address(home: Home) -> None:
    done = bubbles("onboard", "--yes", "--base-url", "http://127.0.0.1:9/v1", "--model", "glm")
    assert done.returncode == 75
    assert "model down" in done.stderr


def test_the_only_model_of_an_endpoint_needs_no_name(home: Home) -> None:
    with fake_model({"models": ["only/one"]}) as model:
        assert bubbles("onboard", "--yes", "--provider", "vllm", "--base-url", model.url).returncode == 0
        assert raw(home)["agents"]["defaults"]["model"] == "vllm/only/one"
        assert model.seen()["bodies"][0]["model"] == "only/one"
        model.play({"models": ["one", "two"]})
        assert bubbles("onboard", "--yes").returncode == 0  # one that is set stays


def test_of_several_models_one_must_be_named(home: Home) -> None:
    with fake_model({"models": ["one", "two"]}) as model:
        done = bubbles("onboard", "--yes", "--base-url", model.url)
    assert done.returncode == 64
    assert "2 models: one, two" in done.stderr
    assert "--model NAME" in done.stderr
    assert not home.config.exists()


def test_a_key_does_not_move_to_another_address(home: Home) -> None:
    put(home, json.dumps({"providers": {"custom": {"base_url": "http://127.0.0.1:1/v1", "api_key": KEY, "headers": {"X-Token": "t"}}}}))
    with fake_model({"models": ["m"]}) as model:
        assert bubbles("onboard", "--yes", "--base-url", model.url).returncode == 0
        assert KEY not in json.dumps(model.seen())
        assert raw(home)["providers"]["custom"] == {"base_url": model.url, "headers": {}, "api_key": "", "models": {}}
        put(home, json.dumps({"providers": {"custom": {"base_url": model.url, "api_key": KEY}}}))
        assert bubbles("onboard", "--yes", "--base-url", f"{model.url}/", "--model", "m").returncode == 0
        assert raw(home)["providers"]["custom"]["api_key"] == KEY


def test_the_environment_is_used_and_named(home: Home) -> None:
    with fake_model({}) as model:
        done = bubbles(
            "onboard",
            "--yes",
            BUBBLES_PROVIDERS__CUSTOM__BASE_URL=model.url,
            BUBBLES_AGENTS__DEFAULTS__MODEL="e",
            BUBBLES_AGENTS__DEFAULTS__LANGUAGE="en",
        )
        assert model.seen()["bodies"][0]["model"] == "e"
    assert done.returncode == 0
    assert "stands over the file: BUBBLES_AGENTS__DEFAULTS__" in done.stdout
    assert raw(home) == fresh(home)


@pytest.mark.parametrize(
    ("argv", "stdin", "status"),
    [
        ([], "", 64),
        (["--api-key-stdin"], KEY, 64),
        (["--yes", "--api-key-stdin"], "", 65),
        (["--yes", "--provider", "custom"], "", 64),
        (["--yes", "--provider", "embedded", "--model", "x"], "", 64),
        (["--yes", "--provider", "custom", "--from", "x.gguf"], "", 64),
        (["--yes", "--provider", "anthropic"], "", 64),
        (["--yes", "--provider", "anthropic", "--api-key-stdin"], KEY, 64),
        (["--yes", "--provider", "openai_codex"], "", 64),
        (["--yes", "--api-key-env", "NOBODY_API_KEY", "--model", "m"], "", 64),
        (["--yes", "--api-key-env", "HOME", "--api-key-stdin"], KEY, 64),
        (["--yes", "--base-url", "localhost:8000", "--model", "m"], "", 78),
        (["--yes", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--api-key-stdin"], "two words", 78),
        (["--yes", "--from", "missing.gguf"], "", 65),
    ],
)
def test_answers_that_are_missing_or_do_not_go_together(home: Home, argv: list[str], stdin: str, status: int) -> None:
    done = bubbles("onboard", *argv, stdin=stdin)
    assert done.returncode == status
    assert re.match(r"bubbles: .+", done.stderr)
    assert "two words" not in done.stderr
    assert not home.config.exists()


def test_daemons_that_run_are_said_to_keep_their_settings(home: Home) -> None:
    put(home, "{}")
    running = start(home, "modeld")
    try:
        said = bubbles("onboard", "--yes").stdout
        assert "Note: modeld started before config.json was changed" in said
        first = said[said.index("Next:") :].splitlines()[1]
        assert first.split(";")[0].split() == ["kill", str(running.pid)]
    finally:
        os.kill(running.pid, signal.SIGTERM)
        running.process.wait(20)


# -- a vendor, by a key -------------------------------------------------------------------------------


def test_a_vendor_is_set_up_by_its_name_and_its_key_is_tried(home: Home) -> None:
    argv = ["onboard", "--yes", "--provider", "anthropic", "--model", "claude-sonnet-4-5"]
    with vendor("anthropic", {"key": KEY, "default": {"reply": "Ready."}}) as server:
        done = bubbles(*argv, "--base-url", server.url, "--api-key-env", "ANTHROPIC_API_KEY", ANTHROPIC_API_KEY=KEY)
        assert server.seen()["requests"] == 1
        assert (done.returncode, done.stderr) == (0, "")
        assert "It answers: Ready." in done.stdout
        assert bubbles(*argv, "--no-test", "--api-key-stdin", stdin="sk-of-somebody-else\n").returncode == 0
        wrong = bubbles("models", "test")
        assert (wrong.returncode, server.seen()["requests"]) == (78, 2)
    first, second = wrong.stderr.splitlines()[:2]
    assert first == "bubbles: claude-sonnet-4-5 of anthropic is asked for one word; that may cost a fraction of a cent"
    assert "not authorized: the key is missing, wrong, or not allowed this model" in second
    assert KEY not in done.stdout + wrong.stdout + wrong.stderr
    assert raw(home)["providers"]["anthropic"]["base_url"] == server.url
    assert raw(home)["agents"]["defaults"]["model"] == "anthropic/claude-sonnet-4-5"


def test_a_vendors_own_address_is_not_written_down_and_a_key_is_kept(home: Home) -> None:
    argv = ["onboard", "--yes", "--no-test", "--provider", "gemini", "--model"]
    assert bubbles(*argv, "gemini-2.5-pro", "--api-key-stdin", stdin=KEY).returncode == 0
    assert (raw(home)["providers"]["gemini"]["base_url"], raw(home)["providers"]["gemini"]["api_key"]) == ("", KEY)
    assert bubbles(*argv, "gemini-2.5-flash").returncode == 0
    assert raw(home)["providers"]["gemini"]["api_key"] == KEY
    assert raw(home)["agents"]["defaults"]["model"] == "gemini/gemini-2.5-flash"
    moved = bubbles(*argv, "gemini-2.5-flash", "--base-url", "http://127.0.0.1:9")
    assert (moved.returncode, raw(home)["providers"]["gemini"]["base_url"]) == (64, ""), "what one host was trusted with, another is not told"


def test_a_key_in_a_variable_is_offered_and_not_read(home: Home) -> None:
    done = bubbles("onboard", "--yes", "--provider", "groq", "--model", "m", GROQ_API_KEY=KEY)
    assert done.returncode == 64
    assert done.stderr == "bubbles: groq wants a key; GROQ_API_KEY is set here, and is read when you say so\n  try: add --api-key-env GROQ_API_KEY\n"
    assert not home.config.exists()
    assert bubbles("onboard", "--yes", GROQ_API_KEY=KEY).returncode == 0
    assert KEY not in home.config.read_text()
    by_name = bubbles("onboard", "--yes", "--no-test", "--api-key-env", "GROQ_API_KEY", "--model", "m", GROQ_API_KEY=KEY)
    assert by_name.returncode == 0
    assert raw(home)["providers"]["groq"]["api_key"] == KEY, "whose key it is can be read from the variable's name"


def test_a_key_that_the_environment_stands_over_the_file_with_is_one(home: Home) -> None:
    argv = ["onboard", "--yes", "--no-test", "--provider", "openai", "--model", "gpt-5"]
    assert bubbles(*argv, BUBBLES_PROVIDERS__OPENAI__API_KEY=KEY).returncode == 0
    assert KEY not in home.config.read_text()
    without = bubbles(*argv[:5])
    assert without.returncode == 64


# -- the embedded model --------------------------------------------------------------------------------


def test_a_file_of_ones_own_is_kept_when_embedded_is_asked_for_again(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "Mine.gguf"
    file.write_bytes(b"GGUF but nothing more")
    done = bubbles("onboard", "--yes", "--from", str(file), "--no-test")
    assert done.returncode == 0
    assert raw(home)["agents"]["defaults"]["model"] == "embedded/mine"
    bubbles("onboard", "--yes", "--provider", "embedded", "--no-test", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert raw(home)["providers"]["embedded"]["model_path"] == str(home.models / "Mine.gguf")
    done = bubbles("onboard", "--yes")
    assert done.returncode in (75, 78)  # no llama.cpp makes a model of that
    assert "Mine.gguf" in done.stderr or "llama.cpp" in done.stderr


def test_a_real_model_answers(home: Home) -> None:
    real = ROOT / ".demo" / "home" / "models" / SMOLLM2.file
    if not real.exists():
        pytest.skip("make demo fetches it")
    done = bubbles("onboard", "--yes", "--from", str(real), timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"It answers: \w+", done.stdout)
    defaults = raw(home)["agents"]["defaults"]
    assert (defaults["model"], defaults["temperature"], defaults["max_tokens"]) == ("embedded/smollm2-135m-instruct", 0.0, 512)
    assert "temperature 0, agents.defaults.max_tokens 512" in done.stdout
    done = bubbles("onboard", "--yes", "--base-url", "http://127.0.0.1:9/v1", "--model", "glm", "--no-test")
    assert "agents.defaults.temperature 0.7" in done.stdout
    assert raw(home)["agents"]["defaults"] == config.defaults()["agents"]["defaults"] | {"model": "custom/glm"}


# -- servers on this machine ---------------------------------------------------------------------------


@contextlib.contextmanager
def answering(status: int, kind: str, body: bytes, port: int = 0) -> Iterator[int]:
    """A server that gives every question one answer; its port."""

    class One(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), One) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "kind", "body", "models", "locked"),
    [
        (200, "application/json", b'{"object":"list","data":[{"id":"a:1b"},{"id":"b"},{"id":"b\\u001b[31m"},{"x":1},3]}', ("a:1b", "b"), False),
        (200, "application/json", b'{"data":[]}', (), False),
        (401, "application/json", b'{"error":"Unauthorized"}', (), True),
    ],
)
def test_a_server_is_found_at_its_port(status: int, kind: str, body: bytes, models: tuple[str, ...], locked: bool) -> None:
    with answering(status, kind, body) as port:
        assert servers.look([("X", port), ("nobody", 9)]) == [servers.Server("X", f"http://127.0.0.1:{port}/v1", models, locked)]


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>"), (200, b"[]"), (200, b'{"data":3}'), (401, b"<html>"), (404, b'{"error":"no"}'), (500, b'{"data":[]}'), (200, b"[" * 99999)],
)
def test_what_is_no_model_server_is_not_offered(status: int, body: bytes) -> None:
    with answering(status, "text/html", body) as port:
        assert servers.look([("X", port)]) == []


_M = {"id": "m:latest", "object": "model", "created": 1727453243}
REAL = {  # what each answers, as its own pages and code have it: (models, another path, what it calls itself)
    "Ollama": ({"object": "list", "data": [{**_M, "owned_by": "library"}]}, "/api/version", ""),
    "vLLM": ({"object": "list", "data": [{**_M, "owned_by": "vllm", "root": "m", "max_model_len": 32768}]}, "", "uvicorn"),
    "llama.cpp": ({"object": "list", "data": [{**_M, "owned_by": "llamacpp", "meta": {"n_ctx": 4096}}]}, "", "llama.cpp"),
}


@contextlib.contextmanager
def like(name: str, port: int = 0, models: Any = ...) -> Iterator[int]:
    """A server that answers as a real one does; its port."""
    told, other, maker = REAL[name]
    pages = {"/v1/models": told if models is ... else {"object": "list", "data": models}, other: {"version": "0.5.1"}}

    class One(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(pages.get(self.path, {"error": "not found"})).encode()
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def version_string(self) -> str:
            return maker

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), One) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("name", "provider"), [("Ollama", "ollama"), ("vLLM", "vllm"), ("llama.cpp", "custom")])
def test_each_is_known_by_its_answers_at_whatever_port(name: str, provider: str) -> None:
    with like(name) as port:
        found = servers.look([("X", port)])
    assert found == [servers.Server(name, f"http://127.0.0.1:{port}/v1", ("m:latest",), sure=True)]
    assert found[0].provider == provider


def test_an_ollama_without_models_is_one() -> None:
    with like("Ollama", models=None) as port:
        assert servers.look([("X", port)]) == [servers.Server("Ollama", f"http://127.0.0.1:{port}/v1", sure=True)]


def test_what_says_nothing_is_not_waited_for(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert servers.look([("X", silent.getsockname()[1])]) == []


# -- the conversation ----------------------------------------------------------------------------------


def onboard(home: Home, *argv: str, **env: str) -> Terminal:
    return Terminal(["onboard", *argv], {"BUBBLES_HOME": str(home.root), **env})


def choose(terminal: Terminal, line: str) -> None:
    """Take the line of the menu that holds these words."""
    menu = terminal.expect("Number [")
    terminal.type(next(number for number, text in re.findall(r"^ +(\d+)  (.*)$", menu, re.MULTILINE) if line in text))


def test_a_conversation_that_ends_well(home: Home) -> None:
    with fake_model({"key": KEY, "models": ["glm", "kimi"], "default": {"reply": "Yes.\nI am."}}) as model, onboard(home) as terminal:
        choose(terminal, "any other endpoint")
        terminal.expect("Its address")
        terminal.type(model.url)
        terminal.expect("Its key, not shown (Enter if it needs none)")
        terminal.type(KEY)
        terminal.expect("1  glm")
        terminal.expect("by number or name")
        terminal.type("2")
        terminal.expect("Asking kimi by custom")
        terminal.expect("It answers: Yes. I am.")
        assert terminal.end() == 0
        assert KEY not in terminal.raw
        assert "Next:\n  bubbles agent" in terminal.text
    assert raw(home)["agents"]["defaults"]["model"] == "custom/kimi"
    assert raw(home)["providers"]["custom"]["api_key"] == KEY


def test_a_wrong_key_may_be_given_again(home: Home) -> None:
    with fake_model({"key": KEY, "models": ["glm"]}) as model, onboard(home, "--base-url", model.url) as terminal:
        terminal.expect("Its key")
        terminal.type("sk-wrong-key-123456")
        terminal.expect("not authorized")
        terminal.expect("Choose again?")
        terminal.type("")
        choose(terminal, "any other endpoint")
        terminal.expect("Its address")
        terminal.type(model.url)
        terminal.expect("Its key")
        terminal.type(KEY)
        terminal.expect("by number or name [1]")
        terminal.type("")
        terminal.expect("It answers: ok")
        assert terminal.end() == 0
    assert copies(home) == []
    assert "sk-wrong" not in terminal.raw


def test_it_may_be_left_at_a_model_that_does_not_answer(home: Home) -> None:
    with fake_model({"default": {"status": 503}}) as model, onboard(home, "--base-url", model.url, "--model", "glm") as terminal:
        terminal.expect("Its key")
        terminal.type("")
        terminal.expect("model down")
        terminal.expect("Choose again?")
        terminal.type("n")
        assert terminal.end() == 75
        assert "Next:" in terminal.text
    assert raw(home)["agents"]["defaults"]["model"] == "custom/glm"


def test_what_cannot_be_is_asked_again_at_once(home: Home) -> None:
    with fake_model({"models": ["glm", "kimi"]}) as model, onboard(home) as terminal:
        menu = terminal.expect("Number [")
        for wrong in ("embedded", "0", "99"):
            terminal.type(wrong)
            terminal.expect("type a number from 1 to ")
        terminal.type(next(number for number, text in re.findall(r"^ +(\d+)  (.*)$", menu, re.MULTILINE) if "any other endpoint" in text))
        terminal.expect("Its address")
        terminal.type("not a url")
        terminal.expect("type an address such as http://127.0.0.1:8000/v1")
        terminal.expect("Its address")
        terminal.type(model.url.removeprefix("http://"))
        terminal.expect("Its key")
        terminal.type("")
        terminal.expect("by number or name")
        terminal.type("7")
        terminal.expect("type a number from 1 to 2")
        terminal.expect("by number or name")
        terminal.type("2")
        terminal.expect("It answers: ok")
        assert terminal.end() == 0
    assert raw(home)["providers"]["custom"]["base_url"] == model.url
    assert raw(home)["agents"]["defaults"]["model"] == "custom/kimi"


def test_an_address_and_a_key_outlast_an_endpoint_that_does_not_answer_now(home: Home) -> None:
    with onboard(home) as terminal:
        choose(terminal, "any other endpoint")
        terminal.expect("Its address")
        terminal.type("localhost:9")
        terminal.expect("Its key")
        terminal.type(KEY)
        terminal.expect("Choose again?")
        terminal.type("n")
        assert terminal.end() == 75
    custom = raw(home)["providers"]["custom"]
    assert (custom["base_url"], custom["api_key"]) == ("http://localhost:9", KEY)


def interrupted(terminal: Terminal) -> int:
    """Press Ctrl-C as a person would: again, where the first came a moment before the program began to read."""
    for _ in range(10):
        terminal.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return terminal.process.wait(2)
    raise AssertionError("it does not end")


def test_ctrl_c_writes_nothing(home: Home) -> None:
    before = put(home, "{}")
    with onboard(home) as terminal:
        terminal.expect("Which")
        terminal.type("refresh")
        terminal.expect("Number [")
        assert interrupted(terminal) == 130
        assert terminal.end() == 130
        assert terminal.raw.endswith("\n")
    assert home.config.read_bytes() == before
    assert copies(home) == []


@pytest.mark.parametrize(("answer", "model"), [("refresh", "mine"), ("", "mine"), ("overwrite", "")])
def test_an_existing_configuration_is_asked_about(home: Home, answer: str, model: str) -> None:
    before = put(home, '{"agents": {"defaults": {"model": "mine"}}}')
    with onboard(home, "--no-test") as terminal:
        terminal.expect("There is a configuration already")
        terminal.expect("Which (refresh, overwrite) [refresh]")
        terminal.type(answer)
        choose(terminal, "none for now")
        assert terminal.end() == 0
    assert raw(home)["agents"]["defaults"]["model"] == model
    assert [copy.read_bytes() for copy in copies(home)] == [before]


def test_a_broken_configuration_is_overwritten_only_when_that_is_said(home: Home) -> None:
    before = put(home, '{"agents": {,}}')
    for answer, status in (("n", 130), ("y", 0)):
        with onboard(home, "--no-test") as terminal:
            terminal.expect("line 1, column 13")
            terminal.expect("Put the defaults in its place?")
            terminal.type(answer)
            if answer == "y":
                choose(terminal, "none for now")
            assert terminal.end() == status
        assert (home.config.read_bytes() == before) is (answer == "n")
    assert [copy.read_bytes() for copy in copies(home)] == [before]


def test_a_server_that_runs_here_is_offered_first(home: Home) -> None:
    port = dict(servers.PLACES)["Ollama"]
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(socket.create_server(("127.0.0.1", port))).close()
        except OSError:
            pytest.skip("something runs at that port")
        argv = [sys.executable, "-m", "tests.fakes.model", "--port", str(port), "--with-parent"]
        fake = stack.enter_context(subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert fake.stdin
        assert fake.stdout
        stack.callback(fake.stdin.close)
        assert fake.stdout.readline().strip() == f"http://127.0.0.1:{port}/v1"
        with onboard(home) as terminal:
            terminal.expect(f"1  the server at http://127.0.0.1:{port}/v1, where Ollama usually is (1 model)")
            terminal.expect("Number")
            terminal.type("")
            terminal.expect("Its key")
            terminal.type("")
            terminal.expect("by number or name [1]")
            terminal.type("")
            terminal.expect("It answers: ok")
            assert terminal.end() == 0
    assert raw(home)["providers"]["custom"]["base_url"] == f"http://127.0.0.1:{port}/v1"
    assert raw(home)["agents"]["defaults"]["model"] == "custom/fake"
    _a_real_one_is_asked_nothing_that_it_told(home, port)


def _a_real_one_is_asked_nothing_that_it_told(home: Home, port: int) -> None:
    """In the same test: there is one such port on a machine."""
    with like("Ollama", port):
        put(home, "{}")
        done = bubbles("onboard", "--yes")
        assert f"Found: Ollama at http://127.0.0.1:{port}/v1 (1 model)\n  try: bubbles onboard --yes --provider ollama\n" in done.stdout
        assert raw(home)["agents"]["defaults"]["model"] == ""
        with onboard(home, "--refresh", "--no-test") as terminal:
            terminal.expect(f"1  Ollama at http://127.0.0.1:{port}/v1 (1 model)")
            terminal.expect("Number")
            terminal.type("")
            terminal.expect("by number or name [1]")
            terminal.type("")
            assert terminal.end() == 0
            assert "Its key" not in terminal.text
    assert raw(home)["agents"]["defaults"]["model"] == "ollama/m:latest"


def test_a_vendor_is_chosen_from_a_list_and_its_key_typed(home: Home) -> None:
    with onboard(home, "--no-test", ANTHROPIC_API_KEY="", OPENAI_API_KEY="") as terminal:
        choose(terminal, "a vendor or a gateway, by your key")
        terminal.expect("Which, by number or name")
        terminal.type("nobody")
        terminal.expect("type a number or a name")
        terminal.type("Anthropic")
        terminal.expect("Its key, not shown")
        terminal.type(KEY)
        terminal.expect("Model, by number or name")
        terminal.type("claude-sonnet-4-5")
        assert terminal.end() == 0
        assert KEY not in terminal.raw
    assert raw(home)["providers"]["anthropic"]["api_key"] == KEY
    assert raw(home)["agents"]["defaults"]["model"] == "anthropic/claude-sonnet-4-5"


@pytest.mark.parametrize(("answer", "key"), [("y", KEY), ("n", "sk-another-9876")])
def test_a_vendor_whose_variable_is_set_is_offered_and_asked_about(home: Home, answer: str, key: str) -> None:
    with onboard(home, "--no-test", OPENROUTER_API_KEY=KEY) as terminal:
        choose(terminal, "OpenRouter, for which OPENROUTER_API_KEY is set here")
        terminal.expect("OPENROUTER_API_KEY is set here. Take the key that is in it?")
        terminal.type(answer)
        if answer == "n":
            terminal.expect("Its key, not shown")
            terminal.type(key)
        terminal.expect("Model, by its name there")
        terminal.type("openai/gpt-5")
        assert terminal.end() == 0
    assert raw(home)["providers"]["openrouter"]["api_key"] == key
    assert raw(home)["agents"]["defaults"]["model"] == "openrouter/openai/gpt-5"


def test_a_channel_that_is_built_is_switched_on_with_what_it_needs(home: Home) -> None:
    env = {"BUBBLES_HOME": str(home.root), **ENV}
    with Terminal([], env, cwd=ROOT, command=[*COMMAND, "onboard", "--no-test"]) as terminal:
        choose(terminal, "none for now")
        terminal.expect("reached from a chat")
        terminal.expect("[none]")
        terminal.type("telegram")
        terminal.expect("docs/channels/telegram.md")
        terminal.expect("token")
        terminal.type("")
        terminal.expect("token")
        terminal.type("to ken")
        terminal.expect("channels.telegram.token")
        terminal.expect("Again?")
        terminal.type("y")
        terminal.expect("token")
        terminal.type("42:a-token")
        terminal.expect("bubbles channels test telegram")
        assert terminal.end() == 0
        assert "42:a-token" not in terminal.raw
    assert (raw(home)["channels"]["telegram"]["enabled"], raw(home)["channels"]["telegram"]["token"]) == (True, "42:a-token")
