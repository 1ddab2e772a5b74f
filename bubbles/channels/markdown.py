"""What a model writes is Markdown; what a platform shows is a dialect of its own.

It does not know a platform's client. Whatever the text is, what comes out is well-formed and does no more than show it: HTML in it is words, links
lead to http, https, mailto and tel alone, no picture is fetched. A text that is too long or nested too deep to be read is given as words.

    telegram_html  the tags that Telegram's HTML mode knows    email_html    HTML for any reader of mail
    slack_mrkdwn   Slack's own                                 feishu_card   the element `markdown` of a card
    discord        nearly what it was                          plain         no marks at all
    matrix_html    Matrix's subset of HTML
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from wcwidth import wcswidth

from bubbles.channels.mentions import IDS, stretches

Mention = Callable[[str], str]  # id: the mention in the dialect's own form

_MOST = 50_000  # characters that are read as Markdown
_NESTED_MOST = 60
_FEISHU_TABLES = 5  # in one card
_PADDING_MOST = 20_000  # characters that make the columns of a table straight; beyond it they are not
_LINK = re.compile(r"(https?://|mailto:|tel:)\S", re.I)
_DEEP_HEADING = re.compile(r"^#{4,6} +(.+?)[ #]*$", re.M)


def rendered(text: str, dialect: str, mention: Mention | None = None) -> str:
    """`text` in `dialect`. `mention` makes of an id what stands for `<@id>`, in the dialect's own form and escaped as it wants; else the usual one.

    >>> rendered("**Hi** <@7>, see `a < b`", "telegram_html")
    '<b>Hi</b> <a href="tg://user?id=7">7</a>, see <code>a &lt; b</code>'
    >>> rendered("# Title\\n\\n- **one**\\n- [two](https://example.org)", "slack_mrkdwn")
    '*Title*\\n\\n• *one*\\n• <https://example.org|two>'
    """
    return _DIALECTS[dialect](text, mention or _MENTIONS[dialect])


def _tokens(text: str) -> list[Token] | None:
    """The blocks of a text; None where it is not to be read as Markdown."""
    if len(text) > _MOST:
        return None
    tokens = _parser().parse(text)
    return None if any(token.level > _NESTED_MOST - 4 for token in tokens) else tokens


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": _NESTED_MOST, "html": False, "breaks": True}).enable(["table", "strikethrough"])
    parser.inline.ruler.before("autolink", "mention", _read_mention)
    parser.validateLink = lambda url: _LINK.match(url) is not None  # type: ignore[method-assign]
    return parser


def _read_mention(state: StateInline, silent: bool) -> bool:
    match = IDS.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        state.push("mention", "", 0).content = match[1]
    state.pos = match.end()
    return True


# -- words with their styles -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """Words that are shown in one way. `styles`: strong, em, s; `link`: where they lead; `kind`: text, code or mention."""

    text: str
    kind: str = "text"
    styles: tuple[str, ...] = ()
    link: str = ""


def _runs(children: Sequence[Token] | None) -> Iterator[_Run]:
    styles: list[str] = []
    link = ""
    for token in children or ():
        match token.type:
            case "text" | "code_inline" | "mention":
                kind = {"text": "text", "code_inline": "code", "mention": "mention"}[token.type]
                if token.content:
                    yield _Run(token.content, kind, tuple(sorted(set(styles))), link)
            case "softbreak" | "hardbreak":
                yield _Run("\n")
            case "image":
                source = str(token.attrs.get("src", ""))
                yield _Run(token.content or source, "text", tuple(sorted(set(styles))), link or source)
            case "link_open":
                link = str(token.attrs.get("href", ""))
            case "link_close":
                link = ""
            case "strong_open" | "em_open" | "s_open":
                styles.append(token.type.removesuffix("_open"))
            case "strong_close" | "em_close" | "s_close":
                styles.remove(token.type.removesuffix("_close"))


# -- blocks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """A paragraph, in the dialect, or code. `tight`: no empty line before it; `quoted`: it is somebody else's."""

    text: str
    tight: bool = False
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class _Form:
    """How a dialect of plain lines writes things. All get and give text; `words` alone escapes."""

    words: Callable[[_Run], str]
    title: Callable[[list[_Run]], list[_Run]]
    code: Callable[[str, str], str]  # the code, its language
    quote: Callable[[list[str]], str]
    between: Callable[[str, str], str] = field(default=lambda before, after: "")  # what stands between two runs


