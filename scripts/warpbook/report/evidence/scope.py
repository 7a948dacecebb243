"""The study that a report is about, and the runs that it cites."""

from warpbook.config.settings import Config, Study
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.runs.catalog import Run
from warpbook.workflow.plan import GpuSource, Plan


class Scope:
    """One study: its network, sizes and variants, and the run that each device's figures come from."""

    def __init__(self, plan: Plan, study: str, local: Run):
        self.plan = plan
        self.config: Config = plan.config
        self.name = study
        self.study: Study = plan.config.studies[study]
        self.network = plan.config.network(self.study.network)
        self.source: GpuSource = plan.gpu_sources[study]
        self.local = local
        self.gpu_run: Run | None = local if self.source.device else self.source.archived

    @property
    def layers(self) -> tuple[Case, ...]:
        return self.network.convs

    @property
    def layer_names(self) -> list[str]:
        return [layer.name for layer in self.layers]

    @property
    def sizes(self) -> list[int]:
        return self.study.sizes

    @property
    def largest(self) -> int:
        return self.sizes[-1]

    @property
    def arch(self) -> str:
        """The architecture that a kernel's resources are told for: the GPU's that is cited, else the newest built."""
        gpu = self.gpu_run.gpu if self.gpu_run else None
        return str(gpu["arch"]) if gpu else self.config.architectures[-1]

    def run_for(self, device: str) -> Run | None:
        """The run that a device's figures come from."""
        return self.local if device == "cpu" else self.gpu_run

    def missing_reason(self, device: str) -> str:
        """Why there are no figures of a device; empty where there may be some."""
        if device == "cpu":
            return "the configuration asks for no CPU figures (cpu: none)" if self.config.cpu == "none" else ""
        return "" if self.gpu_run else self.source.why

    def device_name(self, device: str) -> str:
        """The name of the hardware that a device's figures were measured on."""
        run = self.run_for(device)
        return run.device_name(device) if run else "no GPU"

    def compared_variants(self, device: str) -> list[Variant]:
        """Variants of a device that the study compares, baselines first; none of the CPU where its figures are not
        asked for."""
        if device == "cpu" and self.missing_reason("cpu"):
            return []
        names = self.plan.with_baselines(self.study.variants or self.plan.variants)
        compared = [self.plan.variants[name] for name in names]
        return [variant for variant in compared if variant.device == device]
