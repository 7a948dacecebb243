"""config.yaml as a frozen model. Unknown keys are refused, and every value is checked before any job runs."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import COMMAND, IN_CLONE, PROJECT, both_folders
from warpbook.common.quick_yaml import load_configuration
from warpbook.common.validation import explain, validate
from warpbook.config.course_term import Term
from warpbook.kernels import variants
from warpbook.problems import case_sets, fashion_mnist, networks, problem
from warpbook.problems.case_sets import CaseSet
from warpbook.problems.networks import Description, Network, valid_name

FILE = PROJECT / "config.yaml"
SECTIONS = both_folders("reports/sections")
OPTIONAL_MEASUREMENTS = ("aa", "attacks", "pairs", "precision", "sanitizer", "sweep")
"""What makes them: `workflow.optional_measurements`."""


class _ConfigModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SeriesPolicy(_ConfigModel):
    """When a series of samples ends: precise, `max_samples` or time; `min_samples` have a limit of their own."""

    warmup: int = Field(ge=0, le=100, description="untimed calls before the first sample")
    min_samples: int = Field(ge=1, le=10_000, description="samples that every series takes")
    max_samples: int = Field(ge=1, le=10_000)
    max_time_s: float = Field(gt=0, le=3600)
    min_samples_timeout_s: float = Field(gt=0, le=3600)


class ProgramRuns(_ConfigModel):
    """How often the whole inference program is run at each size: `runs` times, or for `min_samples_timeout_s`."""

    runs: int = Field(ge=1, le=100)
    min_samples_timeout_s: float = Field(gt=0, le=3600)


class Measuring(_ConfigModel):
    """The measuring policy. A result counts only under the `policy_of_samples` that it was measured with."""

    target_rel_ci: float = Field(gt=0, lt=1)
    equivalence_margin: float = Field(ge=0, lt=1)
    gpu: SeriesPolicy
    cpu: SeriesPolicy
    programs: ProgramRuns
    timeout_s: float = Field(gt=0, le=86_400)
    tolerated_load: float = Field(
        0.15, gt=0, description="processors that other programs may keep busy while a CPU is timed"
    )


def policy_of_samples(measuring: Mapping[str, Any], device: str) -> dict[str, Any]:
    """What of a measuring policy results of a device must have in common. How long a series may last shows in its interval."""
    return {"target_rel_ci": measuring["target_rel_ci"], f"{device}.warmup": measuring[device]["warmup"]}


class Report(_ConfigModel):
    """Text of the report's cover."""

    title: str = Field(description="title of the report")
    authors: list[str] = Field(min_length=1, description="names on the cover")
    affiliation: str = Field("", description="line below the authors")
    contributions: dict[str, str] = Field(default_factory=dict, description="what each author did")


def _network(name: str, info: ValidationInfo) -> str:
    described = info.context or ()
    if name and name not in described:
        raise ValueError(f"no network is called {name!r}: {nearest_name(name, list(described))}")
    return name


def _section(name: str) -> str:
    known = [path.name.removesuffix(".html.j2") for folder in SECTIONS for path in folder.glob("*.html.j2")]
    if name not in known:
        raise ValueError(f"no section is called {name!r}: {nearest_name(name, known)}")
    return name


def _optional_measurement(name: str) -> str:
    if name not in OPTIONAL_MEASUREMENTS:
        raise ValueError(f"no optional measurement is called {name!r}: {nearest_name(name, OPTIONAL_MEASUREMENTS)}")
    return name


def _study_name(name: str) -> str:
    """The name of a study, which files are called by."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}", name):
        raise ValueError(f"{name!r} is no name of a study: up to 60 letters, digits, _ . -, no dot or dash in front")
    if name == "all":
        raise ValueError("'all' stands for every study: give this one another name")
    return name


def _ascending(sizes: list[int]) -> list[int]:
    if sizes != sorted(set(sizes)):
        raise ValueError(f"{sizes} is not in ascending order without repeats")
    return sizes


def _arch(name: str) -> str:
    digits = name.removeprefix("sm_").rstrip("af")
    if not name.startswith("sm_") or not digits.isdigit():
        raise ValueError(f"{name!r} is no architecture of the form sm_90")
    if int(digits) < 50:
        raise ValueError(
            f"{name} is Kepler or older, which no compiler that CuPy works with targets; sm_50 is the oldest"
        )
    return name


class TimelineSpec(_ConfigModel):
    """A layer whose kernels at one size are drawn on one time axis, a variant's against those of what it builds on."""

    variant: str
    layer: str
    size: PositiveInt


