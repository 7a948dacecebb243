"""Launches that a file writes in other ways as `<<<>>>`: through its own macros, or by `cudaLaunchKernel`.

Every line stays in its place, so that what is read of a launch can name it.
"""

import re
from collections.abc import Iterator

from warpbook.kernels import sources

_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(([^)\n]*)\))?[ \t]+((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_BY_FUNCTION = re.compile(r"\bcudaLaunchKernel\s*(?:<[^>]*>\s*)?\(")
_CAST = re.compile(r"^\(\s*(?:const\s+)?void\s*+\*?\s*+\*?\s*+\)|^reinterpret_cast<[^>]*>|^\(const void\*\)")
_EXPANSIONS_MAX = 200


def rewrite(text: str) -> str:
    """CUDA C++ in which launches in macros of the file, and calls of cudaLaunchKernel, are written as `<<<>>>`."""
    return _launches_by_function(_expand_macros(text))


def _expand_macros(text: str) -> str:
    macros = {
        match[1]: ([each.strip() for each in match[3].split(",")] if match[2] else None, match[4].replace("\\\n", " "))
        for match in _MACRO.finditer(text)
        if re.search(r"<<<|\bcudaLaunchKernel\b", match[4])
    }
    if not macros:
        return text
    named = re.compile(rf"\b({'|'.join(map(re.escape, macros))})\b")
    for _ in range(_EXPANSIONS_MAX):
        defined = [match.span() for match in _MACRO.finditer(text)]
        plain = sources.without_comments(text)
        uses = (use for use in named.finditer(plain) if not any(a <= use.start() < b for a, b in defined))
        use = next(uses, None)
        if use is None:
            break
        parameters, body = macros[use[1]]
        end = use.end()
        given: list[str] = []
        if parameters is not None:
            opening = re.match(r"\s*\(", plain[end:])
            if not opening:
                return text
            end, given = _split_list(text, end + opening.end())
        made = _substitute(parameters or [], given, body)
        text = text[: use.start()] + made + "\n" * text.count("\n", use.start(), end) + text[end:]
    return text


def _substitute(parameters: list[str], given: list[str], body: str) -> str:
    values = dict(zip(parameters, given, strict=False))
    if parameters and parameters[-1].endswith("..."):
        name = parameters[-1].removesuffix("...") or "__VA_ARGS__"
        values[name] = ", ".join(given[len(parameters) - 1 :])
    return re.sub(r"\w+", lambda word: " ".join(values.get(word[0], word[0]).split()), body.replace("##", ""))


def _split_list(text: str, begin: int) -> tuple[int, list[str]]:
    """Where a list in parentheses ends, behind which, and its items; `begin` is behind what opens it."""
    items: list[str] = []
    start, depth = begin, 0
    for place in range(begin, len(text)):
        letter = text[place]
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            if depth == 0:
                return place + 1, [*items, text[start:place].strip()]
            depth -= 1
        elif letter == "," and depth == 0:
            items.append(text[start:place].strip())
            start = place + 1
    return len(text), items


def _launches_by_function(text: str) -> str:
    for match in reversed(list(_BY_FUNCTION.finditer(sources.without_comments(text)))):
        end, given = _split_list(text, match.end())
        if len(given) < 4:
            continue
        kernel = _CAST.sub("", given[0]).strip().strip("()").strip().lstrip("&").strip()
        arguments = _pointed_at(text[: match.start()], given[3])
        if not re.fullmatch(r"[\w:]+(?:<.*>)?", kernel) or arguments is None:
            continue
        launch = f"{kernel}<<<{', '.join([*given[1:3], *given[4:6]])}>>>({', '.join(arguments)})"
        text = text[: match.start()] + launch + "\n" * text.count("\n", match.start(), end) + text[end:]
    return text


def _pointed_at(before: str, name: str) -> list[str] | None:
    """What the array of pointers of a name, the last one before a launch, points at; None where there is none."""
    written = re.escape(name.strip().lstrip("&"))
    found: Iterator[re.Match[str]] = re.finditer(
        rf"\bvoid\s*\*\s*{written}\s*\[\s*\d*\s*\]\s*=?\s*\{{([^}}]*)\}}", before
    )
    last = next(iter(reversed(list(found))), None)
    if last is None:
        return None
    items = [_CAST.sub("", each.strip()).strip() for each in last[1].split(",") if each.strip()]
    return [each[1:].strip() for each in items] if all(each.startswith("&") for each in items) else None
