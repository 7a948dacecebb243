"""A variant as it is timed: in a process of its own, by a judge that owns its arrays.

Each timed call gets new inputs. The results of some calls in the middle of the timing, chosen
by chance after they were done, and of the last are compared with float64 in the end. The process says how long a call took;
how long many calls take is seen on the judge's own clock, and a process that claims less is refused.
"""

import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter, sleep
from typing import Any

import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking
from warpbook.harness.bench import MARGIN, SHORT_CALL_MS, Bench, SharedSets, SteadyCall, Timers, allocate
from warpbook.harness.variant_process import VariantProcess
from warpbook.kernels.variants import Variant
from warpbook.machine.load import WINDOW_S, LoadMeter
from warpbook.problems.problem import Case

SETS = 2
"""Of arrays, so that a call which only wakes the threads is on others than the timed one."""

COMPARED, COMPARED_S = 2, 0.1
"""Results of so many calls are compared, and of more until so much time is spent."""

KEPT, KEPT_BYTES, FEWEST_KEPT = {True: 4, False: 16}, {True: 1 << 30, False: 64 << 20}, {True: 1, False: COMPARED}
"""Of so many calls the results are kept on a GPU, and on a CPU: on a GPU of fewer, since a copy there may slow down the next
call. On a CPU so many bytes take longer than COMPARED_S to compare: more would be copied, between two calls, for nothing."""

AUDITED_MS, MOST_AUDITED_CALLS = 2, 64
"""So long n audited calls are to take."""

DOUBTED_TIMES = 4
"""Of a claim on a GPU that looks false so many times as many calls are audited: of a longer batch it is a smaller share what
the process waits for its turn on the GPU, which was up to 1.2 ms on an H200."""

AUDITS, AUDIT_S, LAST_AUDITS = 10, 0.5, 2
"""So many trials are made before a refusal, more until so much time is spent, and the last beside a look at the load: what
other programs take of the machine makes some of them longer, and none shorter."""

CLAIMED_SHARE, BUSY_SHARE = 0.8, 0.05
"""A call may claim so much of what the judge sees, and AUDIT_SLACK_MS less, and not less than that; so much on a machine
that others keep BUSY, where the judge or a thread of the call has to wait for them each time."""

BUSY = 0.3
"""Others keep so much of the processors busy at least on a busy machine."""

PROMPT = 0.1
"""On any machine the judge, or a thread of the call, sometimes waits for a processor. The median claim is compared with the
time that this share of the calls stay below by the judge's clock."""

COPIES = 2
"""What a call returns is handed over on the judge's clock: it may take so many times as long as the judge's own copy. So
may what comes of caches that do not hold all sets of an audit."""

COLD_TRIALS = 5
"""The judge copies so many times what a call may find in no cache."""

AUDIT_SLACK_MS = 0.001
"""A clock's and a message's resolution."""

LONG_CALL_MS, MESSAGE_MS = 2, 0.3
"""A longer call on a CPU is audited in its samples alone. A request and an answer take so long at most: half of that is
usual."""

WAKING, WOKEN_MESSAGE_MS = 3, 1
"""A call that wakes the threads, and the timed one behind it in the same request, take so many times as long as that at most.
Such calls are short and audited in batches too: what their samples show is to be beyond any delay of a message."""

OWN_WAY_SHARE = 0.5
"""The kernels' own time is audited where ordering the calls takes less than so much of the time of all."""


class FalseClaim(VariantFailure):
    """A process claimed less time than the judge saw."""

    def __init__(self, reason: str):
        super().__init__("refused", reason)


_Called = tuple[Case, tuple[int, int], Callable[[], dict[str, Any]]]
"""A call on a part of a case: what its inputs are made from, and its results."""


class _Ring:
    """Sets of arrays of a part of a case, and the next to be called on."""

    def __init__(self, part: Case, shared: SharedSets, place: int):
        self.part, self.shared, self.place = part, shared, place
        self.turn = 0


