/*
title:     ${title}
idea:      What the kernel does differently from its baseline.
expect:    What that should do to the time, written before measuring.
${builds_on}threads:   [256]
grid:      [ceil(${count} / 256)]
*/

${declared}
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= ${count}) return;
${body}
}
