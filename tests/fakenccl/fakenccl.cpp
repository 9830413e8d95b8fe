// libnccl.so.2 of the tests: communicators, groups, and the calls that make tasks of exchange.h.

#include "tests/fakenccl/fakenccl.h"

#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "tests/fakenccl/exchange.h"

using fakenccl::Exchange;
using fakenccl::Kind;
using fakenccl::Task;

namespace {

struct Clique;

/// A part of a clique that is being made: what each rank said so far.
struct Split {
  struct Wish {
    int color, key;
  };
  std::map<int, Wish> wishes;   ///< by rank
  std::map<int, Clique*> made;  ///< by color
};

/// The ranks that form a communicator.
struct Clique {
  int size = 0;
  std::map<uint64_t, std::shared_ptr<Exchange>> collectives;  ///< by number
  std::map<std::tuple<int, int, uint64_t>, std::shared_ptr<Exchange>> transfers;
  std::map<uint64_t, Split> splits;  ///< by number
};

}  // namespace

struct ncclComm {
  Clique* clique = nullptr;  ///< null: it was destroyed
  int rank = 0;
  CUcontext context = nullptr;
  CUfunction put = nullptr, take = nullptr;
  uint64_t collectives = 0, splits = 0;
  std::map<std::pair<int, int>, uint64_t> transfers;  ///< by source and destination
  std::vector<double> factors;                        ///< of its premul_sums
};

