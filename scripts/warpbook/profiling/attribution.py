"""Whether a profile's kernels are those of the variant that it is imported as."""

from collections.abc import Mapping

from warpbook.common import units
from warpbook.kernels import sources
from warpbook.kernels.launch_inference import cuda_ast, launch_sites
from warpbook.kernels.variants import Variant
from warpbook.profiling.profile_schema import Profile

_SHOWN = 3


def expected_kernels(variant: Variant) -> set[str] | None:
    """Names of the kernels in a variant's source; None where they are not to be read there, as those of a library."""
    if variant.device == "cpu":
        return set()
    if variant.cuda_source is None or launch_sites.defines_kernels_by_macro(variant.code):
        return None
    return set(launch_sites.kernel_definitions(cuda_ast.parse(variant.code))) or None


def foreign_kernels(profile: Profile, variant: Variant) -> list[str]:
    """Names of the profile's kernels that are not in the variant's source; none where that cannot be read."""
    expected = expected_kernels(variant)
    return sorted(_kernels(profile) - expected) if expected else []


def _kernels(profile: Profile) -> set[str]:
    rows = [row for row in [*profile.events, *profile.summaries] if row["kind"] == "kernel"]
    return set(map(sources.plain_name, [*(row["name"] for row in rows), *(row["kernel"] for row in profile.counters)]))


def wrong_variant_reason(profile: Profile, variant: Variant, known: Mapping[str, Variant]) -> str:
    """Why the profile is of another variant, by kernel names, else by threads of a block; else empty."""
    names = _kernels(profile)
    expected = expected_kernels(variant)
    if expected is None:
        return ""
    named = {other.name: expected_kernels(other) or set() for other in known.values()}
    claimed = names & set().union(*named.values())
    if not claimed <= expected:
        others = [name for name, kernels in named.items() if claimed <= kernels]
        if not others and not claimed & expected:
            others = [name for name, kernels in named.items() if claimed & kernels]
        if others:
            strange = ", ".join(sorted(claimed - expected))
            return (
                f"its kernels ({strange}) are not in {variant.name}, but in {units.join_some(sorted(others), _SHOWN)}"
            )
    launched = [row for row in profile.events if sources.plain_name(row["name"]) == "conv_forward"]
    blocks = {row["block"] for row in launched if row["block"]}
    threads = _threads(variant)
    if threads and blocks and threads not in blocks:
        others = [other.name for other in known.values() if _threads(other) in blocks]
        if others:
            held = ", ".join(sorted(blocks))
            alike = units.join_some(sorted(others), _SHOWN)
            return f"its conv_forward has blocks of {held} threads, as {alike}; {variant.name} has {threads}"
    return ""


def _threads(variant: Variant) -> str:
    """The block that a variant's header launches conv_forward with, as events write it; empty where a launcher does."""
    launch = variant.header.launch
    return "x".join(map(str, launch.threads)) if launch and variant.cuda_source and not variant.launcher else ""
