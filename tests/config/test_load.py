"""The file, the environment and the defaults: what a program finds in its settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from bubbles import config
from bubbles.config import version
from bubbles.config.environment import put as put_in
from bubbles.config.providers import Providers, built
from bubbles.config.section import Key, Section, dotted, fold, plain, secrets, within
from bubbles.config.settings import section_class
from bubbles.errors import Misconfigured
from bubbles.paths import Home


def put(home: Home, text: str | bytes) -> bytes:
    """Write the file as an editor would, and return what stands in it."""
    data = text.encode() if isinstance(text, str) else text
    home.config.write_bytes(data)
    home.config.chmod(0o600)
    return data


def load(home: Home, raw: Any, *sections: str, **env: str) -> config.Settings:
    put(home, json.dumps(raw))
    return config.load(home, *sections, env=env)


def test_no_file_means_all_defaults(home: Home) -> None:
    settings = config.load(home, env={})
    assert settings.agents.defaults.model == ""
    assert settings.agents.defaults.api_retries == 2
    assert settings.tools.exec.timeout_s == 120
    assert settings.warnings == ()
    assert not home.config.exists()


@pytest.mark.parametrize(
    ("section", "raw"),
    [
        (
            "tools",
            {
                "sandbox": {
                    "backend": "bwrap",
                    "network": "none",
                    "unattended_network": "public",
                    "allow_domains": ["example.org"],
                    "binds": ["/opt", {"path": "/srv", "to": "/mnt/y"}],
                    "limits": {"processes": 64},
                    "allow_debug": True,
                }
            },
        ),
        ("tools", {"sandbox": {"backend": "local", "network": "host"}}),
        ("tools", {"sandbox": {"backend": "local", "pass_env": ["FOO"]}, "exec": {"timeout_s": 600, "path_append": "/opt/x/bin"}}),
        ("tools", {"files": {"write_soul": True}, "exec": {"timeout_s": 900, "timeout_max_s": 3600}}),
        ("agents", {"defaults": {"interjection": "preempt", "timezone": "Europe/Berlin", "language": "zh", "concurrency": 3}}),
        ("channels", {"people": {}, "telegram": {"token": "", "allow_from": []}, "slack": {"dm": {"policy": "allowlist"}}, "qq": {}}),
        ("providers", {"custom": {"base_url": "http://127.0.0.1:1/v1/", "models": {"a.b/c": {"tools": False}}, "headers": {"X-A": "b c"}}}),
        ("providers", {"openai_codex": {"headers": {}}, "embedded": {"model_path": "~/m.gguf", "idle_s": 0}}),
        ("providers", {name: {"models": {"m": {"tools": False, "reasoning": "keep"}}} for name in ("custom", "ollama", "vllm")}),
        ("agents", {"defaults": {"context_tokens": 4096, "keep_tokens": 1024, "result_tokens": 1000, "max_tokens": 4095}}),
    ],
)
def test_what_is_allowed_loads(home: Home, section: str, raw: dict[str, Any]) -> None:
    assert load(home, {section: raw}, section).warnings == ()


def test_values_arrive_as_they_are_meant(home: Home, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    settings = load(
        home,
        {
            "tools": {"workspaces": [f"{tmp_path}/b:rw", {"path": str(tmp_path / "b")}]},
            "providers": {"vllm": {"models": {"m": {"contextTokens": 5}}}, "custom": {"api_key": "  sk-abc\n", "base_url": "http://h/v1/"}},
        },
    )
    assert [(g.path, g.mode) for g in settings.tools.workspaces] == [(str(tmp_path / "b"), "rw"), (str(tmp_path / "b"), "ro")]
    assert settings.providers.vllm.models["m"].context_tokens == 5
    assert settings.providers.custom.api_key.get_secret_value() == "sk-abc"
    assert settings.providers.custom.base_url == "http://h/v1"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"agents": {"defaults": {"temperature": 9}}}, "agents.defaults.temperature: found 9; allowed: a number from 0 to 2"),
        ({"agents": {"defaults": {"maxTokens": "many"}}}, 'agents.defaults.max_tokens: found "many"; allowed: a whole number from 1 to 1000000'),
        ({"agents": {"defaults": {"max_tokens": True}}}, "agents.defaults.max_tokens: found true"),
        ({"agents": {"defaults": {"interjection": "no"}}}, 'agents.defaults.interjection: found "no"; allowed: one of "join", "preempt"'),
        ({"agents": {"defaults": {"timezone": "Mars/X"}}}, "agents.defaults.timezone"),
        ({"agents": {"defaults": {"timezone": "../../etc/passwd"}}}, "agents.defaults.timezone"),
        ({"agents": {"defaults": {"result_tokens": 9, "keep_tokens": 5}}}, "agents.defaults.result_tokens: found 9"),
        ({"agents": {"defaults": {"result_tokens": 30000}}}, "agents.defaults: result_tokens (30000) must be less than keep_tokens (24000)"),
        ({"agents": {"defaults": {"keep_tokens": 8192, "context_tokens": 8192}}}, "keep_tokens (8192) must be less than context_tokens (8192)"),
        ({"agents": {"defaults": {"max_tokens": 128000}}}, "max_tokens (128000) must be less than context_tokens (128000)"),
        ({"agents": {"defaults": {"context_tokens": 5000}}}, "keep_tokens (24000) must be less than context_tokens (5000); max_tokens (8192)"),
        ({"agents": {"defaults": {"context_tokens": 4095}}}, "context_tokens: found 4095; allowed: a whole number from 4096 to 10000000; the prompt"),
        ({"agents": {"defaults": {"provider": "gpt5"}}}, 'provider: found "gpt5"; allowed: one of anthropic, openai, gemini'),
        ({"agents": {"defaults": []}}, "agents.defaults: found a list; allowed: an object"),
        ({"agents": 3}, "agents: found a number; allowed: an object"),
        ({"agents": None}, "agents: found null"),
        ({"tools": {"exec": {"timeout_s": 601}}}, "tools.exec: timeout_s (601) must not be more than timeout_max_s (600)"),
        ({"tools": {"exec": {"timeout_max_s": 3601}}}, "tools.exec.timeout_max_s: found 3601; allowed: a number from 1 to 3600"),
        ({"tools": {"exec": {"path_append": "bin:/x"}}}, "tools.exec.path_append"),
        ({"tools": {"workspaces": [{"mode": "rw"}]}}, "tools.workspaces[0].path is missing"),
        ({"tools": {"workspaces": ["a/b"]}}, "tools.workspaces[0].path"),
        (
            {"tools": {"workspaces": ["/"]}},
            'tools.workspaces[0].path: found "/"; allowed: a project\'s own directory; this one may not be lent: it holds',
        ),
        ({"tools": {"workspaces": ["/srv/a", {"path": "/etc/ssh"}]}}, "tools.workspaces[1].path"),
        ({"tools": {"sandbox": {"pass_env": ["LANG", "GITHUB_TOKEN"]}}}, "GITHUB_TOKEN is never passed: a name like that may hold a key"),
        ({"tools": {"sandbox": {"pass_env": ["LD_PRELOAD"]}}}, "LD_PRELOAD is never passed: it makes programs run"),
        ({"tools": {"sandbox": {"pass_env": ["BUBBLES_HOME"]}}}, "BUBBLES_HOME is never passed: it is Bubbles' own"),
        ({"tools": {"workspaces": [{"path": "/a", "mode": "x"}]}}, "tools.workspaces[0].mode"),
        ({"tools": {"sandbox": {"pass_env": ["A B"]}}}, "tools.sandbox.pass_env"),
        ({"tools": {"sandbox": {"backend": "chroot"}}}, 'found "chroot"; allowed: one of "local", "local_isolated", "bwrap"'),
        ({"tools": {"sandbox": {"network": "lan"}}}, 'found "lan"; allowed: one of "", "none", "public", "host"'),
        ({"tools": {"sandbox": {"network": "none"}}}, 'tools.sandbox: the sandbox local_isolated cannot keep commands from the network'),
        ({"tools": {"sandbox": {"backend": "local", "network": "public"}}}, "the sandbox local cannot keep commands from the network"),
        ({"tools": {"sandbox": {"unattended_network": ""}}}, "tools.sandbox.unattended_network"),
        ({"tools": {"sandbox": {"allow_domains": ["*.example.org"]}}}, "what lies below one is meant with it: write 'example.org'"),
        ({"tools": {"sandbox": {"allow_domains": ["http://example.org"]}}}, "without scheme, port or path"),
        ({"tools": {"sandbox": {"allow_domains": ["a..b"]}}}, "'a..b' is none"),
        ({"tools": {"sandbox": {"allow_domains": ["127.0.0.1"]}}}, "'127.0.0.1' is an address"),
        ({"tools": {"sandbox": {"allow_domains": ["文.cn"]}}}, "as machines write them (xn--…)"),
        ({"tools": {"sandbox": {"binds": ["/"]}}}, "tools.sandbox.binds[0]: / may not be shown in a jail: it holds far more"),
        ({"tools": {"sandbox": {"binds": [{"path": "/srv/x", "to": "/data"}]}}}, "its place in the jail is not below /mnt"),
        ({"tools": {"sandbox": {"binds": ["/srv/x:rw", "/srv/x/y"]}}}, "binds: /srv/x/y: its place in the jail lies where commands can write"),
        ({"tools": {"sandbox": {"binds": ["/srv/x", "/srv/x"]}}}, "two of them have the same place"),
        ({"tools": {"sandbox": {"limits": {"memory_bytes": 1}}}}, "tools.sandbox.limits.memory_bytes"),
        ({"tools": {"files": {"write_soul": "yes"}}}, "tools.files.write_soul"),
        ({"providers": {"custom": {"base_url": "localhost:8000"}}}, "providers.custom.base_url"),
        ({"providers": {"custom": {"base_url": "http://h:99999/"}}}, "providers.custom.base_url"),
        ({"providers": {"custom": {"models": {"m": {"reasoning": "x"}}}}}, "providers.custom.models.m.reasoning"),
        ({"providers": {"custom": {"headers": {"a b": "c"}}}}, "providers.custom.headers"),
        ({"providers": {"embedded": {"model_path": "m.gguf"}}}, "providers.embedded.model_path"),
        ({"channels": {"people": {"ann": ["nobody"]}}}, "channels.people"),
        ({"channels": {"people": {"ann": ["telegram:42"], "bob": ["telegram:42"]}}}, "channels.people"),
        ({"channels": {"session_mode": "x"}}, "channels.session_mode"),
        ({"gateway": {"alerts": "nobody"}}, "gateway.alerts"),
        ({"gateway": {"alerts": "cli:main"}}, "gateway.alerts"),
        ({"agents": {"limits": {"queued": 0}}}, "agents.limits.queued"),
        ({"version": 0}, "version"),
        ({"version": "1"}, "version"),
        ({"version": True}, "version"),
        ({"agents": {}, "Agents": {}}, "agents is given twice"),
        ({"agents": {"defaults": {"max_tokens": 1, "maxTokens": 2}}}, "agents.defaults.max_tokens is given twice"),
    ],
)
def test_what_is_not_allowed_is_named_and_the_file_left_alone(home: Home, raw: Any, said: str) -> None:
    before = put(home, json.dumps(raw))
    with pytest.raises(Misconfigured) as caught:
        config.load(home, env={})
    assert said in caught.value.text
    assert str(home.config) in caught.value.text or "twice" in caught.value.text
    assert home.config.read_bytes() == before


def test_this_home_is_lent_to_nobody(home: Home, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home.sessions)
    (tmp_path / "file").touch()
    for path in (home.root, home.sessions / "x", home.root.parent, tmp_path / "link", tmp_path / "file"):
        with pytest.raises(Misconfigured, match=r"tools\.workspaces\[0\]\.path: .*may not be lent: it (holds, or lies in|is not a directory)"):
            load(home, {"tools": {"workspaces": [str(path)]}}, "tools")


def test_a_workspace_that_is_away_is_left_out_and_told(home: Home, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    raw = {"tools": {"workspaces": [f"{tmp_path}/away:rw", f"{tmp_path}/here"]}}
    settings = load(home, raw, "tools")
    assert [grant.path for grant in settings.tools.workspaces] == [str(tmp_path / "here")]
    assert settings.warnings == (f"{home.config}: tools.workspaces: {tmp_path}/away is not there; it is left out",)
    (tmp_path / "away").mkdir()
    assert len(load(home, raw, "tools").tools.workspaces) == 2


def test_a_bind_that_is_away_is_left_out_and_told(home: Home, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    raw = {"tools": {"sandbox": {"binds": [{"path": str(tmp_path / name), "to": f"/mnt/{name}"} for name in ("here", "away")]}}}
    settings = load(home, raw, "tools")
    assert [bind.path for bind in settings.tools.sandbox.binds] == [str(tmp_path / "here")]
    assert settings.warnings == (f"{home.config}: tools.sandbox.binds: {tmp_path}/away is not there; it is left out",)


def test_domains_are_written_one_way(home: Home) -> None:
    settings = load(home, {"tools": {"sandbox": {"allow_domains": [" Example.ORG. ", "xn--fsq.cn", "org"]}}}, "tools")
    assert settings.tools.sandbox.allow_domains == ["example.org", "xn--fsq.cn", "org"]


def test_every_fault_is_told_at_once(home: Home) -> None:
    with pytest.raises(Misconfigured) as caught:
        load(home, {"agents": {"defaults": {"temperature": 9, "api_retries": -1}}}, "agents")
    assert "temperature" in caught.value.text
    assert "api_retries" in caught.value.text


@pytest.mark.parametrize(
    ("raw", "remedy"),
    [
        ({"channels": {"telegram": {"enabled": True}}}, "channels.telegram.enabled to false"),
        ({"tools": {"web": {"search": {"api_key": "tvly-secret"}}}}, 'tools.web.search.api_key to ""'),
        ({"tools": {"mcpServers": {"a": {"command": "x"}}}}, "tools.mcp_servers to {}"),
        ({"gateway": {"port": 8080}}, "gateway.port to 0"),
        ({"gateway": {"host": "0.0.0.0"}}, 'gateway.host to "127.0.0.1"'),
    ],
)
def test_a_setting_without_its_feature_is_refused_and_not_ignored(home: Home, raw: Any, remedy: str) -> None:
    with pytest.raises(Misconfigured, match="is not built yet") as caught:
        load(home, raw)
    assert caught.value.remedy == f"set {remedy} in {home.config}"
    assert "tvly-secret" not in caught.value.text


def other(value: Any, info: Any) -> Any:
    """A valid value that is not the default `value`, in the form that a file holds."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, dict):
        return {"X-A": "b"}
    if isinstance(value, list):
        return [1] if "StrictInt" in str(info) or "int" in str(info.annotation) else ["42"]
    choices = get_args(info.annotation)
    if choices:
        return next(choice for choice in choices if choice != value)
    return "http://127.0.0.1:1/v1"


