// SPDX-License-Identifier: Apache-2.0
// A plain streaming read, 16 bytes a thread and load: what reading so many bytes costs at least.  Compiled by bench/peers/reader.py.
#include <cuda_runtime.h>

__global__ void stream_read(const uint4 *p, size_t n, unsigned int *out)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    unsigned int sum = 0;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 v[4];
        for (int j = 0; j < 4; j++) v[j] = __ldcs(p + i + j * step);
        for (int j = 0; j < 4; j++) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    for (; i < n; i += step) {
        const uint4 v = __ldcs(p + i);
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x9E3779B9u) atomicAdd(out, sum); // keeps the loads
}

extern "C" int stream_launch(const void *p, size_t bytes, void *out, int blocks, int threads, void *stream)
{
    stream_read<<<blocks, threads, 0, (cudaStream_t)stream>>>((const uint4 *)p, bytes / 16, (unsigned int *)out);
    return (int)cudaGetLastError();
}
