"""Write the pages of docs/reference/ and performance.md from the code and the archived runs, when the site is built.

mkdocs-gen-files runs this program. Nothing here is typed twice: an option, a key or a column that the code declares
appears on its page, and a time comes from an archive of reports/runs/.
"""

import argparse
import contextlib
import importlib.util
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

import pandas as pd
import typer
import yaml

PROJECT = Path(__file__).resolve().parents[1]
GALLERY, GALLERY_PDFS = PROJECT / "docs" / "gallery", PROJECT / "reports" / "out" / "gallery"
sys.path.insert(0, str(PROJECT / "scripts"))

from warpbook import command_line  # noqa: E402
from warpbook.common import units  # noqa: E402
from warpbook.config.settings import Config  # noqa: E402
from warpbook.kernels import whole_networks  # noqa: E402
from warpbook.kernels.claims import QUANTITIES  # noqa: E402
from warpbook.kernels.headers import Header  # noqa: E402
from warpbook.report.evidence.run_selection import whole_network_rows  # noqa: E402
from warpbook.runs import catalog, summaries, tables  # noqa: E402
from warpbook.runs.catalog import Run  # noqa: E402
from warpbook.runs.schema import ANY, Table  # noqa: E402
from warpbook.workflow import streams  # noqa: E402

IMAGES = 10_000
FALLBACKS = ("sum_in_fp32", "fp32_fallback_kernel")
"""Kernels that compute in FP32 what FP16 parts cannot hold: their name before and today."""

GENERATED = "<!-- Written by docs/generate_reference.py when the site is built. -->\n\n"


