"""The plan of a command: what it measures, and where its GPU figures come from. Made before any job runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal

from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import LIBRARY, PROJECT
from warpbook.config.settings import Config, Study, Target, load
from warpbook.kernels import ece408, variants, whole_networks
from warpbook.kernels.variants import Variant, full_name
from warpbook.kernels.whole_networks import Implementation
from warpbook.machine import available_profilers, cuda_devices
from warpbook.machine.cuda_devices import Device
from warpbook.problems import image_files, networks, weights
from warpbook.runs import catalog
from warpbook.runs.catalog import Run
from warpbook.workflow.streams import Stream


@dataclass(frozen=True)
class GpuSource:
    """Where a study's GPU figures come from: `live` here, an `archived` run, or nowhere; and a sentence why."""

    device: Device | None
    archived: Run | None
    why: str
    refused: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """The studies of a command, their variants, and the device in hand."""

    config: Config
    variants: dict[str, Variant]
    device_or_reason: Device | str
    remote_target: Target | None = None
    """What is promised of the nodes that measure, in full."""
    other_devices: tuple[Device, ...] = ()
    """Devices that are visible here besides the one in hand."""

    @property
    def device(self) -> Device | None:
        """The CUDA device to measure on; None where none answers or the configuration does not want one."""
        wanted = self.config.gpu in ("auto", "live")
        return self.device_or_reason if wanted and isinstance(self.device_or_reason, Device) else None

    @cached_property
    def gpus(self) -> int:
        """How many GPUs of a host share its jobs. UserError where fewer of one model are visible, or unknown."""
        if not self.device:
            return 1
        if not self.remote_target:
            return len(cuda_devices.select_alike([self.device, *self.other_devices], self.config.gpus))
        if not isinstance(self.config.gpus, int):
            raise UserError("gpus: all counts the devices here, and target promises those of others: say how many "
                            "(gpus: 4)")  # fmt: skip
        return self.config.gpus

    @property
    def devices(self) -> list[str]:
        """What is measured on here: cpu, gpu or both."""
        return [*(["cpu"] if self.config.cpu == "live" else []), *(["gpu"] if self.device else [])]

    def identity(self, device: str) -> str:
        """The model of GPU that the parts of a run depend on, whichever node has it; empty for the CPU."""
        return self.device.model if self.device and device == "gpu" else ""

    @cached_property
    def architectures(self) -> list[str]:
        """Architectures to build for: those configured, and that of the device in hand."""
        in_hand = [self.device.arch] if self.device and self.device.arch not in self.config.architectures else []
        return [*self.config.architectures, *in_hand]

    @property
    def case_sets(self) -> list[str]:
        """What the cases of the chosen studies go by, each once: networks, and studies of other problems."""
        return list(dict.fromkeys(map(self.config.case_set_name, self.config.chosen_studies)))

    @property
    def networks(self) -> list[str]:
        """Networks of the chosen studies, each once."""
        return [name for name in self.case_sets if name in self.config.networks]

    def studies_with_cases(self, cases: str) -> list[Study]:
        """All studies, chosen or not, that use a set of cases."""
        return [study for name, study in self.config.studies.items() if self.config.case_set_name(name) == cases]

    @cached_property
    def profilers(self) -> list[str]:
        """Profilers that watch programs: those that the configuration wants and the measuring machine has."""
        wanted = list(available_profilers.NAMES) if self.config.profilers == "auto" else self.config.profilers
        if self.remote_target:
            return [tool for tool in wanted if self.device and tool in (self.remote_target.profilers or ())]
        return [tool for tool in wanted if self.device and not available_profilers.missing_reason(tool, self.device)]

    def sizes(self, cases: str) -> list[int]:
        """Sizes that any study wants of a set of cases, chosen or not: studies of one share what is measured."""
        return sorted({size for study in self.studies_with_cases(cases) for size in study.sizes})

    def problem_variants(self, cases: str) -> dict[str, Variant]:
        """Variants of the problem that a set of cases belongs to."""
        problem = self.config.case_set(cases).problem
        return {name: one for name, one in self.variants.items() if one.problem.name == problem.name}

    def problem_baseline(self, variant: str) -> str:
        """The baseline of a variant's problem, by its full name."""
        problem = self.variants[variant].problem
        return full_name(problem, problem.facts.baseline)

    def cases_for(self, variant: str) -> str:
        """The first of the chosen studies' sets of cases that a variant computes."""
        return next((cases for cases in self.case_sets if variant in self.problem_variants(cases)), "")

    def variants_for(self, network: str, device: str) -> list[str]:
        """Variants of a device that any chosen study wants of cases, baselines first."""
        wanted: set[str] = set()
        for name, study in self.config.chosen_studies.items():
            if self.config.case_set_name(name) == network:
                wanted.update(study.variants or self.computing(network))
        return [name for name in self.with_baselines(wanted) if self.variants[name].device == device]

    def computing(self, network: str) -> list[str]:
        """Variants of the problem that are for a set's cases: one for every case within its limits is left out where those
        exclude the whole set. Any other stays, and says what excludes it."""
        cases = [case.at(self.sizes(network)[0]) for case in self.config.case_set(network).cases]
        return [
            name
            for name, one in self.problem_variants(network).items()
            if not one.header.every_case or one.read_error or one.missing or not all(map(one.unsupported, cases))
        ]

    def course_files(self, network: str) -> list[str]:
        """Files of the course that compute a network's layers, whether or not a study lists them."""
        layers = self.config.case_set(network).cases
        return [
            name
            for name, one in self.problem_variants(network).items()
            if one.course and not all(one.unsupported(layer.at(ece408.BATCH)) for layer in layers)
        ]

    def with_baselines(self, names: Iterable[str]) -> list[str]:
        """These variants and all that they build on, baselines first: a comparison needs a checked baseline."""
        wanted = set(names)
        for name in reversed(self.variants):
            if name in wanted and self.variants[name].header.builds_on in self.variants:
                wanted.add(self.variants[name].header.builds_on)
        return [name for name in self.variants if name in wanted]

    def checked_only(self, network: str) -> list[str]:
        """GPU variants that no chosen study wants of a set of cases."""
        wanted = self.variants_for(network, "gpu")
        return [
            name
            for name, variant in self.problem_variants(network).items()
            if variant.device == "gpu" and name not in wanted
        ]

    @property
    def variants_to_build(self) -> list[str]:
        """Variants to build of the chosen studies' problems: with kernels in CUDA C++ or another language, for the GPU and
        with files that could not be read, or with C++ where the CPU is measured on."""
        wanted = {name for cases in self.case_sets for name in self.problem_variants(cases)}
        return [
            name
            for name, variant in self.variants.items()
            if name in wanted
            and (
                variant.cuda_source
                or variant.language
                or (variant.read_error and variant.device == "gpu")
                or (variant.cpp_source and "cpu" in self.devices)
            )
        ]

    def program_sizes(self, network: str, variant: str) -> list[int]:
        """Sizes at which the whole program is run and profiled: all for starting points, the largest for frameworks and
        for what the network's studies name or, naming nothing, for all that they compare; else none. A file of the course is
        a layer's host code, and no part of our program."""
        sizes, header = self.sizes(network), self.variants[variant].header
        if self.variants[variant].course:
            return []
        if not header.builds_on:
            return sizes
        if network not in self.config.networks:
            return []
        named = any(self._names_program(study, variant) for study in self.studies_with_cases(network))
        return sizes[-1:] if named or self.is_framework(variant) or header.device == "cpu" else []

    def _names_program(self, study: Study, variant: str) -> bool:
        if study.programs is not None:
            return variant in study.programs
        return study.variants is None or variant in self.with_baselines(study.variants)

    def is_framework(self, variant: str) -> bool:
        """Whether a variant is a library, and not another setting of a library that it builds on."""
        header = self.variants[variant].header
        below = self.variants.get(header.builds_on)
        return header.peer and not (below and below.header.peer)

    def repeats_programs(self, variant: str) -> bool:
        """Whether the whole program is run several times (on a GPU at the largest size), as for starting points and
        frameworks. The program of an optimization differs from its baseline's in op times alone, which have samples."""
        return not self.variants[variant].header.builds_on or self.is_framework(variant)

    def profile_sizes(self, tool: str, network: str, variant: str) -> list[int]:
        """Sizes at which a profiler watches the program: all that it is run at, and those at which a study draws it.
        Nsight Systems watches the largest alone and, beside CUPTI, only starting points, frameworks and submissions."""
        sizes = self.program_sizes(network, variant)
        if tool == "nsys":
            wanted = (
                "cupti" not in self.profilers
                or variant in self._submission_variants(network)
                or self.repeats_programs(variant)
            )
            return sizes[-1:] if wanted else []
        if not sizes:
            return []
        drawn = [study.timeline for study in self.studies_with_cases(network) if study.timeline]
        also = {one.size for one in drawn if variant in self.with_baselines([one.variant])}
        return sorted({*sizes, *also})

    def profile_weights(self, tool: str, network: str, variant: str) -> list[str]:
        """Weight sets besides the first with which the program of a starting point, or of what a study shows as its
        submission, is watched at the largest size."""
        wanted = variant in self._submission_variants(network) or not self.variants[variant].header.builds_on
        return self.weight_sets(network)[1:] if wanted and tool != "nsys" else []

    def _submission_variants(self, network: str) -> set[str]:
        """Variants whose programs a study of a network shows as its submission."""
        return {name for study in self.studies_with_cases(network) for name in study.show_profile_of}

    def weight_sets(self, network: str) -> list[str]:
        """Weight sets of a network that are here; none of cases without a network."""
        return weights.available_sets(self.config.network(network)) if network in self.config.networks else []

    @cached_property
    def implementations(self) -> dict[str, Implementation]:
        """Implementations of whole networks by name; none where no chosen network's weights are here."""
        return whole_networks.discover() if any(map(self.weight_sets, self.networks)) else {}

    @cached_property
    def gpu_sources(self) -> dict[str, GpuSource]:
        """Where each chosen study's GPU figures come from. UserError where a demanded device or run is not there."""
        return {name: self._gpu_source(name, study) for name, study in self.config.chosen_studies.items()}

    def _gpu_source(self, name: str, study: Study) -> GpuSource:
        gpu, cases = self.config.gpu, self.config.case_set_name(name)
        if gpu == "none":
            return GpuSource(None, None, "the configuration asks for no GPU times (gpu: none)")
        if gpu in ("auto", "live"):
            if isinstance(self.device_or_reason, Device):
                whose = "the measuring nodes'" if self.remote_target else "this machine's"
                return GpuSource(self.device_or_reason, None, f"{whose} {self.device_or_reason.name}")
            if gpu == "live":
                raise UserError(f"gpu: live needs a CUDA device, and none is here: {self.device_or_reason}")
            no_gpu = f"there is no GPU here ({self.device_or_reason})"
            if study.course:
                timed_where = "files of a submission are timed only on the machine that makes its report"
                return GpuSource(None, None, f"{no_gpu}, and {timed_where}")
            run, refused = catalog.find_newest(cases)
            newest = f"the newest archived run of {cases}, for {no_gpu}"
            return GpuSource(None, run, newest if run else f"{no_gpu}, and no archived run holds {cases}", refused)
        found = catalog.find_archived(gpu, "gpu", words=("auto", "live", "none"))
        try:
            run = found.check_all()
        except UserError as error:
            raise UserError(f"gpu: {error}") from error
        if cases not in run.record["networks"]:
            held = ", ".join(run.record["networks"])
            raise UserError(f"gpu: the archived run {gpu} holds {held}, not {cases}")
        return GpuSource(None, run, "the archived run that the configuration names")

    def checked_in_archive(self, cases: str) -> set[str]:
        """Variants that stand here as they were when the archived runs that the chosen studies of these cases cite
        found their results right on a GPU."""
        shapes, known = self.config.case_set(cases).shapes_sha256, {*self.variants}
        for study, source in self.gpu_sources.items():
            if self.config.case_set_name(study) != cases:
                continue
            run = source.archived
            if run is None:
                return set()
            ours = (self.variants[name] for name in known & run.right_on_gpu(cases))
            known = {one.name for one in ours if not run.another_source(one.name, one.source_sha256, cases, shapes)}
        return known

    @cached_property
    def built_in_archive(self) -> set[str]:
        """Variants that stand here as each archived run that the chosen studies cite built them."""
        cited = [source.archived for source in self.gpu_sources.values()]
        runs = {run.path: run for run in cited if run}  # one for all studies that cite it
        wanted = {
            name: [arch for arch in self.architectures if one.supports_arch(arch)]
            for name, one in self.variants.items()
            if all(cited) and one.device == "gpu"  # a study that cites none has its builds from here
        }
        return {
            name
            for name, archs in wanted.items()
            if archs and all(run.built(name, self.variants[name].source_sha256, archs) for run in runs.values())
        }

    @property
    def stream(self) -> Stream:
        """What `stream` infers, on the first chosen study's network; with its problem where there is one."""
        of_none = "" if self.networks else f"the study {self.config.study} is of no network; choose one: study=fa18"
        wanted, network = self.config.stream, self.config.network((self.networks or list(self.config.networks))[0])
        device: Literal["cpu", "gpu"] = "gpu" if self.device else "cpu"
        name = wanted.variants.get(device, "")
        variant, sets = self.variants.get(name), self.weight_sets(network.name)
        where = f"stream.variants.{device} in config.yaml"
        problems = [
            of_none,
            ""
            if variant
            else f"{where} names no variant; say which: --config stream='{{variants: {{{device}: <name>}}}}'",
            variant.read_error if variant else "",
            f"{where}: {name} runs on the {variant.device}" if variant and variant.device != device else "",
            f"{network.name} has images of its own, and a stream repeats Fashion-MNIST's; choose another study"
            if network.input.data
            else "",
            "" if sets else f"{network.name} has no weights here, and so labels nothing (docs/guides/networks.md)",
        ]
        return Stream(
            network=network,
            weights=sets[0] if sets else "",
            variant=name,
            device=device,
            images=wanted.images,
            shards=min(wanted.images, self.gpus if wanted.shards == "auto" else wanted.shards),
            workers=self.gpus,
            problem=next(filter(None, problems), ""),
        )


