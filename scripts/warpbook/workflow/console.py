"""What Snakemake says on the console, in few lines: how far it is, and every error. Its log file keeps all of it."""

import contextlib
import logging
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from warpbook.common import units
from warpbook.common.files import LIBRARY, PACKAGE

SNAKEMAKE = "snakemake.logging"  # the logger that Snakemake speaks through
EVERY_S = 30
"""Where no terminal is, a line is written for the first job of a rule, and for another after so many seconds."""
BAR = 24
LAST_LINES = 5
CHATTER = (
    "Assuming unrestricted shared filesystem",
    "Building DAG of jobs",
    "Complete log",
    "Conda environments: ignored",
    "Elapsed time",
    "Execute ",
    "Exiting because a job execution failed",  # those that failed are named, and counted at the end
    "Group jobs: inactive",
    "Rules claiming more threads",
    "Select jobs to execute",
    "Singularity containers: ignored",
    "Using shell",
)
"""How messages without news begin. What Snakemake says besides, it says as ever."""
SHOWN_AS_PROGRESS = (
    "workflow_started",
    "run_info",
    "resources_info",
    "group_info",
    "job_info",
    "job_started",
    "job_finished",
    "progress",
)
FAILED = "At least one job did not complete"
NOTHING = "Nothing to be done"
STOPPING = "Terminating processes on user request"
SAID = Path("results/said")
"""What was said last on each study's report, for who asks for it again: `<study>.txt`."""


class Console(logging.Handler):
    """Takes the place of Snakemake's own handler of the console, whose formatter words what is left as it is. A
    terminal has one line that is written over; elsewhere a line stands for each stage."""

    def __init__(self, stream: TextIO, words: logging.Formatter | None, wanted: Callable[[], Iterable[str]] = list):
        super().__init__()
        self.setFormatter(words)
        self.stream, self.live, self.wanted = stream, stream.isatty(), wanted
        self.done, self.total = 0, 0
        self.messages: dict[int, str] = {}
        self.failed: set[int] = set()
        self.rules: set[str] = set()
        self.began = self.written = time.monotonic()
        self._status = ""
        self.stopped = False  # by the user: a job that ends then has not failed

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._say(record)
        except BrokenPipeError:
            raise
        except Exception:
            self.handleError(record)

    def _say(self, record: Any) -> None:
        event = str(getattr(record, "event", None) or "")
        if event == "run_info":
            self.total = record.stats["total"]
        elif event == "progress":
            self.done, self.total = record.done, record.total
        elif event == "job_info":
            self._begins(record)
        elif event == "job_error":
            self._fails(record)
        elif event not in SHOWN_AS_PROGRESS:
            text = self.format(record)
            if event == "error" and "CalledProcessError" in text:
                return  # a job's command failed, which the job's own record tells
            if text.startswith(STOPPING):
                self.stopped = True
                self._line(f"Stopped: {self.done} of {self.total} jobs are done. The same command does what is left.")
            elif record.levelno >= logging.ERROR and FAILED in text:
                self._line(self._outcome())
            elif text.strip() not in ("", "None") and not text.lstrip().startswith(CHATTER):
                self._line("\n".join([text, *(summary_line(self.wanted()) if text.startswith(NOTHING) else [])]))

    def _begins(self, record: Any) -> None:
        if not record.rule_msg:  # a rule without work of its own
            return self._clear()
        self.messages[record.jobid] = record.rule_msg
        if self.live:
            return self._show(record.rule_msg)
        now = time.monotonic()
        if record.rule_name not in self.rules or now - self.written >= EVERY_S:
            self.rules.add(record.rule_name)
            self.written = now
            minutes, seconds = divmod(int(now - self.began), 60)
            place = f"{self.done:{len(str(self.total))}}/{self.total}"
            self._line(f"[{place}] {minutes}:{seconds:02} {record.rule_msg}")

    def _fails(self, record: Any) -> None:
        if self.stopped or record.jobid in self.failed:  # Snakemake may tell it again at the end
            return
        self.failed.add(record.jobid)
        lines = [f"FAILED: {self.messages.get(record.jobid, record.rule_name)}"]
        lines += [f"  {name}: {value}" for name, value in record.aux.items()]
        for log in record.log:
            if record.aux:  # it ran elsewhere, and what it said is not on this console
                lines += [f"  | {line}" for line in _end(Path(log))]
            lines.append(f"  log: {log}")
        if not record.log:
            lines.append(f"  command: {record.shellcmd}")
        self._line("\n".join(lines))

    def _outcome(self) -> str:
        if self.stopped:
            return "The jobs that were at work are ended."
        undone = self.total - self.done - len(self.failed)
        words = f"{len(self.failed)} of {self.total} jobs failed"
        words += f", {undone} were not begun that wait for such a one" if undone else ""
        return f"{words}. Once that is mended, the same command does what is left."

    def _line(self, text: str) -> None:
        self._clear()
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def _show(self, doing: str) -> None:
        self._clear()
        full = BAR * self.done // max(self.total, 1)
        status = f"{'━' * full}{'╌' * (BAR - full)} {self.done}/{self.total} {doing}"
        if self.done + 2 >= self.total:  # the last with work of its own: what it says begins a line
            return self._line(status)
        self._status = f"{status[: shutil.get_terminal_size().columns - 4]} … "
        self.stream.write(self._status)
        self.stream.flush()

    def _clear(self) -> None:
        if self._status:
            self.stream.write("\r\033[K")
            self.stream.flush()
        self._status = ""

    def close(self) -> None:
        self._clear()
        super().close()


