"""The files that a plan's commands make, and the files that each is made from."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from warpbook.common.files import both_folders, from_project
from warpbook.kernels import whole_networks
from warpbook.kernels.variants import Variant
from warpbook.machine import available_profilers
from warpbook.problems import image_files, weights
from warpbook.runs.run_parts import PARTS, WHOLE
from warpbook.workflow import streams
from warpbook.workflow.optional_measurements import OPTIONAL_PARTS
from warpbook.workflow.plan import Plan


@dataclass(frozen=True)
class WholeNetworks:
    """Files about implementations of whole networks on a GPU, of those networks whose weights are here."""

    plan: Plan

    @property
    def _networks(self) -> list[str]:
        return [network for network in self.plan.networks if self.plan.weight_sets(network)]

    @property
    def parts(self) -> list[str]:
        """Samples and checks of each, made by one job."""
        places = [f"gpu/{network}/{WHOLE}{name}" for network in self._networks for name in whole_networks.names()]
        kinds = (("samples", ".csv.gz"), ("correctness", ".csv"))
        return [f"{PARTS}/{kind}/{place}{ending}" for place in places for kind, ending in kinds]

    @property
    def counters(self) -> list[str]:
        """Hardware counters of ours, where a profiler that reads them is here."""
        ours = [name for name, one in self.plan.implementations.items() if not one.header.peer]
        networks = self._networks if "ncu" in self.plan.profilers else []
        return [f"{PARTS}/counters/gpu/{network}/{WHOLE}{name}.csv" for network in networks for name in ours]

    def sources(self, name: str) -> list[str]:
        """Files of an implementation."""
        return [from_project(path) for path in whole_networks.read(name).files]

    def files_for(self, name: str) -> list[str]:
        """Files of an implementation and of its baselines: its samples are interleaved with those of one of them."""
        every = [name, *(one.name for one in whole_networks.read(name).baselines)]
        return [file for one in every for file in self.sources(one)]

    def scores(self, network: str) -> str:
        """The float64 scores of a network's first weight set."""
        return f"results/data/{network}-{self.plan.weight_sets(network)[0]}.scores.npy"


