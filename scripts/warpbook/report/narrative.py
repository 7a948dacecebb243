"""Authors' words: Markdown in reports/narrative/ with live figures in it, as `{{ speedup("constant_weights") }}`. A
name that is no method of `Figures` fails the rendering with file and line. A text may be a stranger's: it is rendered
in Jinja's sandbox, in a process with bounds on time, memory and length."""

import signal
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, StrictUndefined, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from warpbook.common import units
from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import both_folders, find_file
from warpbook.common.supervision import VariantFailure, limit_resources, run_supervised
from warpbook.profiling import counters
from warpbook.report import escaping, trace_layout
from warpbook.report.evidence import Evidence, Speedup
from warpbook.runs import tables

FOLDERS = both_folders("reports/narrative")
NOT_MEASURED = "(not measured)"
MOST_MISSING = 5  # values that a text may lack and still be read
SECONDS, MEMORY_BYTES, CHARACTERS = 10, 1 << 30, 1_000_000


class Figures:
    """What a text may say with live values: each method gives words, or `(not measured)`. Without `layer` a figure is
    of all layers together, without `size` at the study's largest."""

    def __init__(self, ev: Evidence):
        self._ev = ev

    def speedup(self, variant: str, over: str = "", layer: str = "", size: int = 0, kind: str = "op") -> str:
        """How many times faster than `over`, by default what it builds on: 1.140× [1.138, 1.142]. † where the two were
        not timed in turn, and words where one number is too uncertain."""
        speedup = self._speedup(variant, over, layer, size, kind)
        return speedup.plain_text if speedup else NOT_MEASURED

    def verdict(self, variant: str, over: str = "", layer: str = "", size: int = 0) -> str:
        """faster, slower, same or ambiguous."""
        speedup = self._speedup(variant, over, layer, size, "op")
        return speedup.verdict if speedup else NOT_MEASURED

    def op_time(self, variant: str, layer: str = "", size: int = 0, kind: str = "op") -> str:
        """A time with its unit: 3.778 ms."""
        self._check(variant, layer)
        size = size or self._ev.largest
        time = self._ev.times.op(variant, layer, size, kind) if layer else self._ev.times.total(variant, size, kind)
        return units.time(time.value) if time else NOT_MEASURED

    def times_bound(self, variant: str, layer: str, size: int = 0) -> str:
        """Kernel time over the hardware's lower bound: 3.4×."""
        self._check(variant, layer)
        size = size or self._ev.largest
        kernels = self._ev.times.op(variant, layer, size, "gpu")
        bound = self._ev.times.fp32_bound_ms(next(one for one in self._ev.layers if one.name == layer), size)
        return units.ratio(kernels.value / bound) if kernels and bound else NOT_MEASURED

    def resource(self, variant: str, name: str, kernel: str = "conv_forward") -> str:
        """registers, shared_bytes, local_bytes or spill_bytes of a kernel on the architecture of the GPU cited."""
        self._check(variant)
        amount = self._ev.builds.resource(variant, name, kernel)
        return NOT_MEASURED if amount is None else str(amount)

    def counter_fall(self, variant: str, metric: str, layer: str) -> str:
        """How much less a counter of a call is than of what the variant builds on: 180 M."""
        self._check(variant, layer)
        calls, over = self._ev.counters.calls, self._ev.plan.variants[variant].header.builds_on
        before, after = (calls.get((name, layer)) for name in (over, variant))
        values = [call.value(metric) if call else None for call in (before, after)]
        if values[0] is None or values[1] is None:
            return NOT_MEASURED
        older = self._ev.selection.from_other_run.get(tables.COUNTERS)
        return counters.amount(values[0] - values[1], metric) + (f" (run {older.run_id})" if older else "")

    def launching(self, variant: str) -> str:
        """That Python's launching paces a variant's calls, as a sentence; empty where it does not."""
        self._check(variant)
        return trace_layout.overhead_sentence(self._ev, self._ev.plan.variants[variant])

    def best(self) -> str:
        """The name of the fastest GPU variant of ours."""
        return self._ev.ranking.best.name if self._ev.ranking.best else NOT_MEASURED

    def gpu(self) -> str:
        """The name of the GPU cited."""
        return self._ev.device_name("gpu")

    def _speedup(self, variant: str, over: str, layer: str, size: int, kind: str) -> Speedup | None:
        self._check(variant, layer, over)
        size = size or self._ev.largest
        if layer:
            return self._ev.times.speedup(variant, layer, size, over=over or None, kind=kind)
        return self._ev.times.total_speedup(variant, size, over=over or None, kind=kind)

    def _check(self, variant: str, layer: str = "", over: str = "") -> None:
        variants = list(self._ev.plan.variants)
        for name, known in ((variant, variants), (over, variants), (layer, self._ev.layer_names)):
            if name and name not in known:
                raise UserError(f"{name!r} is not known: {nearest_name(name, known)}")


def render_narrative(ev: Evidence, folder: Path | None = None) -> Markup:
    """A study's text as HTML; a sentence that says so where there is none. Raises UserError with file and line."""
    path = folder / f"{ev.name}.md" if folder else find_file(f"{ev.name}.md", FOLDERS)
    if ev.texts_left_out:
        return Markup("<p>The authors' discussion is left out: the summary says why.</p>")
    if not path.exists():
        return Markup(f"<p>The authors wrote no discussion ({path.name}).</p>")

    def produce() -> Iterator[str]:
        limit_resources(MEMORY_BYTES, 2 * SECONDS)
        yield _fill_in(path, Figures(ev))

    try:
        (text,) = run_supervised(produce, 2 * SECONDS)
    except (VariantFailure, RuntimeError) as error:
        raise UserError(f"{path}: it cannot be rendered: {error}") from error
    if (missing := text.count(NOT_MEASURED)) > MOST_MISSING:
        words = f"The authors' discussion ({path.name}) is left out: {missing} values that it quotes were not measured."
        return Markup('<div class="note"><p>{}</p></div>').format(words)
    return Markup(escaping.to_html(text))


def _fill_in(path: Path, figures: Figures) -> str:
    """A text with its figures in place."""
    env = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(path.parent), undefined=StrictUndefined, finalize=escaping.escape
    )
    env.globals = {name: getattr(figures, name) for name in dir(figures) if not name.startswith("_")}

    def stop(*_: Any) -> None:
        raise TimeoutError(f"still not rendered after {SECONDS} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    pieces: list[str] = []
    length = 0
    try:
        for piece in env.get_template(path.name).generate():
            length += len(piece)
            if length > CHARACTERS:
                raise ValueError(f"longer than the {CHARACTERS} characters that a text may have")
            pieces.append(piece)
    except TemplateSyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: {error.message}") from error
    except Exception as error:  # an author's expression may raise anything
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        # Where it grew too long, the line is that of what is written there already.
        line = lines[-1] if lines else 1 + sum(piece.count("\n") for piece in pieces)
        raise UserError(f"{path}, line {line}: {str(error) or type(error).__name__}") from error
    finally:
        signal.alarm(0)
    return "".join(pieces)