def cell(text: object) -> str:
    """Text that may stand in a cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip()


def code(text: object) -> str:
    """A word of the code in a cell, empty where there is none."""
    return f"`{str(text).replace('|', chr(92) + '|')}`" if str(text) else ""


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


# --- The command line


SHARED_OPTIONS = {
    "--architectures": "architectures to compile for",
    "--baseline-correctness": "checks of the baseline",
    "--cores": "CPU cores",
    "--correctness": "result of `check_variant`",
    "--device": "where it runs",
    "--epochs": "passes over the training images",
    "--html": "HTML file to write",
    "--images": "the images",
    "--implementation": "name of a file in `kernels/network/`",
    "--labels": "file of the reference's labels",
    "--markdown": "Markdown file to write",
    "--network": "a network of `config.yaml`",
    "--out": "file or folder to write",
    "--pdf": "PDF file to write",
    "--run": "folder of the run",
    "--sanitizer": "results of `sanitize_variant`",
    "--seed": "seed of the random numbers",
    "--size": "number of images",
    "--sizes": "numbers of images",
    "--study": "a study of `config.yaml`",
    "--threads": "CPU threads; by default one for each core",
    "--timeout": "seconds after which a call counts as hanging",
    "--tool": "the profiler",
    "--variant": "name of a file in `kernels/`",
    "--weights": "weight set of the network",
    "arguments": "arguments of the program",
    "file": "file to read",
    "network": "a network of `config.yaml`",
    "program": "the program to profile",
}
"""Options that several programs share, where a program does not explain them itself."""


SHARED_KEYS = {
    "C": "input channels",
    "H": "rows of the input; of a block: rows of the output",
    "H_out": "rows of the output",
    "K": "side of the filter",
    "M": "output channels",
    "N": "images",
    "P": "padding",
    "S": "stride",
    "W": "columns of the input; of a block: columns of the output",
    "W_out": "columns of the output",
    "activation": "function applied to each output",
    "answers": "the author's answers",
    "arch": "architecture, as sm_86",
    "at_least": "lower bound",
    "at_most": "upper bound",
    "baseline": "the earlier milestone that it is compared with",
    "bounds_ms": "op time that each baseline must stay below",
    "by": "size of the change, as a share of the baseline's value",
    "change": "direction of the change against the baseline",
    "channels": "input channels",
    "code_must_contain": "words that its code contains if it is what it claims",
    "context": "times of built-in kernels, shown beside",
    "conv": "a convolution",
    "count": "expected value, as an expression of the extents",
    "cpu": "the same, on the CPU",
    "description": "what the milestone asks for",
    "fc": "a fully connected layer",
    "files": "its files",
    "full_ms": "op time that earns all points",
    "gb_per_s": "peak rate of its memory",
    "gpu": "the GPU",
    "images": "number of images",
    "input": "the input image",
    "is": "the only value",
    "kernel_size": "side of the square filter",
    "kernels": "the built-in kernels",
    "kind": "which value of a window is kept",
    "l2_mib": "size of its L2 cache",
    "layer": "the layer, as conv1",
    "layer_ms": "layer times, all layers added",
    "layers": "layers, in order or by name",
    "max_samples": "samples after which a series ends",
    "max_time_s": "time after which a series ends",
    "milestones": "the milestones, in order",
    "min_samples_timeout_s": "time limit for the first samples",
    "multiple_of": "values must be multiples of this",
    "name": "its name",
    "network": "a network of this file",
    "none_ms": "op time from which no points are earned",
    "op_ms": "op time of each layer",
    "optimizations": "the optimizations, by number",
    "optional_points": "points that optional optimizations earn at most",
    "out_channels": "output channels",
    "out_features": "outputs",
    "outputs": "output of the course's program",
    "outputs_per_block": "outputs that a block computes along each extent",
    "padding": "rows and columns of zeros on each side",
    "partial_credit": "points without a word in the code",
    "performance": "points for the final file's op times",
    "points": "points",
    "pool": "a pooling layer",
    "precision": "precision of the MMAs",
    "products": "MMAs for each multiply-add",
    "questions": "questions about each optimization",
    "refused": "files that were not read, and why",
    "run_id": "the archived run",
    "runs": "runs at each size",
    "sections": "sections of the report, in order",
    "size": "images; of a pooling layer: side of the window",
    "sizes": "numbers of images, in ascending order",
    "stride": "step of the window",
    "threads": "threads of a block",
    "timeline": "kernels of one layer on a time axis, against the baseline's",
    "title": "its title",
    "value": "bounds of the variant's own value",
    "variant": "the variant",
    "variants": "the variants to compare; none named: all",
    "weights": "names of the weight sets; of limits: number of filter weights",
    "where": "layers and sizes that the claim is about",
    "without": "the word",
}
"""Keys that several models share, where a model does not explain them itself."""


class _Captured(Exception):
    """Ends a program where it would read its arguments."""


def program(path: Path) -> tuple[ModuleType, argparse.ArgumentParser]:
    """A program of scripts/ as a module, and the parser that its `main` makes."""
    specification = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    stubs: dict[str, Any] = {}
    if importlib.util.find_spec("torch") is None:  # the training program alone imports it, and its options need none
        stubs = {"torch": MagicMock(nn=MagicMock(Module=object))}
    made: list[argparse.ArgumentParser] = []

    def capture(parser: argparse.ArgumentParser, *_: object) -> None:
        made.append(parser)
        raise _Captured

    with patch.dict(sys.modules, stubs), patch.object(argparse.ArgumentParser, "parse_args", capture):
        specification.loader.exec_module(module)
        with contextlib.suppress(_Captured):
            module.main()
    made[0].prog = f"python scripts/{path.name}"
    return module, made[0]


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str, str]]:
    """Of each option: its name, what it takes, its default, what it means."""
    for action in parser._actions:
        if action.dest in ("help", "version"):
            continue
        if isinstance(action, argparse._SubParsersAction):
            of_each = [option for one in action.choices.values() for option in options(one)]
            yield code(action.dest), ", ".join(map(code, action.choices)), "required", "what to make"
            yield from dict.fromkeys(of_each)
            continue
        name = code(", ".join(action.option_strings) or action.dest)
        takes = ", ".join(map(code, action.choices)) if action.choices else ""
        if not takes and action.nargs != 0:
            named = getattr(action.type, "__name__", "text").lower()
            takes = {"path": "path", "int": "integer", "float": "number", "loads": "JSON"}.get(named, "text")
        if action.nargs in ("*", "+"):
            takes += ", several"
        required = action.required or (not action.option_strings and action.nargs not in ("?", "*"))
        default = "" if action.default in (None, False, [], "") or name == "`--threads`" else code(action.default)
        meaning = cell(action.help or "") or SHARED_OPTIONS.get(name.strip("`"), "")
        yield name, takes, "required" if required else default.replace(str(PROJECT), "."), meaning


def commands_page() -> str:
    typed, called = [], []
    for path in sorted((PROJECT / "scripts").glob("*.py")):
        module, parser = program(path)
        summary, _, rest = (module.__doc__ or "").strip().partition("\n\n")
        text = f"### {path.stem}\n\n{cell(summary)}\n\n```\n{usage(parser)}\n```\n\n"
        if rest.strip():
            text += f"```text\n{textwrap.dedent(rest).strip()}\n```\n\n"
        text += markdown_table(("option", "takes", "default", "meaning"), options(parser))
        (typed if any(action.dest == "version" for action in parser._actions) else called).append(text)
    command = typer.main.get_command(command_line.app)
    groups = {name: getattr(one, "commands", None) for name, one in command.commands.items()}
    commands = {
        **command.commands,
        **{f"{name} {kind}": one for name, of in groups.items() for kind, one in (of or {}).items()},
    }
    lines = []
    for name, one in sorted(commands.items()):
        if groups.get(name):
            continue
        taken = " ".join(
            each.opts[-1] if each.param_type_name == "option" else each.name.upper()
            for each in one.params
            if "--help" not in each.opts
        )
        lines.append((code(f"warpbook {name}"), cell(one.help or ""), code(taken) if taken else ""))
    return (
        f"# Programs\n\n{GENERATED}## The command `warpbook`\n\n"
        "Each subcommand runs a target of Snakemake or a program below, in the folder where you type it.\n\n"
        f"{markdown_table(('command', 'effect', 'options'), lines)}"
        f"{command_line.EXIT_STATUSES}\n\n"
        "In a clone, start a program from the top folder with `.venv/bin/python scripts/<name>.py`.\n"
        "`--help` prints the same options.\n\n"
        f"## Programs that you type\n\n{''.join(typed)}"
        f"## Programs that Snakemake starts\n\nYou can start them by hand; the rules pass these options.\n\n"
        f"{''.join(called)}"
    )


def usage(parser: argparse.ArgumentParser) -> str:
    with patch.dict("os.environ", COLUMNS="92"):
        return parser.format_usage().removeprefix("usage: ").strip()


# --- Snakemake


def docstring(text: str) -> str:
    """The first docstring of a Snakefile."""
    found = re.search(r'^"""(.*?)"""', text, re.DOTALL)
    return found[1].strip() if found else ""


def rules(text: str) -> Iterator[tuple[str, str]]:
    """Name and docstring of each rule of a Snakefile."""
    for name, meaning in re.findall(r'^(?:rule|checkpoint) (\w+):\n\s+"""(.*?)"""', text, re.DOTALL | re.MULTILINE):
        yield name, " ".join(meaning.split())


def targets_page() -> str:
    snakefile = (PROJECT / "Snakefile").read_text()
    typed = re.findall(r"^ +(snakemake .*?)(?: {3,}(.*))?$", docstring(snakefile), re.MULTILINE)
    parts = [
        f"# Snakemake targets\n\n{GENERATED}"
        "Type these in the top folder, with `.venv/bin/` in front of `snakemake`.\n\n",
        markdown_table(("command", "result"), ((code(command), cell(result)) for command, result in typed)),
        "## Rules\n\nA target starts the rules that it needs. Each rule writes its messages to `logs/<rule>/`.\n\n",
    ]
    for path in [PROJECT / "Snakefile", *sorted((PROJECT / "rules").glob("*.smk"))]:
        if rows := [(code(name), cell(meaning)) for name, meaning in rules(path.read_text())]:
            place = path.relative_to(PROJECT).as_posix()
            parts += [f"### `{place}`\n\n", markdown_table(("rule", "what it makes"), rows)]
    return "".join(parts)


# --- Models: the configuration and a kernel's header


def schema_type(schema: dict[str, Any], links: dict[str, str]) -> str:
    """What a JSON schema allows, in words; the models in it as links."""
    if reference := schema.get("$ref"):
        return links[reference.rpartition("/")[2]]
    if schema.get("allOf"):
        return schema_type(schema["allOf"][0], links)
    if either := schema.get("anyOf"):
        return " or ".join(schema_type(one, links) for one in either if one.get("type") != "null")
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
        return ", ".join(f"`{value}`" if value else "empty" for value in values)
    kind = schema.get("type")
    if kind == "array":
        return f"list of {schema_type(schema.get('items', {}), links)}" if schema.get("items") else "list"
    if kind == "object":
        return f"mapping of names to {schema_type(schema.get('additionalProperties') or {}, links)}"
    words = {"string": "text", "integer": "integer", "number": "number", "boolean": "`true` or `false`"}
    return words.get(str(kind), "any") + bounds(schema)


def bounds(schema: dict[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    said = [f"{least} or more" if least is not None and most is None and below is None else ""]
    if least is not None and most is not None:
        said = [f"{least} to {most}"]
    elif least is not None and below is not None:
        said = [f"from {least}", f"below {below}"]
    elif above is not None:
        said = [f"above {above}", f"at most {most}" if most is not None else f"below {below}" if below else ""]
    words = ", ".join(filter(None, said))
    return f" ({words})" if words else ""


def yaml_comments(text: str) -> dict[str, str]:
    """What the comments of config.yaml say about a key: those behind it, else those above it, by the key's path.

    Names of networks and studies are written <name>, so that a comment on one of them explains the key.
    """
    lines, found = text.splitlines(), {}

    def walk(node: yaml.Node, path: tuple[str, ...]) -> None:
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                walk(item, path)
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            its = "<name>" if path in (("networks",), ("studies",)) else str(key.value)
            place = (*path, its)
            if not node.flow_style or len(node.value) == 1:
                line, number = lines[key.start_mark.line], key.start_mark.line
                _, mark, behind = line.partition(" # ")
                above = []
                while number and lines[number - 1].strip().startswith("# "):
                    number -= 1
                    above.insert(0, lines[number].strip().removeprefix("# "))
                if said := behind.strip() if mark else " ".join(above):
                    found.setdefault(".".join(place), said)
            walk(value, place)

    root = yaml.compose(text)
    assert root
    walk(root, ())
    return found


def model_sections(schema: dict[str, Any], top: str, comments: dict[str, str]) -> str:
    """A section with a table for each model of a JSON schema, the outermost first."""
    places: dict[str, list[str]] = {}

    def references(part: Any, path: str) -> Iterator[tuple[str, str]]:
        if isinstance(part, dict):
            if "$ref" in part:
                yield part["$ref"].rpartition("/")[2], path
            for key, value in part.items():
                if key in ("items", "anyOf", "allOf"):
                    yield from references(value, path)
                elif key == "additionalProperties":
                    yield from references(value, f"{path}.<name>")
        elif isinstance(part, list):
            for value in part:
                yield from references(value, path)

    queue: list[tuple[dict[str, Any], str]] = [(schema, "")]
    while queue:
        model, prefix = queue.pop(0)
        others = {"<name>": model["additionalProperties"]} if model.get("additionalProperties") else {}
        for key, part in {**model.get("properties", {}), **others}.items():
            for name, place in references(part, f"{prefix}{key}"):
                if name not in places:
                    queue.append((schema["$defs"][name], f"{place}."))
                if place not in places.setdefault(name, []):
                    places[name].append(place)

    links = {
        name: f"[{code(where[0]) if len(where) == 1 else name.lower()}](#{name.lower()})"
        for name, where in places.items()
    }
    sections = []
    for name, model in [("", schema), *((name, schema["$defs"][name]) for name in places)]:
        rows = []
        required = model.get("required", ())
        for key, part in model["properties"].items():
            meaning = part.get("description", "")
            for place in [f"{place}.{key}" for place in places.get(name, [])] if name else [key]:
                meaning = meaning or comments.get(place, "")
            meaning = meaning or SHARED_KEYS.get(key, "")
            default = "required" if key in required else default_of(part)
            rows.append((code(key), schema_type(part, links), default, cell(meaning)))
        first, *others = map(code, places.get(name, [code(top)]))
        head = f"## {first} {{ #{name.lower()} }}\n\n" if name else f"## {top}\n\n"
        if others:
            head += f"The same keys: {', '.join(others)}.\n\n"
        words = " ".join(model.get("description", "").split()) if name else ""
        sections.append(head + (f"{cell(words)}\n\n" if words else ""))
        sections.append(markdown_table(("key", "value", "default", "meaning"), rows))
    return "".join(sections)


def default_of(part: dict[str, Any]) -> str:
    if "$ref" in part and "default" not in part:
        return "see there"
    if "default" not in part or part["default"] is None:
        return "none"
    if isinstance(part["default"], dict):  # a model of its own: its section has the defaults
        return "see there" if part["default"] else "none"
    return code(str(part["default"]).lower() if isinstance(part["default"], bool) else part["default"]) or "empty"


def configuration_page() -> str:
    text = (PROJECT / "config.yaml").read_text()
    introduction = text.partition("\nnetworks:")[0].rpartition("\n\n")[0]
    return (
        f"# Configuration\n\n{GENERATED}`config.yaml` describes the experiment."
        " Warpbook checks it before anything runs, and names an unknown key.\n"
        "Set a key for one command with `--config`:"
        " `snakemake --cores 1 report --config study=fa19 gpu=none`.\n\n"
        f"{model_sections(Config.model_json_schema(by_alias=True), 'Top level', yaml_comments(text))}"
        f"## The file's first part\n\nNetworks and studies follow it.\n\n```yaml\n{introduction}\n```\n"
    )


def header_page() -> str:
    quantities = ((code(name), cell(meaning)) for name, meaning in QUANTITIES.items())
    return (
        f"# Kernel header\n\n{GENERATED}Write these fields as YAML in the first comment of a kernel's file, or in"
        " `<name>.yaml` beside it.\nEvery field is optional, and an unknown field is refused.\n"
        "[Kernels](../guides/kernels.md) explains the common ones.\n\n"
        f"{model_sections(Header.model_json_schema(by_alias=True), 'Fields', {})}"
        f"## Quantities of a claim\n\nA claim is about one of these, or about a hardware counter under Nsight Compute's"
        f" name.\n\n{markdown_table(('quantity', 'meaning'), quantities)}"
    )


# --- Tables


def described(table: Table) -> str:
    notes = [f"Key: {', '.join(map(code, table.key))}."]
    if table not in tables.RUN_TABLES:
        notes.append("This table is no part of a run.")
    elif table.optional:
        notes.append("A run may lack this table.")
    rows = []
    for name, column in table.columns.items():
        meaning = cell(column.meaning) + (" (newer than the first runs: empty there)" if column.later else "")
        kind = column.dtype + ("" if column.range == ANY else f", {column.range}")
        rows.append((code(name), kind, meaning))
    return (
        f"## {table.name}\n\nEach row is {table.row}.\n{' '.join(notes)}\n\n"
        f"{markdown_table(('column', 'type', 'meaning'), rows)}"
    )


def tables_page() -> str:
    return (
        f"# Tables of a run\n\n{GENERATED}A run is a folder, `results/run/`, or a zip in `reports/runs/`."
        " It holds `run.json` and these CSV tables.\nThe unit ends the name of a column."
        " `Int64` is an integer that may be missing.\n\n"
        + "".join(map(described, tables.RUN_TABLES))
        + "".join(map(described, (tables.SUMMARIES, tables.STREAMS)))
    )


# --- Performance


def milliseconds(value: float) -> str:
    return f"{value:.{3 if value < 1 else 2 if value < 10 else 1}f}"


def newest_runs(device: str) -> dict[str, dict[str, Run]]:
    """By model of GPU or CPU, the newest first: the newest archived run that holds a network, or a study with cases of
    its own, by its name. CPUs are those of runs without a GPU."""
    newest: dict[str, dict[str, Run]] = {}
    runs = [catalog.open_run(path) for path in catalog.archived_paths(PROJECT / catalog.ARCHIVES)]
    for run in sorted(runs, key=lambda run: str(run.record["ended"])):
        if bool(run.gpu) == (device == "gpu"):
            newest.setdefault(run.device_name(device), {}).update(dict.fromkeys(run.record["networks"], run))
    return dict(reversed(newest.items()))


def runs_sentence(runs: dict[str, Run]) -> str:
    """Which runs hold the networks of a table, by name."""
    held: dict[tuple[str, str], list[str]] = {}
    for network, run in runs.items():
        held.setdefault((run.run_id, run.record["commit"]), []).append(network)
    lines = [f"- run `{run}`, commit `{commit}`: {', '.join(names)}\n" for (run, commit), names in held.items()]
    return "".join(lines) + "\n"


def best(times: pd.DataFrame) -> pd.Series | None:
    """The row of the least median; None where there is no row."""
    return None if times.empty else times.loc[times.median_ms.idxmin()]


LAYER_HEAD = ("layer", "our fastest", "ms", "library in FP32, ms", "library in TF32, ms", "speedup")


def layer_rows(
    run: Run, network: str, device: str, state: str, kind: str, images: int = IMAGES
) -> Iterator[tuple[str, ...]]:
    """Of each layer of a network at so many images: our fastest variant, the fastest library, and how they compare."""
    frame = run.table(tables.OP_TIMES)
    frame = frame[
        (frame.network == network)
        & (frame.device == device)
        & (frame.state == state)
        & (frame.kind == kind)
        & (frame.status == "ok")
    ]
    variants = run.record["variants"]
    libraries = [name for name, header in variants.items() if header["peer"]]
    for layer, all_sizes in frame[frame.layer != ""].groupby("layer"):
        times = all_sizes[all_sizes["size"] == images]
        ours = best(times[~times.variant.isin(libraries)])
        if ours is None:
            continue
        fastest = {}
        for precision in ("fp32", "tf32"):
            its = [name for name in libraries if variants[name]["precision"] == precision]
            fastest[precision] = best(times[times.variant.isin(its)])
        cells = (
            "-" if one is None else f"{milliseconds(one.median_ms)} ({code(one.variant)})" for one in fastest.values()
        )
        best_library = min((one.median_ms for one in fastest.values() if one is not None), default=None)
        speedup = "-" if best_library is None else f"{best_library / ours.median_ms:.3g}"
        yield f"{network} {layer}", code(ours.variant), with_interval(ours), *cells, speedup


def layer_table(runs: dict[str, Run], device: str, state: str, kind: str) -> tuple[dict[str, Run], str]:
    """Those of the networks whose layers have times, and a table of these."""
    rows = {network: list(layer_rows(run, network, device, state, kind)) for network, run in runs.items()}
    table = markdown_table(LAYER_HEAD, [row for its in rows.values() for row in its])
    return {network: run for network, run in runs.items() if rows[network]}, table


def with_interval(row: pd.Series) -> str:
    if pd.isna(row.ci_low_ms):
        return milliseconds(row.median_ms)
    return f"{milliseconds(row.median_ms)} ({milliseconds(row.ci_low_ms)} to {milliseconds(row.ci_high_ms)})"


def network_medians(run: Run, network: str) -> pd.DataFrame:
    """Median in ms of each kind of time of each implementation of a whole network, at the most images."""
    frame = run.table(tables.SAMPLES)
    frame = whole_network_rows(frame[frame.network == network])
    frame = frame[(frame["size"] == IMAGES) & (frame.status == "ok") & (frame.state == "cold") & ~frame.throttled]
    frame = frame[frame.job == frame.variant]
    return frame.groupby(["kind", "variant"]).time_ms.median().rename("median_ms").reset_index()


def network_rows(run: Run, network: str) -> Iterator[tuple[str, ...]]:
    """Of a whole network: our fastest implementation, PyTorch's, and the way from the host."""
    frameworks = [name for name, variant in whole_networks.discover().items() if variant.header.peer]
    times = network_medians(run, network)
    on_gpu, from_host = times[times.kind == "gpu"], times[times.kind == "host"]
    ours, peer = best(on_gpu[~on_gpu.variant.isin(frameworks)]), best(on_gpu[on_gpu.variant.isin(frameworks)])
    if ours is None or peer is None:
        return
    host, ratio = best(from_host[~from_host.variant.isin(frameworks)]), ""
    if host is not None:
        its = times[times.variant == host.variant].set_index("kind").median_ms
        ratio = f"{host.median_ms / max(its['copy'], its['gpu']):.2f}"
    yield (
        network, code(ours.variant), milliseconds(ours.median_ms), code(peer.variant), milliseconds(peer.median_ms),
        f"{peer.median_ms / ours.median_ms:.3g}", milliseconds(host.median_ms) if host is not None else "-",
        ratio or "-",
    )  # fmt: skip


