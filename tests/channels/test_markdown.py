"""Markdown in each platform's dialect: well-formed, whatever the text, and all its words."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bubbles.channels.markdown import DIALECTS, rendered

BITS = [
    "word", " ", "\n", "\n\n", "**", "*", "_", "~~", "`", "``", "```\n", "```py\n", "~~~\n", "# ", "#### ", "> ", "> > ", "- ", "1. ",
    "7) ", "    ", "  ", "\t", "[", "](", ")", "](https://example.org/?a=1&b=2)", "](javascript:x)", "![", "<@7>", "<@ou_1>", "<b>", "</b>",
    "<script>", "<at id=all></at>", "<!channel>", "&", "&amp;", "&nbsp;", "&#0;", "\"", "'", "|", "| a | b |\n|---|:-:|\n| 1 | 2 |\n",
    "---\n", "===\n", "\\", "<https://example.org>", "<a@b.example>", "中文", "\U0001f469\u200d\U0001f467", "\u202e", "\x00", "- [ ] ", "***",
    "__", "a**b**c", "<!-- ", "-->", "<?", "[x]: https://example.org\n", "[x]",
]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(BITS), st.text(max_size=5)), max_size=40).map("".join)
numbered = st.lists(st.sampled_from(BITS), max_size=30).map(lambda bits: "".join(f"{bit}w{n}" for n, bit in enumerate(bits)))


class Strict(HTMLParser):
    """Telegram's rules: these tags with these attributes, each closed in its order; code has no tags in it and is in none, a quote in no quote."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("b", "i", "s", "a", "code", "pre", "blockquote"), tag
        assert "code" not in self.open
        assert tag in ("b", "i", "s") or "a" not in self.open
        assert "pre" not in self.open or (tag == "code" and self.open[-1] == "pre" and attrs), self.open
        assert tag != "blockquote" or "blockquote" not in self.open
        if tag == "pre" or (tag == "code" and "pre" not in self.open):
            assert not {"b", "i", "s", "a"} & set(self.open)
            assert tag != "pre" or not self.open
        if tag == "a":
            assert [name for name, _ in attrs] == ["href"]
            assert re.match(r"(https?://|mailto:|tel:|tg://user\?id=\d+$)", attrs[0][1] or "")
        elif attrs:
            assert tag == "code"
            assert re.fullmatch(r"language-\S+", dict(attrs)["class"] or "")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_entityref(self, name: str) -> None:
        assert name in ("lt", "gt", "amp", "quot")
        self.words.append({"lt": "<", "gt": ">", "amp": "&", "quot": '"'}[name])

    def handle_charref(self, name: str) -> None:
        assert name in ("x27", "39")

    def handle_data(self, data: str) -> None:
        assert not set("<>&") & set(data)
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def checked(html: str) -> str:
    """The words of what Telegram is sent."""
    strict = Strict()
    strict.feed(html)
    strict.close()
    assert not strict.open
    return "".join(strict.words)


@given(texts)
@example("> ```\n> code\n> ```\n> - a\n>\n>   ```\n>   b")
@example("**bold `code` [link `code`](https://example.org)**")
def test_telegram_understands_whatever_it_is_sent(text: str) -> None:
    checked(rendered(text, "telegram_html"))


@given(numbered, st.sampled_from(DIALECTS))
def test_no_word_is_lost(text: str, dialect: str) -> None:
    text = re.sub(r"\[x\]:|\]\(|!?\[|```|~~~", "", text)  # where a link leads, and a fence's language, are no words
    out = rendered(text, dialect)
    assert [word for word in re.findall(r"w\d+", text) if word not in out] == []


@given(texts, st.sampled_from(DIALECTS))
def test_nothing_of_a_text_becomes_a_tag(text: str, dialect: str) -> None:
    out = rendered(text, dialect, "MENTION{}".format)
    if dialect in ("matrix_html", "email_html"):
        assert not re.search(r"<(script|at|b|!|\?|img)\b", out)
    if dialect in ("telegram_html", "matrix_html", "email_html"):
        assert not re.search(r'href="(?!https?://|mailto:|tel:|tg:)', out)
    if dialect == "slack_mrkdwn":
        assert not re.search(r"<(?!https?://|mailto:|tel:)", out)
    if dialect == "feishu_card":
        assert "<at" not in re.sub(r"(?s)(`+|~~~).*?\1|```.*|~~~.*|`.*`", "", out)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_mention_is_made_by_who_knows_how_and_none_in_code(dialect: str) -> None:
    out = rendered("**hi <@_u_1>** and `<@8>`\n\n```\n<@9>\n```", dialect, lambda id: f"MENTION({id})")
    assert re.findall(r"MENTION\(.*?\)", out) == ["MENTION(_u_1)"]


