"""The front door: dispatch, help, versions, exit codes, completion, and what an unknown error looks like."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bubbles import __version__
from bubbles.errors import DataError, Misconfigured, TryAgain, Unavailable
from bubbles.paths import Home
from bubbles.programs import PROGRAMS, front
from bubbles.programs.page import HEADINGS, Page
from tests.programs.conftest import Place
from tests.programs.run import BIN, bubbles

# -- what is made ----------------------------------------------------------------------------------


def test_the_directories_that_a_program_makes_are_its_owners_alone(home: Home, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        assert bubbles("agent", "-s", "private", "--here", "-m", "hello", timeout_s=60, cwd=tmp_path / "run").returncode != 70
        assert bubbles("cron", "add", "--every", "1d", "hello").returncode == 0
    finally:
        os.umask(before)
    made = {path.relative_to(home.root): path.stat().st_mode & 0o777 for path in home.root.rglob("*")}
    assert Path("run/lent") in made
    assert {path: oct(mode) for path, mode in made.items() if mode & 0o077} == {}


# -- the registry ----------------------------------------------------------------------------------


def test_every_program_has_a_link_to_the_one_launcher() -> None:
    links = {path.name for path in BIN.iterdir() if path.name != "bubbles"}
    assert links == {f"bubbles-{name}" for name in PROGRAMS}
    assert all(os.readlink(BIN / link) == "bubbles" for link in links)


def test_the_overview_tells_every_program_with_its_summary() -> None:
    shown = bubbles("--help").stdout
    for name, (_, _, synopsis, summary) in PROGRAMS.items():
        assert re.search(rf"^  {re.escape(f'{name} {synopsis}'.strip())} +{re.escape(summary)}$", shown, re.MULTILINE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_has_a_page_in_one_order(name: str) -> None:
    shown = bubbles(name, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    page = shown.stdout
    assert re.match(rf"Usage: bubbles {name}\b", page)
    found = [page.find(f"\n{heading}\n") for heading in ("", "Options:", *HEADINGS)]
    assert re.search(r"^  -V, --version +Say which version this is\.\n  -h, --help +Print this page\.$", page, re.MULTILINE)
    assert -1 not in found
    assert found == sorted(found)
    assert max(map(len, page.splitlines())) <= 125


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_says_its_version(name: str) -> None:
    for option in ("--version", "-V"):
        assert bubbles(name, option).stdout == f"bubbles {name} {__version__}\n"


def test_help_for_a_verb_is_its_page() -> None:
    assert bubbles("help", "scan").stdout == bubbles("scan", "--help").stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_call_is_64_and_says_what_to_do(name: str) -> None:
    done = bubbles(name, "--no-such-option")
    assert (done.returncode, done.stdout) == (64, "")
    assert re.match(r"bubbles: .+\n  try: .+\n\Z", done.stderr)


# -- the front door --------------------------------------------------------------------------------


def test_the_version() -> None:
    assert bubbles("--version").stdout == f"bubbles {__version__}\n"


def test_a_misspelt_verb_is_told_the_nearest_one() -> None:
    done = bubbles("hystory")
    assert (done.returncode, done.stdout, done.stderr) == (64, "", "bubbles: no program 'hystory'\n  try: bubbles history\n")


def test_no_verb_at_all_is_a_wrong_call() -> None:
    done = bubbles()
    assert (done.returncode, done.stdout) == (64, "")
    assert "Usage: bubbles VERB" in done.stderr


def test_a_program_of_the_owners_own_is_a_verb_too(tmp_path: Path) -> None:
    program = tmp_path / "bubbles-hello"
    program.write_text('#!/bin/sh\necho "hello $1"\n')
    program.chmod(0o755)
    assert bubbles("hello", "you", PATH=f"{tmp_path}:{os.environ['PATH']}").stdout == "hello you\n"


def test_a_link_to_the_launcher_under_an_unknown_name_ends(tmp_path: Path) -> None:
    link = tmp_path / "bubbles-nonsense"
    link.symlink_to(BIN / "bubbles")
    done = subprocess.run([link], capture_output=True, text=True, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, timeout=20)
    assert done.returncode == 64


def test_the_launcher_finds_its_package_through_links_and_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "bubbles").mkdir()
    (tmp_path / "bubbles" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong queue')")
    link = tmp_path / "bin-bubbles-scan"
    link.symlink_to(BIN / "bubbles-scan")
    named = tmp_path / "bubbles-scan"
    named.symlink_to(link)
    done = subprocess.run([named, "--version"], capture_output=True, text=True, cwd=tmp_path, timeout=20)
    assert done.stdout == f"bubbles scan {__version__}\n"


def test_a_checkout_without_a_venv_runs_on_the_python_of_the_path(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(BIN, checkout / "bin", symlinks=True)
    (checkout / "bubbles" / "programs").mkdir(parents=True)
    for name in ("__init__.py", "programs/__init__.py", "programs/__main__.py", "programs/front.py"):
        shutil.copy(BIN.parent / "bubbles" / name, checkout / "bubbles" / name)
    python = tmp_path / "bin"
    python.mkdir()
    (python / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    env = {"PATH": f"{python}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([checkout / "bin" / "bubbles", "--version"], capture_output=True, text=True, env=env, timeout=20)
    assert (done.stdout, done.stderr) == (f"bubbles {__version__}\n", "")


def test_help_and_version_load_nothing_of_anybody_else() -> None:
    code = "import sys; from bubbles.programs import front; front.run(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-S", "-P", "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(BIN.parent)})
    for heavy in ("click", "typing", "asyncio", "zmq", "json", "importlib.metadata"):
        assert f"'{heavy}'" not in done.stderr


def test_help_costs_at_most_six_times_an_empty_python() -> None:
    python = BIN.parent / ".venv" / "bin" / "python"
    empty = min(_cpu_s([str(python) if python.exists() else sys.executable, "-c", "pass"]) for _ in range(5))
    helped = min(_cpu_s([str(BIN / "bubbles"), "--help"]) for _ in range(5))
    assert helped < 6 * empty


def _cpu_s(argv: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# -- errors become exit codes ----------------------------------------------------------------------


def run_raising(error: BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> int:
    """`front.run` with a program that raises: a file of its own, registered like any other."""
    import bubbles.programs as registry

    module = tmp_path / "raising_program.py"
    module.write_text("raised = None\ndef main(argv):\n    raise raised\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(registry.PROGRAMS, "raising", ("raising_program", "Run", "", "raises"))
    sys.modules.pop("raising_program", None)
    import raising_program  # type: ignore[import-not-found]

    raising_program.raised = error
    return front.run(["raising"])


@pytest.mark.parametrize(
    ("error", "status"),
    [(Misconfigured("m"), 78), (Unavailable("u"), 69), (TryAgain("t"), 75), (DataError("d"), 65), (KeyboardInterrupt(), 130)],
)
def test_an_error_is_its_exit_code(error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Home) -> None:
    assert run_raising(error, monkeypatch, tmp_path) == status


def test_an_error_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    run_raising(Misconfigured("the file is broken", remedy="mend it"), monkeypatch, tmp_path)
    assert capsys.readouterr() == ("", "bubbles: the file is broken\n  try: mend it\n")


def test_an_error_that_quotes_something_does_not_act_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    run_raising(Misconfigured("it says\n\x1b[2J\u202e caf\u00e9", remedy="look\x07"), monkeypatch, tmp_path)
    assert capsys.readouterr().err == "bubbles: it says\n\\x1b[2J\\u202e caf\u00e9\n  try: look\\x07\n"


def test_a_bug_is_one_line_and_its_traceback_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_raising(ValueError("secret inside"), monkeypatch, tmp_path) == 70
    log = home.log / "bubbles.log"
    assert capsys.readouterr().err == f"bubbles: an internal error in raising (ValueError); the traceback is in {log}\n"
    assert "ValueError: secret inside" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_a_reader_that_goes_away_is_no_error(home: Home) -> None:
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; yes \'{{"text":"x"}}\' | head -20000 | {BIN}/bubbles scan | head -1; echo ${{PIPESTATUS[2]}}'],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "141"


@pytest.mark.parametrize(
    ("call", "status", "why"),
    [
        ("status > /dev/full", 75, "bubbles: cannot write: No space left on device\n"),
        ("--help > /dev/full", 75, "bubbles: cannot write: No space left on device\n"),
        ("completion bash > /dev/full", 75, "bubbles: cannot write: No space left on device\n"),
        ("status >&-", 75, "bubbles: cannot write: Bad file descriptor\n"),
        ("status <&-", 0, ""),
        ("scan <&-", 0, ""),
        ("ask <&-", 64, "bubbles: there is nothing to say\n  try: bubbles ask 'a question'\n"),
        ("ask < /", 65, "bubbles: standard input is a directory\n  try: < FILE, or < /dev/null\n"),
        ("history none 2>&-", 1, ""),
    ],
)
def test_a_stream_that_is_closed_or_full_is_told(own_place: Place, call: str, status: int, why: str) -> None:
    done = subprocess.run(["bash", "-c", f"{BIN}/bubbles {call}"], capture_output=True, text=True, timeout=60, env={**os.environ, **own_place.env})
    assert (done.returncode, done.stderr) == (status, why)
    if status:
        assert done.stdout == ""


def test_a_reply_that_cannot_be_written_is_told_and_kept(own_place: Place) -> None:
    own_place.model.play({"default": {"reply": "the answer"}})
    run = f"{BIN}/bubbles ask hi < /dev/null"
    for out, status in ((">/dev/full", 75), (">&-", 75), ("| true; exit ${PIPESTATUS[0]}", 141)):
        done = subprocess.run(["bash", "-c", f"{run} {out}"], capture_output=True, text=True, timeout=60, env={**os.environ, **own_place.env})
        assert (done.returncode, done.stdout) == (status, "")
        assert done.stderr.count("\n") == (status == 75)
    assert [m["role"] for m in own_place.history("main")] == ["user", "assistant"] * 3


# -- completion ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_one_that_the_shell_accepts(shell: str, tmp_path: Path) -> None:
    done = bubbles("completion", shell)
    assert done.returncode == 0
    assert all(name in done.stdout for name in PROGRAMS)
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.stdout)
        assert subprocess.run([shell, "-n", script], capture_output=True).returncode == 0


def test_the_script_for_bash_passes_the_linter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(bubbles("completion", "bash").stdout)
    linter = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if linter is None:
        pytest.skip("no shellcheck here")
    done = subprocess.run([linter, "-s", "bash", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("bubbles hist", {"history"}),
        ("bubbles queue re", {"release"}),
        ("bubbles queue list --st", {"--state"}),
        ("bubbles-queue list --st", {"--state"}),
        ("bubbles queue drop --st", set()),
        ("bubbles agent --he", {"--help", "--here"}),
        ("bubbles-agent --sess", {"--session"}),
        ("bubbles completion z", {"zsh"}),
        ("bubbles models r", {"route"}),
        ("bubbles models list op", {"openai", "openrouter", "openai_codex"}),
        ("bubbles models route --p", {"--provider"}),
        ("bubbles ask -s wo", {"work"}),
        ("bubbles history w", {"work"}),
        ("bubbles help sta", {"status"}),
    ],
)
def test_bash_completes(line: str, wanted: set[str], home: Home) -> None:
    (home.sessions / "work").mkdir()
    (home.sessions / "main").mkdir()
    words = " ".join(f"'{word}'" for word in line.split(" "))
    script = f"COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); _bubbles; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", f"source <({BIN}/bubbles completion bash); {script}"], capture_output=True, text=True, timeout=20)
    assert set(done.stdout.split()) == wanted, done.stderr


def test_every_page_of_ours_is_a_click_command_that_raises_our_errors() -> None:
    from bubbles.programs import agent, ask, gateway, history, queue, scan, send, status, tail

    assert all(isinstance(module.main, Page) for module in (agent, ask, gateway, history, queue, scan, send, status, tail))
