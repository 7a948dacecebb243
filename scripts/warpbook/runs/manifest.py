"""What run.json must hold for anything to be made of a run. What it holds besides is kept as it is."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

FORMAT = 3
"""Raised whenever a column or a word of a run's tables gets another name or meaning.

3: rows are of a problem's case; whole networks and files of the course are rows of the same tables.
"""


CLOCKS_DIFFER = timedelta(days=1)  # by how much another machine's clock may be ahead of this one's


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _time(text: str) -> str:
    if _moment(text) > datetime.now(UTC) + CLOCKS_DIFFER:
        raise ValueError(f"{text} is in the future, by this machine's clock")
    return text


Time = Annotated[str, AfterValidator(_time)]


class _RecordModel(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class RecordedCpu(_RecordModel):
    model: str
    cores: PositiveInt


class RecordedGpu(_RecordModel):
    name: str
    arch: str = Field(pattern=r"^sm_\d{2,3}[af]?$")
    uuid_sha256: str
    copy_gb_per_s: PositiveFloat
    write_gb_per_s: PositiveFloat | None = None
    l2_bytes: PositiveInt
    peak_gflop_per_s: dict[str, PositiveFloat | None]


class Machine(_RecordModel):
    system: str
    python: str
    compiler: str
    packages: dict[str, str | None]
    cpu: RecordedCpu
    gpu: RecordedGpu | None


class RecordedNetwork(_RecordModel):
    shapes_sha256: str
    sizes: list[PositiveInt]


class RecordedVariant(_RecordModel):
    source_sha256: str
    peer: bool
    requires: str


class RecordedMeasuring(_RecordModel):
    target_rel_ci: PositiveFloat
    equivalence_margin: NonNegativeFloat
    gpu: dict[str, Any]
    cpu: dict[str, Any]


class Record(_RecordModel):
    format: int = Field(ge=FORMAT, le=FORMAT)
    run_id: str = Field(pattern=r"^\w[\w.-]{0,99}$")
    studies: list[str]
    networks: dict[str, RecordedNetwork]
    variants: dict[str, RecordedVariant]
    started: Time
    ended: Time
    commit: str | None
    dirty: bool | None
    protocol: int
    measuring: RecordedMeasuring
    machine: Machine

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> Self:
        if _moment(self.ended) < _moment(self.started):
            raise ValueError(f"ended, {self.ended}, is before started, {self.started}")
        return self
