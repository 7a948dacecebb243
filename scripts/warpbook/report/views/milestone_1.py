"""The first milestone: what frameworks make of the same network, before any code of ours."""

from warpbook.common import units
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import API_KINDS, GPU_KINDS, Evidence, ProfileRow, first_rows_covering
from warpbook.report.views.components import HtmlTable, View, words
from warpbook.report.views.profile_tables import (
    PROGRAM_HEAD,
    median_output,
    profile_table,
    program_cells,
    share,
    total_ns,
)

DEVICES = {"cpu": "CPU", "gpu": "GPU"}


def milestone_1_view(ev: Evidence) -> View:
    """The frameworks' programs of a study, and the profile of that on the GPU."""
    frameworks = {device: ev.programs.framework(device) for device in DEVICES}
    problem = _problem(ev, frameworks["gpu"])
    programs = tuple(_program(ev, device, framework) for device, framework in frameworks.items())
    return View(
        where=units.join_all([f"on the {name}" for device, name in DEVICES.items() if not ev.missing_reason(device)]),
        programs=programs,
        times=_times(ev, [framework for framework in frameworks.values() if framework]),
        compared=compared_programs(ev),
        half=_half(programs),
        profiled=_framework_profiles(ev, frameworks["gpu"]) if frameworks["gpu"] and not problem else None,
        problem=problem,
    )


def compared_programs(ev: Evidence) -> str:
    """How the frameworks' programs compare, and what the GPU's spends its time on; empty where one was not run."""
    cpu, gpu = map(ev.programs.framework, DEVICES)
    if cpu is None or gpu is None:
        return ""
    on_cpu, on_gpu = (ev.programs.runs(one.name, ev.largest).elapsed_s for one in (cpu, gpu))
    cpu_s, gpu_s = float(on_cpu.median()), float(on_gpu.median())
    if on_cpu.max() < on_gpu.min():
        words = f"The program on the GPU takes {units.significant(gpu_s / cpu_s, 2)} times as long as that on the CPU."
    elif on_gpu.max() < on_cpu.min():
        words = f"The program on the GPU is {units.significant(cpu_s / gpu_s, 2)} times as fast as that on the CPU."
    else:
        words = "The ranges of the program's times on GPU and CPU overlap."
    calls_s, device_s = (
        total_ns(ev.profiles.rows(gpu.name, ev.largest, kinds)) / 1e9 for kinds in (API_KINDS, GPU_KINDS)
    )
    if calls_s and device_s:
        words += (
            f" Of its {units.seconds(gpu_s)}\u202fs, API calls take {units.seconds(calls_s)}\u202fs and the device works "
            f"for {units.seconds(device_s)}\u202fs; calls and device overlap."
        )
    return words


def _program(ev: Evidence, device: str, framework: Variant | None) -> View:
    name = DEVICES[device]
    peers = [one.name for one in ev.compared_variants(device) if one.header.peer]
    why = dict.fromkeys(reason for one in peers for reason in ev.problems.for_variant(one).reason)
    lacking = f"no framework's program on the {name} has a valid time{': ' * bool(why)}{'; '.join(why)}"
    missing = "" if framework else ev.missing_reason(device) or lacking
    return View(
        device=device,
        name=name,
        hardware=ev.device_name(device),
        title=framework.title if framework else "",
        output=median_output(ev, framework, ev.largest) if framework else "",
        missing=missing,
    )


def _half(programs: tuple[View, ...]) -> View | None:
    """The device with times, the one without, and why; None where both have some, or neither."""
    there, lacking = ([one for one in programs if bool(one.missing) is missing] for missing in (False, True))
    return View(shown=there[0].name, lacking=lacking[0].name, why=lacking[0].missing) if there and lacking else None


def _times(ev: Evidence, frameworks: list[Variant]) -> HtmlTable | None:
    rows = tuple(
        (one.name, ev.device_name(one.device), *program_cells(ev.programs.runs(one.name, ev.largest)))
        for one in frameworks
    )
    if not rows:
        return None
    return HtmlTable(
        "m1-programs",
        f"The whole inference program with a framework, {units.count(ev.largest)} images, in GNU time's terms: medians of the "
        "runs. The elapsed time has its 95 % interval, or both times of two runs.",
        (*words("Framework", "Device"), *PROGRAM_HEAD),
        rows,
    )


def _problem(ev: Evidence, framework: Variant | None) -> str:
    if framework:
        return ev.profiles.problem(framework.name, ev.largest)
    return "no framework ran on the GPU" if ev.gpu_run else ev.source.why


def _framework_profiles(ev: Evidence, framework: Variant) -> View:
    kernels = ev.profiles.rows(framework.name, ev.largest, GPU_KINDS)
    calls = ev.profiles.rows(framework.name, ev.largest, API_KINDS)
    elapsed_s = float(ev.programs.runs(framework.name, ev.largest).elapsed_s.median())
    return View(
        framework=framework.name,
        peer=framework.header.peer,
        elapsed=units.seconds(elapsed_s),
        busy_share=units.percent(total_ns(kernels) / 1e9 / elapsed_s),
        kernels=_profile(
            kernels,
            "m1-kernel-table",
            "Kernels and copies of the framework's program, longest first, until 90 % of the GPU time is covered. "
            "Share: of the GPU time (kernels, copies, memsets) and of the whole program's elapsed time. "
            f"CUPTI, {ev.device_name('gpu')}.",
            "GPU time",
            elapsed_s,
        ),
        calls=_profile(
            calls,
            "m1-api-table",
            "API calls of the framework's program, longest first, until 90 % of the API time is covered. Share: of the "
            "time inside API calls and of the whole program's elapsed time.",
            "API time",
            elapsed_s,
        ),
    )


def _profile(rows: list[ProfileRow], id: str, caption: str, whole: str, elapsed_s: float) -> View:
    most = first_rows_covering(rows)
    return View(
        sum=units.time(total_ns(rows) / 1e6),
        shown=len(most),
        names=len(rows),
        shown_share=share(most),
        longest=rows[0].name if rows else "",
        table=profile_table(id, caption, most, whole, elapsed_s),
    )
