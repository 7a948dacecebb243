"""The tiled matrix product in Triton, which variants call with tiles and a precision of their own."""

import triton
import triton.language as tl
import triton_kernels

GROUP = 8
"""Rows of tiles that blocks go down before they go on to the right, so that the L2 cache still has their tiles of B."""


@triton.jit
def gemm(
    a, b, c, m, n, k,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tiles_down, tiles_across = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    place = tl.program_id(0)
    first = place // (GROUP * tiles_across) * GROUP
    height = min(tiles_down - first, GROUP)
    within = place % (GROUP * tiles_across)
    rows = (first + within % height) * TILE_M + tl.arange(0, TILE_M)
    columns = within // height * TILE_N + tl.arange(0, TILE_N)
    steps = tl.arange(0, TILE_K)
    a_tile = a + rows[:, None].to(tl.int64) * k + steps[None, :]
    b_tile = b + steps[:, None].to(tl.int64) * n + columns[None, :]

    sums = tl.zeros((TILE_M, TILE_N), tl.float32)
    for begin in range(0, k, TILE_K):
        inside = steps < k - begin
        a_values = tl.load(a_tile, mask=(rows < m)[:, None] & inside[None, :], other=0.0)
        b_values = tl.load(b_tile, mask=inside[:, None] & (columns < n)[None, :], other=0.0)
        sums = tl.dot(a_values, b_values, sums, input_precision=PRECISION)
        a_tile += TILE_K
        b_tile += TILE_K * n.to(tl.int64)
    c_tile = c + rows[:, None].to(tl.int64) * n + columns[None, :]
    tl.store(c_tile, sums, mask=(rows < m)[:, None] & (columns < n)[None, :])


def prepare(case, constants, **options):
    """The call of a case, with tiles TILE_M, TILE_N and TILE_K and PRECISION among the constants."""
    extents = {"m": case.m, "n": case.n, "k": case.k}
    launch = triton_kernels.load(gemm, extents, {"GROUP": GROUP, **constants}, **options)
    grid = (triton.cdiv(case.m, constants["TILE_M"]) * triton.cdiv(case.n, constants["TILE_N"]),)

    def call(a, b, c):
        launch(grid, a, b, c)

    return call


def compiled(arch, constants, **options):
    """The kernel as it is compiled for large matrices whose extents 16 divides."""
    extents = dict.fromkeys("mnk", 4096)
    return {"gemm": triton_kernels.tell(arch, gemm, extents, {"GROUP": GROUP, **constants}, **options)}
