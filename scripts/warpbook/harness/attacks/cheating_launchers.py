"""Launchers that cheat, of the attacks on the harness: the same text serves NumPy's arrays and CuPy's.

Each gets `launch`, which computes the right answer.
"""

REPLAY = """
def prepare(kernels, layer, images, launch):
    kept = []

    def call(x, w, y):
        if not kept:
            launch(x, w, y)
            kept.append(y.copy())
        y[...] = kept[0]

    return call
"""

CALLS_BEFORE_REPLAY = 6

REPLAY_LATER = f"""
def prepare(kernels, layer, images, launch):
    kept = []

    def call(x, w, y):
        if len(kept) < {CALLS_BEFORE_REPLAY}:
            launch(x, w, y)
            kept.append(y.copy())
        else:
            y[...] = kept[-1]

    return call
"""

REMEMBER = """
def prepare(kernels, layer, images, launch):
    kept = {}

    def call(x, w, y):
        key = x.ravel()[:64].tobytes() + w.ravel()[:64].tobytes()
        if key not in kept:
            launch(x, w, y)
            kept[key] = y.copy()
        y[...] = kept[key]

    return call
"""

REMEMBER_ON_DISK = """
import numpy
from pathlib import Path

def prepare(kernels, layer, images, launch):
    mine = set()

    def call(x, w, y):
        path = Path(__file__).with_name("-".join(map(str, x.shape + w.shape)) + ".npy")
        if path.exists() and path not in mine:
            answer = numpy.load(path)
            y.set(answer) if hasattr(y, "set") else numpy.copyto(y, answer)
            return
        launch(x, w, y)
        numpy.save(path, y.get() if hasattr(y, "get") else y)
        mine.add(path)

    return call
"""

LAZY = """
class Lazy:
    def __init__(self, compute, y):
        self.compute, self.y, self.shape = compute, y, y.shape

    def __getattr__(self, name):
        self.compute()
        return getattr(self.y, name)

def prepare(kernels, layer, images, launch):
    return lambda x, w, y: Lazy(lambda: launch(x, w, y), y)
"""

STILL_CLOCK = """
import time

def prepare(kernels, layer, images, launch):
    time.perf_counter = lambda: 0.0
    return launch
"""

FALSE_EVENTS = """
import cupy

def prepare(kernels, layer, images, launch):
    cupy.cuda.get_elapsed_time = lambda start, stop: 1e-6
    return launch
"""

NO_WAIT = """
import cupy

def prepare(kernels, layer, images, launch):
    cupy.cuda.runtime.deviceSynchronize = lambda: None
    return launch
"""

KIND_JUDGE = """
from warpbook.harness import checking

def prepare(kernels, layer, images, launch):
    genuine = checking.comparison_columns
    checking.comparison_columns = lambda *arguments: {**genuine(*arguments), "ok": True, "status": "ok", "reason": ""}

    def call(x, w, y):
        y[...] = 0

    return call
"""

FOR_POISON = """
import numpy

def prepare(kernels, layer, images, launch):
    def call(x, w, y):
        if int(y.ravel()[:1].view(numpy.uint32)[0]) == 0x7FC0DEAD:
            launch(x, w, y)

    return call
"""

_ON_A_STREAM = """
import cupy, numpy

def prepare(kernels, layer, images, launch):
    stream = cupy.cuda.Stream(non_blocking=True)
    extents = [numpy.int32(e) for e in (images, layer.C, layer.H, layer.W, layer.M, layer.K)]
    function = kernels.function("conv_forward")
    grid = (-(-layer.W_out // 16) * -(-layer.H_out // 16), layer.M, images)
"""

UNWAITED = f"""{_ON_A_STREAM}
    def call(x, w, y):
        cupy.cuda.runtime.deviceSynchronize()
        function(grid, (16, 16, 1), (x, w, y, *extents), stream=stream)

    return call
"""

GRAPH = f"""{_ON_A_STREAM}
    graphs = {{}}

    def call(x, w, y):
        cupy.cuda.runtime.deviceSynchronize()
        key = x.data.ptr, w.data.ptr, y.data.ptr
        if key not in graphs:
            with stream:
                stream.begin_capture()
                function(grid, (16, 16, 1), (x, w, y, *extents), stream=stream)
                graphs[key] = stream.end_capture()
        graphs[key].launch(stream)

    return call
"""
