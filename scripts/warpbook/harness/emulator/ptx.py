"""PTX that stands in a source, as C++: each instruction's operands in their order.

Arithmetic, memory and moves become expressions; what a warp or a block does together is a function of emulator_device.h.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from warpbook.kernels.launch_inference import cuda_ast

if TYPE_CHECKING:
    from tree_sitter import Node

FUNCTIONS = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "cvt.rna.tf32.f32", "prefetch.global.L1", "prefetch.global.L2", "cp.async.cg.shared.global",
    "cp.async.ca.shared.global", "cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all",
    "fence.proxy.async", "wgmma.fence.sync.aligned", "wgmma.commit_group.sync.aligned",
    "wgmma.wait_group.sync.aligned", "bar.arrive", "bar.warp.sync", "fence.proxy.async.shared::cta",
    "cp.async.bulk.global.shared::cta.bulk_group", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group",
    "cp.async.bulk.wait_group.read", "mbarrier.init.shared::cta.b64", "mbarrier.arrive.shared::cta.b64",
    "mbarrier.try_wait.parity.shared::cta.b64", "mbarrier.expect_tx.shared::cta.b64",
    "mbarrier.arrive.expect_tx.shared::cta.b64", "griddepcontrol.wait", "griddepcontrol.launch_dependents",
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes", "setmaxnreg.inc.sync.aligned.u32",
    "setmaxnreg.dec.sync.aligned.u32", "cp.async.mbarrier.arrive.noinc.shared::cta.b64",
}  # fmt: skip
"""Instructions that functions of these names do, `_` for dots and colons."""
_WGMMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.f16\.f16")
"""Those of any number of columns: one function, which is told its line."""
_MATRIX = re.compile(r"((?:ld|st)matrix)\.sync\.aligned\.m8n8\.x[124](\.trans)?\.shared(?:::cta)?\.b16")
_CACHE_HINT = re.compile(r"\.L[12]::\w+|\.(?:evict|no)_\w+")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+([\w\s,]+);")
"""Registers that instructions declare for themselves."""
_TYPES = {
    "s8": "int8_t", "u8": "uint8_t", "b8": "uint8_t", "s16": "int16_t", "u16": "uint16_t", "b16": "uint16_t",
    "s32": "int", "u32": "unsigned", "b32": "unsigned", "s64": "int64_t", "u64": "uint64_t", "b64": "uint64_t",
    "f32": "float", "f64": "double", "pred": "bool",
}  # fmt: skip
_WIDER = {"u16": "unsigned", "s16": "int", "u32": "uint64_t", "s32": "int64_t", "u64": "unsigned __int128",
          "s64": "__int128"}  # fmt: skip
_SPECIAL = {
    f"%%{name}.{axis}": f"{variable}.{axis}"
    for name, variable in (("tid", "threadIdx"), ("ctaid", "blockIdx"), ("ntid", "blockDim"), ("nctaid", "gridDim"))
    for axis in "xyz"
} | {
    "%%laneid": "emulator::lane()",
    "%%warpid": "(emulator::thread_number() / 32)",
    "%%smid": "unsigned(emulator::block_number % cudaDeviceProp().multiProcessorCount)",
    "%%clock": "unsigned(clock64())",
    "%%clock64": "clock64()",
    "%%globaltimer": "clock64()",
    "%%lanemask_lt": "((1u << emulator::lane()) - 1)",
    "%%lanemask_le": "((2u << emulator::lane()) - 1)",
    "%%lanemask_eq": "(1u << emulator::lane())",
    "%%lanemask_gt": "(~((2u << emulator::lane()) - 1))",
    "%%lanemask_ge": "(~((1u << emulator::lane()) - 1))",
}
_OPERATIONS = {
    "add": "T(a + b)", "sub": "T(a - b)", "div": "T(a / b)", "rem": "T(a % b)", "neg": "T(-a)", "mov": "a",
    "and": "T(a & b)", "or": "T(a | b)", "xor": "T(a ^ b)", "abs": "T(a < 0 ? -a : a)",
    "not": "T(std::is_same_v<T, bool> ? !a : ~a)", "shl": "T(unsigned(b) < 8 * sizeof(T) ? a << unsigned(b) : 0)",
    "shr": "T(a >> std::min<unsigned>(unsigned(b), 8 * sizeof(T) - 1) >> (unsigned(b) >= 8 * sizeof(T)))",
    "mul.lo": "T(W(a) * W(b))", "mad.lo": "T(W(a) * W(b) + W(c))", "mul.wide": "W(a) * W(b)",
    "mad.wide": "W(a) * W(b) + W(emulator::ptx::as<W>(c))", "mul.hi": "T(W(a) * W(b) >> 8 * sizeof(T))",
    "mul.f": "a * b", "fma.f": "std::fma(a, b, c)", "mad.f": "std::fma(a, b, c)", "min": "b < a ? b : a",
    "max": "a < b ? b : a", "min.f": "std::fmin(a, b)", "max.f": "std::fmax(a, b)", "abs.f": "std::fabs(a)",
    "sqrt.f": "std::sqrt(a)", "rsqrt.f": "T(1) / std::sqrt(a)", "rcp.f": "T(1) / a", "sin.f": "std::sin(a)",
    "cos.f": "std::cos(a)", "ex2.f": "std::exp2(a)", "lg2.f": "std::log2(a)", "tanh.f": "std::tanh(a)",
    "mul24.lo": "T(W(a << 8) * W(b << 8) >> 16)", "lop3": "emulator::ptx::lop3(a, b, c, d)",
    "bfe": "emulator::ptx::bits_of(a, b, c)", "bfi": "emulator::ptx::bits_in(a, b, c, d)",
    "popc": "unsigned(__popcll(a))", "brev": "T(sizeof(T) == 4 ? __brev(a) : __brevll(a))",
    "clz": "unsigned(sizeof(T) == 4 ? __clz(int(a)) : __clzll((long long)a))", "prmt": "__byte_perm(a, b, c)",
}  # fmt: skip
"""What an instruction makes of a, b, c and d, numbers of its type T; `.f` stands for both types of floating point, and W
is the type twice as wide."""
_PAIRS = {"f16x2": "__half2", "bf16x2": "__nv_bfloat162"}
_PAIR_FUNCTIONS = {"add": "__hadd2", "sub": "__hsub2", "mul": "__hmul2", "fma": "__hfma2", "max": "__hmax2",
                   "min": "__hmin2"}  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=",
                "hi": ">", "hs": ">="}  # fmt: skip
_CHANGES = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
_IGNORED = {"rn", "ftz", "approx", "full", "uni", "volatile", "relaxed", "weak", "gpu", "cta", "sys", "nc", "ca", "cg",
            "cs", "cv", "wb", "wt", "lu", "acquire", "release", "acq_rel"}  # fmt: skip
"""Modifiers that change nothing here: an approximation is rounded better than on a GPU."""


class UnknownInstructionError(Exception):
    """An instruction that the emulator lacks."""


def to_calls(assembly: "Node") -> str:
    """C++ in place of an assembly statement. Raises UnknownInstructionError."""
    pieces = [
        " " if node.type == "escape_sequence" else cuda_ast.node_text(node)  # the ends of its lines
        for node in cuda_ast.walk(cuda_ast.field(assembly, "assembly_code") or assembly)
        if node.type in ("string_content", "escape_sequence")
    ]
    held = [
        cuda_ast.node_text(cuda_ast.field(node, "value"))
        for node in cuda_ast.walk(assembly)
        if node.type in ("gnu_asm_output_operand", "gnu_asm_input_operand")
    ]
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", "".join(pieces)).strip()
    code = code[1:-1] if code.startswith("{") and code.endswith("}") else code
    declared = [
        (kind, name.strip()) for kind, names in _REGISTERS.findall(code) for name in names.split(",") if name.strip()
    ]
    named = _SPECIAL | {f"%{number}": _operand(text) for number, text in enumerate(held)}
    named |= {name: name for _, name in declared}
    calls = [_statement(line.strip(), named) for line in _REGISTERS.sub("", code).split(";") if line.strip()]
    if declared or any(call.startswith(("if ", "{ ")) for call in calls):
        registers = "".join(f"{_type(kind, kind)} {name}; " for kind, name in declared)
        return f"[&] {{ {registers}{'; '.join(calls)}; }}()"
    return f"({', '.join(calls)})" if calls else "((void)0)"


def _operand(text: str) -> str:
    return text if re.fullmatch(r"[\w.\[\]]+", text) else f"({text})"


def _statement(instruction: str, named: Mapping[str, str]) -> str:
    """An instruction as an expression; behind a predicate as an if, and behind a label."""
    if label := re.match(r"([A-Za-z_$]\w*)(?:%=)?:(?!:)(.*)", instruction, re.DOTALL):
        return f"{label[1]}: {_statement(label[2].strip(), named) if label[2].strip() else ''}"
    if branch := re.fullmatch(r"bra(?:\.uni)?\s+([A-Za-z_$]\w*)(?:%=)?", instruction):
        return f"{{ emulator::pause(); goto {branch[1]}; }}"
    guard = re.match(r"@(!?)(%?\w+)\s+(.*)", instruction, re.DOTALL)
    if guard:
        if guard[2] not in named:
            raise UnknownInstructionError(instruction)
        return f"if ({guard[1]}{named[guard[2]]}) {_statement(guard[3].strip(), named)}"
    return _call(instruction, named)


def _call(instruction: str, named: Mapping[str, str]) -> str:
    name, _, listed = instruction.partition(" ")
    name = _CACHE_HINT.sub("", name)
    if name.startswith("mbarrier."):
        name = re.sub(r"\.(?:acquire|release|relaxed)\.(?:cta|cluster)", "", name).replace(".shared.", ".shared::cta.")
    if name.startswith("cp.async.bulk.shared::cluster."):  # of a cluster of one block
        name = name.replace("::cluster", "::cta", 1)
    words = [word for word in re.split(r"[\s,{}\[\]]+", listed) if word]

    def operand(word: str) -> str:
        plus = re.fullmatch(r"(%?[\w.]+?)\s*\+\s*(-?\d+)", word)
        if plus:
            return f"emulator::ptx::moved({operand(plus[1])}, {plus[2]})"
        if word in named:
            return named[word]
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", word):
            return word
        if number := re.fullmatch(r"0([fFdD])([0-9a-fA-F]{8}|[0-9a-fA-F]{16})", word):
            return f"{'__uint_as_float' if number[1] in 'fF' else '__longlong_as_double'}(0x{number[2]})"
        raise UnknownInstructionError(instruction)

    wide, tiles = _WGMMA.fullmatch(name), _MATRIX.fullmatch(name)
    if wide or tiles or name in FUNCTIONS:
        given = [operand(word) for word in words if word != "_"]  # what is written to `_` nobody wants
        if wide:
            # `__LINE__` and no number: it is the line in the file that the instruction stands in.
            return f"emulator::ptx::wgmma<{wide[1]}>({', '.join(['__LINE__', *given])})"
        if tiles:
            transposed = "true" if tiles[2] else "false"
            return f"emulator::ptx::{tiles[1]}<{transposed}>({', '.join(['__LINE__', *given])})"
        function = re.sub(r"[.:]+", "_", name)
        if name.endswith(".shared.global") and len(given) == 4:
            function = "cp_async_filled"
        return f"emulator::ptx::{function}({', '.join(given)})"
    made = _memory(name, words, operand) or _cooperative_call(name, words, operand) or _arithmetic(name, words, operand)
    if not made:
        raise UnknownInstructionError(instruction)
    return made


def _type(name: str, instruction: str) -> str:
    if name not in _TYPES:
        raise UnknownInstructionError(instruction)
    return _TYPES[name]


def _arithmetic(name: str, words: list[str], operand: Callable[[str], str]) -> str:
    operation, *modifiers = name.split(".")
    if not modifiers or not words:
        return ""
    kind = modifiers.pop()
    if operation == "cvt":
        return _conversion(modifiers, kind, words, operand)
    if operation == "setp":
        comparison = _COMPARISONS.get(modifiers[0]) if modifiers else None
        if not comparison or kind not in _TYPES or len(words) != 3 or set(modifiers[1:]) - _IGNORED:
            return ""
        a, b = (f"emulator::ptx::as<{_TYPES[kind]}>({operand(word)})" for word in words[1:])
        return f"{operand(words[0])} = {a} {comparison} {b}"
    if operation == "selp" and len(words) == 4 and kind in _TYPES:
        a, b = (f"emulator::ptx::as<{_TYPES[kind]}>({operand(word)})" for word in words[1:3])
        return f"emulator::ptx::put({operand(words[0])}, {operand(words[3])} ? {a} : {b})"
    if kind in _PAIRS:
        function = _PAIR_FUNCTIONS.get(operation)
        if not function or set(modifiers) - _IGNORED or len(words) != (4 if operation == "fma" else 3):
            return ""
        pairs = (f"emulator::same_bits<{_PAIRS[kind]}>({operand(word)})" for word in words[1:])
        return f"emulator::ptx::put({operand(words[0])}, emulator::same_bits<unsigned>({function}({', '.join(pairs)})))"
    floating = kind in ("f32", "f64")
    if modifiers and modifiers[0] in ("lo", "wide", "hi"):
        operation = f"{operation}.{modifiers.pop(0)}"
    elif floating and f"{operation}.f" in _OPERATIONS:
        operation = f"{operation}.f"
    if kind not in _TYPES or set(modifiers) - _IGNORED or operation not in _OPERATIONS:
        return ""
    # No name that a source may give to its operands.
    what = re.sub(r"\b([abcdTW])\b", r"ptx_\1", _OPERATIONS[operation])
    count = max("abcd".index(letter) + 1 for letter in re.findall(r"\bptx_([abcd])\b", what))
    if len(words) != count + 1:
        return ""
    wider = f"using ptx_W = {_WIDER[kind]}; " if kind in _WIDER else ""
    given = "".join(
        f"const auto ptx_{letter} = {_as_given(operation, letter, operand(word))}; "
        for letter, word in zip("abcd", words[1:], strict=False)
    )
    types = f"using ptx_T = {_TYPES[kind]}; {wider}"
    return f"emulator::ptx::put({operand(words[0])}, [&] {{ {types}{given}return {what}; }}())"


def _as_given(operation: str, letter: str, value: str) -> str:
    if (operation == "mad.wide" and letter == "c") or (operation in ("shl", "shr") and letter == "b"):
        return value
    return f"emulator::ptx::as<ptx_T>({value})"


def _conversion(modifiers: list[str], source: str, words: list[str], operand: Callable[[str], str]) -> str:
    if not modifiers or len(words) != 2:
        return ""
    to, rounding = modifiers.pop(), [each for each in modifiers if each != "ftz"]
    value = operand(words[1])
    if (to, source) == ("f32", "f16"):
        return f"emulator::ptx::put({operand(words[0])}, emulator::from_half(uint16_t({value})))"
    if (to, source, rounding) == ("f16", "f32", ["rn"]):
        return f"emulator::ptx::put({operand(words[0])}, emulator::to_half({value}))"
    if to not in _TYPES or source not in _TYPES or len(rounding) > 1:
        return ""
    value = f"emulator::ptx::as<{_TYPES[source]}>({value})"
    whole = {"rni": "std::nearbyint", "rzi": "std::trunc", "rmi": "std::floor", "rpi": "std::ceil"}
    if source.startswith("f") and not to.startswith("f"):
        if not rounding or rounding[0] not in whole:
            return ""
        value = f"emulator::saturated<{_TYPES[to]}>({whole[rounding[0]]}({value}))"
    elif rounding not in ([], ["rn"]):
        return ""
    return f"emulator::ptx::put({operand(words[0])}, {_TYPES[to]}({value}))"


def _memory(name: str, words: list[str], operand: Callable[[str], str]) -> str:
    """Loads, stores and atomic operations, each in memory that the instruction names."""
    operation, *modifiers = name.replace("shared::cta", "shared").split(".")
    fence = "__threadfence_block()" if "cta" in modifiers else "__threadfence()"
    if operation in ("membar", "fence") and not words:
        return fence
    if operation not in ("ld", "st", "atom", "red") or not modifiers or modifiers[-1] not in _TYPES:
        return ""
    kind = _TYPES[modifiers.pop()]
    space = next((each for each in modifiers if each in ("global", "shared", "const", "local")), "generic")
    count = next((int(each[1]) for each in modifiers if each in ("v2", "v4")), 1)
    change = next((each for each in modifiers if each in _CHANGES), "")
    if set(modifiers) - _IGNORED - {space, f"v{count}", change}:
        return ""

    def address(word: str) -> str:
        place = operand(word)
        if space == "shared":
            place = f"emulator::at_offset(size_t({place}), {count} * sizeof({kind}), __LINE__)"
        place = f"emulator::ptx::memory<{kind}, {count}>({place}, __LINE__)"
        if operation in ("ld", "st") and {"volatile", "relaxed", "acquire", "release"} & set(modifiers):
            return f"emulator::ptx::strong({place})"
        return place

    def ordered(*made: str) -> str:
        before = [fence] if {"release", "acq_rel"} & set(modifiers) else []
        behind = [fence] if {"acquire", "acq_rel"} & set(modifiers) else []
        return f"({', '.join([*before, *made, *behind])})"

    if operation in ("atom", "red"):
        returned = words.pop(0) if operation == "atom" else ""
        function = f"atomic{'CAS' if change == 'cas' else change.capitalize()}{'_block' * ('cta' in modifiers)}"
        if not change or len(words) != 2 + (change == "cas"):
            return ""
        given = ", ".join(f"emulator::ptx::as<{kind}>({operand(word)})" for word in words[1:])
        call = f"{function}({address(words[0])}, {given})"
        return ordered(f"emulator::ptx::put({operand(returned)}, {call})" if returned else call)
    if len(words) != count + 1:
        return ""
    if operation == "ld":
        place = address(words[-1])
        return ordered(*(f"emulator::ptx::put({operand(to)}, {place}[{i}])" for i, to in enumerate(words[:-1])))
    place = address(words[0])
    return ordered(*(f"{place}[{i}] = emulator::ptx::as<{kind}>({operand(word)})" for i, word in enumerate(words[1:])))


def _cooperative_call(name: str, words: list[str], operand: Callable[[str], str]) -> str:
    """The CUDA call for an instruction that a warp's lanes or a block's threads execute together; empty for others."""
    given = [operand(word) for word in words]
    shuffle = re.fullmatch(r"shfl\.sync\.(up|down|bfly|idx)\.b32", name)
    if shuffle and len(given) == 5:
        if given[3] not in ("0x1f", "31", "0" if shuffle[1] == "up" else "31"):
            return ""
        function = {"bfly": "__shfl_xor_sync", "idx": "__shfl_sync"}.get(shuffle[1], f"__shfl_{shuffle[1]}_sync")
        return f"emulator::ptx::put({given[0]}, {function}({given[4]}, {given[1]}, {given[2]}))"
    functions = {
        ("activemask.b32", 1): "__activemask()",
        ("vote.sync.ballot.b32", 3): "__ballot_sync({2}, {1})",
        ("vote.sync.any.pred", 3): "__any_sync({2}, {1})",
        ("vote.sync.all.pred", 3): "__all_sync({2}, {1})",
        ("dp4a.s32.s32", 4): "__dp4a(int({1}), int({2}), int({3}))",
        ("dp4a.u32.u32", 4): "__dp4a(unsigned({1}), unsigned({2}), unsigned({3}))",
    }
    if what := functions.get((name, len(given))):
        return f"emulator::ptx::put({given[0]}, {what.format(*given)})"
    calls = {
        ("bar.sync", 1): "emulator::ptx::bar_sync_all({0})",
        ("bar.sync", 2): "emulator::ptx::bar_sync({0}, {1})",
        ("barrier.sync", 2): "emulator::ptx::bar_sync({0}, {1})",
        ("barrier.sync", 1): "emulator::ptx::bar_sync_all({0})",
        ("nanosleep.u32", 1): "__nanosleep({0})",
        ("trap", 0): "__trap()",
        ("brkpt", 0): "__brkpt()",
    }
    return calls.get((name, len(given)), "").format(*given)
