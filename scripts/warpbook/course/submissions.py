"""Submissions in the course's layout: where their files are, and the project of its own that each is worked on in.

    project/src/layer/custom/m3-forward.cu              the final file; beside it those of earlier milestones
    project/m3/{req_0,req_1,op_0,...}/m3-forward.cu     one optimization each, over its baseline
    m3.out there, or <file>.out beside any              what the course's program printed

The names above `m3` and `custom` are free. A submission's project has its files as `kernels/conv/`, a config.yaml with its
study alone, and results and reports of its own; everything else in it is a link to this project's. What is in a
submission may be a stranger's: no link is followed, and what is too long is refused.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any

import yaml

from warpbook.common.errors import UserError
from warpbook.common.files import LIBRARY, atomic_write, sha256
from warpbook.config.course_term import Term
from warpbook.config.settings import Config, Context
from warpbook.kernels import sources
from warpbook.kernels.headers import DEFAULT_PROBLEM

ROOMS, REPORTS = Path("results/submissions"), Path("reports/out")
WRITTEN = Path("reports/answers")
"""What a submission's author wrote and the course's program printed, in its project."""
SPENT = Path("results/spent_s.txt")  # what its files that do not end have taken together, in its project
FINAL = "final"
NAMES = ("m3-forward.cu", "new-forward.cu")  # what an optimization's file is called, and was in older terms
BASELINES = {"basic": "new-forward.cu", "unroll": "unroll-new-forward.cu", "fused": "kernel-fusion-forward.cu"}
"""Files of earlier milestones, beside the final one."""
OUTPUT = "m3.out"
_OF_BATCH = re.compile(r"m3_(\d{1,9})\.out", re.ASCII)
ANSWERS = ("answers.md", "README.md")
TITLES = {
    FINAL: "Final file",
    "basic": "Basic kernel",
    "unroll": "Input unrolled, then a product of matrices",
    "fused": "Unrolling fused into the product",
}

_CODE_BYTES, _LINES, _ANSWER_BYTES = 256 << 10, 5000, 256 << 10
NOT_NAMED = "of which submission? --config path=<its folder> study=<its term>; or submissions=<a folder of such>"
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")
_PICTURES, _PICTURE_BYTES = 20, 4 << 20
_DEEP, _FOLDERS, _ENTRIES = 6, 2000, 1000
_PICTURE = re.compile(r"[\w-][\w.-]*\.(png|jpe?g)", re.IGNORECASE | re.ASCII)
_OF_THE_LAYOUT = ("project", "Project", "src", "layer", "custom", "m3")
_LINKED = ("Snakefile", "rules", "scripts", "profiles", "requirements", "weights", "pyproject.toml")


@dataclass(frozen=True)
class SubmittedFolder:
    """What a submission's folder holds: files and answers by what they are of, those refused, or its `problem`."""

    folder: Path
    files: dict[str, Path] = field(default_factory=dict)
    answers: dict[str, Path] = field(default_factory=dict)
    pictures: dict[str, Path] = field(default_factory=dict)
    """Beside the answers, by what they are of and their names: `req_0/timeline.png`."""
    outputs: dict[str, Path] = field(default_factory=dict)
    """What the course's program printed, by what it ran."""
    refused: dict[str, str] = field(default_factory=dict)
    problem: str = ""

    @cached_property
    def sha256(self) -> str:
        """Identity of all that is made of it."""
        digest = hashlib.sha256(repr((self.problem, sorted(self.refused.items()))).encode())
        for kind in (self.files, self.answers, self.pictures, self.outputs):
            for name, path in sorted(kind.items()):
                digest.update(repr((name, self.printable_path(path), sha256(path))).encode())
        return digest.hexdigest()

    def printable_path(self, path: Path) -> str:
        """A path from the submission's folder, as it can be printed."""
        return "".join(one if one.isprintable() else "�" for one in str(path.relative_to(self.folder)))


def submission_name(folder: Path) -> str:
    """The last name on a submission's path that is not the layout's, as it can stand in a file's name."""
    parts = [part for part in folder.absolute().parts[1:] if part not in _OF_THE_LAYOUT]
    return _plain(parts[-1] if parts else "submission")


