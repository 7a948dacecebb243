"""What the figures and tests say of a submission's files, one by one."""

import re
from dataclasses import dataclass

from warpbook.common.files import PROJECT
from warpbook.config.course_term import CourseOptimization, Term, first_line_with
from warpbook.config.settings import Submission
from warpbook.course import program_output
from warpbook.course.program_output import ProgramOutput
from warpbook.course.submissions import BASELINES, FINAL, NAMES, WRITTEN
from warpbook.kernels import lower_bounds, sources
from warpbook.kernels.launch_inference import launch_sites
from warpbook.kernels.variants import Variant
from warpbook.report.evidence.scope import EvidencePart
from warpbook.runs import tables

VERDICTS = {
    "right": "right",
    "missing": "no file",
    "refused": "not taken",
    "compile_failed": "does not compile",
    "launch_failed": "fails",
    "wrong_result": "wrong",
    "timed_out": "does not end",
    "unsupported": "not judged",
}
"""Verdicts by the status of the first test that failed."""


COMPARED = ("integers", "reals", "labels")  # tests that compare every output


@dataclass(frozen=True)
class JudgedFile:
    """One file of a submission. status: a key of VERDICTS; words: why it is not right; note: what it assumes;
    place: file and line of the fault, where it has one; tests: how many it passed, and `where`; sizes: images of each,
    the most first; sampled: images of a batch of which some blocks ran, 0 where of none."""

    name: str
    file: str
    status: str
    words: str = ""
    note: str = ""
    place: str = ""
    tests: int = 0
    where: str = ""
    sizes: tuple[int, ...] = ()
    sampled: int = 0

    @property
    def right(self) -> bool:
        return self.status == "right"

    @property
    def verdict(self) -> str:
        return VERDICTS[self.status]

    @property
    def builds(self) -> str:
        """yes, no, or empty where that was not tried."""
        if self.status in ("missing", "refused", "unsupported"):
            return ""
        return "no" if self.status == "compile_failed" else "yes"