def fallback_sentence(runs: dict[str, Run]) -> str:
    """What the kernels take that add up in FP32 what FP16 parts cannot hold, on the images of the data set."""
    spans = []
    for network, run in runs.items():
        frame = run.table(tables.ACTIVITIES)
        chosen = frame[(frame.network == network) & (frame.tool == "cupti") & (frame["size"] == IMAGES)]
        chosen = chosen[chosen.name.isin(FALLBACKS)]
        spans += [*(chosen.end_ns - chosen.start_ns)]
    if not spans:
        return ""
    longest_ms = max(spans) / 1e6
    return (
        "Inputs are random. On the images of the data set, kernels that split FP32 values into FP16 parts launch a"
        f" fallback kernel\nfor values below 2^-17 of an image's largest."
        f" It takes at most {milliseconds(longest_ms)} ms.\n\n"
    )


def stream_rows(run: Run) -> Iterator[tuple[str, ...]]:
    rows = list(streams.summarize_streams(run.table(tables.STREAM_SHARDS)))
    for row in [row for row in rows if row["images"] == max(other["images"] for other in rows)]:
        shares = [row["efficiency"], row["streaming_efficiency"]]
        yield (
            f"{row['images']:,}", str(row["devices"]), f"{row['images_per_s'] / 1e6:.2f}",
            f"{row['streaming_images_per_s'] / 1e6:.2f}",
            *("-" if one is None else f"{one * 100:.0f} %" for one in shares),
        )  # fmt: skip


