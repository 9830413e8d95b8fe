/// Two ranks in one process, a device each, that use NCCL in the ways that programs do and check
/// what they receive.
///
/// usage: cuda_nccl SCENARIO [pause in ms before the first collective [linked|dlsym]]
/// prints "all right", behind what a scenario says of itself.

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fakecuda.h"
#include "tests/fakenccl/fakenccl.h"
#include "tests/integration/programs/check.h"
#include "tests/integration/programs/prepared.h"

#define RANKS 2
#define COUNT 256u
#define PARTS (RANKS * COUNT) /* elements of a buffer */

/// What the program calls, by name.
#define FUNCTIONS(X)  \
  X(ncclCommInitRank) \
  X(ncclCommInitAll)  \
  X(ncclCommSplit)    \
  X(ncclCommDestroy)  \
  X(ncclCommAbort) X(ncclGroupStart) X(ncclGroupEnd) X(ncclAllReduce) X(ncclSend) X(ncclRecv)
static struct {
#define X(name) __typeof__(&(name)) name;
  FUNCTIONS(X)
#undef X
} api = {
#define X(name) .name = name,
    FUNCTIONS(X)
#undef X
};

static void find_functions(const char* how) {
  if (strcmp(how, "dlsym") != 0) return;
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
#define X(name) *(void**)&api.name = dlsym(library, #name);
  FUNCTIONS(X)
#undef X
}

static CUcontext contexts[RANKS];
static CUstream streams[RANKS];
static CUfunction fills[RANKS];
static CUdeviceptr inputs[RANKS], outputs[RANKS];
static ncclComm_t comms[RANKS];
static long pause_ms;

static void run_fill(const struct fakecuda_launch* launch) {
  float* data = launch->device(*(const uint64_t*)launch->params[0], COUNT * sizeof(float));
  for (unsigned i = 0; data != NULL && i < COUNT; ++i) data[i] = *(const float*)launch->params[1];
}
static const unsigned kFillParams[] = {8, 4};
static const struct fakecuda_kernel kKernels[] = {{"_Z4fillPff", run_fill, 2, kFillParams}};
static const struct fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kKernels};

static void good(int result, const char* what) {
  if (result == 0) return;
  printf("%s: NCCL says %d\n", what, result);
  exit(1);
}

static void use(int rank) { check(cuCtxSetCurrent(contexts[rank]), "cuCtxSetCurrent"); }
static void* in(int rank) { return (void*)(uintptr_t)inputs[rank]; }
static void* out(int rank) { return (void*)(uintptr_t)outputs[rank]; }
static void* part(void* buffer, unsigned index) {
  return (char*)buffer + index * COUNT * sizeof(float);
}

/// Element i of rank r's input is 1000 r + i.
static float element(int rank, unsigned i) { return 1000.0F * (float)rank + (float)i; }

static void reset(void) {
  float host[PARTS];
  for (int rank = 0; rank < RANKS; ++rank) {
    use(rank);
    for (unsigned i = 0; i < PARTS; ++i) host[i] = element(rank, i);
    check(cuMemcpyHtoD(inputs[rank], host, sizeof host), "cuMemcpyHtoD");
    memset(host, 0, sizeof host);
    check(cuMemcpyHtoD(outputs[rank], host, sizeof host), "cuMemcpyHtoD");
  }
}

