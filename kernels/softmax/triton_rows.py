"""
title:     Triton, a row for each block
idea:      A block holds its whole row in registers, as row_in_registers does. In Triton a row is one value, and its
           maximum, its exponentials and their sum are a line each, and the compiler makes vectors and shuffles of them.
expect:    x is read once, y written once. A row of 1024 is the work of 4 warps with 8 values a thread, two vectors, and
           21 registers a thread leave a multiprocessor full of warps. So 92 % of the copy rate or more there, and the
           time of row_in_registers within 5 %. A row of 32768 takes 32 warps with 32 values a thread, and
           so a multiprocessor for itself. That loads, computes and stores one after the other, so vectorised is faster.
builds_on: row_in_registers
requires:  triton
least_arch: sm_80
limits:    {columns: 32768}
reference: https://triton-lang.org/main/getting-started/tutorials/02-fused-softmax.html
claims:
  - says:     92 % of the copy rate or more there
    quantity: times_memory_bound
    value:    {at_most: 1.09}
    where:    {columns: {is: 1024}, rows: {at_least: 65536}}
  - says:     the time of row_in_registers within 5 %
    quantity: gpu_time
    change:   stays
    by:       5 %
    where:    {columns: {is: 1024}, rows: {at_least: 65536}}
  - says:     so vectorised is faster
    quantity: gpu_time
    change:   rises
    against:  vectorised
    where:    {columns: {is: 32768}, rows: {at_least: 1024}}
"""

import triton
import triton.language as tl
import triton_kernels

VALUES_OF_WARP, WARPS_MAX = 256, 32


@triton.jit
def softmax(x, y, rows, columns, BLOCK: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * columns
    places = tl.arange(0, BLOCK)
    values = tl.load(x + begin + places, mask=places < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + begin + places, powers * (1.0 / tl.sum(powers, axis=0)), mask=places < columns)


def configuration(columns):
    """The constants and options of a row's length."""
    block = triton.next_power_of_2(columns)
    return {"BLOCK": block}, {"num_warps": min(max(block // VALUES_OF_WARP, 1), WARPS_MAX)}


def prepare(case, size):
    constants, options = configuration(case.columns)
    launch = triton_kernels.load(softmax, {"rows": case.rows, "columns": case.columns}, constants, **options)

    def call(x, y):
        launch((case.rows,), x, y)

    return call


def compiled(arch):
    made = {}
    for columns in (1024, 32768):
        constants, options = configuration(columns)
        extents = {"rows": 65536, "columns": columns}
        made[f"softmax_of_{columns}"] = triton_kernels.tell(arch, softmax, extents, constants, **options)
    return made