def pairs_section(run: Run, device: str) -> str:
    """How often a verdict is false, and how small a difference is found; empty where a run did not look."""
    pairs, margin = run.table(tables.PAIRS), run.record["measuring"]["equivalence_margin"]
    judged = summaries.judge_pairs(pairs[pairs.device == device], margin)
    if not judged:
        return ""

    rows = [
        (
            one.what, str(one.n), *map(str, one.called.values()), units.percent_interval(one.false_share(margin)),
            units.percent_interval(one.found_share) if one.found_share else "-",
        )
        for one in judged
    ]  # fmt: skip
    head = ("kernels", "pairs", *judged[0].called, "false, %", "found, %")
    return (
        f"## Verdicts on known differences, {run.device_name(device)}\n\nRun `{run.run_id}`. False: a verdict that is not"
        f" true; `same` is true within {margin:.0%}. Found: called slower.\n\n{markdown_table(head, rows)}"
    )


def performance_page() -> str:
    parts = [
        f"# Performance\n\n{GENERATED}These times come from the newest archived run of each network on each model of GPU"
        f" and CPU. All are medians in ms for {IMAGES:,} images, with their 95 % interval where one is given.\n"
        "[How times are taken](explanation/timing.md) says what each kind of time includes.\n\n"
        "The tables show the fastest library at each precision."
        " A **speedup** is the faster library's time divided by ours: above 1, ours is faster.\n\n"
    ]
    networks = (
        "network", "our fastest", "ms", "fastest PyTorch", "ms", "speedup", "from the host, ms", "over its bound"
    )  # fmt: skip
    gpus = newest_runs("gpu")
    for model, runs in gpus.items():
        shown, table = layer_table(runs, "gpu", "cold", "gpu")
        parts.append(f"## {model}\n\n{runs_sentence(shown)}")
        parts.append(f"### Layers\n\nGPU time of the kernels; the L2 cache is flushed before each call.\n\n{table}")
        parts.append(fallback_sentence(shown))
        if whole := [row for network, run in shown.items() for row in network_rows(run, network)]:
            parts.append(
                "### Whole networks\n\nFrom images on the GPU to labels there. `From the host` starts with uint8 images"
                " in pinned memory and ends with labels there;\n`over its bound` divides that by the larger of the"
                " copies alone and the GPU time.\n\n"
            )
            parts.append(markdown_table(networks, whole))
    for model, runs in gpus.items():
        if run := runs.get("layers"):
            parts.append(f"## Layers of ResNet-18 and others, {model}\n\nRun `{run.run_id}`.\n\n")
            for images in run.record["networks"]["layers"]["sizes"][1:]:
                table = markdown_table(LAYER_HEAD, layer_rows(run, "layers", "gpu", "cold", "gpu", images))
                parts.append(f"At {images} images:\n\n{table}")
    for model, runs in newest_runs("cpu").items():
        shown, table = layer_table(runs, "cpu", "hot", "op")
        if shown:
            parts.append(f"## {model}\n\n{runs_sentence(shown)}")
            parts.append(f"### Layers on the CPU\n\nTime of the call, repeated on the same buffers.\n\n{table}")
    archived = [catalog.open_run(path) for path in catalog.archived_paths(PROJECT / catalog.ARCHIVES)]
    parts += [pairs_section(run, device) for run in archived for device in ("gpu", "cpu")]
    streamed = [run for run in archived if not run.table(tables.STREAM_SHARDS).empty]
    if streamed:
        run = streamed[-1]
        parts.append(
            f"## Streaming\n\nMillions of images a second through a whole network, on {run.device_name('gpu')};"
            f" run `{run.run_id}`.\nEfficiency compares with one GPU.\n\n"
        )
        head = ("images", "GPUs", "with start-up", "after start-up", "efficiency", "efficiency after start-up")
        parts.append(markdown_table(head, stream_rows(run)))
    return "".join(parts)


