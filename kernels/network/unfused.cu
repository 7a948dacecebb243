/*
title:     Layer by layer
idea:      The fastest convolutions here (fp16x3_mma), and beside them a plain kernel for each pooling and each fully
           connected layer, as they stand in the programs that the report times. Every layer writes its result to
           memory, and the next reads it.
expect:    The fully connected layer, one multiply-add a thread and tile, takes longer than all convolutions.
*/

#include "fp16x3_mma.cu"

#include "layers.cu"