class _Reader:
    """From tokens to blocks."""

    def __init__(self, form: _Form, mention: Mention, tokens: list[Token]) -> None:
        self.form, self.mention, self.tokens = form, mention, tokens
        self.place = 0

    def blocks(self, end: str = "", tight: bool = False) -> Iterator[_Block]:
        """Those up to the token `end`."""
        while self.place < len(self.tokens):
            token = self.tokens[self.place]
            self.place += 1
            if token.type == end:
                return
            match token.type:
                case "paragraph_open":
                    yield _Block(self.words(_runs(self.tokens[self.place].children)), tight or token.hidden)
                    self.place += 2
                case "heading_open":
                    yield _Block(self.words(self.form.title(list(_runs(self.tokens[self.place].children)))))
                    self.place += 2
                case "fence" | "code_block":
                    yield _Block(self.form.code(token.content.removesuffix("\n"), (token.info.split() or [""])[0]), tight)
                case "hr":
                    yield _Block("———")
                case "blockquote_open":
                    yield from (replace(block, quoted=True) for block in self.blocks("blockquote_close"))
                case "bullet_list_open":
                    yield from self.items("bullet_list_close", None, tight)
                case "ordered_list_open":
                    yield from self.items("ordered_list_close", int(token.attrs.get("start", 1)), tight)
                case "table_open":
                    yield _Block(self.form.code(self.table(), ""))

    def items(self, end: str, number: int | None, tight: bool) -> Iterator[_Block]:
        """Those of a list. They stand close together; the first of all is apart, unless it stands in an item itself (`tight`)."""
        while self.tokens[self.place].type != end:
            self.place += 1  # list_item_open
            mark = "• " if number is None else f"{number}. "
            for n, block in enumerate(self.blocks("list_item_close", tight=True)):
                yield replace(block, text=_indented(block.text, mark if n == 0 else " " * len(mark)), tight=block.tight and (tight or n > 0))
            number = None if number is None else number + 1
            tight = True
        self.place += 1

    def table(self) -> str:
        rows: list[list[str]] = []
        right: list[bool] = []
        while (token := self.tokens[self.place]).type != "table_close":
            self.place += 1
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                rows[-1].append("".join(run.text for run in _runs(self.tokens[self.place].children)).replace("\n", " "))
                if token.type == "th_open":
                    right.append("right" in str(token.attrs.get("style", "")))
        self.place += 1
        return _straight(rows, right)

    def words(self, runs: Iterable[_Run]) -> str:
        text = ""
        for run in _joined(runs):
            told = self.mention(run.text) if run.kind == "mention" else self.form.words(run)
            text += self.form.between(text, told) + told
        return text


def _joined(runs: Iterable[_Run]) -> Iterator[_Run]:
    """Neighbours that are shown in the same way as one."""
    last: _Run | None = None
    for run in runs:
        if last is not None and last.kind == run.kind == "text" and (last.styles, last.link) == (run.styles, run.link):
            last = replace(last, text=last.text + run.text)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def _indented(text: str, mark: str) -> str:
    if text.startswith(("<pre>", "```")):
        return text
    return mark + text.replace("\n", "\n" + " " * len(mark))