namespace {

std::mutex g_mutex;
std::condition_variable g_changed;
std::map<std::string, Clique*> g_cliques;  ///< by unique id
std::vector<ncclComm*> g_unused;           ///< handles that come again, the newest first

/// A task that was called and is not enqueued, or a part of a communicator that is not complete.
struct Later {
  ncclComm* comm = nullptr;
  Task* task = nullptr;
  CUstream stream = nullptr;
  uint64_t split = 0;
  ncclComm** made = nullptr;
};
thread_local int g_depth = 0;
thread_local std::vector<Later> g_later;
std::vector<Later> g_not_enqueued;  ///< FAKENCCL_NONBLOCKING

/// FAKENCCL_FAIL=name:result
int planned_failure(const char* function) {
  const char* const plan = getenv("FAKENCCL_FAIL");
  const size_t length = strlen(function);
  if (plan == nullptr || strncmp(plan, function, length) != 0 || plan[length] != ':') return 0;
  return atoi(plan + length + 1);
}

/// Makes a context current for a scope.
struct Current {
  explicit Current(CUcontext context) { cuCtxPushCurrent(context); }
  ~Current() {
    CUcontext gone = nullptr;
    cuCtxPopCurrent(&gone);
  }
};

ncclComm* new_comm(Clique* clique, int rank, CUcontext context) {
  CUmodule module = nullptr;
  ncclComm* comm = nullptr;
  {
    const std::lock_guard lock(g_mutex);
    if (!g_unused.empty()) {
      comm = g_unused.back();
      g_unused.pop_back();
      *comm = {};
    }
  }
  if (comm == nullptr) comm = new ncclComm;
  comm->clique = clique;
  comm->rank = rank;
  comm->context = context;
  const Current current(context);
  cuModuleLoadData(&module, &fakenccl::kImage);
  cuModuleGetFunction(&comm->put, module, fakenccl::kPut);
  cuModuleGetFunction(&comm->take, module, fakenccl::kTake);
  return comm;
}

Clique* clique_of(const std::string& id, int size) {
  const std::lock_guard lock(g_mutex);
  Clique*& clique = g_cliques[id];
  if (clique == nullptr) clique = new Clique;
  clique->size = size;
  return clique;
}

int init(ncclComm** made, int size, const std::string& id, int rank) {
  if (made == nullptr || rank < 0 || rank >= size) return ncclInvalidArgument;
  CUcontext context = nullptr;
  if (cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return ncclInvalidUsage;
  *made = new_comm(clique_of(id, size), rank, context);
  return ncclSuccess;
}

/// Waits until all ranks have said what they want.
void finish_split(const Later& later) {
  std::unique_lock lock(g_mutex);
  Clique& whole = *later.comm->clique;
  Split& split = whole.splits[later.split];
  g_changed.wait(lock, [&] { return split.wishes.size() == static_cast<size_t>(whole.size); });
  const Split::Wish own = split.wishes.at(later.comm->rank);
  int rank = 0, size = 0;
  for (const auto& [other, wish] : split.wishes) {
    if (wish.color != own.color) continue;
    ++size;
    if (std::pair(wish.key, other) < std::pair(own.key, later.comm->rank)) ++rank;
  }
  Clique*& clique = split.made[own.color];
  if (clique == nullptr) clique = new Clique;
  clique->size = size;
  lock.unlock();
  *later.made = own.color < 0 ? nullptr : new_comm(clique, rank, later.comm->context);
}

/// First all that is put, so that without a seed the driver double finds it there.
void enqueue(std::vector<Later>& list) {
  const auto launch = [](const Later& later, CUfunction kernel) {
    const Current current(later.comm->context);
    void* params[] = {const_cast<Task**>(&later.task)};
    cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, later.stream, params, nullptr);
  };
  for (const Later& later : list)
    if (later.task != nullptr && later.task->puts) launch(later, later.comm->put);
  for (const Later& later : list)
    if (later.task != nullptr) launch(later, later.comm->take);
  for (const Later& later : list)
    if (later.made != nullptr) finish_split(later);
  list.clear();
}

int end_group() {
  if (getenv("FAKENCCL_NONBLOCKING") != nullptr && !g_later.empty()) {
    const std::lock_guard lock(g_mutex);
    g_not_enqueued.insert(g_not_enqueued.end(), g_later.begin(), g_later.end());
    g_later.clear();
    return ncclInProgress;
  }
  enqueue(g_later);
  return ncclSuccess;
}

int add(Later later) {
  g_later.push_back(later);
  return g_depth > 0 ? ncclSuccess : end_group();
}

std::shared_ptr<Exchange> join(std::shared_ptr<Exchange>& known, const Exchange& like) {
  if (known == nullptr) known = std::make_shared<Exchange>(like);
  known->data.resize(static_cast<size_t>(std::max(like.size, 1)));
  return known;
}

struct Sizes {
  size_t send, receive;  ///< in counts
};

Sizes sizes_of(Kind kind, bool is_root, size_t ranks) {
  switch (kind) {
    case Kind::kAllReduce: return {1, 1};
    case Kind::kBroadcast: return {is_root ? size_t{1} : 0, 1};
    case Kind::kReduce: return {1, is_root ? size_t{1} : 0};
    case Kind::kAllGather: return {1, ranks};
    case Kind::kReduceScatter: return {ranks, 1};
    case Kind::kAllToAll: return {ranks, ranks};
    case Kind::kGather: return {1, is_root ? ranks : 0};
    case Kind::kScatter: return {is_root ? ranks : 0, 1};
    case Kind::kTransfer: break;
  }
  return {0, 0};
}

struct Call {
  const char* name;
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  int type, op, root;
};

bool is_comm(ncclComm* comm) { return comm != nullptr && comm->clique != nullptr; }

int collective(const Call& call, ncclComm* comm, CUstream stream) {
  if (const int failure = planned_failure(call.name)) return failure;
  const size_t element = fakenccl::bytes_of(call.type);
  const bool reduces = call.kind == Kind::kAllReduce || call.kind == Kind::kReduce ||
                       call.kind == Kind::kReduceScatter;
  if (!is_comm(comm) || element == 0) return ncclInvalidArgument;
  const int size = comm->clique->size;
  if (call.root < 0 || call.root >= size) return ncclInvalidArgument;
  const size_t made = static_cast<size_t>(call.op) - ncclAvg - 1;
  if (reduces &&
      (!fakenccl::can_reduce(call.type) || (call.op > ncclAvg && made >= comm->factors.size()))) {
    return ncclInvalidArgument;
  }
  const bool is_root = comm->rank == call.root;
  const Sizes sizes = sizes_of(call.kind, is_root, static_cast<size_t>(size));
  const double factor = reduces && call.op > ncclAvg ? comm->factors[made] : 1;
  Task* const task = new Task;
  {
    const std::lock_guard lock(g_mutex);
    task->exchange = join(comm->clique->collectives[comm->collectives++], {.kind = call.kind,
                                                                           .size = size,
                                                                           .count = call.count,
                                                                           .type = call.type,
                                                                           .op = call.op,
                                                                           .factor = factor,
                                                                           .root = call.root});
  }
  task->rank = comm->rank;
  task->send = reinterpret_cast<uint64_t>(call.send);
  task->send_bytes = sizes.send * call.count * element;
  task->receive = reinterpret_cast<uint64_t>(call.receive);
  task->receive_bytes = sizes.receive * call.count * element;
  return add({.comm = comm, .task = task, .stream = stream});
}

int transfer(const char* name, uint64_t address, bool sends, size_t count, int type, int peer,
             ncclComm* comm, CUstream stream) {
  if (const int failure = planned_failure(name)) return failure;
  const size_t bytes = fakenccl::bytes_of(type) * count;
  if (!is_comm(comm) || peer < 0 || peer >= comm->clique->size) return ncclInvalidArgument;
  const int source = sends ? comm->rank : peer;
  const int destination = sends ? peer : comm->rank;
  Task* const task = new Task;
  {
    const std::lock_guard lock(g_mutex);
    // A rank that sends to itself has both ends of a transfer: each counts alone.
    const std::pair key(source * 2 + (sends ? 1 : 0), destination);
    task->exchange =
        join(comm->clique->transfers[{source, destination, comm->transfers[key]++}],
             {.kind = Kind::kTransfer, .size = 1, .count = count, .type = type, .root = 0});
  }
  task->puts = sends;
  task->takes = !sends;
  task->send = task->receive = address;
  task->send_bytes = sends ? bytes : 0;
  task->receive_bytes = sends ? 0 : bytes;
  return add({.comm = comm, .task = task, .stream = stream});
}

int end_comm(ncclComm* comm) {
  if (!is_comm(comm)) return ncclInvalidArgument;
  comm->clique = nullptr;
  const std::lock_guard lock(g_mutex);
  g_unused.push_back(comm);
  return ncclSuccess;
}

std::string text_of(const ncclUniqueId* ids, int count) {
  return {reinterpret_cast<const char*>(ids), static_cast<size_t>(count) * sizeof *ids};
}

}  // namespace

