// mma.sync: a warp multiplies a 16 x K fragment of A (row-major) by a K x 8 fragment of B (column-major) of FP16 values
// and adds the product to a 16 x 8 fragment of FP32 values. With the PTX ISA's group_id = lane / 4 and lane_in_group =
// lane % 4, a register of A or B holds two neighbours along K, and the lane's registers are:
//   a.x   row group_id, K = 2 * lane_in_group and the next;  a.y  row + 8;  a.z  K + 8;  a.w  row + 8, K + 8
//   b0    column group_id, K = 2 * lane_in_group and the next;  b1  K + 8
//   d[0]  row group_id, column 2 * lane_in_group;  d[1]  column + 1;  d[2]  row + 8;  d[3]  row + 8, column + 1

#pragma once

// ldmatrix: a.x ... a.w of a 16 x 16 fragment of A. Lanes 0 to 15 give the addresses of the first 8 values of its rows,
// lanes 16 to 31 those of the last 8.
__device__ __forceinline__ uint4 ldmatrix_x4(unsigned smem_address)
{
    uint4 a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w) : "r"(smem_address));
    return a;
}

__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], uint4 a, unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// The first half of K: a0 is a.x above, a1 is a.y.
__device__ __forceinline__ void mma_m16n8k8(float (&d)[4], unsigned a0, unsigned a1, unsigned b0)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}
