"""
title: Convolution layer

extents:
  N: images
  C: input channels
  H: rows of an input
  W: columns of an input
  M: {words: output channels, without: "a depthwise convolution, one filter a channel, is another problem (groups = C)"}
  K: {words: rows of a kernel, most: 9}
  KW: {words: kernel columns, usual: K, most: 9}
  S: {words: stride, usual: 1}
  SW: {words: stride along a row, usual: S}
  P: {words: padding, usual: 0}
  PW: {words: padding along a row, usual: P}
  P_end: {words: padding below, usual: P}
  PW_end: {words: padding on the right, usual: PW}
  D: {words: dilation, usual: 1}
  DW: {words: dilation along a row, usual: D}
  G: {words: groups, usual: 1}
derived:
  H_out: (H + P + P_end - D * (K - 1) - 1) // S + 1
  W_out: (W + PW + PW_end - DW * (KW - 1) - 1) // SW + 1
  accumulation: C // G * K * KW
  weights: M * C // G * K * KW
conditions:
  its kernel exceeds the padded input; take a smaller kernel, or more padding: min(H_out, W_out)
  C and M must be multiples of the groups G; take another number of groups: 1 - max(C % G, M % G)

inputs:
  x: [N, C, H, W]
  w: [M, C // G, K, KW]
  bias?: [M]
outputs:
  y: [N, M, H_out, W_out]

flops: 2 * N * M * H_out * W_out * accumulation
sums: accumulation
fp16_sums: K
exact: true
size: N
batch: N
function: conv_forward
baseline: direct
label: "{C}x{H}x{W} * {M}@{K}x{KW}"

# No two extents equal, none a multiple of a tile: shapes that square-minded indexing gets wrong. Tiny ones among them;
# then those where a stride leaves rows and columns over, and padding is read from all sides. The last two have outputs
# enough that what a tile of 16 reads depends on dilation and stride.
ragged:
  - {N: 2, C: 3, H: 19, W: 23, M: 5, K: 4}
  - {N: 3, C: 2, H: 33, W: 18, M: 7, K: 5}
  - {N: 1, C: 1, H: 9, W: 7, M: 2, K: 1}
  - {N: 17, C: 5, H: 12, W: 41, M: 3, K: 7}
  - {N: 5, C: 6, H: 13, W: 11, M: 16, K: 5}
  - {N: 1, C: 4, H: 5, W: 6, M: 1, K: 5}
  - {N: 2, C: 3, H: 17, W: 22, M: 5, K: 4, S: 3}
  - {N: 3, C: 2, H: 9, W: 14, M: 7, K: 5, P: 2}
  - {N: 5, C: 3, H: 18, W: 11, M: 2, K: 3, S: 2, P: 1}
  - {N: 2, C: 3, H: 15, W: 21, M: 5, K: 3, KW: 5}
  - {N: 2, C: 4, H: 26, W: 19, M: 6, K: 3, D: 2, G: 2}
  - {N: 3, C: 6, H: 37, W: 53, M: 12, K: 3, KW: 2, S: 2, SW: 3, P: 1, PW: 0, P_end: 2, PW_end: 1, D: 1, DW: 2, G: 3}

aliases:
  N: ["n", b, batch, batches, batchsize, nbatch, numbatches, images, nimages, numimages, imagecount, imgs, samples, nsamples,
    numsamples, bs]
  C: [c, channel, channels, cin, inc, ic, inchannel, inchannels, inputchannels, numchannels, nchannels, channelsin,
    inmaps, inputmaps, mapin, numinputmaps, inputfeaturemaps, imagefeatures, inputfeatures, infeatures]
  H: [h, height, hin, inh, ih, inheight, inputheight, imgheight, imageheight, heightin, rows, imgh,
    inputrows, numrows, nrows]
  W: [w, width, win, inw, iw, inwidth, inputwidth, imgwidth, imagewidth, widthin, cols, columns, imgw,
    inputcols, inputcolumns, numcols, ncols]
  M: [m, mapout, maps, outmaps, outputmaps, mapsout, kout, cout, outc, oc, outchannel, outchannels, outputchannels,
    channelsout, numfilters, filters, nfilters, filtercount, featuremaps, numfeaturemaps, outputfeaturemaps,
    outfeatures, outputfeatures, numkernels, kernelcount, kernelchannels, nmaps, nummaps, nout]
  K: [k, kernelsize, kernelwidth, kernelheight, kernelw, kernelh, ksize, kwidth, kheight, kw, kh, kdim, masksize,
    maskwidth, maskheight, maskdim, filtersize, filterwidth, filterheight, filterw, filterh, filterdim, fsize, ks,
    ksz, fw, fh, kernelrows, kernelcols, maskrows, maskcols, filterrows, filtercols,
    kernel, mask, taps, windowsize, kernellength, kern, kx, ky]
  H_out: [hout, outh, oh, ho, outheight, outputheight, heightout, outrows, outputh, hy]
  W_out: [wout, outw, ow, wo, outwidth, outputwidth, widthout, outcols, outputw, wy]
  S: [s, stride, strides, u, v]
  P: [p, pad, padding, pads, q]
  D: [dilation, dilations]
  G: [groups, numgroups, ngroups]
  x: [x, in, input, inputs, img, imgs, image, images, inp, src, data, feature, features, ifmap, ifmaps, inputdata,
    inputimage, i, inmaps, "n"]
  w: [w, k, weight, weights, wt, wts, wgt, mask, masks, filter, filters, kernel, kernels, kern, f, coefficients, coef,
    coeffs, taps, m]
  bias: [b, biases]
  y: ["y", out, output, outputs, result, results, res, o, dst, outp, ofmap, ofmaps, outputdata, outputimage, outmaps, p]

# Three maps: the weights of the longest sums still fit constant memory. No extent is a multiple of a tile.
precision:
  - {C: 1, H: 26, W: 35, M: 3, K: 1}
  - {C: 1, H: 26, W: 35, M: 3, K: 3}
  - {C: 1, H: 26, W: 35, M: 3, K: 5}
  - {C: 1, H: 26, W: 35, M: 3, K: 7}
  - {C: 6, H: 26, W: 35, M: 3, K: 5}
  - {C: 6, H: 26, W: 35, M: 3, K: 7}
  - {C: 12, H: 26, W: 35, M: 3, K: 7}
  - {C: 24, H: 26, W: 35, M: 3, K: 7}
  - {C: 48, H: 26, W: 35, M: 3, K: 7}
  - {C: 96, H: 26, W: 35, M: 3, K: 7}
"""

