"""Words that are not ours, in Markdown: whatever a run or an author wrote is shown as it is written, never obeyed."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

# What can begin markup within a line; an underscore inside a word cannot.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~&#]|(?<!\w)_|_(?!\w)")
COLUMNS = 20
_BREAKS = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]+")


def escape(value: Any) -> str:
    """A value within a line of Markdown. Markup is taken for Markdown of our own and left as it is."""
    if isinstance(value, Markup):
        return value
    return _SPECIAL.sub(r"\\\g<0>", _BREAKS.sub(" ", str(value)))


def code(value: Any) -> Markup:
    """A name set as code, in a table too."""
    text = _BREAKS.sub(" ", str(value)).replace("|", r"\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return Markup(f"{fence}{space}{text}{space}{fence}")


def to_html(text: str) -> str:
    """Markdown with tables as HTML; HTML in it is shown, not passed on. A picture is told by its words: whoever reads
    the page asks no other machine for one."""
    return _render(text, lambda _: "", lambda _: True)


@dataclass
class Budget:
    """How many cells of tables may still be shown."""

    left: int


def untrusted_to_html(text: str, picture: Callable[[str], str], cells: Budget) -> str:
    """The same of a stranger's, whose links lead to the web alone; tables with too many columns or `cells` are left
    out. picture: the address of a picture by its name; one without an address is told by its words."""
    return _render(text, picture, lambda address: address.startswith(("http://", "https://")), cells)


def _render(
    text: str, picture: Callable[[str], str], may_lead_to: Callable[[str], bool], cells: Budget | None = None
) -> str:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    if cells:
        tokens = _without_large_tables(tokens, cells)
    for token in [each for block in tokens for each in block.children or ()]:
        if token.type == "image":
            name = str(token.attrs["src"])
            token.attrs["src"] = picture(name.removeprefix("./"))
            token.children = token.children or [Token("text", "", 0, content=name)]  # the words for who does not see it
            if not token.attrs["src"]:
                token.type, token.content = "text", f"[picture: {token.content or name}]"
        elif token.type == "link_open" and not may_lead_to(str(token.attrs["href"])):
            del token.attrs["href"]
    return str(parser.renderer.render(tokens, parser.options, {}))


def _without_large_tables(tokens: list[Token], cells: Budget) -> list[Token]:
    """Tokens with words in place of each table that is too wide, or has more cells than are left."""
    kept: list[Token] = []
    for token in tokens:
        kept.append(token)
        if token.type != "table_close":
            continue
        begin = max(place for place, each in enumerate(kept) if each.type == "table_open")
        head, body = (sum(each.type == kind for each in kept[begin:]) for kind in ("th_open", "td_open"))
        if head <= COLUMNS and head + body <= cells.left:
            cells.left -= head + body
            continue
        words = Token("text", "", 0, content=f"[A table of {head + body} cells in {head} columns is left out.]")
        kept[begin:] = [
            Token("paragraph_open", "p", 1, block=True),
            Token("inline", "", 0, children=[words], block=True),
            Token("paragraph_close", "p", -1, block=True),
        ]
    return kept