def leaves(section: type[Section], key: Key) -> Iterator[tuple[Key, Any]]:
    """Every setting below a section, with a value that is not its default."""
    for name, info in section.model_fields.items():
        inner, container = within(info.annotation)
        if inner is not None and container is None:
            yield from leaves(inner, (*key, name))
        else:
            yield (*key, name), other(plain(info.get_default(call_default_factory=True)), info)


UNBUILT = [
    leaf
    for top in ("channels", "providers")
    for name, info in section_class(top).model_fields.items()
    if (inner := within(info.annotation)[0]) and getattr(inner, "not_built", "")
    for leaf in leaves(inner, (top, name))
]


@pytest.mark.parametrize(("key", "value"), UNBUILT, ids=lambda part: dotted(part) if isinstance(part, tuple) else "")
def test_nothing_of_what_is_not_built_is_accepted_and_ignored(home: Home, key: Key, value: Any) -> None:
    raw: dict[str, Any] = {}
    put_in(raw, key, value)
    with pytest.raises(Misconfigured, match="is not built yet") as caught:
        load(home, raw)
    assert f"{dotted(key)}: this" in caught.value.text
    assert caught.value.remedy.startswith(f"set {dotted(key)} to ")
    assert "127.0.0.1:1" not in caught.value.text
    with pytest.raises(Misconfigured, match="is not built yet"):
        config.save(home, {key: value})
    put_in(raw, key, json.loads(caught.value.remedy.removeprefix(f"set {dotted(key)} to ").removesuffix(f" in {home.config}")))
    assert load(home, raw).warnings == ()  # the remedy is one


