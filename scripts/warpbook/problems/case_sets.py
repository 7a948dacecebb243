"""Cases by a name: the convolutions of a network, or the cases that a study of any other problem lists."""

import contextlib
import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import find_file
from warpbook.problems import networks, problem
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case, Problem

NAME = "name"
_UNNAMEABLE = re.compile(r"[^\w.=-]+")


@dataclass(frozen=True)
class CaseSet:
    """The cases of one problem that a study lists. Of a network it has no images, weights or labels."""

    name: str
    problem: Problem
    cases: tuple[Case, ...]
    has_labels: bool = False
    weight_sets: tuple[str, ...] = ()

    def model(self, weight_set: str) -> str:
        """Of a network, the name that goes with a weight set; here the cases' alone."""
        return self.name

    @property
    def shapes_sha256(self) -> str:
        """Identity of what is computed: a recorded figure holds only for the cases it was measured on."""
        described = [[case.name, case.given, sorted(case.optional)] for case in self.cases]
        return hashlib.sha256(json.dumps([self.problem.name, described]).encode()).hexdigest()


def read_case(of: Problem, described: Mapping[str, Any]) -> Case:
    """A case as a study lists it: its extents, optional inputs that it has (`bias: true`), and a name if it has one.
    Raises ValueError."""
    for name in of.optional:
        if described.get(name, True) not in (True, False):
            raise ValueError(f"{name}: {described[name]!r} is neither true nor false")
    optional = [name for name in of.optional if described.get(name) is True]
    extents = {key: value for key, value in described.items() if key != NAME and key not in of.optional}
    case = of.case("", extents, optional)
    _ = case.extents
    shown = " ".join(f"{key}={value}" for key, value in described.items() if key != NAME)
    name = str(described.get(NAME) or _UNNAMEABLE.sub(" ", shown))
    return case.with_name(name)


def read_set(
    name: str, problem_name: str, listed: Sequence[Mapping[str, Any]], file: str = "", sizes: Sequence[int] = ()
) -> CaseSet:
    """The cases of a study, listed there or in a file of rows. Raises ValueError with a line for each case that is none,
    or has no extents at one of the sizes, or UserError where there is no such problem."""
    of = problem.find(problem_name)
    whole = f"cases_file: {file}" if file else "cases"
    known = [*of.facts.extents, *of.optional, NAME]
    columns = dict.fromkeys(key for described in listed for key in described) if file else {}
    if unknown := [key for key in columns if key not in known]:
        raise ValueError("\n".join(f"{whole}: {key!r} is no extent of {of.name}: {nearest_name(key, known)}"
                                   for key in unknown))  # fmt: skip
    cases, mistakes = [], []
    for number, described in enumerate(listed):
        try:
            case = read_case(of, described)
            for size in sizes:
                _ = case.at(size).extents
            cases.append(case)
        except ValueError as error:
            mistakes.append(f"{whole}, row {number + 2}: {error}" if file else f"cases.{number}: {error}")
    names = [case.name for case in cases]
    mistakes += [
        f"{whole}: {twice!r} is there twice; give one a name of its own ({NAME})"
        for twice, count in Counter(names).items()
        if count > 1
    ]
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return CaseSet(name, of, tuple(cases))


def read_rows(file: str) -> list[dict[str, int | str | bool]]:
    """The cases of a CSV file, whose columns are extents, optional inputs (true) and names; an empty cell says nothing.
    Its path begins at the project's folder. Raises ValueError with the reason where there are none."""
    try:
        with find_file(file).open(newline="", encoding="utf-8-sig") as opened:
            rows = list(csv.DictReader(opened, restkey="", strict=True))
    except (OSError, csv.Error, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"cases_file: {file} cannot be read: {reason}") from None
    if long := next((number for number, row in enumerate(rows, 2) if "" in row), 0):
        raise ValueError(f"cases_file: {file}, row {long}: a cell has no column's name above it")
    if not rows:
        raise ValueError(f"cases_file: {file} has no rows below the names of its columns")
    return [{name.strip(): _cell(text.strip()) for name, text in row.items() if text and text.strip()} for row in rows]


def _cell(text: str) -> int | str | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text


def with_cases(studies: Any) -> Any:
    """Studies as YAML has them, each `cases_file` listed as `cases`; what cannot be read stays to be refused later."""
    if not isinstance(studies, Mapping):
        return studies
    return {name: _with_rows(study) if isinstance(study, Mapping) else study for name, study in studies.items()}


def _with_rows(study: Mapping[str, Any]) -> Mapping[str, Any]:
    file = study.get("cases_file")
    if isinstance(file, str) and file and not study.get("cases"):
        with contextlib.suppress(ValueError):
            return {**study, "cases": read_rows(file)}
    return study


def find(name: str) -> Network | CaseSet:
    """The network or study whose cases go by a name; UserError with the nearest valid name when there is none."""
    known = networks.all_networks()
    if name in known:
        return known[name]
    listed = _problem_studies(*networks.configuration())
    if name not in listed:
        raise UserError(
            f"no network and no study with cases is called {name!r}: {nearest_name(name, [*known, *listed])}"
        )
    study = listed[name]
    file = study.get("cases_file") or ""
    try:
        return read_set(name, study["problem"], study.get("cases") or read_rows(file), file)
    except ValueError as error:
        raise UserError("\n".join(f"studies.{name}.{line}" for line in str(error).splitlines())) from error


@cache
def _problem_studies(text: str, parse: Callable[[str], Any]) -> Mapping[str, Any]:
    studies = with_cases(parse(text).get("studies") or {})
    return {name: study for name, study in studies.items() if isinstance(study, Mapping) and study.get("problem")}