def from_config(values: Mapping[str, Any]) -> Plan:
    """The plan for a configuration's values, which are checked against the variants that are here."""
    known = variants.discover()
    config = load(values, list(known))
    for name, study in config.chosen_studies.items():
        if study.network and config.networks[study.network].input.data:
            images, _ = image_files.read(config.network(study.network))
            if study.sizes[-1] > len(images):
                place = f"studies.{name}.sizes.{len(study.sizes) - 1}"
                raise UserError(
                    f"config.yaml:\n  {place}: {study.sizes[-1]} is outside 1 to {len(images)}, the images of "
                    f"{study.network}"
                )
    return _with_wanted_variants(build(config, known), list(known))


def _with_wanted_variants(every: Plan, known: list[str]) -> Plan:
    """A plan with the project's variants and, of the library's, those that its studies name and what all these build
    on. A study that names none is about the project's variants of its problem; about the library's too where the
    project has none or leaves a study of the library's as it is, unless it is of a submission."""
    if LIBRARY == PROJECT:
        return every
    library = cache(lambda: load(networks.library_configuration(), known).studies)
    wanted = {name for name, one in every.variants.items() if one.own}
    for name, study in every.config.chosen_studies.items():
        built_in = set() if study.course else set(every.problem_variants(every.config.case_set_name(name)))
        timeline = [study.timeline.variant] if study.timeline else []
        alone = not study.variants and built_in & wanted and study != library().get(name)
        wanted.update(study.variants or (set() if alone else built_in), study.programs or (), timeline)
        wanted.update(study.show_profile_of, filter(None, [study.first_kernel]))
    wanted.update(every.config.stream.variants.values())
    return replace(every, variants={name: every.variants[name] for name in every.with_baselines(wanted)})