class Study(_ConfigModel):
    """One report: a network, its dataset sizes, the variants to compare (none named: all) and its sections."""

    title: str
    section_label: str = Field("Milestone", description="what the report calls a stage of the work")
    framework_section: int = Field(1, ge=1, description="the stage of the work that the framework's chapter is about")
    network: Annotated[str, AfterValidator(_network)] = Field(
        "", description="the network whose convolutions it is about"
    )
    problem: str = Field("", description="another problem, a folder of kernels/, whose `cases` it is about")
    cases: list[dict[str, int | str | bool]] = Field(
        default_factory=list,
        description="extents of each case, numbers or expressions of `size`; a `name` if it has one",
    )
    cases_file: str = Field(
        "",
        exclude=True,  # a recorded study lists what was in it
        description="a CSV file of cases in place of `cases`: a column for each extent, a row for each case",
    )
    sizes: Annotated[list[PositiveInt], Field(min_length=1), AfterValidator(_ascending)]
    sections: list[Annotated[str, AfterValidator(_section)]] = Field(min_length=1)
    deliverables: dict[str, str] = Field(
        default_factory=dict, description="what the report must show: the short name of each, and the id of its place"
    )
    show_profile_of: list[str] = Field(
        default_factory=list, description="variants whose program output and profile are shown like the first kernel's"
    )
    timeline: TimelineSpec | None = None
    first_kernel: str = Field(
        "", description="the variant that the chain of optimizations starts from; by default its baseline"
    )
    variants: list[str] | None = None
    programs: list[str] | None = Field(
        None,
        description="optimizations whose whole program is run and profiled on the GPU; by default all that it compares",
    )
    by_name: bool = Field(False, description="left out of `study: all`; for a study that takes hours")
    course: Term | None = Field(None, description="what a term of the course asks of a submission")

    @model_validator(mode="after")
    def _require_network_or_problem(self) -> "Study":
        if bool(self.network) == bool(self.problem):
            raise ValueError("say `network`, or `problem` with its `cases`; one of the two")
        if self.cases_file and self.cases != case_sets.read_rows(self.cases_file):  # which `load` has put there
            raise ValueError("say `cases` or `cases_file`; one of the two")
        if bool(self.problem) != bool(self.cases):
            raise ValueError("`problem` and `cases` go together")
        return self


class StreamSettings(_ConfigModel):
    """Images that `snakemake stream` sends through the chosen study's network."""

    images: Annotated[int, Field(ge=1, le=10**12, description="number of images")] = 1_000_000
    shards: Annotated[
        Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"],
        Field(description="parts of the stream, one worker each; auto: one for each GPU"),
    ] = "auto"
    variants: dict[Literal["cpu", "gpu"], str] = Field(
        default_factory=dict, description="the variant whose convolutions run on each device"
    )


class BuiltInTimes(_ConfigModel):
    """A kernel that is built in: its op time in each layer, and its layer times added."""

    name: str
    title: str
    op_ms: list[float]
    layer_ms: float


class Context(_ConfigModel):
    """Times of built-in kernels from an archived run, beside files that were timed nowhere."""

    run_id: str
    gpu: str
    images: int
    kernels: list[BuiltInTimes]


class Submission(_ConfigModel):
    """A submission of the course. Warpbook writes this key itself, in the project that it makes for it."""

    name: str
    files: dict[str, str]
    answers: dict[str, str]
    outputs: dict[str, str]
    refused: dict[str, str]
    context: Context | None = None


class Target(_ConfigModel):
    """The GPU of the nodes that measure, for a machine that only plans: a cluster's login node."""

    name: str = Field("", description="the GPU's name; alone: the rest comes from an archived run on that GPU")
    arch: Annotated[str, AfterValidator(_arch)] = Field("", description="its architecture, as sm_90")
    memory_gib: float = Field(0, ge=0, description="its memory in GiB")
    profilers: list[Literal["cupti", "nsys", "nvprof", "ncu"]] | None = Field(
        None, description="profilers that the nodes have"
    )


def _target(value: Any) -> Any:
    if value == "none":
        return None
    if isinstance(value, dict) and not {"name", "arch"} & set(value):
        raise ValueError("it names neither an architecture (arch: sm_90) nor the GPU of an archived run (name)")
    return {"name": value} if isinstance(value, str) else value


MOST_GPUS = 64  # of one host


def _gpus(value: Any) -> Any:
    if value != "all" and not (type(value) is int and 1 <= value <= MOST_GPUS):
        raise ValueError(f"{value!r} is neither a number of GPUs, 1 to {MOST_GPUS}, nor `all`")
    return value


