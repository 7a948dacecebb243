"""Which variants have sound figures, which of them stand for the rest, and which stand on each other."""

from functools import cached_property

from warpbook.kernels.variants import Variant
from warpbook.report.evidence.scope import EvidencePart, cached_method

MOST_SHOWN = 8  # variants in a chart, if the libraries leave room


class Ranking(EvidencePart):
    """Variants with sound figures, by what they are and how fast."""

    @cached_method
    def measured_variants(self, device: str, peers: bool | None = None) -> list[Variant]:
        """Variants of a device with a sound op time for every layer at the largest size; peers only, or none."""
        largest = self._ev.largest
        return [
            variant
            for variant in self._ev.compared_variants(device)
            if peers in (None, variant.header.peer)
            and all(self._ev.times.op(variant.name, layer, largest) for layer in self._ev.layer_names)
        ]

    def timed_variants(self, device: str) -> list[Variant]:
        """Variants of a device with a sound op time for any layer at the largest size."""
        times, largest, layers = self._ev.times, self._ev.largest, self._ev.layer_names
        compared = self._ev.compared_variants(device)
        return [one for one in compared if any(times.op(one.name, layer, largest) for layer in layers)]

    def _ours(self, *, fp32: bool) -> list[Variant]:
        variants = self.measured_variants("gpu", peers=False)
        return [variant for variant in variants if (variant.header.precision == "fp32") == fp32]

    def _starting_point(self, device: str) -> Variant | None:
        return next((one for one in self.measured_variants(device, peers=False) if not one.header.builds_on), None)

    @cached_property
    def naive(self) -> Variant | None:
        """The GPU variant that optimizations start from: the first that builds on nothing."""
        return self._starting_point("gpu")

    @cached_property
    def naive_cpu(self) -> Variant | None:
        return self._starting_point("cpu")

    @cached_property
    def best(self) -> Variant | None:
        """The FP32 GPU variant of ours whose op times, all layers at the largest size, add up to the least."""
        return self._least(self._ours(fp32=True))

    @cached_property
    def faster_variants(self) -> dict[str, Variant]:
        """By layer, the FP32 GPU variant of ours with the least median there, which may have no figure elsewhere, where it is
        called faster than the best of all."""
        if self.best is None:
            return {}
        found, size, times = {}, self._ev.largest, self._ev.times
        ours = [
            one for one in self._ev.compared_variants("gpu") if not one.header.peer and one.header.precision == "fp32"
        ]
        for layer in self._ev.layer_names:
            timed = [(time.value, one) for one in ours if (time := times.op(one.name, layer, size))]
            fastest = min(timed, key=lambda each: each[0])[1]
            over = times.speedup(fastest.name, layer, size, over=self.best.name)
            if over and over.verdict == "faster":
                found[layer] = fastest
        return found

    @cached_property
    def composite(self) -> dict[str, Variant]:
        """The best with each of `faster_variants` on its layer; empty where there is none."""
        if self.best is None or not self.faster_variants:
            return {}
        return {layer: self.faster_variants.get(layer, self.best) for layer in self._ev.layer_names}

    @cached_property
    def best_rounded(self) -> Variant | None:
        """The same of those that round their operands first, where it is faster than the best in FP32."""
        fastest = self._least([*self._ours(fp32=False), *([self.best] if self.best else [])])
        return fastest if fastest != self.best else None

    @cached_property
    def best_plain(self) -> Variant | None:
        """The same of those that multiply and add in FP32 alone, where the best does not."""
        plain = self._least([one for one in self._ours(fp32=True) if one.header.sums_in_fp32])
        return plain if plain != self.best else None

    @cached_property
    def headliners(self) -> list[Variant]:
        """The first kernel, each step from it to the best, the best that rounds its operands, and the best library."""
        named = [self.naive, *(self.chain(self.best) if self.best else []), self.best_rounded, self.best_peer]
        return list({one.name: one for one in named if one}.values())

    @cached_property
    def best_cpu(self) -> Variant | None:
        """The fastest CPU code, libraries among it."""
        return self._least(self.measured_variants("cpu"))

    @cached_property
    def best_peer(self) -> Variant | None:
        """The fastest FP32 library on the GPU: what our FP32 variants compete with."""
        return self._least(
            [peer for peer in self.measured_variants("gpu", peers=True) if peer.header.precision == "fp32"]
        )

    def fastest_peer(self, layer: str) -> Variant | None:
        """The library at FP32 accuracy with the least op time on one layer at the largest size."""
        timed = [
            (time.value, peer)
            for peer in self._ev.compared_variants("gpu")
            if peer.header.peer and peer.header.precision == "fp32"
            if (time := self._ev.times.op(peer.name, layer, self._ev.largest))
        ]
        return min(timed, key=lambda each: each[0], default=(0.0, None))[1]

    @cached_method
    def foremost(self, device: str) -> list[Variant]:
        """What a chart shows of a device's variants, the fastest first: the starting point, the libraries, the fastest on
        each layer and in plain FP32, and as many of the next fastest as a reader can tell apart."""
        ranked = sorted(self.measured_variants(device), key=self._total_ms)
        ahead = {one.name: one for one in self.faster_variants.values() if one.device == device}
        start = self._starting_point(device)
        kept = [one for one in ranked if one.header.peer or one in (start, self.best_plain) or one.name in ahead]
        others = [one for one in ranked if one not in kept][: max(MOST_SHOWN - len(kept), 1)]
        return [
            *(one for one in ahead.values() if one not in ranked),
            *(one for one in ranked if one in kept or one in others),
        ]

    def repeated(self, peer: Variant) -> Variant | None:
        """The library call that one builds on, where both run the same kernels; None where they do not, or nobody knows."""
        below = self._ev.plan.variants.get(peer.header.builds_on)
        if below is None or not below.header.peer:
            return None
        launched = self._ev.counters.kernels_launched
        mine = launched.get(peer.name)
        return below if mine and mine == launched.get(below.name) else None

    @cached_property
    def fastest_first(self) -> list[Variant]:
        """GPU variants by the sum of their op times at the largest size."""
        return sorted(self.measured_variants("gpu"), key=self._total_ms)

    def _least(self, candidates: list[Variant]) -> Variant | None:
        return min(candidates, key=self._total_ms, default=None)

    def _total_ms(self, variant: Variant) -> float:
        total = self._ev.times.total(variant.name, self._ev.largest)
        assert total is not None  # of what is measured, every layer has a figure
        return total.value

    def chain(self, variant: Variant) -> list[Variant]:
        """What a variant stands on, from its starting point to itself."""
        variants, steps = self._ev.plan.variants, [variant]
        while (below := steps[0].header.builds_on) in variants and len(steps) < len(variants):
            steps.insert(0, variants[below])
        return steps

    @cached_property
    def chains(self) -> list[list[Variant]]:
        """Of cumulative chains of three steps or more the longest, and that to the best, from where the study says. One alone
        where the longest passes the best or shares more than half of its steps with that chain."""
        measured = self.measured_variants("gpu", peers=False)
        every = [[step for step in self.chain(variant) if step in measured] for variant in measured]
        longest = max(every, key=len, default=[])
        if len(longest) < 3:
            return []
        to_best = next((chain for chain in every if chain[-1] == self.best and len(chain) >= 3), None)
        if to_best is None or self.best in longest[:-1]:
            return [longest]
        alike = 2 * sum(step in to_best for step in longest) > len(longest)
        return [*([] if alike else [longest]), self._chain_from(self._ev.study.first_kernel, to_best)]

    def _chain_from(self, start: str, chain: list[Variant]) -> list[Variant]:
        """A chain begun at `start`: back over what that builds on to where the two part, if it was measured."""
        first = next((variant for variant in self.measured_variants("gpu") if variant.name == start), chain[0])
        behind = self.chain(first)
        shared = [step for step in chain if step in behind]
        if not shared:
            return chain
        return [*(step for step in reversed(behind) if step not in chain), *chain[chain.index(shared[-1]) :]]
