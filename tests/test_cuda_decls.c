/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_decls.c: our own declarations of CUDA's driver and compiler against the toolkit's headers, where those exist.  Nearly all
 * of it is decided when this file is compiled; without the headers the test counts as skipped. */
#include "support.h"

#if defined(__has_include)
#if __has_include(<cuda.h>) && __has_include(<nvrtc.h>)
#define HAVE_TOOLKIT 1
#endif
#endif

#ifdef HAVE_TOOLKIT
/* The toolkit's C++ extras are not for us, and its comments are not ours to judge. */
#include <cuda.h>
#include <nvrtc.h>

#include "../src/cuda/driver_types.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(MOII_CU_OK, CUDA_SUCCESS);
SAME(MOII_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(MOII_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(MOII_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(MOII_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(MOII_CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(MOII_CU_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(MOII_CU_MEMORY_KHZ, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME(MOII_CU_MEMORY_BITS, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME(MOII_CU_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(MOII_CU_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(MOII_CU_SHARED_BYTES_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(MOII_CU_FUNC_LOCAL_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(MOII_CU_FUNC_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(MOII_CU_FUNC_DYNAMIC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(MOII_CU_FUNC_NON_PORTABLE_CLUSTER, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
SAME(MOII_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(MOII_CU_EVENT_DEFAULT, CU_EVENT_DEFAULT);
SAME(MOII_CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(MOII_CU_ATTR_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(MOII_CU_ATTR_PROGRAMMATIC, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(MOII_CU_MAP_U8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME(MOII_CU_MAP_U16, CU_TENSOR_MAP_DATA_TYPE_UINT16);
SAME(MOII_CU_MAP_U32, CU_TENSOR_MAP_DATA_TYPE_UINT32);
SAME(MOII_CU_MAP_F16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(MOII_CU_MAP_F32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
SAME(MOII_CU_MAP_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(MOII_CU_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE);
SAME(MOII_CU_MAP_SWIZZLE_32, CU_TENSOR_MAP_SWIZZLE_32B);
SAME(MOII_CU_MAP_SWIZZLE_64, CU_TENSOR_MAP_SWIZZLE_64B);
SAME(MOII_CU_MAP_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B);
SAME(MOII_CU_MAP_L2_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE);
SAME(MOII_CU_MAP_L2_128, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
SAME(MOII_CU_MAP_L2_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(MOII_CU_PROC_DEFAULT, CU_GET_PROC_ADDRESS_DEFAULT);

#define SAME_TYPE(ours, theirs) _Static_assert(__builtin_types_compatible_p(ours, theirs), #theirs)
SAME_TYPE(moii_cudevice, CUdevice);
SAME_TYPE(moii_cuptr, CUdeviceptr);
SAME_TYPE(moii_cucontext, CUcontext);
SAME_TYPE(moii_cumodule, CUmodule);
SAME_TYPE(moii_cufunction, CUfunction);
SAME_TYPE(moii_custream, CUstream);
SAME_TYPE(moii_cuevent, CUevent);
SAME_TYPE(moii_cugraph, CUgraph);
SAME_TYPE(moii_cugraphexec, CUgraphExec);

#define SAME_FIELD(ours, a, theirs, b)                                                                                     \
    _Static_assert(offsetof(ours, a) == offsetof(theirs, b) && sizeof(((ours *)0)->a) == sizeof(((theirs *)0)->b), #theirs "." #b)
#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) >= _Alignof(theirs), #theirs)
SAME_SIZE(moii_cuenum, CUresult);
SAME_SIZE(moii_cu_attribute, CUlaunchAttribute);
SAME_FIELD(moii_cu_attribute, id, CUlaunchAttribute, id);
SAME_FIELD(moii_cu_attribute, value, CUlaunchAttribute, value);
SAME_FIELD(moii_cu_attribute, value.cluster.x, CUlaunchAttribute, value.clusterDim.x);
SAME_FIELD(moii_cu_attribute, value.cluster.z, CUlaunchAttribute, value.clusterDim.z);
SAME_FIELD(moii_cu_attribute, value.programmatic, CUlaunchAttribute, value.programmaticStreamSerializationAllowed);
SAME_SIZE(moii_cu_launch, CUlaunchConfig);
SAME_FIELD(moii_cu_launch, grid_x, CUlaunchConfig, gridDimX);
SAME_FIELD(moii_cu_launch, grid_z, CUlaunchConfig, gridDimZ);
SAME_FIELD(moii_cu_launch, block_x, CUlaunchConfig, blockDimX);
SAME_FIELD(moii_cu_launch, block_z, CUlaunchConfig, blockDimZ);
SAME_FIELD(moii_cu_launch, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_FIELD(moii_cu_launch, stream, CUlaunchConfig, hStream);
SAME_FIELD(moii_cu_launch, attributes, CUlaunchConfig, attrs);
SAME_FIELD(moii_cu_launch, attribute_count, CUlaunchConfig, numAttrs);
SAME_SIZE(moii_cu_tensor_map, CUtensorMap);

/* Prototypes: with the toolkit's structs in the place of ours, whose layout is checked above, each pointer of the table must have the
 * type of the toolkit's function.  The toolkit's macros turn a name into the version that cuGetProcAddress gives for it. */
#define moii_cu_launch CUlaunchConfig
#define moii_cu_tensor_map CUtensorMap
#define MOII_CU(name, parameters) _Static_assert(__builtin_types_compatible_p(moii_cuenum(*) parameters, __typeof__(&name)), #name);
#include "../src/cuda/driver.def"
#undef MOII_CU
#undef moii_cu_launch
#undef moii_cu_tensor_map
_Static_assert(__builtin_types_compatible_p(moii_cuenum (*)(const char *, void **, int, uint64_t, moii_cuenum *), __typeof__(&cuGetProcAddress)),
               "cuGetProcAddress");

#include "../src/cuda/nvrtc.h"
SAME_TYPE(moii_nvrtc_program, nvrtcProgram);
#define MOII_NVRTC(name, parameters) _Static_assert(__builtin_types_compatible_p(unsigned int(*) parameters, __typeof__(&name)), #name);
MOII_NVRTC_CALLS(MOII_NVRTC)
#undef MOII_NVRTC
SAME(NVRTC_SUCCESS, 0);
#endif

static void test_declarations(void **state)
{
    (void)state;
#ifndef HAVE_TOOLKIT
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_declarations) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