@dataclass(frozen=True)
class Targets:
    """Paths from the project's folder, as Snakemake's rules name them. A place is `network/variant`."""

    plan: Plan

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU is measured on here."""
        return "gpu" in self.plan.devices

    def places(self, device: str, programs: bool = False) -> list[str]:
        """Places of a device that this command measures; for `programs`, those with weights, to run whole programs."""
        return [
            f"{network}/{variant}"
            for network in self.plan.case_sets
            if self.plan.weight_sets(network) or not programs
            for variant in self.plan.variants_for(network, device)
            if self.plan.program_sizes(network, variant) or not programs
        ]

    def _parts(self, kind: str, ending: str, programs: bool = False) -> list[str]:
        """One kind of part at every place that is measured here."""
        return [
            f"{PARTS}/{kind}/{device}/{place}{ending}"
            for device in self.plan.devices
            for place in self.places(device, programs)
        ]

    @property
    def builds(self) -> list[str]:
        return [f"results/builds/{variant}" for variant in self.plan.variants_to_build]

    @property
    def builds_of_run(self) -> list[str]:
        """Those that the report finds in no archived run that it cites."""
        known = set() if self.on_gpu else self.plan.built_in_archive
        return [f"results/builds/{variant}" for variant in self.plan.variants_to_build if variant not in known]

    @property
    def samples(self) -> list[str]:
        """Times of each variant, and of files of the course, listed or not, on the networks that have their layers."""
        files = [
            f"{PARTS}/samples/gpu/{network}/{variant}.csv.gz"
            for network in (self.plan.networks if self.on_gpu else [])
            for variant in self.plan.course_files(network)
        ]
        of_course = {name for name, one in self.plan.variants.items() if one.course}
        called = [
            f"{PARTS}/samples/{device}/{place}.csv.gz"
            for device in self.plan.devices
            for place in self.places(device)
            if place.split("/", 1)[1] not in of_course
        ]
        return [*called, *files]

    @property
    def programs(self) -> list[str]:
        return self._parts("programs", ".csv", programs=True)

    @cached_property
    def parts(self) -> list[str]:
        """All that a run's tables are put together from but the builds. What the run cited for a GPU's figures found
        right on a GPU is not emulated for it."""
        traced = [*self.activities, *self.profile_sums, *self.profiles]
        whole = WholeNetworks(self.plan).parts if self.on_gpu else []
        timed = [*self.samples, *self.programs, *whole]
        known = set() if self.on_gpu else {
            f"{PARTS}/correctness/emulator/{cases}/{name}.csv"
            for cases in self.plan.case_sets
            for name in self.plan.checked_in_archive(cases)
        }  # fmt: skip
        checks = [path for path in self.checks if path not in known]
        return [*checks, *timed, *self.optional_parts, *self.counters, *traced, *streams.gather_tables()]

    @cached_property
    def checks(self) -> list[str]:
        """Correctness: on a GPU of each variant on each network; emulated, of what studies compare and the course's."""
        measured = self._parts("correctness", ".csv")
        if self.on_gpu:
            others = [
                f"gpu/{network}/{name}" for network in self.plan.case_sets for name in self.plan.checked_only(network)
            ]
            files = [name for name, variant in self.plan.variants.items() if variant.course]
            others += [f"emulator/{network}/{name}" for network in self.plan.networks for name in files]
        else:
            others = [
                f"emulator/{network}/{name}"
                for network in self.plan.case_sets
                for name in dict.fromkeys([*self.plan.variants_for(network, "gpu"), *self.plan.course_files(network)])
                if self.plan.variants[name].cuda_source or self.plan.variants[name].language
            ]
        return [*measured, *(f"{PARTS}/correctness/{place}.csv" for place in others)]

    @property
    def optional_parts(self) -> list[str]:
        """Files of the optional measurements that the configuration asks for, and that can be made here."""
        names = [name for name in self.plan.config.optional_measurements if self.on_gpu or name == "pairs"]
        return [path for name in names for path in OPTIONAL_PARTS[name](self.plan)]

    @property
    def sanitizer(self) -> list[str]:
        """What compute-sanitizer says of every variant and of whole networks of ours, asked for or not."""
        return OPTIONAL_PARTS["sanitizer"](self.plan)

    @cached_property
    def _profiled_places(self) -> list[str]:
        return self.places("gpu", programs=True) if self.on_gpu else []

    @cached_property
    def _traced_places(self) -> list[str]:
        """`tool/gpu/place` for every program that a tracing profiler watches."""
        tools = [tool for tool in available_profilers.TRACERS if tool in self.plan.profilers]
        return [
            f"{tool}/gpu/{place}"
            for tool in tools
            for place in self._profiled_places
            if self._watches(tool, *place.split("/", 1))
        ]

    def _watches(self, tool: str, network: str, variant: str) -> bool:
        return bool(self.plan.profile_sizes(tool, network, variant))

    @cached_property
    def _counted_places(self) -> list[str]:
        return self.places("gpu") if "ncu" in self.plan.profilers and self.on_gpu else []

    @property
    def counters(self) -> list[str]:
        whole = WholeNetworks(self.plan).counters if self.on_gpu else []
        return [*(f"{PARTS}/counters/gpu/{place}.csv" for place in self._counted_places), *whole]

    @property
    def activities(self) -> list[str]:
        return [f"{PARTS}/activities/{traced}.csv.gz" for traced in self._traced_places]

    @property
    def profile_sums(self) -> list[str]:
        return [f"{PARTS}/profile_summaries/{traced}.csv" for traced in self._traced_places]

    @property
    def profiles(self) -> list[str]:
        return [f"{PARTS}/profiles/{traced}.csv" for traced in self._traced_places]

    @property
    def reports(self) -> list[str]:
        """Folders of the profilers' files."""
        return [
            f"{PARTS}/reports/{traced}"
            for traced in [*self._traced_places, *(f"ncu/gpu/{it}" for it in self._counted_places)]
        ]

    def sources(self, variant: str) -> list[str]:
        """Source files of a variant."""
        return [from_project(path) for path in self.plan.variants[variant].files]

    def problem(self, variant: str) -> str:
        """The file that says what results of a variant are right."""
        return from_project(self.plan.variants[variant].problem.path)

    def files_for(self, variant: str) -> list[str]:
        """What a variant's measurement is made from: its source files, and its builds where it is compiled."""
        known = self.plan.variants[variant]
        built = (known.cuda_source or known.cpp_source) and known.device in self.plan.devices
        return [*self.sources(variant), *([f"results/builds/{variant}"] if built else [])]

    def _baseline(self, variant: str) -> Variant | None:
        """The variant that one builds on; None where it builds on none or cannot be read itself."""
        known = self.plan.variants[variant]
        return None if known.read_error else self.plan.variants.get(known.header.builds_on)

    def baseline_files(self, variant: str) -> list[str]:
        """Files of a variant's baseline, which is timed in turn with it."""
        baseline = self._baseline(variant)
        return self.files_for(baseline.name) if baseline else []

    def baseline_check(self, device: str, network: str, variant: str) -> list[str]:
        """The correctness of a variant's baseline."""
        baseline = self._baseline(variant)
        return [f"{PARTS}/correctness/{device}/{network}/{baseline.name}.csv"] if baseline else []

    def baseline_profile(self, tool: str, network: str, variant: str) -> list[str]:
        """The profiles of a variant's baseline, where its program is profiled too."""
        baseline = self._baseline(variant)
        watched = baseline and self._watches(tool, network, baseline.name)
        return [f"{PARTS}/profiles/{tool}/gpu/{network}/{baseline.name}.csv"] if baseline and watched else []

    def images(self, network: str, device: str) -> list[str]:
        """The data set as a network takes it; a workload takes random numbers, and so does the emulator."""
        labelled = device != "emulator" and self.plan.config.case_set(network).has_labels
        return [f"results/data/{network}.npz"] if labelled else []

    def labels(self, network: str, device: str) -> list[str]:
        """Reference labels of a network's first weight set, where its weights are here and images are labelled."""
        sets = self.plan.weight_sets(network) if device != "emulator" else []
        return [f"results/data/{network}-{sets[0]}.labels.npy"] if sets else []

    def weights(self, network: str, weight_set: str) -> str:
        """The file of a weight set."""
        path = weights.weights_path(self.plan.config.network(network), weight_set)
        return from_project(path)

    def image_files(self, network: str) -> list[str]:
        """The files of a network's own images and labels."""
        return list(map(str, image_files.paths(self.plan.config.network(network))))

    def imported_files(self, study: str) -> list[str]:
        """Files of the profiles that were imported for a study."""
        return sorted(map(str, Path("results/imported", study).glob("*/*")))

    @cached_property
    def templates(self) -> list[str]:
        """What a report is rendered with besides code: templates, styles, narratives, published figures."""
        words = ("narrative/*.md", "published/*.csv", "answers/*.*", "answers/*/*.*")
        endings = ("*.j2", "*/*.j2", "style/*", "*.js", "panzoom/*", *words)
        files = (path for folder in both_folders("reports") for ending in endings for path in folder.glob(ending))
        return sorted(from_project(path) for path in files if not path.name.startswith(("compare.", "site.")))


def site_templates() -> list[str]:
    """What the pages over archived runs are rendered with besides code."""
    kinds = ("site.*", "macros.html.j2", "style/*", "fonts/*", "*.js")
    return sorted(
        from_project(path) for folder in both_folders("reports") for kind in kinds for path in folder.glob(kind)
    )


def rendered_reports() -> dict[str, int]:
    """When each report that is there was rendered, ns."""
    reports = sorted(Path("reports/out").glob("*.*"))
    return {path.name: path.stat().st_mtime_ns for path in reports if path.suffix in (".pdf", ".html")}