def list_submissions(folder: Path) -> dict[str, Path]:
    """The submissions in a folder, by name, links and archives too. Raises UserError where there is none."""
    if not folder.is_dir():
        raise UserError(f"submissions: {folder} is no folder")
    named: dict[str, Path] = {}
    for one in sorted(folder.iterdir()):
        if one.is_symlink() or one.is_dir() or one.name.lower().endswith((*_ARCHIVES, ".cu")):
            plain = name = _plain(one.name)
            numbers = count(2)
            while name in named:  # another name with other characters in their place
                name = f"{plain}_{next(numbers)}"
            named[name] = one
    if not named:
        raise UserError(f"submissions: {folder} holds no folder; each submission is one")
    return named


def unusable_reason(folder: Path) -> str:
    """Why a submission's folder cannot be used, as a sentence; empty where it can."""
    if folder.is_symlink():
        return "it is a link; put the folder itself there"
    if not folder.is_dir():
        archive = folder.name.lower().endswith(_ARCHIVES)
        return f"it is {'an archive' if archive else 'a file'}; unpack or put it into a folder of that name"
    if folder.name.startswith("."):
        return "its name begins with a dot; rename the folder if it is a submission, else take it away"
    if not os.access(folder, os.R_OK | os.X_OK):
        return "it cannot be read; give yourself the right to (chmod -R u+rX)"
    return ""


def forget_failures(study: str, submitted: Iterable[str]) -> None:
    """Remove reports that are but the reason of a failure, and the table over them: this command tries again."""
    folders = [REPORTS / study / name for name in submitted]
    failed = [folder for folder in folders if folder.is_dir() and not list(folder.glob("*.pdf"))]
    for folder in [*failed, *([table_folder(study)] if failed else [])]:
        shutil.rmtree(folder, ignore_errors=True)


def table_folder(study: str) -> Path:
    """The folder of the table over all submissions of a term."""
    return REPORTS / f"{study}-grades"


def submissions_by_name(config: Config) -> dict[str, SubmittedFolder]:
    """The submissions that a command is about, by name. Raises UserError where there is no such folder."""
    term = config.studies[config.study].course if config.study in config.studies else None
    if term is None or not (config.path or config.submissions):
        return {}
    if config.submissions:
        return {
            name: _find_or_explain(path, term) for name, path in list_submissions(_home("submissions", config)).items()
        }
    folder = _home("path", config)
    if not folder.is_dir():
        raise UserError(f"path: {folder} is no folder; give the one that holds project/ or m3/")
    return {submission_name(folder): find(folder.absolute(), term)}


def _home(key: str, config: Config) -> Path:
    """The folder that a key of the configuration names, its ~ or ~user replaced. Raises UserError where there is no such user."""
    try:
        return Path(getattr(config, key)).expanduser()
    except RuntimeError:
        raise UserError(
            f"{key}: {getattr(config, key)} names a user that this machine does not have; give the folder's path"
        ) from None


def _find_or_explain(folder: Path, term: Term) -> SubmittedFolder:
    """A submission, or the reason why it cannot be read: one of many must not stop the others."""
    if problem := unusable_reason(folder):
        return SubmittedFolder(folder, problem=problem)
    try:
        found = find(folder.absolute(), term)
        _ = found.sha256  # reads all that is taken
    except OSError as error:
        return SubmittedFolder(folder, problem=f"it cannot be read: {error.filename or folder.name}: {error.strerror}")
    return found


def report_folders(study: str, submitted: Iterable[str]) -> list[str]:
    """The folders of reports on submissions by name. Raises UserError where there is none."""
    if not submitted:
        raise UserError(NOT_NAMED)
    return [str(REPORTS / study / name) for name in submitted]


def _plain(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".-")[:60]
    # Snakemake takes what repeats itself twenty times for a rule that never ends.
    return re.sub(r"(.+?)\1{9,}", r"\1", plain) or "submission"


