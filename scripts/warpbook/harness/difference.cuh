// How an output differs from float64, for the `compare` of a problem's reference.cu: each thread adds up its values, and a block
// merges them for the host.

typedef unsigned long long word64;

// magnitude is the natural unit of a value's rounding error; worst_ratio is the largest error over that unit.
struct Difference {
    double max_abs_err, worst_ratio, square_err, square_ref, max_magnitude;
    word64 not_finite;

    __device__ void add(double found, double expected, double magnitude)
    {
        const double err = fabs(found - expected);
        if (!isfinite(err)) { ++not_finite; return; }
        max_abs_err = fmax(max_abs_err, err);
        if (err > 0) worst_ratio = fmax(worst_ratio, err / magnitude);
        max_magnitude = fmax(max_magnitude, magnitude);
        square_err += err * err;
        square_ref += expected * expected;
    }

    __device__ void merge(const Difference& other)
    {
        max_abs_err = fmax(max_abs_err, other.max_abs_err);
        worst_ratio = fmax(worst_ratio, other.worst_ratio);
        max_magnitude = fmax(max_magnitude, other.max_magnitude);
        square_err += other.square_err;
        square_ref += other.square_ref;
        not_finite += other.not_finite;
    }
};

// partial[block] = the differences of a block of at most 256 threads.
__device__ void store(Difference mine, Difference* partial)
{
    __shared__ Difference all[256];
    all[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int t = 1; t < blockDim.x; ++t) mine.merge(all[t]);
    partial[blockIdx.x] = mine;
}
