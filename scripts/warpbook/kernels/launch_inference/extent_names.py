"""What authors of kernels call a problem's extents and arrays: `batch_size` is N, `d_input` is x."""

import re
from collections.abc import Collection, Mapping

from warpbook.common.expressions import used_names
from warpbook.problems.problem import Problem

_OF_CUDNN = {"k": "M", "r": "K", "s": "K", "p": "H_out", "q": "W_out"}
"""The names of cuDNN's documentation, where a filter has R x S taps and K is the number of filters."""

_FACTORS = {"alpha": 1.0, "scale": 1.0, "scaling": 1.0, "beta": 0.0}

_SIDES = {
    **dict.fromkeys(("rows", "row", "height", "h", "y"), -2), **dict.fromkeys(("cols", "col", "columns", "width", "w", "x"), -1),
}  # fmt: skip
"""Words for rows and columns, and where a shape has them."""
_LEADING = ("stride", "pitch", "ld")
"""Words for the distance of a matrix's rows."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NO_SIDE = {"num", "n", "size", "dim", "dims", "shape", "d", "of"}
_OF_BATCH = re.compile(r"(?:num|n)?(?:b|bs|batch(?:es|size|count)?)")
_PLACE = re.compile(
    r"^(?:(?:d|h|dev|device|gpu|g|cuda|host|ptr|p)_+)|(?:_+(?:d|h|dev|device|gpu|g|cuda|host|ptr|p|data))$"
)
_CAMEL = re.compile(r"^(?:d|[dD]ev|[dD]evice|[gG]pu|p)(?=[A-Z])|^d(?=[xwy]$)|(?<=[a-zA-Z])(?:d|D|Dev|Device|Gpu|GPU)$")


class HostNames:
    """What host code calls a problem's extents and arrays: its own names for them, and its `aliases`."""

    def __init__(self, problem: Problem, said: Collection[str] = ()):
        """`said` are extents that facts beside the file say."""
        aliases = problem.facts.aliases
        self.arrays, self.output = problem.arrays, next(iter(problem.outputs))
        self.optional = problem.optional
        self.dtypes = {name: one.dtype for name, one in {**problem.inputs, **problem.outputs}.items()}
        self._shapes = {name: one.shape for name, one in {**problem.inputs, **problem.outputs}.items()}
        self._first = next(iter(problem.inputs))
        self._numbers = problem.names
        self.base = [name for name, one in problem.facts.extents.items() if one.usual is None]
        self.batch = problem.facts.batch
        self.without = {name: one.without for name, one in problem.facts.extents.items() if one.without}
        """By extent, what a kernel that is not told it may compute, in words."""
        self._derived = problem.facts.derived
        self._said = set(said)
        # What is unusual, or follows from other extents, goes by its aliases alone.
        named = [name for name in problem.names if name in aliases or name in problem.arguments]
        self._extents: dict[str, list[str]] = {}
        for name in named:
            for word in (name, *aliases.get(name, ())):
                self._extents.setdefault(_plain(word), []).append(name)
        self._exact = {word: name for name in named for word in (name, *aliases.get(name, ()))}
        self.has_matrices = all(len(one.shape) == 2 for one in problem.inputs.values())
        """Whether every input is a matrix: who takes two takes them in the order of the product."""
        self.is_product = self.has_matrices and len(self.base) > 2
        """Whether they are factors, whose extents are those of sums too."""
        self._arrays = {
            _plain(word): name
            for name in (*problem.arrays, *problem.optional)
            for word in (name, *aliases.get(name, ()))
        }
        # C // G is C, and KW is K.
        usual = {name: one.usual for name, one in problem.unusual.items()}
        self._usual = {name: text if isinstance(text, str) else "" for name, text in usual.items()}
        self._of_cudnn = _OF_CUDNN if set(_OF_CUDNN.values()) <= set(problem.names) else {}

    def find_extent(self, name: str, among: Collection[str] = ()) -> str:
        """The extent that a number's name is of; empty where it is none's. `among` are the names beside it, which tell
        whether they are cuDNN's."""
        plain, beside = _plain(name), {_plain(each) for each in among}
        found = self._of_cudnn.get(plain, "") if {"r", "s"} <= beside else ""
        if found and not any([found] == self._extents.get(each) for each in beside - {plain}):  # else p is a padding
            return found
        if found := self._side(name):
            return found
        for each in (plain, re.sub(r"^(?:num|n)(?=\w{3})", "", plain)):
            known = list(dict.fromkeys(self._extents.get(each, ())))
            if len(known) > 1:
                # N and C, M and N: what the names beside it are not, else what it is letter for letter.
                others = [self._extents.get(other, []) for other in beside - {each}]
                settled = {names[0] for names in others if len(set(names)) == 1}
                known = [name for name in known if name not in settled] or known
            if known:
                exact = self._exact.get(name, "")
                return exact if exact in known else known[0]
        return ""

    def _side(self, name: str) -> str:
        """The extent that a name of a side tells: `numARows` and `hA` are rows of a, `input_size_x` columns of the input,
        `stride_h` a stride; empty of other names."""
        words = [word.lower() for word in _WORD.findall(name)]
        for place, side in reversed(list(enumerate(words))):
            of = [word for word in words[:place] + words[place + 1 :] if word not in _NO_SIDE]
            if side not in (*_SIDES, *_LEADING) or len(of) != 1:
                continue
            array = self.arrays["123".find(of[0])] if of[0] in "123" else self.find_array(of[0])
            if len(shape := self._shapes.get(array, ())) == 2 or (len(shape) > 2 and side in _SIDES):
                return self.extent_at_place(array, len(shape) + _SIDES.get(side, -1))
            if unusual := [one for one in self._extents.get(of[0], ()) if one in self._usual]:
                return unusual[0]
        return ""

    def untold(self, names: Collection[str]) -> list[str]:
        """Extents of every case that none of these names tells, nor what follows from extents."""
        told, ahead = set(self._said), list(names)
        while ahead:
            name = ahead.pop()
            if name not in told:
                told.add(name)
                ahead += used_names(self._derived[name]) if name in self._derived else ()
        return [name for name in self.base if name not in told]

    def is_at_other_place(self, name: str, array: str, place: int) -> bool:
        """Whether a number's name is of extents that an array has, and none of them at this place of its shape."""
        extents = {each for text in self._shapes.get(array, ()) for each in used_names(text)}
        named = set(self._extents.get(_plain(name), ())) & extents
        return bool(named) and self.extent_at_place(array, place) not in named

    def rank(self, array: str) -> int:
        """How many extents an array has."""
        return len(self._shapes.get(array, ()))

    def extent_at_place(self, array: str, place: int) -> str:
        """The extent that an array has at a place of its shape where nothing is unusual; empty where it has none there,
        or what is made of several."""
        shape = self._shapes.get(array, ())
        names = used_names(shape[place]) if place < len(shape) else set()
        plain = {self._usual.get(name, name) for name in names} - {""}
        return plain.pop() if len(plain) == 1 else ""

    def extent_of_array(self, array: str, extent: str) -> str:
        """The problem's extent that one of an array's is, those of each called as the first input's: the H of y is
        H_out."""
        shape, first = (list(map(str, self._shapes.get(name, ()))) for name in (array, self._first))
        if extent not in first or len(shape) != len(first):
            return extent
        return self.extent_at_place(array, first.index(extent)) or extent

    def count_of_array(self, array: str) -> str:
        """How many values an array has, as an expression; empty where it is none's."""
        return " * ".join(f"({text})" if " " in str(text) else str(text) for text in self._shapes.get(array, ()))

    @property
    def rewritten(self) -> str:
        """The one input, where the output is as long: a kernel may get one pointer for both. Empty where there is none."""
        alone = len(self.arrays) == 2 and self._shapes[self._first] == self._shapes[self.output]
        return self._first if alone else ""

    def is_taken(self, name: str) -> bool:
        """Whether a name is an extent's or an array's in the problem itself."""
        return name in self._numbers or name in self._shapes

    def is_further_batch(self, name: str, extents: Mapping[str, str]) -> bool:
        """Whether a number's name is of a batch that the problem has not: of others' `extents` by their names, one has
        the extent that it is taken for, or it is taken for none."""
        if self.batch or not _OF_BATCH.fullmatch(_plain(name)):
            return False
        extent = extents.get(name, "")
        return not extent or any(one == extent for other, one in extents.items() if other != name)

    def taken_number(self, name: str) -> float | None:
        """What a number is that the problem has none of, by its name: a product's factors alpha and beta are 1 and 0."""
        return _FACTORS.get(_plain(name))

    def find_array(self, name: str) -> str:
        """The array that a pointer's name is of, a structure's by the member's; empty where it is none's."""
        name = name.rpartition(".")[2]
        bare = _PLACE.sub("", _CAMEL.sub("", name))
        return self._arrays.get(_plain(name), "") or self._arrays.get(_plain(bare), "")


def _plain(name: str) -> str:
    """A name in small letters without underscores."""
    return re.sub(r"[\W_]", "", name).lower()