class TimedVariant:
    """A variant in its process, timed on one case after another, interleaved with its `rivals`."""

    def __init__(self, bench: Bench, variant: Variant, sandboxed: bool, process: VariantProcess | None = None):
        self.variant = variant
        self.rivals: Sequence[TimedVariant] = ()
        self._bench, self._sandboxed = bench, sandboxed
        self.process = process or self._new_process()
        self._rings: dict[Case, _Ring] = {}
        self._parts: list[Case] = []
        self._kept: list[_Called] = []
        self._last: tuple[_Ring, tuple[int, int]] | None = None
        self._weights = secrets.randbits(48)
        self._calls = 0
        self._last_ms = float("inf")
        self._asked_ms = 0.0
        self._others_in_series = self._others_from_now()
        self._samples_ms: list[tuple[float, float]] = []
        """What each sample was said to take, and what the judge saw of it but for messages."""

    def pids(self) -> set[int]:
        """Its process, and what that started."""
        return self.process.pids()

    def processor_s(self) -> float:
        """Processor time that they have taken."""
        return self.process.processor_s()

    def _new_process(self) -> VariantProcess:
        return VariantProcess(self.variant, self._sandboxed, on_device=self._bench.on_device)

    def close(self) -> None:
        """End its process."""
        self.process.close()

    def arrange(self, case: Case) -> Timers:
        """Have the variant prepared for a case; its timers. Raises VariantFailure."""
        if self.process.ended:
            self.process = self._new_process()
        self._forget()
        case = case.with_problem(self.variant.problem)
        self._parts = self._bench.parts(case)
        self._kept, self._calls, self._last_ms = [], 0, float("inf")
        self._samples_ms = []
        self._others_in_series = self._others_from_now()
        self._returns = False
        for part in dict.fromkeys(self._parts):
            ring = self._rings[part] = self._make_ring(part, 1 if self._bench.on_device else SETS)
            if self._bench.on_device:
                self._ask(do="ready", place=ring.place)
        return {(state, kind): partial(self._sample, state, kind) for state, kind in self._bench.kinds(case)}

    def _make_ring(self, part: Case, sets: int) -> _Ring:
        shared = self._bench.share(part, sets)
        ring = _Ring(part, shared, len(self._rings))
        self._ask(shared.handle, do="arrange", **shared.request)
        self._refill(ring, range(sets))
        return ring

    def _forget(self) -> None:
        """Have the process let go of all arrays, and free them."""
        if self._rings:
            self._ask(do="forget")
        self._rings.clear()

    def _ask(self, handle: int | None = None, /, **request: Any) -> dict[str, Any]:
        """What the process answers. On a CPU it stands still otherwise: it neither slows down what is timed beside it, nor
        sees inputs before the call on them, nor writes results after it."""
        worked_s = self.process.resume()  # on its inputs, perhaps: that counts too
        answer = self.process.ask(handle, **request)
        self._asked_ms = (perf_counter() - self.process.resumed_s + worked_s) * 1e3
        if not self._bench.on_device:
            self.process.pause()
        return answer

    def _seeds(self) -> tuple[int, int]:
        """What the first input and the others are made from.

        A library may pack weights once for all calls with them: for one, what is behind the first input stays.
        """
        seed = secrets.randbits(48)
        return seed, self._weights if self.variant.header.peer else seed

    def _refill(self, ring: _Ring, numbers: Iterable[int]) -> list[tuple[int, int]]:
        """Fill the inputs of some sets with new values; the seeds of each. The process stands still until it is
        asked again: on a GPU too it sees them in its calls' time alone."""
        if self._bench.on_device:  # on a CPU it does since its last answer
            self.process.pause()
        found = []
        for number in numbers:
            found.append(self._seeds())
            self._bench.refill(ring.part, ring.shared.sets[number], *found[-1])
        return found

    def _sample(self, state: str, kind: str) -> float:
        """One sample in milliseconds: of all parts of the case, one after another."""
        total_ms = seen_ms = 0.0
        kept = secrets.randbelow(len(self._parts))
        for number, part in enumerate(self._parts):
            ring = self._rings[part]
            if self._bench.on_device:
                # Its process draws them: another context's work between two samples would be part of the second. What is
                # drawn otherwise gives wrong results.
                seeds = self._seeds()
                request: dict[str, Any] = {"state": state, "kind": kind, "seeds": seeds}
            else:
                request = {"number": (ring.turn + 1) % SETS}
                if not number and self._last_ms < LONG_CALL_MS:
                    # It sees the inputs of the timed call: the audit of short calls has none before them.
                    request["wake"] = ring.turn
                elif not number and self._last_ms < SHORT_CALL_MS:
                    self._ask(do="run", place=ring.place, numbers=[ring.turn])
                ring.turn = request["number"]
                (seeds,) = self._refill(ring, [ring.turn])
            taken_ms = self._call(ring, do="take", **request).get("time_ms")
            if type(taken_ms) is not float or not 0 < taken_ms <= self._asked_ms:
                raise self.process.invalid_answer()
            total_ms += taken_ms
            if "wake" in request:
                seen_ms += (self._asked_ms - WOKEN_MESSAGE_MS) / WAKING
            else:
                seen_ms += self._asked_ms - MESSAGE_MS
            self._last = ring, seeds
            if number == kept:
                self._keep_by_chance(ring, seeds)
        self._last_ms = total_ms
        self._samples_ms.append((total_ms, seen_ms))
        return total_ms

    def _call(self, ring: _Ring, **request: Any) -> dict[str, Any]:
        """What the process answers to calls on a ring. Raises VariantFailure where they returned arrays of other shapes."""
        answer = self._ask(place=ring.place, **request)
        if shapes := answer.get("shapes"):
            checking.reject_other_shapes(self.variant, ring.part, shapes)
            self._returns = True
        return answer

    def _keep_by_chance(self, ring: _Ring, seeds: tuple[int, int]) -> None:
        """Keep the results of a call, or not, so that each call so far is among those that are kept with the same chance."""
        self._calls += 1
        nbytes = sum(8 * ring.part.count(name) for name in ring.part.problem.outputs)
        on_device = self._bench.on_device
        most = max(FEWEST_KEPT[on_device], min(KEPT[on_device], KEPT_BYTES[on_device] // nbytes))
        place = len(self._kept) if self._calls <= most else secrets.randbelow(self._calls)
        if place < most:
            results = ring.shared.results(ring.turn)
            self._kept[place : place + 1] = [(ring.part, seeds, lambda: results)]

    def verify(self, claimed_ms: Mapping[str, float], doubted: bool = False) -> None:
        """Look at the last call of the timing and at the margins; and, with the median of each kind of sample of a whole case
        in the state that others are compared in, at other calls and at the judge's own clock. Raises VariantFailure.
        `doubted`: such a claim looked false before.
        """
        for ring in self._rings.values():
            self._look_at_margins(ring)
        if self._last:
            ring, last = self._last
            self._compare(ring.part, last, ring.shared.results(ring.turn))
            if claimed_ms:  # what a baseline computes meanwhile is looked at in its own job
                self._compare_some([one for one in self._kept if one[1] != last])
        if not claimed_ms:
            return
        part = self._parts[0]
        share = part.work / sum(one.work for one in self._parts) if len(self._parts) > 1 else 1.0
        claimed_ms = {kind: time_ms * share for kind, time_ms in claimed_ms.items()}
        if not self._bench.on_device:
            self._audit_samples(self._handing_ms(self._rings[part]))
        if self._bench.on_device or claimed_ms["op"] <= LONG_CALL_MS:
            self._forget()
            self._audit(part, claimed_ms, doubted and self._bench.on_device)
        self._forget()

    def steady_call(self, op_ms: float) -> SteadyCall | None:
        """A call of a whole case in a row of calls without a pause, where the device tells its energy; `op_ms` is what one
        takes alone."""
        sets = 2 * self._audited_calls(self._parts[0], op_ms)
        ring = self._rings[self._parts[0]] = self._make_ring(self._parts[0], sets)
        self._lay_out(ring)

        def call(count: int) -> int:
            rounds = -(-count // sets)
            self._ask(do="run", place=ring.place, numbers=list(range(sets)), rounds=rounds, finish=False)
            self._ask(do="synchronize")
            return rounds * sets

        found = self._bench.steady_call(call, op_ms)
        self._forget()
        return found

    def _look_at_margins(self, ring: _Ring) -> None:
        for buffers in ring.shared.sets:
            for name, one in buffers.outputs.items():
                if outside := sum(self._bench.count_changed(words, MARGIN[one.unit]) for words in one.margins):
                    raise VariantFailure(
                        "wrong_result",
                        f"{self.variant.name} writes outside its output {name} when timed: {outside} of the words around "
                        "it changed",
                    )

    def _compare_some(self, found: Sequence[_Called]) -> None:
        """Compare results of some calls with float64, chosen by chance."""
        began = perf_counter()
        for number, (part, seeds, results) in enumerate(secrets.SystemRandom().sample(found, len(found))):
            if number >= COMPARED and perf_counter() - began > COMPARED_S:
                return
            self._compare(part, seeds, results())

    def _compare(self, part: Case, seeds: tuple[int, int], results: dict[str, Any]) -> None:
        """Compare results with float64, the inputs made again. Raises VariantFailure."""
        buffers = allocate(self._bench, part)
        self._bench.refill(part, buffers, *seeds)
        differences = self._bench.compare(part, buffers.input_values, results)
        verdict = checking.comparison_columns(self.variant, part, differences, integers=False)
        if not verdict["ok"]:
            raise VariantFailure("wrong_result", f"when timed: {verdict['reason']}")

    def _audit(self, part: Case, claimed_ms: Mapping[str, float], doubted: bool = False) -> None:
        """See on the judge's own clock how long 2n calls take, each on inputs of its own, and n, which tell what a batch
        costs besides. Raises VariantFailure where the process claims less, or some of these calls are wrong."""
        count = self._audited_calls(part, claimed_ms["op"], DOUBTED_TIMES if doubted else 1)
        ring = self._rings[part] = self._make_ring(part, 2 * count)
        # The first calls find nothing in any cache.
        self._lay_out(ring)
        self._call(ring, do="run", numbers=list(range(2 * count)))
        besides_ms = self._handing_ms(ring) + (0 if self._bench.on_device else self._cold_ms(ring))
        kept: dict[int, list[_Called]] = {}
        least_ms = np.full((2, 2), np.inf)  # of n and 2n calls: until they were ordered, and until they were done
        began, lasts, others_in_audit = perf_counter(), 0, self._others_from_now()
        for trial in itertools.count(1):
            for row, calls in enumerate((count, 2 * count)):
                seeds = self._refill(ring, range(calls))
                self._lay_out(ring)
                self._call(ring, do="run", numbers=list(range(calls)))
                ordered_ms = done_ms = self._asked_ms
                if self._bench.on_device:
                    self._ask(do="synchronize")
                    done_ms += self._asked_ms
                least_ms[row] = np.minimum(least_ms[row], [ordered_ms, done_ms])
                if not secrets.randbelow(trial):  # each trial with the same chance
                    looked_at = secrets.SystemRandom().sample(
                        range(calls), min(calls, FEWEST_KEPT[self._bench.on_device])
                    )
                    kept[row] = [(part, seeds[one], partial(dict, ring.shared.results(one))) for one in looked_at]
            # What a batch costs whatever its length, and no more of it than an honest process needs.
            once_ms = np.clip(2 * least_ms[0] - least_ms[1], 0, MESSAGE_MS)
            ordering_ms, seen_ms = (least_ms[1] - once_ms) / (2 * count) - besides_ms
            lasts += trial > AUDITS and perf_counter() - began > AUDIT_S
            share = _least_share(max(self._others_now(), others_in_audit())) if lasts else CLAIMED_SHARE
            kind = self._excess(claimed_ms, share * seen_ms, ordering_ms / seen_ms)
            if not kind:
                break
            if lasts == LAST_AUDITS:
                raise FalseClaim(
                    f"{self.variant.name} claims {claimed_ms[kind]:.4g} ms a call ({kind}); by the judge's clock each of "
                    f"{2 * count} calls takes {seen_ms:.4g} ms"
                )
        self._compare_some(list(itertools.chain(*kept.values())))

    def _handing_ms(self, ring: _Ring) -> float:
        """How long the process may take to hand over what a call returned; nothing where calls return nothing."""
        count = len(ring.shared.sets) if self._returns else 0
        spent_ms = 0.0
        for _ in range(2 if count else 0):  # the first time memory is allocated
            began = perf_counter()
            for number in range(count):
                ring.shared.results(number)
            self._bench.synchronize()
            spent_ms = (perf_counter() - began) * 1e3 / count
        return COPIES * spent_ms

    def _cold_ms(self, ring: _Ring) -> float:
        """How much longer a call may take because it comes after calls on all other sets, whose arrays a cache may not hold
        beside its own; by the judge's own copies of them."""

        def copy_ms(count: int) -> float:
            spent_ms = []
            for _ in range(COLD_TRIALS):
                began = perf_counter()
                for values in itertools.chain(*(buffers.values for buffers in ring.shared.sets[:count])):
                    np.copyto(np.ndarray(values.shape, values.dtype, target), values)
                spent_ms.append((perf_counter() - began) * 1e3 / count)
            return min(spent_ms)

        target = bytearray(max(values.nbytes for values in ring.shared.sets[0].values))
        return COPIES * max(0.0, copy_ms(len(ring.shared.sets)) - copy_ms(min(SETS, len(ring.shared.sets))))

    def _others_now(self) -> float:
        """What share of the processors others keep busy while this rests: what a variant does itself is no excuse."""
        others = self._others_from_now()
        sleep(WINDOW_S)
        return others()

    def _others_from_now(self) -> Callable[[], float]:
        """As `_others_now`, until that is called."""
        load, before_s = LoadMeter(), self._processor_s()
        return lambda: load.share_of_others(self._processor_s() - before_s)

    def _processor_s(self) -> float:
        return sum(one.processor_s() for one in (self, *self.rivals))

    def _audit_samples(self, handing_ms: float) -> None:
        """Hold what the judge saw of each sample against what the process said of it. Raises VariantFailure."""
        claimed_ms, seen_ms = np.transpose(self._samples_ms)
        seen_ms -= len(self._parts) * handing_ms
        claim_ms, prompt_ms = float(np.median(claimed_ms)), float(np.quantile(seen_ms, PROMPT, method="lower"))
        if claim_ms >= CLAIMED_SHARE * prompt_ms:
            return
        if claim_ms < _least_share(max(self._others_in_series(), self._others_now())) * prompt_ms:
            raise FalseClaim(
                f"{self.variant.name} claims {claim_ms:.4g} ms a call (op); by the judge's clock it answers "
                f"after {prompt_ms:.4g} ms"
            )

    def _lay_out(self, ring: _Ring) -> None:
        """Have the inputs laid out as a library takes them, which is not timed."""
        if self.variant.header.order == "NHWC":
            self._ask(do="lay_out", place=ring.place)

    def _audited_calls(self, part: Case, op_ms: float, times: int = 1) -> int:
        """How many calls are audited, and twice as many: usually, or so many times as many."""
        nbytes = sum(map(part.nbytes, part.arrays))
        room = max(1, self._bench.audited_bytes // (2 * nbytes))
        return int(min(room, times * MOST_AUDITED_CALLS, max(1, np.ceil(times * AUDITED_MS / op_ms))))

    def _excess(self, claimed_ms: Mapping[str, float], least_ms: float, ordering_share: float) -> str:
        """The kind of sample that claims less than it may; empty for none. What the host orders in more time than the kernels
        may take says nothing of these."""
        for kind, claimed in claimed_ms.items():
            told = kind == "op" or ordering_share < OWN_WAY_SHARE
            if told and claimed < least_ms - AUDIT_SLACK_MS:
                return kind
        return ""


def _least_share(others: float) -> float:
    """What share of what the judge saw is to be claimed where others kept so much of the processors busy."""
    return BUSY_SHARE if others > BUSY else CLAIMED_SHARE