def test_all_platforms_and_what_they_hold_are_tried() -> None:
    tried = {dotted(key) for key, _ in UNBUILT}
    assert {"channels.telegram.allow_from", "channels.slack.dm.policy", "channels.email.on_uncertain"} <= tried
    assert len({key[:2] for key, _ in UNBUILT if key[0] == "channels"}) == 11


def test_what_is_built_is_lifted_by_one_line(home: Home) -> None:
    class Built(section_class("channels").model_fields["slack"].annotation):  # type: ignore[misc]
        not_built = ""

    assert Built(enabled=True, dm={"policy": "off"}).dm.policy == "off"


@pytest.mark.parametrize("name", sorted(Providers.model_fields))
def test_a_provider_is_named_by_what_can_be_asked(home: Home, name: str) -> None:
    raw = {"agents": {"defaults": {"provider": name.replace("_", "-").upper()}}}
    settings = load(home, {}, "agents", "tools")
    if name in built():
        assert load(home, raw, "agents").agents.defaults.provider
        assert config.session_settings(settings, {"provider": name}).provider == name
        return
    for attempt in (lambda: load(home, raw, "agents"), lambda: config.session_settings(settings, {"provider": name})):
        with pytest.raises(Misconfigured, match=f"provider: the provider {name} is not built yet") as caught:
            attempt()
        assert all(other in caught.value.remedy for other in built())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{\n  "agents": {,\n}', "line 2, column 14"),
        (b"", "line 1, column 1"),
        (b"[1]", "not a JSON object"),
        (b'{"a": "\xff"}', "line 1, column 8: not UTF-8"),
        (b'{\n"a": "\xc3\xa9\xff"}', "line 2, column 8: not UTF-8"),
        (b'{"a": NaN}', "NaN is not a JSON value"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b'{"a": ' + b"[" * 100_000, "recursion"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "digits"),
        (b'{"a": "' + b"x" * (5 << 20) + b'"}', "larger than"),
    ],
)
def test_a_broken_file_is_named_by_line_and_left_alone(home: Home, data: bytes, said: str) -> None:
    put(home, data)
    for attempt in (lambda: config.load(home, "agents", env={}), lambda: config.save(home, {"agents.defaults.model": "x"})):
        with pytest.raises(Misconfigured, match=said) as caught:
            attempt()
        assert str(home.config) in caught.value.text
        assert caught.value.remedy
        assert home.config.read_bytes() == data