/// As NCCL: weak, with a second name for libraries that take the place of the first, and not bound
/// inside the library.
#define FAKENCCL(name, PARAMETERS)                                                        \
  extern "C" __attribute__((visibility("default"), alias(#name))) int p##name PARAMETERS; \
  extern "C" __attribute__((visibility("default"), weak)) int name PARAMETERS

FAKENCCL(ncclGetUniqueId, (ncclUniqueId * id)) {
  static int made = 0;
  memset(id, 0, sizeof *id);
  const std::lock_guard lock(g_mutex);
  snprintf(id->internal, sizeof id->internal, "%d of %d", ++made, getpid());
  return ncclSuccess;
}

FAKENCCL(ncclCommInitRank, (ncclComm_t * comm, int size, ncclUniqueId id, int rank)) {
  return init(comm, size, text_of(&id, 1), rank);
}

FAKENCCL(ncclCommInitRankConfig,
         (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t*)) {
  return init(comm, size, text_of(&id, 1), rank);
}

FAKENCCL(ncclCommInitRankScalable,
         (ncclComm_t * comm, int size, int rank, int id_count, ncclUniqueId* ids, ncclConfig_t*)) {
  return init(comm, size, text_of(ids, id_count), rank);
}

FAKENCCL(ncclCommInitAll, (ncclComm_t * comms, int size, const int* devices)) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclGroupStart();
  for (int i = 0; i < size; ++i) {
    CUcontext context = nullptr;
    if (cuDevicePrimaryCtxRetain(&context, devices != nullptr ? devices[i] : i) != CUDA_SUCCESS)
      return ncclInvalidArgument;
    const Current current(context);
    init(&comms[i], size, text_of(&id, 1), i);
  }
  return ncclGroupEnd();
}

FAKENCCL(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t*)) {
  if (!is_comm(comm)) return ncclInvalidArgument;
  *made = nullptr;
  const uint64_t number = comm->splits++;
  {
    const std::lock_guard lock(g_mutex);
    comm->clique->splits[number].wishes[comm->rank] = {color, key};
    g_changed.notify_all();
  }
  return add({.comm = comm, .split = number, .made = made});
}

FAKENCCL(ncclCommShrink,
         (ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t*, int)) {
  if (!is_comm(comm)) return ncclInvalidArgument;
  *made = nullptr;
  const uint64_t number = comm->splits++;
  {
    const std::lock_guard lock(g_mutex);
    Split& split = comm->clique->splits[number];
    split.wishes[comm->rank] = {0, 0};
    for (int i = 0; i < count; ++i) split.wishes[excluded[i]] = {-1, 0};
    g_changed.notify_all();
  }
  return add({.comm = comm, .split = number, .made = made});
}

FAKENCCL(ncclCommFinalize, (ncclComm_t comm)) {
  return is_comm(comm) ? ncclSuccess : ncclInvalidArgument;
}
FAKENCCL(ncclCommDestroy, (ncclComm_t comm)) { return end_comm(comm); }
FAKENCCL(ncclCommAbort, (ncclComm_t comm)) { return end_comm(comm); }

FAKENCCL(ncclCommCount, (ncclComm_t comm, int* count)) {
  if (!is_comm(comm)) return ncclInvalidArgument;
  *count = comm->clique->size;
  return ncclSuccess;
}

FAKENCCL(ncclCommUserRank, (ncclComm_t comm, int* rank)) {
  if (!is_comm(comm)) return ncclInvalidArgument;
  *rank = comm->rank;
  return ncclSuccess;
}

/// FAKENCCL_NONBLOCKING: only now NCCL does what was called.
FAKENCCL(ncclCommGetAsyncError, (ncclComm_t comm, int* error)) {
  if (!is_comm(comm)) return ncclInvalidArgument;
  std::vector<Later> list;
  {
    const std::lock_guard lock(g_mutex);
    list.swap(g_not_enqueued);
  }
  enqueue(list);
  *error = ncclSuccess;
  return ncclSuccess;
}

FAKENCCL(ncclRedOpCreatePreMulSum, (int* op, void* scalar, int type, int, ncclComm_t comm)) {
  if (!is_comm(comm) || type != ncclFloat32) return ncclInvalidArgument;
  comm->factors.push_back(*static_cast<const float*>(scalar));
  *op = ncclAvg + static_cast<int>(comm->factors.size());
  return ncclSuccess;
}

FAKENCCL(ncclGroupStart, (void)) {
  ++g_depth;
  return ncclSuccess;
}

FAKENCCL(ncclGroupEnd, (void)) {
  if (g_depth == 0) return ncclInvalidUsage;
  if (--g_depth > 0) return ncclSuccess;
  if (const int failure = planned_failure("ncclGroupEnd")) return g_later.clear(), failure;
  return end_group();
}

FAKENCCL(ncclGroupSimulateEnd, (void*)) {
  if (g_depth == 0) return ncclInvalidUsage;
  if (--g_depth == 0) g_later.clear();
  return ncclSuccess;
}

FAKENCCL(ncclAllReduce, (const void* send, void* receive, size_t count, int type, int op,
                         ncclComm_t comm, cudaStream_t stream)) {
  return collective({"ncclAllReduce", Kind::kAllReduce, send, receive, count, type, op, 0}, comm,
                    stream);
}

FAKENCCL(ncclBroadcast, (const void* send, void* receive, size_t count, int type, int root,
                         ncclComm_t comm, cudaStream_t stream)) {
  return collective({"ncclBroadcast", Kind::kBroadcast, send, receive, count, type, 0, root}, comm,
                    stream);
}

FAKENCCL(ncclBcast,
         (void* buffer, size_t count, int type, int root, ncclComm_t comm, cudaStream_t stream)) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

FAKENCCL(ncclReduce, (const void* send, void* receive, size_t count, int type, int op, int root,
                      ncclComm_t comm, cudaStream_t stream)) {
  return collective({"ncclReduce", Kind::kReduce, send, receive, count, type, op, root}, comm,
                    stream);
}

FAKENCCL(ncclAllGather, (const void* send, void* receive, size_t count, int type, ncclComm_t comm,
                         cudaStream_t stream)) {
  return collective({"ncclAllGather", Kind::kAllGather, send, receive, count, type, 0, 0}, comm,
                    stream);
}

FAKENCCL(ncclReduceScatter, (const void* send, void* receive, size_t count, int type, int op,
                             ncclComm_t comm, cudaStream_t stream)) {
  return collective({"ncclReduceScatter", Kind::kReduceScatter, send, receive, count, type, op, 0},
                    comm, stream);
}

FAKENCCL(ncclAlltoAll, (const void* send, void* receive, size_t count, int type, ncclComm_t comm,
                        cudaStream_t stream)) {
  return collective({"ncclAlltoAll", Kind::kAllToAll, send, receive, count, type, 0, 0}, comm,
                    stream);
}

FAKENCCL(ncclGather, (const void* send, void* receive, size_t count, int type, int root,
                      ncclComm_t comm, cudaStream_t stream)) {
  return collective({"ncclGather", Kind::kGather, send, receive, count, type, 0, root}, comm,
                    stream);
}

FAKENCCL(ncclScatter, (const void* send, void* receive, size_t count, int type, int root,
                       ncclComm_t comm, cudaStream_t stream)) {
  return collective({"ncclScatter", Kind::kScatter, send, receive, count, type, 0, root}, comm,
                    stream);
}

FAKENCCL(ncclSend, (const void* send, size_t count, int type, int peer, ncclComm_t comm,
                    cudaStream_t stream)) {
  return transfer("ncclSend", reinterpret_cast<uint64_t>(send), true, count, type, peer, comm,
                  stream);
}

FAKENCCL(ncclRecv,
         (void* receive, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream)) {
  return transfer("ncclRecv", reinterpret_cast<uint64_t>(receive), false, count, type, peer, comm,
                  stream);
}