def _straight(rows: list[list[str]], right: list[bool]) -> str:
    """A table whose columns stand below one another in a type of fixed width."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    padded = sum(widths) * len(rows) <= _PADDING_MOST + 2 * sum(len(cell) for row in rows for cell in row)
    if not padded:
        return "\n".join(" | ".join(row) for row in rows)
    lines = [" | ".join(map(_padded, row, widths, right)).rstrip() for row in rows]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(lines)


def _padded(cell: str, width: int, right: bool) -> str:
    room = " " * (width - _width(cell))
    return room + cell if right else cell + room


def _width(text: str) -> int:
    """Columns of a terminal; a character that has none counts as one."""
    width = len(text) if text.isascii() else wcswidth(text)
    return width if width >= 0 else len(text)


def _by_lines(form: _Form, text: str, mention: Mention) -> str:
    tokens = _tokens(text)
    if tokens is None:
        return form.words(_Run(text))
    told, quoted = "", list[_Block]()
    for block in [*_Reader(form, mention, tokens).blocks(), None]:
        if block is not None and block.quoted:
            quoted.append(block)
            continue
        if quoted:
            told += ("\n\n" if told else "") + form.quote([_apart(quoted[:n]) + one.text for n, one in enumerate(quoted)])
            quoted = []
        if block is not None and block.text:
            told += ("" if not told else "\n" if block.tight else "\n\n") + block.text
    return told


def _apart(before: list[_Block]) -> str:
    return "\n" if before else ""


# -- Telegram --------------------------------------------------------------------------------------

_TELEGRAM_TAGS = {"strong": "b", "em": "i", "s": "s"}


def _telegram_words(run: _Run) -> str:
    """Code stands by itself: Telegram lets it be neither in a link nor in anything bold."""
    text = escape(run.text, quote=False)
    if not run.text.strip():
        return text
    if run.kind == "code" and not run.link:
        return f"<code>{text}</code>"
    for style in run.styles:
        text = f"<{_TELEGRAM_TAGS[style]}>{text}</{_TELEGRAM_TAGS[style]}>"
    return f'<a href="{escape(run.link)}">{text}</a>' if run.link else text


def _telegram_code(code: str, language: str) -> str:
    text = escape(code, quote=False)
    named = re.fullmatch(r"[\w+#.-]{1,40}", language)
    return f'<pre><code class="language-{escape(language)}">{text}</code></pre>' if named else f"<pre>{text}</pre>"


def _telegram_quote(lines: list[str]) -> str:
    """Code in a quote ends it: the one cannot stand in the other."""
    parts: list[str] = []
    words: list[str] = []
    for line in [*lines, "<pre>"]:
        if not line.lstrip().startswith("<pre>"):
            words.append(line)
            continue
        if "".join(words).strip():
            parts.append("<blockquote>" + "\n".join(words).strip("\n") + "</blockquote>")
        words = []
        parts.append(line.lstrip())
    return "\n".join(parts[:-1])


def _strong(runs: list[_Run]) -> list[_Run]:
    return [replace(run, styles=tuple(sorted({*run.styles, "strong"}))) if run.kind == "text" else run for run in runs]


def _tg_user(id: str) -> str:
    return f'<a href="tg://user?id={id}">{id}</a>' if id.isascii() and id.isdigit() else escape(f"@{id}", quote=False)


_TELEGRAM = _Form(_telegram_words, _strong, _telegram_code, _telegram_quote)


# -- Slack -----------------------------------------------------------------------------------------

_SLACK_MARKS = {"strong": "*", "em": "_", "s": "~"}


def _slack_escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _slack_words(run: _Run) -> str:
    text = _slack_escape(run.text)
    bare = text.strip()
    if not bare:
        return text
    if run.kind == "code":
        return text if "`" in bare else f"`{bare}`"
    if run.link:
        bare = f"<{_slack_escape(run.link).replace('|', '%7C')}|{bare.replace('|', '¦')}>"
    for style in run.styles:
        mark = _SLACK_MARKS[style]
        bare = "\n".join(f"{mark}{line.strip()}{mark}" if line.strip() else "" for line in bare.split("\n"))
    before = text[: len(text) - len(text.lstrip())]
    return before + bare + text[len(text.rstrip()) :]


def _slack_code(code: str, language: str) -> str:
    return "```\n" + _slack_escape(code).replace("```", "`\u200b`\u200b`") + "\n```"


def _quoted(lines: list[str]) -> str:
    return "\n".join(f"> {line}".rstrip() for line in "\n".join(lines).split("\n"))


def _slack_between(before: str, after: str) -> str:
    """Marks count beside white space and signs alone: an invisible one parts them from a letter, as Chinese words need it."""
    marks = "*_~`"
    if not before or not after:
        return ""
    joins = (before[-1] in marks and after[0].isalnum()) or (before[-1].isalnum() and after[0] in marks)
    return "\u200b" if joins else ""


_SLACK = _Form(_slack_words, _strong, _slack_code, _quoted, _slack_between)


# -- no marks at all -------------------------------------------------------------------------------


def _plain_words(run: _Run) -> str:
    bare = run.link.removeprefix("mailto:").removeprefix("tel:")
    return f"{run.text} ({bare})" if bare and bare.rstrip("/") != run.text.rstrip("/") else run.text


_PLAIN = _Form(_plain_words, list, lambda code, language: code, _quoted)


# -- HTML ------------------------------------------------------------------------------------------


class _Html(RendererHTML):
    """Safe because nothing of the text is HTML to the parser, and all of it is escaped here."""

    mention: Mention

    def image(self, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
        source = escape(str(tokens[place].attrs.get("src", "")))
        return f'<a href="{source}">{escape(tokens[place].content) or source}</a>'


def _by_html(text: str, mention: Mention, *, styles: dict[str, str] | None = None) -> str:
    tokens = _tokens(text)
    if tokens is None:
        return "<p>" + escape(text, quote=False).replace("\n", "<br>\n") + "</p>"
    parser = _parser()
    renderer = _Html(parser)
    renderer.rules["mention"] = lambda tokens, place, options, env: mention(tokens[place].content)  # type: ignore[assignment]
    for token in tokens:
        if token.type in ("th_open", "td_open") and styles is None:
            token.attrs.pop("style", None)  # which Matrix does not allow
        elif styles and token.tag in styles and token.nesting >= 0:
            token.attrs["style"] = "; ".join(filter(None, [str(token.attrs.get("style", "")), styles[token.tag]]))
    return str(renderer.render(tokens, parser.options, {})).strip()


_EMAIL_STYLES = {
    "table": "border-collapse: collapse",
    "th": "border: 1px solid #ccc; padding: 2px 8px",
    "td": "border: 1px solid #ccc; padding: 2px 8px",
    "blockquote": "border-left: 3px solid #ccc; margin-left: 0; padding-left: 1em",
}


# -- nearly Markdown -------------------------------------------------------------------------------


def _tables_as_code(text: str, keep: int) -> str:
    """`text` with its tables, but the first `keep`, as blocks of code."""
    tokens = _tokens(text) if "|" in text else None
    lines = text.split("\n")
    found: list[tuple[int, int, str]] = []
    for place, token in enumerate(tokens or ()):
        if token.type == "table_open" and token.level == 0 and token.map:
            reader = _Reader(_PLAIN, "@{}".format, tokens or [])
            reader.place = place + 1
            found.append((token.map[0], token.map[1], reader.table().replace("```", "`\u200b`\u200b`")))
    for start, end, table in reversed(found[keep:]):
        apart = [""] if end < len(lines) and lines[end].strip() else []
        lines[start:end] = ["```", *table.split("\n"), "```", *apart]
    return "\n".join(lines)


def _in_words(text: str, mention: Mention, words: Callable[[str], str]) -> str:
    """`text` with its mentions made, and all else that is not code through `words`."""
    told = []
    for stretch, is_code in stretches(text):
        place = 0
        for match in IDS.finditer("" if is_code else stretch):
            told += [words(stretch[place : match.start()]), mention(match[1])]
            place = match.end()
        told.append(stretch if is_code else words(stretch[place:]))
    return "".join(told)


def _discord(text: str, mention: Mention) -> str:
    return _in_words(_tables_as_code(text, 0), mention, lambda words: _DEEP_HEADING.sub(r"**\1**", words))


def _feishu(text: str, mention: Mention) -> str:
    """`<` would begin a tag of the card's own, such as one that calls everybody."""
    return _in_words(_tables_as_code(text, _FEISHU_TABLES), mention, lambda words: words.replace("<", "&#60;"))