class Config(_ConfigModel):
    """config.yaml, with what the command line set over it."""

    study: str = Field(description="the study to measure and report; several with commas (fa18,fa19), or `all`")
    gpu: str = Field(
        description="source of GPU results. auto: the GPU here, else the newest archived run. live: the GPU here. "
        "none: no GPU results. Or the id of an archived run"
    )
    gpus: Annotated[int | str, BeforeValidator(_gpus)] = Field(
        1, description="number of GPUs of this host that share the jobs of a run; all: every visible one"
    )
    cpu: Literal["live", "none"] = Field("live", description="live: CPU variants are measured here; none: left out")
    target: Annotated[Target | None, BeforeValidator(_target)] = Field(
        None, description="the GPU of the measuring nodes, if this machine only plans; none: this machine measures"
    )
    sandbox: Literal["auto", "all", "none"] = Field(
        "auto",
        description="what runs in bubblewrap. auto: CPU work, if bubblewrap works. all: GPU work too. none: nothing",
    )
    profilers: Literal["auto"] | list[Literal["cupti", "nsys", "nvprof", "ncu"]] = Field(
        "auto", description="profilers to use; auto: all that the machine has. Profilers supply no timings"
    )
    optional_measurements: list[Annotated[str, AfterValidator(_optional_measurement)]] = Field(
        default_factory=list, description="optional measurements of a run on a GPU"
    )
    stream: StreamSettings = Field(default_factory=StreamSettings, description="images for `snakemake stream`")
    architectures: list[Annotated[str, AfterValidator(_arch)]] = Field(
        min_length=1, description="every kernel is compiled for these, and for a GPU found here"
    )
    report: Report = Field(description="text of the cover")
    measuring: Measuring = Field(description="when a timing ends, and what counts as equal")
    networks: dict[Annotated[str, AfterValidator(valid_name)], Description] = Field(description="the networks, by name")
    studies: dict[Annotated[str, AfterValidator(_study_name)], Study] = Field(
        min_length=1, description="the reports that can be made, by name"
    )
    archive: str = Field("", description="folder of the packed run; empty: reports/runs")
    submission: Submission | None = Field(None, description="written by Warpbook itself")
    path: Annotated[str, BeforeValidator(str)] = Field(
        "", description="folder of the submission, for `snakemake submission`"
    )
    submissions: Annotated[str, BeforeValidator(str)] = Field(
        "", description="folder of submission folders, for `snakemake grade`"
    )
    base: str = Field("", description="run to compare with, for `snakemake compare`: an id in reports/runs, or a path")
    head: str = Field("", description="run to judge, for `snakemake compare`")
    tolerance: float = Field(0.02, gt=0, lt=1, description="smallest change that `snakemake compare` reports")

    @property
    def chosen_studies(self) -> dict[str, Study]:
        """The studies that this command is about; `all` are those that need no submission and no name."""
        every = (name for name, study in self.studies.items() if not (study.course or study.by_name))
        return {name: self.studies[name] for name in named_studies(self.study, every)}

    def network(self, name: str) -> Network:
        """One of its networks."""
        return Network(name, self.networks[name])

    def case_set(self, name: str) -> Network | CaseSet:
        """A network of it, or the cases of one of its studies. Raises ValueError for cases that are none."""
        if name in self.networks:
            return self.network(name)
        study = self.studies[name]
        return case_sets.read_set(name, study.problem, study.cases, study.cases_file, study.sizes)

    def case_set_name(self, study: str) -> str:
        """The name of a study's set of cases: its network's name, or its own."""
        return self.studies[study].network or study

    @property
    def recorded_json(self) -> str:
        """What a run records and a report is made by, as JSON, without other commands' settings."""
        others = {"archive", "base", "head", "tolerance", "path", "submissions", "stream"}
        return self.model_dump_json(exclude={"sandbox", *others})


def named_studies(study: str, every: Iterable[str]) -> list[str]:
    """The studies that the words of `study` name: those between its commas, each once; `every` one for `all`."""
    listed = list(every)
    words = map(str.strip, study.split(","))
    return list(dict.fromkeys(name for word in words for name in (listed if word == "all" else [word])))


def load(values: Mapping[str, Any], known_variants: list[str]) -> Config:
    """The checked configuration. UserError lists every mistake on a line, with the nearest valid name."""
    try:
        described = values.get("networks")
        names = list(described) if isinstance(described, Mapping) else []
        listed = {key: case_sets.with_cases(values[key]) for key in ("studies",) if key in values}
        config = validate(Config, {**values, **listed}, context=names)
    except ValidationError as error:
        raise UserError("\n".join(["config.yaml:", *(f"  {line}" for line in explain(error, Config))])) from error
    problems = [
        f"study: no study is called {name!r}: {nearest_name(name, [*config.studies, 'all'])}"
        for name in named_studies(config.study, config.studies)
        if name not in config.studies
    ]
    problems += [mistake for name in config.studies for mistake in _size_mistakes(config, name)]
    problems += [mistake for name in config.studies for mistake in _case_mistake(config, name)]
    if problems:
        raise UserError("\n".join(["config.yaml:", *(f"  {problem}" for problem in problems)]))
    config = _with_full_names(config)
    problems += [
        f"{place}: no variant is called {variant!r}: {nearest_name(variant, known_variants)}"
        for place, variant in _named_variants(config)
        if variant not in known_variants
    ]
    problems += [problem for name in config.studies for problem in _timeline_mistake(config, name, known_variants)]
    problems += _submission_mistake(config)
    if problems:
        raise UserError("\n".join(["config.yaml:", *(f"  {problem}" for problem in problems)]))
    return config


