/* SPDX-License-Identifier: Apache-2.0
 * driver_types.h: the few types and constants of the CUDA driver that we use, under our own names, so that no CUDA header is
 * needed.  Handles are pointers to the driver's own structs; tests/test_cuda_decls.c compares all of it with <cuda.h>. */
#ifndef MOII_DRIVER_TYPES_H
#define MOII_DRIVER_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int moii_cuenum; /* every enum of the driver */
typedef int moii_cudevice;
typedef unsigned long long moii_cuptr; /* device memory */
typedef struct CUctx_st *moii_cucontext;
typedef struct CUmod_st *moii_cumodule;
typedef struct CUfunc_st *moii_cufunction;
typedef struct CUstream_st *moii_custream;
typedef struct CUevent_st *moii_cuevent;
typedef struct CUgraph_st *moii_cugraph;
typedef struct CUgraphExec_st *moii_cugraphexec;

enum {
    MOII_CU_OK = 0,
    MOII_CU_OUT_OF_MEMORY = 2,
    MOII_CU_NOT_INITIALIZED = 3,
    MOII_CU_NO_DEVICE = 100,
    MOII_CU_INVALID_DEVICE = 101,
    MOII_CU_NO_BINARY_FOR_GPU = 209,
    /* cuDeviceGetAttribute */
    MOII_CU_MULTIPROCESSORS = 16,
    MOII_CU_MEMORY_KHZ = 36,
    MOII_CU_MEMORY_BITS = 37,
    MOII_CU_CAPABILITY_MAJOR = 75,
    MOII_CU_CAPABILITY_MINOR = 76,
    MOII_CU_SHARED_BYTES_OPTIN = 97,
    /* cuFuncGetAttribute, cuFuncSetAttribute */
    MOII_CU_FUNC_LOCAL_BYTES = 3,
    MOII_CU_FUNC_REGISTERS = 4,
    MOII_CU_FUNC_DYNAMIC_SHARED_BYTES = 8,
    MOII_CU_FUNC_SHARED_CARVEOUT = 9, MOII_CU_FUNC_NON_PORTABLE_CLUSTER = 14,
    /* streams, events, capture */
    MOII_CU_STREAM_NON_BLOCKING = 1,
    MOII_CU_EVENT_DEFAULT = 0,
    MOII_CU_CAPTURE_THREAD_LOCAL = 1,
    /* launch attributes */
    MOII_CU_ATTR_CLUSTER = 4,
    MOII_CU_ATTR_PROGRAMMATIC = 6,
    /* cuTensorMapEncodeTiled */
    MOII_CU_MAP_U8 = 0,
    MOII_CU_MAP_U16 = 1,
    MOII_CU_MAP_U32 = 2,
    MOII_CU_MAP_F16 = 6,
    MOII_CU_MAP_F32 = 7,
    MOII_CU_MAP_BF16 = 9,
    MOII_CU_MAP_SWIZZLE_NONE = 0,
    MOII_CU_MAP_SWIZZLE_32 = 1,
    MOII_CU_MAP_SWIZZLE_64 = 2,
    MOII_CU_MAP_SWIZZLE_128 = 3,
    MOII_CU_MAP_L2_NONE = 0,
    MOII_CU_MAP_L2_128 = 2,
    MOII_CU_MAP_L2_256 = 3,
    /* cuGetProcAddress */
    MOII_CU_PROC_DEFAULT = 0
};

typedef struct moii_cu_attribute {
    moii_cuenum id;
    char pad[8 - sizeof(moii_cuenum)];
    union {
        char pad[64];
        void *pointer;
        struct { unsigned int x, y, z; } cluster;
        int programmatic; /* 1: the kernel may begin before the one in front of it on the stream has ended */
    } value;
} moii_cu_attribute;

typedef struct moii_cu_launch {
    unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    moii_custream stream;
    moii_cu_attribute *attributes;
    unsigned int attribute_count;
} moii_cu_launch;

typedef struct moii_cu_tensor_map { _Alignas(128) uint64_t opaque[16]; } moii_cu_tensor_map;

#endif