class SubmissionEvidence(EvidencePart):
    """A submission's files against what its term asks."""

    answers_left_out = ""  # why a report shows no answers

    @property
    def of(self) -> Submission:
        submission = self._ev.config.submission
        assert submission is not None  # or nobody asks
        return submission

    @property
    def term(self) -> Term:
        assert self._ev.study.course is not None
        return self._ev.study.course

    @property
    def claimed(self) -> dict[str, CourseOptimization]:
        """Optimizations of the term that the submission has a file or a folder for."""
        here = {*self.of.files, *self.of.refused}
        return {name: one for name, one in self.term.optimizations.items() if name in here}

    def variant(self, name: str) -> Variant | None:
        return self._ev.plan.variants.get(name)

    def baseline(self, name: str) -> Variant | None:
        """The variant that one is compared with; None where the submission does not hold it."""
        mine = self.variant(name)
        return self.variant(mine.header.builds_on) if mine and mine.header.builds_on else None

    def is_baseline(self, name: str) -> bool:
        """Whether the code of one is that of its baseline, comments and layout aside."""
        mine, over = self.variant(name), self.baseline(name)
        return bool(mine and over and _code_words(mine.code) == _code_words(over.code))

    def code_evidence(self, name: str) -> list[tuple[str, int]]:
        """Each word that an optimization's code must contain, with the first line that has it; 0 where none has."""
        mine = self.variant(name)
        wanted = self.term.optimizations[name].code_must_contain
        return [(word, first_line_with(word, mine.code)) for word in wanted] if mine else []

    def worth(self, name: str) -> int:
        """Points of an optimization for the code that is there; 0 where there is none."""
        mine = self.variant(name)
        return self.term.optimizations[name].worth(mine.code) if mine else 0

    def program_outputs(self, name: str) -> list[ProgramOutput]:
        """What the course's program printed for a file, read from the submission's own output; unverified."""
        path = PROJECT / WRITTEN / f"{name}.out"
        if name not in self.of.outputs:
            return []
        return program_output.parse_runs(path.read_text(encoding="utf-8", errors="replace"), len(self._ev.layers))

    def is_impossibly_fast(self, run: ProgramOutput) -> bool:
        """Whether one of a run's op times is below the time that its layer's bytes need on the term's GPU."""
        gpu = self.term.gpu
        kept = int(gpu.l2_mib * 2**20)
        least = (
            lower_bounds.lower_bound_ms(layer.at(run.batch), gpu.gb_per_s, None, kept) for layer in self._ev.layers
        )
        return any(op < bound for op, bound in zip(run.op_ms, least, strict=True))

    def judge_file(self, name: str) -> JudgedFile:
        """The verdict on one file."""
        file = self.of.files.get(name, "")
        if reason := self.of.refused.get(name):
            return JudgedFile(name, file, "refused", reason)
        variant = self.variant(name)
        if variant is None:
            unread = "".join(f"; {why}" for of, why in self.of.refused.items() if of.startswith("folder "))
            wanted = BASELINES.get(name, NAMES[0])
            is_final = self.of.files.get(FINAL, "").rpartition("/")[2] == wanted
            why = f"its only {wanted} is the final file" if is_final else f"the submission holds no {wanted}"
            return JudgedFile(name, file, "missing", f"{why}{unread}")
        if reason := self._unreadable(variant):
            return self._failed_file(name, "compile_failed", reason)
        failed = self._ev.builds.failed
        failed = failed[failed.variant == name]
        if len(failed):
            return self._failed_file(name, "compile_failed", _first_error(str(failed.log.iloc[0])))
        return self._judge_tests(name)

    def _judge_tests(self, name: str) -> JudgedFile:
        tests = self._ev.local.table(tables.CORRECTNESS)
        tests = tests[(tests.variant == name) & (tests.network == self._ev.network.name)]
        rows = tests.to_dict("records")
        if failure := tables.first_failure(rows):
            return self._failed_file(name, failure["status"], failure["reason"])
        unsupported = tests[tests.status == "unsupported"]
        note = self._in_its_words(name, str(unsupported.reason.iloc[0])) if len(unsupported) else ""
        compared = tests[tests.ok & tests.test.isin(COMPARED)]
        if compared.empty:
            return self._failed_file(name, "unsupported", note or "it was not tested; the log says why")
        right_in = set(compared.layer)
        if unjudged := [layer.name for layer in self._ev.layers if layer.name not in right_in]:
            why = f": {note}" if note else ""
            return self._failed_file(name, "unsupported", f"{' and '.join(unjudged)} was not judged{why}")
        devices = {"emulator": "on the CPU, emulated", "gpu": "on the GPU"}
        where = " and ".join(words for device, words in devices.items() if (tests.device == device).any())
        sizes = tuple(sorted(set(compared["size"]), reverse=True))
        passed = int(tests.ok.sum())
        sampled = max(tests[tests.ok & (tests.test == "indices")]["size"], default=0)
        return JudgedFile(
            name, self.of.files[name], "right", "", note, self._place(note), passed, where, sizes, int(sampled)
        )

    def _failed_file(self, name: str, status: str, reason: str) -> JudgedFile:
        words = self._in_its_words(name, reason)
        return JudgedFile(name, self.of.files[name], status, words, place=self._place(words))

    def _in_its_words(self, name: str, reason: str) -> str:
        """A reason with the file called as the submission calls it."""
        said = re.sub(rf"^{name}(: | does not compile for [\w ]+: )", "", reason)
        said = re.sub(r"\.cu\((\d+)\): ", r".cu:\1: ", said)  # as nvcc names a place
        return re.sub(rf"\b{name}\.(cu|yaml)\b", lambda _: self.of.files[name], said)

    @staticmethod
    def _place(words: str) -> str:
        """The first file and line that words name; "line 40" of a file that they do not name."""
        found = re.search(r"[\w./-]+\.cu(?::|, line )\d+|\bline \d+", words)
        return found[0] if found else ""

    @staticmethod
    def _unreadable(variant: Variant) -> str:
        """Why a file is none of the course's; empty where it is."""
        assert variant.cuda_source is not None  # a submission has no others
        if (reason := sources.read_cuda(variant.cuda_source).problem) or (variant.course and variant.read_error):
            return reason or variant.read_error
        if variant.course:
            return ""
        kernels = launch_sites.kernel_names(variant.code)
        held = f"; it holds the kernels {', '.join(kernels)}" if kernels else ""
        return f"{variant.name}.cu defines no GPUInterface::conv_forward_gpu{held}"


def _code_words(code: str) -> list[str]:
    return sources.without_comments(code).split()


def _first_error(log: str) -> str:
    """The first line of a compiler's log that is an error; its first line where none is."""
    lines = log.splitlines() or ["the compiler said nothing"]
    return next((line for line in lines if "error" in line), lines[0])