def test_what_is_no_regular_file_is_refused_at_once(home: Home) -> None:
    os.mkfifo(home.config)
    with pytest.raises(Misconfigured, match="not a regular file"):
        config.load(home, "agents", env={})
    home.config.unlink()
    home.config.mkdir()
    with pytest.raises(Misconfigured):
        config.load(home, "agents", env={})


def test_a_byte_order_mark_is_no_fault(home: Home) -> None:
    put(home, b'\xef\xbb\xbf{"agents": {"defaults": {"model": "\xe4\xb8\xad"}}}')
    assert config.load(home, "agents", env={}).agents.defaults.model == "中"


def test_a_loosened_file_is_told_of_and_tightened(home: Home) -> None:
    put(home, "{}")
    home.config.chmod(0o644)
    warnings = config.load(home, "agents", env={}).warnings
    assert len(warnings) == 1
    assert "0644" in warnings[0]
    assert home.config.stat().st_mode & 0o777 == 0o600
    assert config.load(home, "agents", env={}).warnings == ()


def test_unknown_keys_are_warned_of_by_their_place(home: Home) -> None:
    raw = {
        "agnets": {},
        "agents": {"default": {}, "defaults": {"modle": 1}},
        "tools": {"workspaces": [{"path": str(home.root.parent / "run"), "x": 1}]},
        "providers": {"zzz": {}},
    }
    warnings = load(home, raw, "agents", "tools").warnings
    places = [warning.split(": ", 1)[1].split(" is not")[0] for warning in warnings]
    assert sorted(places) == ["agents.default", "agents.defaults.modle", "agnets", "tools.workspaces[0].x"]
    assert any("did you mean agents.defaults.model?" in warning for warning in warnings)
    assert any("did you mean agents?" in warning for warning in warnings)


