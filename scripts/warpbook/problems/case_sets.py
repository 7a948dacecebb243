"""Cases by a name: the convolutions of a network, or the cases that a study of any other problem lists."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import PROJECT
from warpbook.problems import networks, problem
from warpbook.problems.networks import CONFIGURATION_VARIABLE, Network
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

    Raises ValueError.
    """
    optional = [name for name in of.optional if described.get(name) is True]
    extents = {key: value for key, value in described.items() if key != NAME and key not in of.optional}
    case = of.case("", extents, optional)
    _ = case.extents
    shown = " ".join(f"{key}={value}" for key, value in described.items() if key != NAME)
    name = str(described.get(NAME) or _UNNAMEABLE.sub(" ", shown))
    return case.renamed(name)


def read_set(name: str, problem_name: str, listed: Sequence[Mapping[str, Any]]) -> CaseSet:
    """The cases of a study. Raises ValueError naming the case, or UserError where there is no such problem."""
    of = problem.find(problem_name)
    cases = []
    for number, described in enumerate(listed):
        try:
            cases.append(read_case(of, described))
        except ValueError as error:
            raise ValueError(f"cases.{number}: {error}") from None
    names = [case.name for case in cases]
    if twice := next((each for each in names if names.count(each) > 1), ""):
        raise ValueError(f"cases: {twice!r} is there twice; give one a name of its own (name: ...)")
    return CaseSet(name, of, tuple(cases))


def find(name: str) -> Network | CaseSet:
    """The network or study whose cases go by a name; UserError with the nearest valid name when there is none."""
    known = networks.all_networks()
    if name in known:
        return known[name]
    listed = _studies()
    if name not in listed:
        raise UserError(
            f"no network and no study with cases is called {name!r}: {nearest_name(name, [*known, *listed])}"
        )
    try:
        return read_set(name, listed[name]["problem"], listed[name]["cases"])
    except ValueError as error:
        raise UserError(f"studies.{name}.{error}") from error


def _studies() -> Mapping[str, Any]:
    """Studies that list cases, by name, as this command's configuration, else config.yaml, describes them."""
    given = os.environ.get(CONFIGURATION_VARIABLE)
    if given:
        return _listed(given, json.loads)
    return _listed((PROJECT / "config.yaml").read_text(), yaml.safe_load)


@cache
def _listed(text: str, parse: Callable[[str], Any]) -> Mapping[str, Any]:
    studies = parse(text).get("studies") or {}
    return {name: study for name, study in studies.items() if isinstance(study, dict) and study.get("problem")}