@pytest.mark.parametrize(
    ("dialect", "id", "form"),
    [
        ("telegram_html", "7", '<a href="tg://user?id=7">7</a>'),
        ("telegram_html", "bob", "@bob"),
        ("slack_mrkdwn", "U07", "<@U07>"),
        ("slack_mrkdwn", "!channel", "@!channel"),
        ("discord", "7", "<@7>"),
        ("discord", "&7", "@&amp;7"),
        ("feishu_card", "ou_7", "<at id=ou_7></at>"),
        ("feishu_card", "all", "@all"),
        ("matrix_html", "@a:b.example", '<p><a href="https://matrix.to/#/@a:b.example">@a:b.example</a></p>'),
        ("plain", "7", "@7"),
    ],
)
def test_the_usual_form_of_a_mention_calls_one_person(dialect: str, id: str, form: str) -> None:
    assert rendered(f"<@{id}>", dialect) == form


@pytest.mark.parametrize(
    ("dialect", "text", "out"),
    [
        ("telegram_html", "# A *b*\n\n1. x\n2. y", "<b>A </b><b><i>b</i></b>\n\n1. x\n2. y"),
        ("telegram_html", "**a `b` c**", "<b>a </b><code>b</code><b> c</b>"),
        ("telegram_html", '```c++\na<b>("x")\n```', '<pre><code class="language-c++">a&lt;b&gt;("x")</code></pre>'),
        ("telegram_html", "> a\n> > b\n\nc", "<blockquote>a\n\nb</blockquote>\n\nc"),
        ("telegram_html", "a<br>b & c", "a&lt;br&gt;b &amp; c"),
        (
            "telegram_html",
            "[a](mailto:a@b.example) ![p](https://x.example/y)",
            '<a href="mailto:a@b.example">a</a> <a href="https://x.example/y">p</a>',
        ),
        ("slack_mrkdwn", "这是**重点**吗", "这是\u200b*重点*\u200b吗"),
        ("slack_mrkdwn", "**a** _b_ ~~c~~ `d`", "*a* _b_ ~c~ `d`"),
        ("slack_mrkdwn", "> a\n> b", "> a\n> b"),
        ("discord", "#### A\n**b**", "**A**\n**b**"),
        ("discord", "| a | b |\n|---|---|\n| 中 | 2 |\nend", "```\na   | b\n----+--\n中  | 2\nend |\n```"),
        ("feishu_card", "a <b> `<c>`", "a &#60;b> `<c>`"),
        (
            "matrix_html",
            "| a |\n|--:|\n| 1 |",
            "<table>\n<thead>\n<tr>\n<th>a</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n</tr>\n</tbody>\n</table>",
        ),
        ("plain", "**a** [b](https://x.example) <https://y.example>", "a b (https://x.example) https://y.example"),
        ("plain", "- a\n  - b\n- c", "• a\n  • b\n• c"),
        ("plain", "a\nb\n\nc", "a\nb\n\nc"),
    ],
)
def test_what_it_looks_like(dialect: str, text: str, out: str) -> None:
    assert rendered(text, dialect) == out


def test_a_card_keeps_a_few_tables_and_the_others_are_code() -> None:
    table = "| a |\n|---|\n| 1 |\n\n"
    out = rendered(table * 8, "feishu_card")
    assert (out.count("|---|"), out.count("```")) == (5, 6)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", ["> " * 500 + "deep", "- " * 500 + "deep", "*a " * 3000 + "deep", "[" * 3000 + "deep", "word " * 50_000 + "deep"])
def test_what_is_nested_too_deep_or_too_long_is_words(dialect: str, text: str) -> None:
    assert "deep" in rendered(text, dialect)


def test_a_table_of_one_wide_cell_does_not_grow() -> None:
    table = "| a | b |\n|---|---|\n" + "| x | y |\n" * 400 + f"| {'w' * 3000} | z |\n"
    assert all(len(rendered(table, dialect)) < 20 * len(table) for dialect in DIALECTS)