def test_a_section_that_was_not_asked_for_is_neither_checked_nor_there(home: Home) -> None:
    settings = load(home, {"agents": {"defaults": {"temperature": 9}}}, "tools")
    with pytest.raises(AttributeError, match="not loaded"):
        _ = settings.agents
    assert not hasattr(settings, "nonsense")


def test_a_program_pays_only_for_the_sections_it_loads(home: Home) -> None:
    code = (
        "import sys; from bubbles import config; from bubbles.paths import Home; "
        "assert not any(m.startswith('bubbles.config.') and m.rpartition('.')[2] in config.SECTIONS for m in sys.modules); "
        "config.load(Home.find(), 'gateway'); print([m for m in config.SECTIONS if f'bubbles.config.{m}' in sys.modules], 'asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['gateway'] False"


# -- the environment ---------------------------------------------------------------------------------


def test_the_environment_stands_over_the_file(home: Home) -> None:
    settings = load(
        home,
        {"agents": {"defaults": {"maxTokens": 1, "model": "file"}}, "providers": {"custom": {"headers": {"X-Team": "a"}}}},
        BUBBLES_AGENTS__DEFAULTS__MAX_TOKENS="7",
        BUBBLES_AGENTS__DEFAULTS__MODEL="1.50",
        BUBBLES_AGENTS__DEFAULTS__SYSTEM_PROMPT="{not json",
        BUBBLES_TOOLS__SANDBOX__BACKEND="local",
        BUBBLES_TOOLS__WORKSPACES=f'["{home.root.parent}/run:rw"]',
        BUBBLES_TOOLS__FILES__WRITE_SOUL="true",
        BUBBLES_TOOLS__SANDBOX__PASS_ENV="LANG",
        BUBBLES_PROVIDERS__CUSTOM__API_KEY="12345678",
        BUBBLES_PROVIDERS__CUSTOM__HEADERS__X_TEAM="b",
        BUBBLES_PROVIDERS__CUSTOM__MODELS__LLAMA__TOOLS="false",
        BUBBLES_PROVIDERS__CUSTOM__MODELS__QWEN='{"contextTokens": 9000}',
        BUBBLES_HOME="/elsewhere",
        BUBBLES_DEBUG="1",
        BUBBLES_UNHEARD__OF="1",
        BUBBLES_AGENTS="1",
    )
    assert settings.agents.defaults.max_tokens == 7
    assert settings.agents.defaults.model == "1.50"
    assert settings.agents.defaults.system_prompt == "{not json"
    assert settings.tools.sandbox.backend == "local"
    assert settings.tools.workspaces[0].mode == "rw"
    assert settings.tools.files.write_soul is True
    assert settings.tools.sandbox.pass_env == ["LANG"]
    custom = settings.providers.custom
    assert custom.api_key.get_secret_value() == "12345678"
    assert {name: secret.get_secret_value() for name, secret in custom.headers.items()} == {"X-Team": "b"}
    assert custom.models["llama"].tools is False
    assert custom.models["qwen"].context_tokens == 9000
    assert settings.warnings == ()


def test_a_wrong_variable_is_named(home: Home) -> None:
    with pytest.raises(Misconfigured, match="from BUBBLES_AGENTS__DEFAULTS__MAX_TOKENS") as caught:
        load(home, {"agents": {"defaults": {"max_tokens": 5}}}, "agents", BUBBLES_AGENTS__DEFAULTS__MAX_TOKENS="lots")
    assert '"lots"' in caught.value.text
    with pytest.raises(Misconfigured, match="from BUBBLES_AGENTS__DEFAULTS__KEEP_TOKENS.*must be less"):
        load(home, {}, "agents", BUBBLES_AGENTS__DEFAULTS__KEEP_TOKENS="300")
    with pytest.raises(Misconfigured) as caught:
        load(home, {}, "channels", BUBBLES_CHANNELS__SLACK__ENABLED="true")
    assert caught.value.remedy == "unset BUBBLES_CHANNELS__SLACK__ENABLED"


def test_a_variable_that_is_no_setting_is_warned_of(home: Home) -> None:
    (warning,) = load(home, {}, "agents", BUBBLES_AGENTS__DEFAULTS__MODLE="x", BUBBLES_TOOLS__NONSENSE="x").warnings
    assert "BUBBLES_AGENTS__DEFAULTS__MODLE" in warning
    assert "did you mean agents.defaults.model?" in warning


def test_what_a_variable_holds_and_is_no_setting_is_warned_of(home: Home) -> None:
    variables = {
        "BUBBLES_TOOLS__EXEC": '{"timeoutS": 5, "colour": "red"}',
        "BUBBLES_PROVIDERS__CUSTOM__MODELS__M": '{"tools": false, "colour": 1}',
        "BUBBLES_PROVIDERS__CUSTOM__MODELS__M__SIZE": "1",
    }
    settings = load(home, {}, **variables)
    assert settings.tools.exec.timeout_s == 5
    assert [warning.split(" is not")[0] for warning in settings.warnings] == [
        "BUBBLES_PROVIDERS__CUSTOM__MODELS__M: providers.custom.models.m.colour",
        "BUBBLES_PROVIDERS__CUSTOM__MODELS__M__SIZE: providers.custom.models.m.size",
        "BUBBLES_TOOLS__EXEC: tools.exec.colour",
    ]


def test_a_variable_does_not_hide_a_broken_file(home: Home) -> None:
    with pytest.raises(Misconfigured, match="agents.defaults is not an object"):
        load(home, {"agents": {"defaults": 3}}, "agents", BUBBLES_AGENTS__DEFAULTS__MODEL="x")
    with pytest.raises(Misconfigured, match="agents: found a number"):
        load(home, {"agents": 3}, "agents", BUBBLES_AGENTS__DEFAULTS__MODEL="x")


# -- secrets -----------------------------------------------------------------------------------------

SECRETS = {
    "providers": {"custom": {"api_key": "sk-secret-1", "headers": {"Authorization": "Bearer secret-2"}}, "vllm": {"apiKey": "sk-secret-3"}},
}


def test_secrets_are_shown_nowhere_and_known_to_the_redactor(home: Home) -> None:
    settings = load(home, SECRETS)
    email = section_class("channels").model_fields["email"].annotation.model_construct(imap_password=SecretStr("secret-4 word"))
    assert "ecret-" not in f"{settings!r} {settings.providers!r} {settings.providers} {email!r} {email}"
    assert settings.secrets() == ["Bearer secret-2", "sk-secret-1", "sk-secret-3"]
    assert "secret-4 word" in secrets(email)
    assert load(home, {"providers": {"vllm": {"api_key": "EMPTY"}}}, "providers").secrets() == []


@pytest.mark.parametrize(
    "raw",
    [
        {"providers": {"custom": {"api_key": ["sk-secret"]}}},
        {"providers": {"custom": {"api_key": "sk secret"}}},
        {"providers": {"custom": {"headers": {"A": "sk-secret\n"}}}},
        {"providers": {"custom": {"headers": ["sk-secret"]}}},
        {"providers": {"custom": "sk-secret"}},
        {"providers": ["sk-secret"]},
        {"providers": {"custom": {"base_url": "http://me:sk-secret@host/v1"}}},
        {"tools": {"mcp_servers": {"a": {"env": {"K": {"v": "sk-secret"}}}}}},
        {"channels": {"telegram": {"token": "1:secret"}, "email": {"imap_password": "secret"}}},
        {"providers": {"openai_codex": {"headers": {"X-A": "secret\n"}}}},
    ],
)
def test_a_complaint_shows_no_secret(home: Home, raw: Any) -> None:
    with pytest.raises(Misconfigured) as caught:
        load(home, raw)
    assert "secret" not in caught.value.text.replace("mcp_servers", "")


# -- versions ----------------------------------------------------------------------------------------


def test_a_newer_file_is_refused_and_left_alone(home: Home) -> None:
    before = put(home, '{"version": 99}')
    with pytest.raises(Misconfigured, match="version 99") as caught:
        config.load(home, "agents", env={})
    assert "update" in caught.value.remedy
    with pytest.raises(Misconfigured, match="version 99"):
        config.save(home, {"agents.defaults.model": "x"})
    assert home.config.read_bytes() == before


def test_steps_lead_from_version_to_version() -> None:
    steps = {1: lambda raw: {**raw, "a": 1}, 2: lambda raw: {**raw, "b": raw["a"] + 1}}
    assert version.migrate({"version": 1, "x": 0}, "f", steps=steps, version=3) == {"version": 3, "x": 0, "a": 1, "b": 2}
    assert version.migrate({"x": 0}, "f", steps=steps, version=3) == {"version": 3, "x": 0}
    assert sorted(version.MIGRATIONS) == list(range(1, config.VERSION))


# -- whatever stands in the file ---------------------------------------------------------------------


def classes(section: type[Section]) -> set[type[Section]]:
    found = {section}
    for info in section.model_fields.values():
        inner, _ = within(info.annotation)
        found |= classes(inner) if inner is not None else set()
    return found


EVERY = sorted({cls for name in config.SECTIONS for cls in classes(section_class(name))}, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", EVERY)
def test_no_two_settings_of_a_section_fold_to_one_key(cls: type[Section]) -> None:
    assert len({fold(name) for name in cls.model_fields}) == len(cls.model_fields)
    assert cls.__doc__


def camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)


def renamed(raw: Any, section: Any, name: Any) -> Any:
    """`raw` with every key of a setting written as `name` writes it; keys of maps stay."""
    if isinstance(raw, dict) and isinstance(section, type):
        return {name(key): renamed(value, _below(section, key), name) for key, value in raw.items()}
    return raw


def _below(section: type[Section], key: str) -> Any:
    inner, container = within(section.model_fields[key].annotation)
    return inner if container is None else None


def test_camel_case_and_snake_case_say_the_same(home: Home) -> None:
    raw = config.defaults()
    spelled = {"version": 1, **{name: renamed(raw[name], section_class(name), camel) for name in config.SECTIONS}}
    assert "maxToolIterations" in json.dumps(spelled)
    left, right = load(home, raw), load(home, spelled)
    for name in config.SECTIONS:
        assert getattr(left, name) == getattr(right, name)
    assert left.warnings == right.warnings == ()


NUMBERS = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.integers(1, 9000),
        "api_timeout_s": st.integers(1, 600),
        "max_tool_iterations": st.integers(1, 1000),
        "memory_window": st.integers(0, 50),
        "system_prompt": st.text(alphabet=st.characters(exclude_categories=["Cs"])),
        "interjection": st.sampled_from(["join", "preempt"]),
    },
)