def _end(log: Path) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]


def summary_line(wanted: Iterable[str]) -> list[str]:
    """Where files are that were made before: of a study's report what was said then, of any other its path."""
    said: dict[Path, list[str]] = {}
    others = []
    for file in wanted:
        words = SAID / f"{Path(file).stem.removesuffix('-supplement')}.txt"
        if words.exists():
            said[words] = words.read_text().splitlines()
        else:
            others.append(str(file))
    lines = [line for words in said.values() for line in words]
    return [*lines, *([f"here: {units.join_some(others)}"] if others else [])]


def _interrupt(*_: Any) -> None:
    """Have Snakemake stop; a second Ctrl-C then ends it at once, its jobs with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def shorten_reason(record: Any) -> bool:
    """Have a dry run name few files in each part of a reason, those of the project first: an update changes dozens."""
    parts = (part.partition(": ") for part in str(getattr(record, "reason", "")).split("; "))
    shown = [
        f"{what}{colon}{units.join_some(sorted(files.split(', '), key=_is_built_in))}" for what, colon, files in parts
    ]
    record.reason = "; ".join(shown).replace(f"{PACKAGE}/", "warpbook/")
    return True


def _is_built_in(file: str) -> tuple[bool, str]:
    return file.startswith((f"{LIBRARY}/", f"{PACKAGE}/")), file


def install(wanted: Callable[[], Iterable[str]] = list) -> None:
    """Have Snakemake say less on the console, unless it was asked for more or for another logger. wanted: the files
    that its command is about; where none is to be made, they are named."""
    logger = logging.getLogger(SNAKEMAKE)
    for default in logger.handlers:
        asked: Any = default.filters[0] if default.filters else None
        if default.name != "DefaultStreamHandler" or not isinstance(default, logging.StreamHandler):
            continue
        if any(getattr(asked, more, False) for more in ("verbose", "printshellcmds", "debug_dag")):
            continue
        if getattr(asked, "dryrun", False):
            default.addFilter(shorten_reason)
            continue
        console = Console(default.stream, default.formatter, wanted)
        console.filters = default.filters  # `--quiet` holds
        logger.removeHandler(default)
        logger.addHandler(console)
        with contextlib.suppress(ValueError):  # only the main thread hears of it
            signal.signal(signal.SIGINT, _interrupt)