static void set_up(void) {
  check(cuInit(0), "cuInit");
  for (int rank = 0; rank < RANKS; ++rank) {
    CUmodule module = NULL;
    check(cuDevicePrimaryCtxRetain(&contexts[rank], rank), "cuDevicePrimaryCtxRetain");
    use(rank);
    check(cuStreamCreate(&streams[rank], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuMemAlloc(&inputs[rank], PARTS * sizeof(float)), "cuMemAlloc");
    check(cuMemAlloc(&outputs[rank], PARTS * sizeof(float)), "cuMemAlloc");
    check(cuModuleLoadData(&module, &kImage), "cuModuleLoadData");
    check(cuModuleGetFunction(&fills[rank], module, kKernels[0].name), "cuModuleGetFunction");
  }
  reset();
}

static void wait_a_while(unsigned count) { wait_until_prepared(count, pause_ms); }

static void make_all(void) {
  good(api.ncclCommInitAll(comms, RANKS, NULL), "ncclCommInitAll");
  wait_a_while(RANKS);
}

static void wait_for_all(void) {
  for (int rank = 0; rank < RANKS; ++rank) {
    use(rank);
    check(cuStreamSynchronize(streams[rank]), "cuStreamSynchronize");
  }
}

static void fill(int rank, void* buffer, float value) {
  use(rank);
  CUdeviceptr address = (CUdeviceptr)(uintptr_t)buffer;
  check(cuLaunchKernel(fills[rank], 1, 1, 1, 1, 1, 1, 0, streams[rank], (void*[]){&address, &value},
                       NULL),
        "cuLaunchKernel");
}

/// @param first, last  what the first and the last of `count` elements at `buffer` must be.
static void expect(int rank, void* buffer, unsigned count, float first, float last,
                   const char* what) {
  float host[PARTS];
  use(rank);
  check(cuMemcpyDtoH(host, (CUdeviceptr)(uintptr_t)buffer, count * sizeof(float)), "cuMemcpyDtoH");
  if (host[0] == first && host[count - 1] == last) return;
  printf("%s: rank %d has %g to %g, not %g to %g\n", what, rank, (double)host[0],
         (double)host[count - 1], (double)first, (double)last);
  exit(1);
}

#define EACH_RANK(call)                                \
  do {                                                 \
    good(api.ncclGroupStart(), "ncclGroupStart");      \
    for (int r = 0; r < RANKS; ++r) good(call, #call); \
    good(api.ncclGroupEnd(), "ncclGroupEnd");          \
    wait_for_all();                                    \
  } while (0)
#define WITH ncclFloat32, comms[r], streams[r]
#define OP(op) ncclFloat32, op, comms[r], streams[r]
#define ROOT(root) ncclFloat32, root, comms[r], streams[r]

static void all_functions(void) {
  const float last = element(0, COUNT - 1), last1 = element(1, COUNT - 1);
  make_all();
  EACH_RANK(api.ncclAllReduce(in(r), out(r), COUNT, OP(ncclSum)));
  for (int r = 0; r < RANKS; ++r) expect(r, out(r), COUNT, 1000, last + last1, "all_reduce");
  EACH_RANK(ncclBroadcast(in(r), out(r), COUNT, ROOT(1)));
  for (int r = 0; r < RANKS; ++r) expect(r, out(r), COUNT, 1000, last1, "broadcast");
  EACH_RANK(ncclReduce(in(r), out(r), COUNT, ncclFloat32, ncclMax, 0, comms[r], streams[r]));
  expect(0, out(0), COUNT, 1000, last1, "reduce");
  EACH_RANK(ncclAllGather(in(r), out(r), COUNT, WITH));
  for (int r = 0; r < RANKS; ++r) expect(r, out(r), PARTS, 0, last1, "all_gather");
  EACH_RANK(ncclReduceScatter(in(r), out(r), COUNT, OP(ncclAvg)));
  for (int r = 0; r < RANKS; ++r)
    expect(r, out(r), COUNT, 500 + (float)r * COUNT, 500 + (float)(r + 1) * COUNT - 1,
           "reduce_scatter");
  EACH_RANK(ncclAlltoAll(in(r), out(r), COUNT, WITH));
  for (int r = 0; r < RANKS; ++r)
    expect(r, out(r), PARTS, (float)r * COUNT, element(1, (unsigned)(r + 1) * COUNT - 1),
           "all_to_all");
  EACH_RANK(ncclGather(in(r), out(r), COUNT, ROOT(1)));
  expect(1, out(1), PARTS, 0, last1, "gather");
  EACH_RANK(ncclScatter(in(r), out(r), COUNT, ROOT(0)));
  for (int r = 0; r < RANKS; ++r)
    expect(r, out(r), COUNT, (float)r * COUNT, (float)(r + 1) * COUNT - 1, "scatter");
  good(api.ncclGroupStart(), "ncclGroupStart");
  for (int r = 0; r < RANKS; ++r) {
    good(api.ncclSend(in(r), COUNT, ncclFloat32, 1 - r, comms[r], streams[r]), "ncclSend");
    good(api.ncclRecv(out(r), COUNT, ncclFloat32, 1 - r, comms[r], streams[r]), "ncclRecv");
  }
  good(api.ncclGroupEnd(), "ncclGroupEnd");
  wait_for_all();
  for (int r = 0; r < RANKS; ++r)
    expect(r, out(r), COUNT, element(1 - r, 0), element(1 - r, COUNT - 1), "send and recv");
  EACH_RANK(ncclBcast(in(r), COUNT, ROOT(0)));
  for (int r = 0; r < RANKS; ++r) expect(r, in(r), COUNT, 0, last, "bcast");
}

static void in_place(void) {
  make_all();
  EACH_RANK(api.ncclAllReduce(in(r), in(r), COUNT, OP(ncclSum)));
  for (int r = 0; r < RANKS; ++r) expect(r, in(r), COUNT, 1000, 1510, "all_reduce");
  reset();
  EACH_RANK(ncclAllGather(part(in(r), (unsigned)r), in(r), COUNT, WITH));
  for (int r = 0; r < RANKS; ++r) expect(r, in(r), PARTS, 0, 1511, "all_gather");
  reset();
  EACH_RANK(ncclReduceScatter(in(r), part(in(r), (unsigned)r), COUNT, OP(ncclSum)));
  expect(1, part(in(1), 1), COUNT, 1512, 2022, "reduce_scatter");
}

/// What the stream does before and behind the collective must not show.
static void in_order(void) {
  make_all();
  good(api.ncclGroupStart(), "ncclGroupStart");
  for (int r = 0; r < RANKS; ++r) {
    good(api.ncclAllReduce(in(r), out(r), COUNT, OP(ncclSum)), "ncclAllReduce");
    fill(r, in(r), 7); /* nothing is enqueued before the group ends */
  }
  good(api.ncclGroupEnd(), "ncclGroupEnd");
  for (int r = 0; r < RANKS; ++r) {
    fill(r, in(r), 9);
    fill(r, out(r), 11);
  }
  wait_for_all();
  for (int r = 0; r < RANKS; ++r) expect(r, out(r), COUNT, 11, 11, "all_reduce");
}

/// Two communicators of the same ranks, and parts of one of them.
static void communicators(void) {
  ncclUniqueId id;
  ncclComm_t others[RANKS], parts[RANKS], alone[RANKS], shrunk = NULL;
  for (int k = 0; k < 2; ++k) {
    good(ncclGetUniqueId(&id), "ncclGetUniqueId");
    good(api.ncclGroupStart(), "ncclGroupStart");
    for (int r = 0; r < RANKS; ++r) {
      use(r);
      good(api.ncclCommInitRank(k == 0 ? &comms[r] : &others[r], RANKS, id, r), "ncclCommInitRank");
    }
    good(api.ncclGroupEnd(), "ncclGroupEnd");
  }
  wait_a_while(RANKS);
  EACH_RANK(api.ncclCommSplit(comms[r], 0, RANKS - r, &parts[r], NULL)); /* ranks the other way */
  EACH_RANK(api.ncclCommSplit(comms[r], r == 0 ? 5 : -1, 0, &alone[r], NULL));
  good(ncclCommShrink(comms[1], (int[]){0}, 1, &shrunk, NULL, 0), "ncclCommShrink");
  EACH_RANK(api.ncclAllReduce(in(r), out(r), COUNT, ncclFloat32, ncclSum, others[r], streams[r]));
  EACH_RANK(api.ncclAllReduce(in(r), out(r), COUNT, ncclFloat32, ncclSum, comms[r], streams[r]));
  EACH_RANK(api.ncclAllReduce(in(r), out(r), COUNT, ncclFloat32, ncclSum, others[r], streams[r]));
  EACH_RANK(ncclBroadcast(in(r), out(r), COUNT, ncclFloat32, 0, parts[r], streams[r]));
  for (int r = 0; r < RANKS; ++r) expect(r, out(r), COUNT, 1000, 1255, "broadcast in a part");
  good(ncclAllGather(in(0), out(0), COUNT, ncclFloat32, alone[0], streams[0]), "ncclAllGather");
  good(ncclAllGather(in(1), out(1), COUNT, ncclFloat32, shrunk, streams[1]), "ncclAllGather");
  wait_for_all();
}

/// A communicator that has the handle of one that is gone.
static void handles(void) {
  for (int k = 0; k < 3; ++k) {
    ncclUniqueId id;
    const ncclComm_t before = comms[0];
    good(ncclGetUniqueId(&id), "ncclGetUniqueId");
    use(0);
    good(api.ncclCommInitRank(&comms[0], 1, id, 0), "ncclCommInitRank");
    if (k == 0) wait_a_while(1);
    if (k > 0 && comms[0] != before) printf("another handle\n");
    for (int n = 0; n <= k; ++n)
      good(api.ncclAllReduce(in(0), out(0), COUNT, ncclFloat32, ncclSum, comms[0], streams[0]),
           "ncclAllReduce");
    wait_for_all();
    if (k == 0) good(ncclCommFinalize(comms[0]), "ncclCommFinalize");
    good(k == 1 ? api.ncclCommAbort(comms[0]) : api.ncclCommDestroy(comms[0]),
         "the end of a communicator");
  }
}

/// Recorded into a graph, which is launched twice; a group besides.
static void capture(void) {
  ncclUniqueId id;
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  good(ncclGetUniqueId(&id), "ncclGetUniqueId");
  use(0);
  good(api.ncclCommInitRank(&comms[0], 1, id, 0), "ncclCommInitRank");
  wait_a_while(1);
  good(api.ncclAllReduce(in(0), out(0), COUNT, ncclFloat32, ncclSum, comms[0], streams[0]),
       "ncclAllReduce");
  check(cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
  check(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  good(api.ncclAllReduce(in(0), out(0), COUNT, ncclFloat32, ncclSum, comms[0], streams[0]),
       "ncclAllReduce");
  good(api.ncclGroupStart(), "ncclGroupStart");
  good(ncclBroadcast(in(0), out(0), COUNT, ncclFloat32, 0, comms[0], streams[0]), "ncclBroadcast");
  good(api.ncclGroupEnd(), "ncclGroupEnd");
  check(cuStreamEndCapture(streams[0], &graph), "cuStreamEndCapture");
  size_t nodes = 0;
  check(cuGraphGetNodes(graph, NULL, &nodes), "cuGraphGetNodes");
  printf("%zu nodes\n", nodes);
  check(cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
  check(cuGraphDestroy(graph), "cuGraphDestroy");
}

static void errors(void) {
  make_all();
  use(0);
  printf("%d ", ncclBroadcast(in(0), out(0), COUNT, ncclFloat32, 7, comms[0], streams[0]));
  printf("%d ", api.ncclAllReduce(in(0), out(0), COUNT, ncclFloat32, ncclSum, NULL, streams[0]));
  printf("%d ", ncclReduce(in(0), out(0), COUNT, ncclFloat32, ncclSum, 0, comms[0], streams[0]));
  printf("%d\n", api.ncclGroupEnd()); /* of no group */
}

/// NCCL says ncclInProgress, and enqueues when it is asked how it went.
static void nonblocking(void) {
  int error = 0;
  ncclUniqueId id;
  good(ncclGetUniqueId(&id), "ncclGetUniqueId");
  use(0);
  good(api.ncclCommInitRank(&comms[0], 1, id, 0), "ncclCommInitRank");
  wait_a_while(1);
  printf("%d\n",
         api.ncclAllReduce(in(0), out(0), COUNT, ncclFloat32, ncclSum, comms[0], streams[0]));
  good(ncclCommGetAsyncError(comms[0], &error), "ncclCommGetAsyncError");
  wait_for_all();
  expect(0, out(0), COUNT, 0, 255, "all_reduce");
}

/// Types, sizes and memory that are not as usual; a group that is given up.
static void oddities(void) {
  int op = 0;
  float half = 0.5F;
  ncclUniqueId ids[2];
  good(ncclGetUniqueId(&ids[0]), "ncclGetUniqueId");
  good(ncclGetUniqueId(&ids[1]), "ncclGetUniqueId");
  use(0);
  good(ncclCommInitRankScalable(&comms[0], 1, 0, 2, ids, NULL), "ncclCommInitRankScalable");
  good(ncclCommInitRankConfig(&comms[1], 1, ids[0], 0, NULL), "ncclCommInitRankConfig");
  wait_a_while(1);
  good(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, 1, comms[0]), "ncclRedOpCreatePreMulSum");
  good(api.ncclAllReduce(in(0), out(0), COUNT, ncclFloat32, op, comms[0], streams[0]),
       "ncclAllReduce");
  good(ncclBroadcast(in(0), out(0), COUNT, ncclBfloat16, 0, comms[0], streams[0]), "ncclBroadcast");
  good(api.ncclAllReduce(in(0), out(0), 0, ncclInt64, ncclMin, comms[0], streams[0]),
       "ncclAllReduce");
  good(api.ncclGroupStart(), "ncclGroupStart");
  good(api.ncclAllReduce(in(0), out(0), COUNT, ncclUint8, ncclProd, comms[0], streams[0]),
       "ncclAllReduce");
  good(ncclGroupSimulateEnd(NULL), "ncclGroupSimulateEnd");
  good(api.ncclGroupStart(), "ncclGroupStart");
  good(api.ncclGroupStart(), "ncclGroupStart");
  good(api.ncclSend(in(0), COUNT, ncclFloat32, 0, comms[1], streams[0]), "ncclSend");
  good(api.ncclGroupEnd(), "ncclGroupEnd");
  good(api.ncclRecv(out(0), COUNT, ncclFloat32, 0, comms[1], streams[0]), "ncclRecv");
  fill(0, in(0), 3);
  good(api.ncclGroupEnd(), "ncclGroupEnd");
  wait_for_all();
  expect(0, out(0), COUNT, 3, 3, "send to itself");
}

#define CALLS 200
static void* call_often(void* argument) {
  const int rank = *(const int*)argument;
  ncclComm_t comm = NULL;
  ncclUniqueId id;
  use(rank);
  good(ncclGetUniqueId(&id), "ncclGetUniqueId");
  good(api.ncclCommInitRank(&comm, 1, id, 0), "ncclCommInitRank");
  wait_a_while(RANKS);
  for (int i = 0; i < CALLS; ++i)
    good(api.ncclAllReduce(in(rank), out(rank), COUNT, ncclFloat32, ncclSum, comm, streams[rank]),
         "ncclAllReduce");
  check(cuStreamSynchronize(streams[rank]), "cuStreamSynchronize");
  good(api.ncclCommDestroy(comm), "ncclCommDestroy");
  return NULL;
}

static void threads(void) {
  int ranks[RANKS] = {0, 1};
  pthread_t ids[RANKS];
  for (int r = 0; r < RANKS; ++r) pthread_create(&ids[r], NULL, call_often, &ranks[r]);
  for (int r = 0; r < RANKS; ++r) pthread_join(ids[r], NULL);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } scenarios[] = {{"all", all_functions}, {"in-place", in_place},
                   {"order", in_order},    {"communicators", communicators},
                   {"handles", handles},   {"capture", capture},
                   {"errors", errors},     {"nonblocking", nonblocking},
                   {"oddities", oddities}, {"threads", threads}};
  if (argc < 2) return 2;
  pause_ms = argc > 2 ? atol(argv[2]) : 0;
  find_functions(argc > 3 ? argv[3] : "linked");
  set_up();
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; ++i)
    if (strcmp(argv[1], scenarios[i].name) == 0) scenarios[i].run();
  printf("all right\n");
  return 0;
}