@given(values=NUMBERS, over=NUMBERS, spelled=st.sampled_from([camel, str.upper, str]))
def test_any_spelling_loads_alike_and_the_environment_wins(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any], over: dict[str, Any], spelled: Any
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    over.pop("system_prompt", None)  # a text that looks like JSON is read as such there
    env = {f"BUBBLES_AGENTS__DEFAULTS__{key.upper()}": str(value) for key, value in over.items()}
    put(home, json.dumps({"agents": {"defaults": {spelled(key): value for key, value in values.items()}}}))
    found = config.load(home, "agents", env=env).agents.defaults
    for key, value in {**values, **over}.items():
        assert getattr(found, key) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = sorted({name for cls in EVERY for name in cls.model_fields} | set(config.SECTIONS))
LIKELY = st.recursive(
    JSON, lambda inner: st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=5) | st.lists(inner, max_size=3), max_leaves=20
)
NEAR = st.fixed_dictionaries({}, optional=dict.fromkeys((*config.SECTIONS, "version"), LIKELY))


def complaint(home: Home, **env: str) -> str:
    """What loading everything complains of, "" where it loads; any other exception is the test's failure."""
    try:
        config.load(home, env=env)
    except Misconfigured as error:
        return error.text
    return ""


@given(raw=NEAR | LIKELY)
def test_whatever_json_stands_there_it_loads_or_is_misconfigured(tmp_path_factory: pytest.TempPathFactory, raw: Any) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    before = put(home, json.dumps(raw))
    complaint(home)
    assert home.config.read_bytes() == before


