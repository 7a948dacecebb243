"""What authors of kernels call a layer's extents and arrays: `batch_size` is N, `d_input` is x."""

import re
from collections.abc import Collection

_EXTENTS = {
    "N": "n b batch batches batchsize nbatch numbatches images nimages numimages imgs samples nsamples numsamples bs",
    "C": "c channel channels cin inc ic inchannel inchannels inputchannels numchannels nchannels channelsin inmaps "
    "inputmaps mapin numinputmaps inputfeaturemaps",
    "H": "h height hin inh ih inheight inputheight imgheight imageheight heightin rows imgh",
    "W": "w width win inw iw inwidth inputwidth imgwidth imagewidth widthin cols columns imgw",
    "M": "m mapout maps outmaps outputmaps mapsout kout cout outc oc outchannel outchannels outputchannels channelsout "
    "numfilters filters nfilters filtercount featuremaps numfeaturemaps outputfeaturemaps outfeatures numkernels nmaps "
    "nummaps nout",
    "K": "k kernelsize kernelwidth kernelheight kernelw kernelh ksize kwidth kheight kw kh kdim masksize maskwidth "
    "maskheight maskdim filtersize filterwidth filterheight filterw filterh filterdim fsize ks ksz fw fh kernel mask "
    "taps windowsize kernellength kern kx ky",
    "H_out": "hout outh oh ho outheight outputheight heightout outrows outputh hy",
    "W_out": "wout outw ow wo outwidth outputwidth widthout outcols outputw wy",
    "S": "s stride strides",
    "P": "p pad padding pads",
}
_OF_CUDNN = {"k": "M", "r": "K", "s": "K", "p": "H_out", "q": "W_out"}
"""The names of cuDNN's documentation, where a filter has R x S taps and K is the number of filters."""

_ARRAYS = {
    "x": "x in input inputs img imgs image images inp src data feature features ifmap ifmaps inputdata "
    "inputimage i inmaps",
    "w": "w k weight weights wt wts wgt mask masks filter filters kernel kernels kern f coefficients coef coeffs taps",
    "y": "y out output outputs result results res o dst outp ofmap ofmaps outputdata outputimage outmaps",
}
_EXTENT_OF = {word: name for name, words in _EXTENTS.items() for word in words.split()}
_ARRAY_OF = {word: name for name, words in _ARRAYS.items() for word in words.split()}
_PLACE = re.compile(
    r"^(?:(?:d|h|dev|device|gpu|g|cuda|host|ptr|p)_+)|(?:_+(?:d|h|dev|device|gpu|g|cuda|host|ptr|p|data))$"
)
_CAMEL = re.compile(r"^(?:d|dev|device|gpu|p)(?=[A-Z])|^d(?=[xwy]$)")


def find_extent(name: str, among: Collection[str] = ()) -> str:
    """The extent that a number's name is of; empty where it is none's. `among` are the names beside it, which tell
    whether they are cuDNN's."""
    plain = _plain(name)
    if {"r", "s"} <= {_plain(each) for each in among} and plain in _OF_CUDNN:
        return _OF_CUDNN[plain]
    for each in (plain, re.sub(r"^(?:num|n)(?=\w{3})", "", plain)):
        if each in _EXTENT_OF:
            return _EXTENT_OF[each]
    return ""


def extent_at_place(array: str, place: int) -> str:
    """The layer's extent that an array has at a place of its shape; empty where it is of no array of four."""
    of_arrays = {"x": ("N", "C", "H", "W"), "w": ("M", "C", "K", "K"), "y": ("N", "M", "H_out", "W_out")}
    return of_arrays[array][place] if array in of_arrays and place < 4 else ""


def layer_extent(array: str, extent: str) -> str:
    """The layer's extent that one of an array's is, the four of each called as those of x: the H of y is H_out."""
    of_others = {"y": {"C": "M", "H": "H_out", "W": "W_out"}, "w": {"N": "M", "H": "K", "W": "K"}}
    return of_others.get(array, {}).get(extent, extent)


def find_array(name: str) -> str:
    """x, w or y, which a pointer's name is of; empty where it is none's."""
    bare = _PLACE.sub("", _CAMEL.sub("", name))
    return _ARRAY_OF.get(_plain(name), "") or _ARRAY_OF.get(_plain(bare), "")


def _plain(name: str) -> str:
    """A name in small letters without underscores."""
    return re.sub(r"[\W_]", "", name).lower()
