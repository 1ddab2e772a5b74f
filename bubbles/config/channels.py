"""The section `channels`: which platforms are on, with whose credentials, for whom, and whose session a message enters.

It imports no platform's SDK, so that a setting can be checked without one.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictInt

from bubbles.config.section import ApiKey, Name, Promised, Secret, Section, Url, plain
from bubbles.errors import DataError
from bubbles.messages import Address

Port = Annotated[StrictInt, Field(ge=1, le=65535)]
GroupPolicy = Literal["mention", "open", "allowlist"]  # answers where it is mentioned; to everything; in the groups of group_allow_from


def _people(value: dict[str, list[str]]) -> dict[str, list[str]]:
    owners: dict[str, str] = {}
    for name, text in ((name, text) for name, texts in value.items() for text in texts):
        try:
            Address.parse(text)
        except DataError:
            raise ValueError(f"addresses such as telegram:42; {text!r} is none") from None
        if owners.setdefault(text, name) != name:
            raise ValueError(f"one person for each address; {text} is given to {owners[text]} and to {name}")
    return value


def _named(value: list[str]) -> list[str]:
    ids = [text.strip() for text in value]
    if "" in ids:
        raise ValueError("ids, none of them empty")
    return ids


def _owners(value: list[str]) -> list[str]:
    if "*" in (ids := _named(value)):
        raise ValueError('ids of your own; "*" would give everybody what is yours')
    return ids


def _lower(value: list[str]) -> list[str]:
    return [text.lower() for text in value]


Owners = Annotated[list[str], AfterValidator(_owners)]
Ids = Annotated[list[str], AfterValidator(_named)]


class Platform(Promised):
    """What every platform has. An empty `allow_from` lets in nobody but the owner and those who have been paired.

    `needs`: the settings without which it cannot log in.
    """

    not_built = "this channel"
    needs: ClassVar[tuple[str, ...]] = ()

    enabled: StrictBool = False
    owners: Owners = Field(default_factory=list)  # your own ids there, as the platform writes them
    allow_from: Ids = Field(default_factory=list)  # ids of guests; "*": everybody
    targets: list[str] = Field(default_factory=list)  # chats that the assistant may write to unasked
    on_uncertain: Literal["resend", "hold"] = "resend"  # what becomes of a message whose sending was begun and never confirmed


class Grouped(Platform):
    """A platform with groups."""

    group_policy: GroupPolicy = "mention"
    group_allow_from: Ids = Field(default_factory=list)  # groups in which everybody may speak
    overhear: StrictBool = False  # keep what is said in a group to others as context; it is never answered


class DingTalk(Grouped):
    """DingTalk, by its stream mode."""

    needs = ("client_id", "client_secret")

    client_id: str = ""
    client_secret: ApiKey = Secret("")


class Discord(Grouped):
    """Discord, by its gateway."""

    needs = ("token",)

    token: ApiKey = Secret("")


class Email(Platform):
    """E-mail: IMAP in, SMTP out."""

    needs = ("imap_host", "imap_username", "imap_password", "smtp_host")

    owners: Annotated[Owners, AfterValidator(_lower)] = Field(default_factory=list)  # addresses; their case says nothing
    allow_from: Annotated[Ids, AfterValidator(_lower)] = Field(default_factory=list)
    imap_host: Name = ""
    imap_port: Port = 993
    imap_security: Literal["tls", "starttls", "none"] = "tls"
    imap_username: str = ""
    imap_password: Secret = Secret("")
    mailbox: str = "INBOX"
    smtp_host: Name = ""
    smtp_port: Port = 465
    smtp_security: Literal["tls", "starttls", "none"] = "tls"
    smtp_username: str = ""
    smtp_password: Secret = Secret("")
    from_address: Name = ""  # "": smtp_username
    poll_s: StrictInt = Field(default=60, ge=5, le=86_400)
    auto_reply: StrictBool = True  # off: mail is read and never answered by itself
    authserv_id: Name = ""  # whose Authentication-Results are believed


class Feishu(Grouped):
    """Feishu or Lark, by its long connection."""

    needs = ("app_id", "app_secret")

    app_id: Name = ""
    app_secret: ApiKey = Secret("")
    domain: Literal["feishu", "lark"] = "feishu"


class Matrix(Grouped):
    """Matrix, encrypted rooms included."""

    needs = ("homeserver", "user_id", "access_token")

    homeserver: Url = ""
    user_id: Name = ""
    access_token: ApiKey = Secret("")
    device_id: Name = ""
    e2ee: StrictBool = True


class Mention(Section):
    """When a mention is needed."""

    require_in_groups: StrictBool = True


class Mochat(Platform):
    """Mochat."""

    needs = ("base_url", "claw_token")

    base_url: Url = ""
    claw_token: ApiKey = Secret("")
    agent_user_id: Name = ""
    sessions: list[str] = Field(default_factory=list)  # [] or ["*"]: all
    panels: list[str] = Field(default_factory=list)
    mention: Mention = Field(default_factory=Mention)


class QQ(Platform):
    """QQ, by its official bot gateway."""

    needs = ("app_id", "secret")

    app_id: Name = ""
    secret: ApiKey = Secret("")


class DirectMessages(Section):
    """Who may write to the bot directly: everybody in the workspace, those of `allow_from`, or nobody."""

    policy: Literal["open", "allowlist", "off"] = "allowlist"


class Slack(Grouped):
    """Slack, by socket mode."""

    needs = ("bot_token", "app_token")

    bot_token: ApiKey = Secret("")
    app_token: ApiKey = Secret("")
    dm: DirectMessages = Field(default_factory=DirectMessages)


class Telegram(Grouped):
    """Telegram, by its bot API."""

    needs = ("token",)

    token: ApiKey = Secret("")
    proxy: ApiKey = Secret("")  # http:// or socks5://; may hold a password


class WeChat(Grouped):
    """WeChat: `ilink` is Tencent's API for bots; `wcferry` drives a client on a Windows machine that answers at `host:port`."""

    backend: Literal["ilink", "wcferry"] = "ilink"
    host: Name = "127.0.0.1"
    port: Port = 10086