_DIALECTS: dict[str, Callable[[str, Mention], str]] = {
    "telegram_html": lambda text, mention: _by_lines(_TELEGRAM, text, mention),
    "slack_mrkdwn": lambda text, mention: _by_lines(_SLACK, text, mention),
    "plain": lambda text, mention: _by_lines(_PLAIN, text, mention),
    "matrix_html": _by_html,
    "email_html": lambda text, mention: _by_html(text, mention, styles=_EMAIL_STYLES),
    "discord": _discord,
    "feishu_card": _feishu,
}
DIALECTS = tuple(_DIALECTS)


def _person(form: str, id: str, ids: str) -> str:
    """A mention of one person. Any other id is words: the platform might read it as a role, or as everybody."""
    return form.format(id) if re.fullmatch(ids, id) else "@" + _slack_escape(id)


_MENTIONS: dict[str, Mention] = {
    "telegram_html": _tg_user,
    "slack_mrkdwn": lambda id: _person("<@{}>", id, r"[A-Za-z0-9]+"),
    "plain": "@{}".format,
    "matrix_html": lambda id: f'<a href="https://matrix.to/#/{escape(id)}">{escape(id)}</a>',
    "email_html": lambda id: escape(f"@{id}"),
    "discord": lambda id: _person("<@{}>", id, r"[0-9]+"),
    "feishu_card": lambda id: _person("<at id={}></at>", id, r"(?!all$)[A-Za-z0-9_-]+"),
}