def find(folder: Path, term: Term) -> SubmittedFolder:
    """The files of a submission for a term. One that cannot be taken is named with the reason, and stops no other."""
    found = SubmittedFolder(folder)
    folders = list(_folders(folder))
    for one in folders:
        if not os.access(one, os.R_OK | os.X_OK):
            found.refused[f"folder {found.printable_path(one)}"] = f"{found.printable_path(one)} cannot be read"
    for name in term.optimizations:
        if place := next((one for one in folders if one.name == name), None):
            _take(found, name, _find_code(place))
            _take_answers(found, name, place)
    custom = [one for one in folders if one.name == "custom"] + folders[:1]
    if final := next((one / name for name in NAMES for one in custom if os.path.lexists(one / name)), None):
        _take(found, FINAL, final)
        _take_answers(found, FINAL, final.parent)
    for role, name in BASELINES.items():
        known = [one / name for one in custom if os.path.lexists(one / name)]
        if known and known[0] != final:
            _take(found, role, known[0])
    for name, path in found.files.items():
        _take_output(found, name, path)
    return found


def _folders(root: Path) -> Iterator[Path]:
    """A folder and those in it, the nearest first; links are not followed."""
    level, left = [root], _FOLDERS
    for _ in range(_DEEP + 1):
        below: list[Path] = []
        for folder in level:
            yield folder
            left -= 1
            if left <= 0:
                return
            below += [one for one in _entries(folder) if one.name[0] != "." and not one.is_symlink() and one.is_dir()]
        level = below


def _entries(folder: Path) -> list[Path]:
    """What is in a folder, by name; the first of very many, and nothing of one that cannot be read."""
    try:
        with os.scandir(folder) as found:
            return sorted(Path(one.path) for one in islice(found, _ENTRIES))
    except OSError:
        return []


def _find_code(folder: Path) -> Path:
    """The file that an optimization's folder is about; that which ought to be there, where none is."""
    usual = [folder / name for name in NAMES if os.path.lexists(folder / name)]
    others = [one for one in _entries(folder) if one.suffix == ".cu"]
    return (usual or (others if len(others) == 1 else []) or [folder / NAMES[0]])[0]


def _take(found: SubmittedFolder, name: str, path: Path) -> None:
    if reason := _rejection_reason(path, _CODE_BYTES):
        found.refused[name] = f"{found.printable_path(path)} {reason}"
    else:
        found.files[name] = path


def _take_answers(found: SubmittedFolder, name: str, folder: Path) -> None:
    path = next((folder / answer for answer in ANSWERS if os.path.lexists(folder / answer)), None)
    if path is None:
        return
    if reason := _rejection_reason(path, _ANSWER_BYTES):
        found.refused[f"answers of {name}"] = f"{found.printable_path(path)} {reason}"
    else:
        found.answers[name] = path
        pictures = [one for one in _entries(folder) if _PICTURE.fullmatch(one.name)]
        takable = [one for one in pictures if not _rejection_reason(one, _PICTURE_BYTES)]
        found.pictures.update({f"{name}/{one.name}": one for one in takable[:_PICTURES]})


def _take_output(found: SubmittedFolder, name: str, path: Path) -> None:
    """The output of the file at a path: called like it, else m3.out, else that of the largest batch, m3_10000.out."""
    usual = [path.with_suffix(".out"), *([] if name in BASELINES else [path.with_name(OUTPUT)])]
    usual += [found.folder / "project" / OUTPUT, found.folder / OUTPUT] if name == FINAL else []
    usual += [] if name in BASELINES else _batch_outputs(path.parent)
    there = next((one for one in usual if os.path.lexists(one)), None)
    if there and not _rejection_reason(there, _ANSWER_BYTES):
        found.outputs[name] = there


def _batch_outputs(folder: Path) -> list[Path]:
    """Outputs of one batch each, the largest first."""
    found = [(int(batch[1]), one) for one in _entries(folder) if (batch := _OF_BATCH.fullmatch(one.name))]
    return [one for _, one in sorted(found, reverse=True)]