class WhatsApp(Grouped):
    """WhatsApp, through the bridge."""

    web_version: list[StrictInt] = Field(default_factory=list)  # [2, 3000, …]; []: the bridge's own


class Channels(Section):
    """The section `channels`: what holds for all of them, and each platform. The terminal is always on and has no settings."""

    # What the first two decide is the platforms' alone; the terminal shows everything and names its own session.
    send_progress: StrictBool = True  # text that comes beside tool calls
    send_tool_hints: StrictBool = True  # what is called: read_file("…"), where a message can be edited
    session_mode: Literal["channel", "user", "global"] = "channel"  # a session for each chat, for each person, or one for all
    people: Annotated[dict[str, list[str]], AfterValidator(_people)] = Field(default_factory=dict)  # {NAME: [telegram:42]}, for mode user
    dingtalk: DingTalk = Field(default_factory=DingTalk)
    discord: Discord = Field(default_factory=Discord)
    email: Email = Field(default_factory=Email)
    feishu: Feishu = Field(default_factory=Feishu)
    matrix: Matrix = Field(default_factory=Matrix)
    mochat: Mochat = Field(default_factory=Mochat)
    qq: QQ = Field(default_factory=QQ)
    slack: Slack = Field(default_factory=Slack)
    telegram: Telegram = Field(default_factory=Telegram)
    wechat: WeChat = Field(default_factory=WeChat)
    whatsapp: WhatsApp = Field(default_factory=WhatsApp)


def missing(section: Platform) -> list[str]:
    """The settings that a platform needs to log in, and that are empty."""
    return [name for name in section.needs if not plain(getattr(section, name))]
