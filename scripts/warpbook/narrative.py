"""Authors' words: Markdown in reports/narrative/ with live figures in it, as `{{ speedup("constant_weights") }}`.

Every name that a text may use is a method of `Figures`. One that does not exist, or a variant, layer or size that does
not, fails the rendering with the file and the line.
"""

import traceback
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateSyntaxError
from markdown_it import MarkdownIt
from markupsafe import Markup

from warpbook import units
from warpbook.errors import UserError, nearest
from warpbook.evidence import Evidence, Speedup

FOLDER = Path(__file__).parents[2] / "reports" / "narrative"
NOT_MEASURED = "(not measured)"


class Figures:
    """What a text may say with live values: each method gives words, or `(not measured)` where there is no figure.

    Without `layer` a figure is of all layers together, without `size` at the study's largest.
    """

    def __init__(self, ev: Evidence):
        self._ev = ev

    def speedup(self, variant: str, over: str = "", layer: str = "", size: int = 0, kind: str = "op") -> str:
        """How many times faster than `over`, by default what it builds on, with the interval: 1.140× [1.138, 1.142].

        † where the two were not timed in turn.
        """
        found = self._speedup(variant, over, layer, size, kind)
        if not found:
            return NOT_MEASURED
        return f"{units.ratio_within(found.ratio)}{'' if found.paired else '†'} {units.ratio_interval(found.ratio)}"

    def verdict(self, variant: str, over: str = "", layer: str = "", size: int = 0) -> str:
        """faster, slower, same or ambiguous."""
        found = self._speedup(variant, over, layer, size, "op")
        return found.verdict if found else NOT_MEASURED

    def op_time(self, variant: str, layer: str = "", size: int = 0, kind: str = "op") -> str:
        """A time with its unit: 3.778 ms."""
        self._check(variant, layer)
        size = size or self._ev.largest
        found = self._ev.op(variant, layer, size, kind) if layer else self._ev.total(variant, size, kind)
        return units.time(found.value) if found else NOT_MEASURED

    def times_bound(self, variant: str, layer: str, size: int = 0) -> str:
        """Kernel time over the hardware's lower bound: 3.4×."""
        self._check(variant, layer)
        size = size or self._ev.largest
        found = self._ev.op(variant, layer, size, "gpu")
        bound = self._ev.bound_ms(next(one for one in self._ev.layers if one.name == layer), size)
        return units.ratio(found.value / bound) if found and bound else NOT_MEASURED

    def resource(self, variant: str, name: str, kernel: str = "conv_forward") -> str:
        """registers, shared_bytes, local_bytes or spill_bytes of a kernel on the architecture of the GPU cited."""
        self._check(variant)
        ev = self._ev
        arch = ev.gpu_run.gpu["arch"] if ev.gpu_run and ev.gpu_run.gpu else ev.config.architectures[-1]
        rows = ev.builds[(ev.builds.variant == variant) & (ev.builds.arch == arch) & (ev.builds.kernel == kernel)]
        return str(rows[name].iloc[0]) if len(rows) and rows.ok.all() else NOT_MEASURED

    def best(self) -> str:
        """The name of the fastest GPU variant of ours."""
        return self._ev.best.name if self._ev.best else NOT_MEASURED

    def gpu(self) -> str:
        """The name of the GPU cited."""
        return self._ev.device_name("gpu")

    def _speedup(self, variant: str, over: str, layer: str, size: int, kind: str) -> Speedup | None:
        self._check(variant, layer, over)
        size = size or self._ev.largest
        if layer:
            return self._ev.speedup(variant, layer, size, over=over or None, kind=kind)
        return self._ev.total_speedup(variant, size, over=over or None, kind=kind)

    def _check(self, variant: str, layer: str = "", over: str = "") -> None:
        layers = [one.name for one in self._ev.layers]
        for name, known in (
            (variant, list(self._ev.plan.variants)),
            (over, list(self._ev.plan.variants)),
            (layer, layers),
        ):
            if name and name not in known:
                raise UserError(f"{name!r} is not known: {nearest(name, known)}")


def rendered(ev: Evidence, folder: Path = FOLDER) -> Markup:
    """A study's text as HTML; a sentence that says so where there is none.

    Raises UserError with file and line for a name that does not exist and for broken syntax.
    """
    path = folder / f"{ev.name}.md"
    if not path.exists():
        return Markup(f"<p>The authors wrote no discussion ({path.name}).</p>")
    env = Environment(loader=FileSystemLoader(folder), undefined=StrictUndefined, autoescape=False)
    figures = Figures(ev)
    env.globals = {name: getattr(figures, name) for name in dir(figures) if not name.startswith("_")}
    try:
        text = env.get_template(path.name).render()
    except TemplateSyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: {error.message}") from error
    except (TemplateError, UserError, TypeError) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        raise UserError(f"{path}, line {lines[-1] if lines else '?'}: {error}") from error
    return Markup(MarkdownIt("commonmark").enable("table").render(text))
