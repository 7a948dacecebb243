"""The study that a report is about, and the runs that it cites."""

from collections.abc import Callable
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pandas as pd

from warpbook.common import units
from warpbook.common.files import both_folders, find_file
from warpbook.config.settings import Config, Study
from warpbook.kernels.variants import Variant
from warpbook.problems.case_sets import CaseSet
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case, Problem
from warpbook.runs.catalog import Run
from warpbook.workflow.plan import GpuSource, Plan

if TYPE_CHECKING:
    from warpbook.report.evidence import Evidence

Self = TypeVar("Self")
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def cached_method(method: Callable[Concatenate[Self, Asked], Answer]) -> Callable[Concatenate[Self, Asked], Answer]:
    """A method that works out each answer once for each object; who gets one must leave it as it is."""

    @wraps(method)
    def answer(self: Self, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        answers: dict[Any, Answer] = self.__dict__.setdefault("_answers", {})
        asked = (method.__name__, args, tuple(kwargs.items()))
        if asked not in answers:
            answers[asked] = method(self, *args, **kwargs)
        return answers[asked]

    return answer


class Scope:
    """One study: its cases, sizes and variants, and the run that each device's figures come from."""

    def __init__(self, plan: Plan, study: str, local: Run):
        self.plan = plan
        self.config: Config = plan.config
        self.name = study
        self.study: Study = plan.config.studies[study]
        self.network: Network | CaseSet = plan.config.case_set(plan.config.case_set_name(study))
        self.source: GpuSource = plan.gpu_sources[study]
        self.local = local
        self.gpu_run: Run | None = local if self.source.device else self.source.archived

    @property
    def layers(self) -> tuple[Case, ...]:
        return self.network.cases

    @property
    def frameworks_alone(self) -> bool:
        """Whether the study stops before a kernel of ours."""
        return not {"milestone_3", "milestone_4", "ladder"} & {*self.study.sections}

    @property
    def problem(self) -> Problem:
        return self.network.problem

    @property
    def is_network(self) -> bool:
        """Whether the study is of a network, whose cases are its layers and whose sizes are numbers of images."""
        return isinstance(self.network, Network)

    def at_size(self, size: int) -> str:
        """A size in words: 1,000 images, or size 1,000."""
        return f"{units.count(size)} images" if self.is_network else f"size {units.count(size)}"

    @property
    def size_label(self) -> str:
        """What an axis of sizes is called."""
        return "Images in the dataset" if self.is_network else "Size"

    @property
    def size_word(self) -> str:
        """What a column of sizes is headed."""
        return "Images" if self.is_network else "Size"

    @property
    def case_word(self) -> str:
        """What a reader calls one of its cases."""
        return "layer" if self.is_network else "case"

    @property
    def layer_names(self) -> list[str]:
        return [layer.name for layer in self.layers]

    @property
    def sizes(self) -> list[int]:
        return self.study.sizes

    @property
    def largest(self) -> int:
        return self.sizes[-1]

    @cached_property
    def published(self) -> pd.DataFrame:
        """What the report that the study follows stated, a row for each figure; no row where there is none."""
        path = find_file(f"{self.name}.csv", both_folders("reports/published"))
        columns = ["quantity", "variant", "layer", "size", "value", "printed", "where", "note"]
        texts = pd.read_csv(path, dtype=str, keep_default_na=False) if path.exists() else pd.DataFrame(columns=columns)
        return texts.assign(value=texts.value.astype(float))

    @property
    def gpu(self) -> dict[str, Any] | None:
        """The GPU that the GPU's figures are of, as its run describes it."""
        return self.gpu_run.gpu if self.gpu_run else None

    @property
    def arch(self) -> str:
        """The architecture that a kernel's resources are told for: the GPU's that is cited, else the newest built."""
        return str(self.gpu["arch"]) if self.gpu else self.config.architectures[-1]

    def run_for(self, device: str) -> Run | None:
        """The run that a device's figures come from."""
        return self.local if device == "cpu" else self.gpu_run

    def missing_reason(self, device: str) -> str:
        """Why there are no figures of a device; empty where there may be some."""
        if device == "cpu":
            return "the configuration asks for no CPU times (cpu: none)" if self.config.cpu == "none" else ""
        return "" if self.gpu_run else self.source.why

    def device_name(self, device: str) -> str:
        """The name of the hardware that a device's figures were measured on."""
        run = self.run_for(device)
        return run.device_name(device) if run else "no GPU"

    def compared_variants(self, device: str) -> list[Variant]:
        """Variants of a device that the study compares, baselines first; of the CPU only if asked for."""
        if device == "cpu" and self.missing_reason("cpu"):
            return []
        names = self.plan.with_baselines(self.study.variants or self.plan.computing(self.network.name))
        compared = [self.plan.variants[name] for name in names]
        return [variant for variant in compared if variant.device == device]


class EvidencePart:
    """The figures of one kind, which find those of others in the study's evidence."""

    def __init__(self, ev: "Evidence"):
        self._ev = ev