def _named_variants(config: Config) -> Iterator[tuple[str, str]]:
    """The places where variants are named, and their names."""
    for name, study in config.studies.items():
        for key in ("variants", "programs", "show_profile_of"):
            yield from ((f"studies.{name}.{key}", variant) for variant in getattr(study, key) or [])
        if study.first_kernel:
            yield f"studies.{name}.first_kernel", study.first_kernel
    yield from ((f"stream.variants.{device}", variant) for device, variant in config.stream.variants.items())


def _size_mistakes(config: Config, name: str) -> list[str]:
    """Sizes of a study that Fashion-MNIST does not hold; `plan` knows whether a network's own images are that many."""
    study = config.studies[name]
    if not study.network or config.networks[study.network].input.data:
        return []
    return [
        f"studies.{name}.sizes.{place}: {size} is outside 1 to {fashion_mnist.IMAGES}, the images that Fashion-MNIST's "
        "t10k holds"
        for place, size in enumerate(study.sizes)
        if size > fashion_mnist.IMAGES
    ]


def _case_mistake(config: Config, name: str) -> list[str]:
    """What is wrong with the cases of a study: a problem that is not there, an extent that it does not have."""
    study = config.studies[name]
    if not study.problem:
        return []
    if name in config.networks:
        return [f"studies.{name}: a network has the same name, which its measurements go by; rename the study"]
    try:
        config.case_set(name)
    except UserError as error:
        return [f"studies.{name}.problem: {error}"]
    except ValueError as error:
        return [f"studies.{name}.{line}" for line in str(error).splitlines()]
    return []


def _with_full_names(config: Config) -> Config:
    """The same, variants of a problem called as among all problems' variants."""

    def full(study: Study) -> Study:
        if not study.problem:
            return study
        one = partial(variants.full_name, problem.find(study.problem))
        return study.model_copy(
            update={
                "variants": None if study.variants is None else list(map(one, study.variants)),
                "programs": None if study.programs is None else list(map(one, study.programs)),
                "first_kernel": one(study.first_kernel),
            }
        )

    return config.model_copy(update={"studies": {name: full(study) for name, study in config.studies.items()}})


def _submission_mistake(config: Config) -> list[str]:
    """What is wrong where a study is of a submission and none is named, or the other way round."""
    terms = [name for name, study in config.studies.items() if study.course]
    key = next((key for key in ("path", "submissions") if getattr(config, key)), "")
    if key and config.study not in terms:
        return [f"{key}: {config.study} is no term of the course; say which the submission is of: study={terms[-1]} "
                f"(terms: {', '.join(terms)})"] if terms else [f"{key}: no study has a `course`"]  # fmt: skip
    of_one = [name for name in named_studies(config.study, []) if name in terms]
    if of_one and not key and not config.submission:
        return [
            f"study: {of_one[0]} is of a submission; {COMMAND} submission "
            + (f"--config path=<its folder> study={of_one[0]}" if IN_CLONE else f"<its folder> --study {of_one[0]}")
        ]
    return []


def _timeline_mistake(config: Config, name: str, known_variants: list[str]) -> list[str]:
    """What is wrong with what a study draws."""
    study = config.studies[name]
    if not study.timeline:
        return []
    layers = [case.name for case in config.case_set(config.case_set_name(name)).cases]
    valid = {"variant": known_variants, "layer": layers, "size": list(map(str, study.sizes))}
    said = {key: str(getattr(study.timeline, key)) for key in valid}
    return [
        f"studies.{name}.timeline.{key}: {said[key]!r} is not known: {nearest_name(said[key], known)}"
        for key, known in valid.items()
        if said[key] not in known
    ]


def read(known_variants: list[str], path: Path = FILE, **changes: Any) -> Config:
    """The checked configuration of a file, with these keys set over it."""
    values = load_configuration(path)
    if not isinstance(values, dict):
        raise UserError(f"{path} is not YAML of the form `key: value`")
    return load(networks.with_library(values | changes), known_variants)
