"""Words that are not ours, in Markdown: whatever a run or an author wrote is shown as it is written, never obeyed."""

import re
from collections.abc import Callable
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

# What can begin markup within a line; an underscore inside a word cannot.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~&#]|(?<!\w)_|_(?!\w)")
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
    """Markdown with tables as HTML; HTML in it is shown, not passed on."""
    return str(_parser().render(text))


def untrusted_to_html(text: str, picture: Callable[[str], str]) -> str:
    """The same of a stranger's, whose links lead to the web alone.

    picture: the address of a picture by what the text calls it; one without an address is told by its words.
    """
    parser = _parser()
    tokens = parser.parse(text)
    for token in [each for block in tokens for each in block.children or ()]:
        if token.type == "image":
            name = str(token.attrs["src"])
            token.attrs["src"] = picture(name.removeprefix("./"))
            token.children = token.children or [Token("text", "", 0, content=name)]  # the words for who does not see it
            if not token.attrs["src"]:
                token.type, token.content = "text", f"[picture: {token.content or name}]"
        elif token.type == "link_open" and not str(token.attrs["href"]).startswith(("http://", "https://")):
            del token.attrs["href"]
    return str(parser.renderer.render(tokens, parser.options, {}))


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")
