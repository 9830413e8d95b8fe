/// @file fakenccl.h
/// The part of NCCL's interface that tests use, for programs and for the double of libnccl.so.2
/// beside this file. README.md says what the double imitates.
///
/// Source:   nccl.h of NCCL 2.30: names, numbers and the order of parameters.
#ifndef CONVTRACE_TESTS_FAKENCCL_FAKENCCL_H
#define CONVTRACE_TESTS_FAKENCCL_FAKENCCL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm* ncclComm_t;
typedef struct CUstream_st* cudaStream_t;
typedef struct {
  char internal[128];
} ncclUniqueId;
typedef struct {
  size_t bytes;
} ncclConfig_t; /* never looked at */

enum { ncclSuccess = 0, ncclSystemError = 2, ncclInternalError = 3, ncclInvalidArgument = 4 };
enum { ncclInvalidUsage = 5, ncclInProgress = 7 };
enum { ncclUint8 = 1, ncclInt32 = 2, ncclInt64 = 4, ncclFloat16 = 6, ncclFloat32 = 7 };
enum { ncclFloat64 = 8, ncclBfloat16 = 9 };
enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

int ncclGetUniqueId(ncclUniqueId* id);
int ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank);
int ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                           ncclConfig_t* config);
int ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int id_count, ncclUniqueId* ids,
                             ncclConfig_t* config);
int ncclCommInitAll(ncclComm_t* comms, int size, const int* devices);
int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config);
int ncclCommShrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* made,
                   ncclConfig_t* config, int flags);
int ncclCommFinalize(ncclComm_t comm);
int ncclCommDestroy(ncclComm_t comm);
int ncclCommAbort(ncclComm_t comm);
int ncclCommCount(ncclComm_t comm, int* count);
int ncclCommUserRank(ncclComm_t comm, int* rank);
int ncclCommGetAsyncError(ncclComm_t comm, int* error);
int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, ncclComm_t comm);

int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclGroupSimulateEnd(void* info);

int ncclAllReduce(const void* send, void* receive, size_t count, int type, int op, ncclComm_t comm,
                  cudaStream_t stream);
int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root,
                  ncclComm_t comm, cudaStream_t stream);
int ncclBcast(void* buffer, size_t count, int type, int root, ncclComm_t comm, cudaStream_t stream);
int ncclReduce(const void* send, void* receive, size_t count, int type, int op, int root,
               ncclComm_t comm, cudaStream_t stream);
int ncclAllGather(const void* send, void* receive, size_t count, int type, ncclComm_t comm,
                  cudaStream_t stream);
int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int op,
                      ncclComm_t comm, cudaStream_t stream);
int ncclAlltoAll(const void* send, void* receive, size_t count, int type, ncclComm_t comm,
                 cudaStream_t stream);
int ncclGather(const void* send, void* receive, size_t count, int type, int root, ncclComm_t comm,
               cudaStream_t stream);
int ncclScatter(const void* send, void* receive, size_t count, int type, int root, ncclComm_t comm,
                cudaStream_t stream);
int ncclSend(const void* send, size_t count, int type, int peer, ncclComm_t comm,
             cudaStream_t stream);
int ncclRecv(void* receive, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