def _rejection_reason(path: Path, most_bytes: int) -> str:
    """Why a file cannot be taken, to stand behind its name; empty where it can."""
    if path.is_symlink():
        return "is a link; put the file itself there"
    if not path.exists():
        return "is not there"
    if not path.is_file():
        return "is no file"
    if not os.access(path, os.R_OK):
        return "cannot be read"
    if path.stat().st_size > most_bytes:
        return f"has {path.stat().st_size} bytes, and the limit is {most_bytes}"
    if path.suffix == ".cu" and (lines := path.read_bytes().count(b"\n")) > _LINES:
        return f"has {lines} lines, and the limit is {_LINES}"
    return ""


def open_room(room: Path, name: str, folder: Path, shared: Mapping[str, Any]) -> None:
    """Make, or bring up to date, the project of the submission in a folder; see `shared_configuration`."""
    term = Term.model_validate(shared["studies"][shared["study"]]["course"])
    found = find(folder, term)
    for linked in _LINKED:
        _link(room / linked, LIBRARY / linked)
    for path in (LIBRARY / "reports").iterdir():
        if path.name not in ("out", "runs"):
            _link(room / "reports" / path.name, path)
    _fill(room / "kernels", {f"{DEFAULT_PROBLEM}/{name}": text for name, text in _kernels(found, term).items()})
    written = {f"{of}.md": path for of, path in found.answers.items()} | found.pictures
    written |= {f"{of}.out": path for of, path in found.outputs.items()}
    _fill(room / WRITTEN, {name: path.read_bytes() for name, path in written.items()})
    text = yaml.safe_dump(_configuration(found, name, shared, term), sort_keys=False, allow_unicode=True)
    _fill_one(room / "config.yaml", text.encode())


def _kernels(found: SubmittedFolder, term: Term) -> dict[str, bytes]:
    """The files of `kernels/conv/`: each source as it is, and beside it what it is compared with."""
    written = {}
    for name, path in found.files.items():
        content = path.read_bytes()
        # What its author says of it in a comment decides nothing here: it could declare a lower precision.
        said = sources.read_cuda(path).header
        written[f"{name}.cu"] = b"/**/" + content.removeprefix(b"\xef\xbb\xbf") if said else content
        asked = term.optimizations.get(name)
        facts = {"title": asked.title if asked else TITLES[name]}
        if asked and asked.baseline in found.files:
            facts["builds_on"] = asked.baseline
        written[f"{name}.yaml"] = yaml.safe_dump(facts).encode()
    return written


def shared_configuration(config: Config, context: Context | None = None) -> str:
    """The part of this configuration for a submission, as JSON: its study, and the report's `context`."""
    study = config.studies[config.study]
    keys = {"study", "gpu", "gpus", "target", "sandbox", "profilers", "measuring"}
    kept = config.model_dump(mode="json", include=keys)
    described = {
        "networks": {study.network: config.networks[study.network].model_dump(mode="json", exclude_none=True)},
        "studies": {config.study: study.model_dump(mode="json", exclude_none=True)},
    }
    beside = {"context": context.model_dump(mode="json")} if context else {}
    return json.dumps({**kept, **described, **beside})


def _configuration(found: SubmittedFolder, name: str, shared: Mapping[str, Any], term: Term) -> dict[str, Any]:
    return {
        **{key: value for key, value in shared.items() if key != "context"},
        "cpu": "none",
        "architectures": [term.gpu.arch],
        "report": {"title": "Convolution on a GPU, milestone 3", "authors": [name]},
        "submission": {
            "name": name,
            "files": {of: found.printable_path(path) for of, path in found.files.items()},
            "answers": {of: found.printable_path(path) for of, path in found.answers.items()},
            "outputs": {of: found.printable_path(path) for of, path in found.outputs.items()},
            "refused": dict(found.refused),
            "context": shared.get("context"),
        },
    }


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink():
        link.unlink()
    link.symlink_to(target)


def _fill(folder: Path, content: Mapping[str, bytes]) -> None:
    """Have a folder hold these files, by their paths in it, and no others; a file that is right keeps its date."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in content:
            path.unlink()
    for name, wanted in content.items():
        _fill_one(folder / name, wanted)


def _fill_one(path: Path, wanted: bytes) -> None:
    if not path.exists() or path.read_bytes() != wanted:
        with atomic_write(path) as temporary:
            temporary.write_bytes(wanted)