import numpy as np


def reference(x, w, bias=None, S=1, SW=None, P=0, PW=None, P_end=None, PW_end=None, D=1, DW=None, G=1):
    """A cross-correlation, x being 0 outside the image: each image's windows as the columns of a matrix, and one matrix
    product for each group."""
    SW, PW, P_end, DW = SW or S, P if PW is None else PW, P if P_end is None else P_end, DW or D
    PW_end = PW if PW_end is None else PW_end
    M, _, K, KW = w.shape
    rows = w.reshape(G, M // G, -1)
    padded = np.pad(x, ((0, 0), (0, 0), (P, P_end), (PW, PW_end))) if P or P_end or PW or PW_end else x
    spans = (D * (K - 1) + 1, DW * (KW - 1) + 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(2, 3))[:, :, ::S, ::SW, ::D, ::DW]
    N, C, H_out, W_out = windows.shape[:4]
    columns = np.empty_like(x, shape=(C, K, KW, H_out, W_out))
    y = np.empty_like(x, shape=(N, M, H_out, W_out))
    for image in range(N):  # one at a time: its columns take K * KW times its memory
        columns[...] = windows[image].transpose(0, 3, 4, 1, 2)
        y[image] = (rows @ columns.reshape(G, rows.shape[2], -1)).reshape(M, H_out, W_out)
    return y if bias is None else y + bias[:, None, None]


def alternatives(x, w, bias=None, **extents):
    """What those compute who mistake the problem, in words, and what they get."""
    taken = {name: extents[name] for name in ("S", "SW", "P", "PW", "P_end", "PW_end", "D", "DW", "G")}
    _, C, K, KW = w.shape
    yield (
        "mirrors the filter, as a convolution does; this is a correlation",
        reference(x, w[:, :, ::-1, ::-1], bias, **taken),
    )
    if taken["G"] == 1:
        each = w.reshape(-1)[: C * K * KW].reshape(C, 1, K, KW)
        yield (
            "computes a depthwise convolution, one filter a channel: groups = C",
            reference(x, each, **taken | {"G": C}),
        )
    for padding, words in ((K // 2, "K // 2"), (1, "1"), (K - 1, "K - 1")):
        if padding != taken["P"]:
            padded = reference(x, w, bias, **taken | dict.fromkeys(("P", "PW", "P_end", "PW_end"), padding))
            rows, columns = (extents[side] for side in ("H_out", "W_out"))
            if padded.shape[2] >= rows and padded.shape[3] >= columns:
                yield f"takes the padding for {words}; here it is {taken['P']}", padded[:, :, :rows, :columns]
    channels_last = x.reshape(len(x), *x.shape[2:], C).transpose(0, 3, 1, 2)
    for order, axes in (
        ("[K, KW, C, M]", (2, 3, 1, 0)),
        ("[M, K, KW, C]", (0, 2, 3, 1)),
        ("[M, C, K, KW]", (0, 1, 2, 3)),
    ):
        shape = [w.shape[axis] for axis in axes]
        y = reference(channels_last, w.reshape(shape).transpose(np.argsort(axes)), bias, **taken)
        yield f"takes x and y for [N, H, W, C], and w for {order}: another layout", y.transpose(0, 2, 3, 1)
