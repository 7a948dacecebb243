"""What a program does that a job on a GPU starts ahead of its turn: it waits for the turn before it touches CUDA.
`gpu_turn.GpuTurn` is the job's side of this. What is imported here every program that infers imports, which is
timed."""

import json
import os
import sys

from warpbook.common import parent_process

JOB = "WARPBOOK_JOB"
"""The environment variable with the address of the job that started a program ahead of its turn."""


def wait() -> None:
    """Wait until the job that started this program, if one did, has a GPU; see that alone, and end with the job."""
    if not (address := os.environ.pop(JOB, "")):
        return
    import socket

    job = socket.socket(socket.AF_UNIX)
    try:
        job.connect(address)
        told = job.makefile().readline()
    except OSError:
        told = ""
    if not told:
        sys.exit("the job that this program works for is no more")
    os.environ.update(json.loads(told))
    parent_process.end_with_process(job.detach())