def gallery_page() -> str:
    """The reports of docs/gallery/: what each shows, its picture, its PDF where `make gallery` made it, its folder."""
    parts = [
        f"# Gallery\n\n{GENERATED}Six reports, each with the notebook folder that makes it."
        " GPU times come from archived runs: no report needs a GPU.\n\n"
    ]
    for folder in sorted(path for path in GALLERY.iterdir() if path.is_dir()):
        text = (folder / "README.md").read_text(encoding="utf-8").replace("# ", "## ", 1)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".md")
        listed = "\n".join(
            f"- [{path.relative_to(folder)}](gallery/{path.relative_to(GALLERY).as_posix()})" for path in files
        )
        pdf = f"[The PDF](gallery/{folder.name}.pdf). " if (GALLERY_PDFS / f"{folder.name}.pdf").exists() else ""
        parts.append(
            f"{text}\n![A page of the report](gallery/{folder.name}.png){{ width=480 }}\n\n"
            f"{pdf}The folder `docs/gallery/{folder.name}` holds:\n\n{listed}\n\n"
        )
    return "".join(parts)


def pages() -> dict[str, str]:
    """The generated pages by their place in the site."""
    return {
        "reference/commands.md": commands_page(),
        "reference/targets.md": targets_page(),
        "reference/configuration.md": configuration_page(),
        "reference/kernel-header.md": header_page(),
        "reference/tables.md": tables_page(),
        "performance.md": performance_page(),
        "gallery.md": gallery_page(),
    }


if __name__ == "<run_path>":  # by mkdocs-gen-files
    import mkdocs_gen_files

    for name, text in pages().items():
        with mkdocs_gen_files.open(name, "w") as page:
            page.write(text)
    for pdf in GALLERY_PDFS.glob("*.pdf"):
        with mkdocs_gen_files.open(f"gallery/{pdf.name}", "wb") as copy:
            copy.write(pdf.read_bytes())
    with mkdocs_gen_files.open("page.png", "wb") as picture:  # the README's
        picture.write((PROJECT / "reports" / "page.png").read_bytes())
