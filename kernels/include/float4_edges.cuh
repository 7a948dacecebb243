// Four neighbours of a row as one vector, also where rows end: what is beyond the end reads as `beyond` and is not
// stored.
// `aligned` says that rows are a multiple of four long, so that four neighbours lie on 16 bytes and all within the row.

#pragma once

__device__ __forceinline__ float4 load4(const float* row, int first, int end, bool aligned, float beyond = 0.0f)
{
    if (aligned) return first < end ? *(const float4*)(row + first) : make_float4(beyond, beyond, beyond, beyond);
    return make_float4(first < end ? row[first] : beyond, first + 1 < end ? row[first + 1] : beyond,
                       first + 2 < end ? row[first + 2] : beyond, first + 3 < end ? row[first + 3] : beyond);
}

__device__ __forceinline__ void store4(float* row, int first, int end, bool aligned, float4 values)
{
    if (aligned) {
        if (first < end) *(float4*)(row + first) = values;
        return;
    }
    if (first < end) row[first] = values.x;
    if (first + 1 < end) row[first + 1] = values.y;
    if (first + 2 < end) row[first + 2] = values.z;
    if (first + 3 < end) row[first + 3] = values.w;
}