def build(config: Config, known: dict[str, Variant] | None = None) -> Plan:
    """The plan for a configuration: on this machine's device, or `target`'s. `known`: the variants, if discovered."""
    known = variants.discover() if known is None else known
    if config.target is None:
        found = cuda_devices.visible_devices()
        if isinstance(found, str):
            return Plan(config, known, found)
        return Plan(config, known, found[0], other_devices=tuple(found[1:]))
    promised = _remote_target(config.target)
    device = Device(promised.name or f"GPU of {promised.arch}", promised.arch, "", "")
    return Plan(config, known, device, promised)


def _remote_target(target: Target) -> Target:
    """A target in full. What it leaves out is that of the newest archived run on a GPU of its name."""
    if target.arch:
        return target.model_copy(update={"profilers": target.profilers or ["cupti"]})
    known = {run.gpu["name"]: run for run in catalog.gpu_runs() if run.gpu}
    if target.name not in known:
        raise UserError(
            f"target: no archived run is of a GPU called {target.name!r}: {nearest_name(target.name, [*known])}"
        )
    machine = known[target.name].record["machine"]
    had = [tool for tool, said in machine.get("profilers", {}).items() if not said.get("missing")]
    return Target.model_construct(
        name=target.name,
        arch=machine["gpu"]["arch"],
        memory_gib=target.memory_gib or machine["gpu"].get("memory_bytes", 0) / 2**30,
        profilers=had if target.profilers is None else target.profilers,
    )
