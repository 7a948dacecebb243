"""
title:     PyTorch
idea:      What a PyTorch user gets from `torch.sum`.
expect:    One launch whose last block adds up. Within a tenth of one_pass from 2^26 values on.
builds_on: interleaved
device:    gpu
peer:      true
requires:  torch
reference: https://docs.pytorch.org/docs/stable/generated/torch.sum.html
claims:
  - says:     Within a tenth of one_pass from 2^26 values on
    quantity: gpu_time
    change:   stays
    by:       10 %
    against:  one_pass
    where:    {n: {at_least: 67108864}}
"""

import torch


def prepare(case, size):
    def call(x, y):
        torch.sum(torch.from_dlpack(x), dim=0, keepdim=True, out=torch.from_dlpack(y))

    return call
