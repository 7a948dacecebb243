"""Whether CUDA has a name, by its own headers: what the emulator lacks is then no error of the source that uses it."""

import functools
import re
from pathlib import Path

_WITHOUT_HEADERS = re.compile(
    r"(cublas|cudnn|cufft|curand|cusolver|cusparse|nccl|nvtx|nvml|nvrtc)(?![a-z])|(CUBLAS|CUDNN|CUFFT|CURAND|CUSPARSE)_"
    r"|(cooperative_groups|cg|cuda|cub|thrust|cute|cutlass|nvcuda|wmma|nv)(::|$)|__nv|__builtin_"
    r"|NV_(IF|IS|PROVIDES|DISPATCH|ANY)_|(tex|surf)([123]D|Cubemap)|(texture|surface)$"
)
"""Names of libraries whose headers need not be here, of the compiler alone, and of what CUDA once had."""
_RUNTIME = re.compile(r"(cuda|cu|CUDA_|CUDART_|CU_)[A-Z0-9]")
_DECLARATIONS = re.compile(
    # A function, behind words that begin a declaration of one and no class indents; a type; a macro.
    r"^(?:(?:extern|static|inline|_+\w+)\b[^;{}()=#]*?(?:\([^()]*\)[^;{}()=#]*?)?\b(\w+)\s*\("
    r"|[ \t]*(?:typedef\s+)?(?:struct|union|enum|class)\s+(?:__\w+(?:\([^()]*\))?\s+)*(\w+)\s*[;{]"
    r"|typedef\s+(?:struct\s+)?[\w ]+[ *](\w+)\s*;|using\s+(\w+)\s*=|__cuda_builtin_vector_align8\((\w+)"
    r"|[ \t]*\#[ \t]*define[ \t]+(\w+))",
    re.MULTILINE,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def is_of_cuda(name: str) -> bool:
    """Whether CUDA or one of its libraries has a name. Without CUDA's headers here, by how the name begins."""
    if _WITHOUT_HEADERS.match(name):
        return True
    plain = re.match(r"[\w:]*", name)
    word = plain[0].rpartition("::")[2] if plain else ""
    if not _headers():
        return bool(_RUNTIME.match(word)) or word.startswith("__")
    if _RUNTIME.match(word):
        return re.search(rf"\b{word}\b", _headers()) is not None  # an enumerator has no more than its name
    return word in _declared_names()


@functools.cache
def _declared_names() -> frozenset[str]:
    return frozenset(name for groups in _DECLARATIONS.findall(_headers()) for name in groups if name)


@functools.cache
def _headers() -> str:
    """CUDA's headers in one text, without comments; empty where there are none."""
    from cuda.pathfinder import find_nvidia_header_directory

    folder = find_nvidia_header_directory("cudart")
    kinds = ("*.h", "*.hpp", "crt/*.h", "crt/*.hpp", "cooperative_groups/**/*.h") if folder else ()
    files = [path for kind in kinds for path in sorted(Path(str(folder)).glob(kind))]
    return "\n".join(
        _COMMENT.sub("", path.read_text(errors="replace"))
        for path in files
        if not path.name.startswith(("cupti", "nvperf", "generated_"))
    )