@given(data=st.binary(max_size=60))
def test_whatever_bytes_stand_there_they_load_or_are_misconfigured(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    put(home, data)
    said = complaint(home)
    assert not said or str(home.config) in said


@given(section=st.sampled_from(sorted(config.SECTIONS)), key=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), text=st.text())
def test_whatever_the_environment_says_it_loads_or_is_misconfigured(
    tmp_path_factory: pytest.TempPathFactory, section: str, key: list[str], text: str
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    variable = f"BUBBLES_{section.upper()}__{'__'.join(key).upper()}"
    said = complaint(home, **{variable: text})
    assert not said or variable in said


@pytest.mark.parametrize(
    ("sandbox", "remedy"),
    [
        ({"pass_env": ["GITHUB_PAT"]}, "take GITHUB_PAT out of tools.sandbox.pass_env"),
        ({"backend": "local", "network": "none"}, 'set tools.sandbox.backend to "bwrap", or tools.sandbox.network to "host"'),
        ({"binds": ["/usr/share/x"]}, '"to": "/mnt/x"'),
        ({"binds": ["/etc/ssh"]}, "take /etc/ssh out of tools.sandbox.binds"),
    ],
)
def test_what_a_sandbox_refuses_says_what_to_do(sandbox: dict[str, object], remedy: str, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured) as caught:
        config.settings_of(Home(tmp_path), {"tools": {"sandbox": sandbox}}, "tools")
    assert remedy in caught.value.remedy
