"""
title:     PyTorch
idea:      What a PyTorch user gets from `torch.softmax`.
expect:    One kernel that reads x once where a row fits a block. Near the copy rate where rows are many.
builds_on: naive
device:    gpu
peer:      true
requires:  torch
reference: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html
claims:
  - says:     Near the copy rate where rows are many
    quantity: times_memory_bound
    value:    {at_most: 1.4}
    where:    {rows: {at_least: 16384}}
"""

import torch


def prepare(case, size):
    def call(x, y):
        torch.softmax(torch.from_dlpack(x), dim=1, out=torch.from_dlpack(y))

    return call
