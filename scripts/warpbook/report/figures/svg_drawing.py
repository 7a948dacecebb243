"""A chart as SVG whose words are text and not outlines: readers find and copy them, and a PDF is drawn faster."""

import io
import re
from typing import Any

import matplotlib as mpl
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure

POINTS = 72  # an inch, which is what SVG counts in
IMAGE_DPI = 100
NOTHING = dict.fromkeys(("Creator", "Date", "Format", "Type"))


# Digits of a path beyond hundredths of a point, which are invisible; matplotlib's stylesheet, which the outermost element
# replaces; and styles, which WeasyPrint reads slower than attributes.
_DIGITS = re.compile(r"(\.\d\d)\d+")
_SHEET = re.compile(r" *<defs>\s*<style.*?</style>\s*</defs>\n", re.DOTALL)
_STYLE = re.compile(r'style="([^"]*)"')


class _Renderer(RendererSVG):
    """Matplotlib's, but that a text begins where matplotlib measured, groups are left out, and each marker is drawn in
    its place: a PDF has it sooner."""

    draw_markers: Any = RendererBase.draw_markers

    def _convert_path(self, *path: Any, **options: Any) -> str:
        base: Any = super()
        return _DIGITS.sub(r"\1", base._convert_path(*path, **options))

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
    ) -> None:
        place = f"translate({x:.2f} {y:.2f})" + (f" rotate({-angle:g})" if angle else "")
        red, green, blue, opacity = gc.get_rgb()
        style: dict[str, Any] = {
            "transform": place,
            "fill": f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}",
            "font-size": f"{prop.get_size_in_points():g}",
        }
        if opacity < 1:
            style["fill-opacity"] = f"{opacity:g}"
        if prop.get_weight() not in ("normal", 400):
            style["font-weight"] = str(prop.get_weight())
        writer: Any = self.writer
        writer.element("text", s, style)

    def open_group(self, s: str, gid: str | None = None) -> None:
        pass

    def close_group(self, s: str) -> None:
        pass


_MAKE: Any = _Renderer  # of no types that are told


def svg(figure: Figure) -> str:
    """A figure as SVG, the same bytes for the same figure, on no background."""
    text = io.StringIO()
    (family,) = mpl.rcParams["font.family"]
    width, height = figure.get_size_inches() * POINTS
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set_visible(False)
    renderer: Any = _MAKE(width, height, text, image_dpi=IMAGE_DPI, metadata=NOTHING)
    figure.draw(renderer)
    renderer.finalize()
    _, element, content = text.getvalue().partition("<svg ")
    content = _STYLE.sub(_as_attributes, _SHEET.sub("", content, count=1))
    return f'{element}font-family="{family}" stroke-linejoin="round" {content}'


def _as_attributes(style: re.Match[str]) -> str:
    return " ".join('{}="{}"'.format(*one.split(": ")) for one in style[1].split("; "))
