"""
title:     PyTorch, compiled
idea:      torch.compile turns the softmax into a kernel of Triton's for this shape. It compiles before the first
           sample.
expect:    As fast as eager within a tenth where rows are many, since both read x once and write y once.
builds_on: torch_eager
device:    gpu
peer:      true
requires:  torch
reference: https://docs.pytorch.org/docs/stable/generated/torch.compile.html
claims:
  - says:     As fast as eager within a tenth where rows are many
    quantity: gpu_time
    change:   stays
    by:       10 %
    where:    {rows: {at_least: 16384}}
"""

import torch


def prepare(case, size):
    compiled = torch.compile(lambda x: torch.softmax(x, dim=1), dynamic=False)

    @torch.inference_mode()
    def call(x, y):
        torch.from_dlpack(y).copy_(compiled(torch.from_dlpack(x)))

    return call
