#include "tests/fakenccl/exchange.h"

#include <algorithm>
#include <cstring>

#include "tests/fakenccl/fakenccl.h"

namespace fakenccl {
namespace {

Task& task_of(const fakecuda_launch* launch) {
  return **static_cast<Task* const*>(launch->params[0]);
}

void run_put(const fakecuda_launch* launch) {
  Task& task = task_of(launch);
  Exchange& exchange = *task.exchange;
  if (task.send_bytes != 0) {
    const void* const from = launch->device(task.send, task.send_bytes);
    if (from == nullptr) return;
    const size_t place = exchange.kind == Kind::kTransfer ? 0 : static_cast<size_t>(task.rank);
    std::vector<std::byte>& data = exchange.data[place];
    data.resize(task.send_bytes);
    std::memcpy(data.data(), from, task.send_bytes);
  }
  ++exchange.puts;
}

template <typename T>
T combine(const Exchange& exchange, T a, T b) {
  switch (exchange.op) {
    case ncclProd: return static_cast<T>(a * b);
    case ncclMax: return std::max(a, b);
    case ncclMin: return std::min(a, b);
    default: return static_cast<T>(a + b);
  }
}

/// Reduces `count` elements from element `first` of each rank's data on.
template <typename T>
void reduce(const Exchange& exchange, size_t first, void* out) {
  T* const to = static_cast<T*>(out);
  for (size_t i = 0; i < exchange.count; ++i) {
    T sum{};
    for (size_t rank = 0; rank < exchange.data.size(); ++rank) {
      T one;
      std::memcpy(&one, &exchange.data[rank][(first + i) * sizeof(T)], sizeof one);
      if (exchange.op > ncclAvg) one = static_cast<T>(static_cast<double>(one) * exchange.factor);
      sum = rank == 0 ? one : combine(exchange, sum, one);
    }
    to[i] = exchange.op == ncclAvg ? static_cast<T>(sum / static_cast<T>(exchange.size)) : sum;
  }
}

void reduce_any(const Exchange& exchange, size_t first, void* out) {
  if (exchange.type == ncclFloat32) reduce<float>(exchange, first, out);
  if (exchange.type == ncclFloat64) reduce<double>(exchange, first, out);
  if (exchange.type == ncclInt32) reduce<int32_t>(exchange, first, out);
  if (exchange.type == ncclInt64) reduce<int64_t>(exchange, first, out);
  if (exchange.type == ncclUint8) reduce<uint8_t>(exchange, first, out);
}

void take(const Exchange& exchange, int rank, std::byte* out) {
  const size_t bytes = exchange.count * bytes_of(exchange.type);
  const size_t own = static_cast<size_t>(rank) * bytes;
  const auto& of_root = exchange.data[static_cast<size_t>(exchange.root)];
  switch (exchange.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce: return reduce_any(exchange, 0, out);
    case Kind::kReduceScatter:
      return reduce_any(exchange, static_cast<size_t>(rank) * exchange.count, out);
    case Kind::kBroadcast:
    case Kind::kTransfer: std::memcpy(out, of_root.data(), bytes); return;
    case Kind::kScatter: std::memcpy(out, of_root.data() + own, bytes); return;
    case Kind::kAllGather:
    case Kind::kGather:
      for (size_t i = 0; i < exchange.data.size(); ++i)
        std::memcpy(out + i * bytes, exchange.data[i].data(), bytes);
      return;
    case Kind::kAllToAll:
      for (size_t i = 0; i < exchange.data.size(); ++i)
        std::memcpy(out + i * bytes, exchange.data[i].data() + own, bytes);
  }
}

void run_take(const fakecuda_launch* launch) {
  Task& task = task_of(launch);
  const Exchange& exchange = *task.exchange;
  *launch->unfinished = exchange.puts < exchange.size ? 1 : 0;
  if (*launch->unfinished != 0) return;
  if (task.takes && task.receive_bytes != 0) {
    void* const to = launch->device(task.receive, task.receive_bytes);
    if (to != nullptr) take(exchange, task.rank, static_cast<std::byte*>(to));
  }
}

constexpr unsigned kParams[] = {8};
constexpr fakecuda_kernel kKernels[] = {{kPut, run_put, 1, kParams}, {kTake, run_take, 1, kParams}};

}  // namespace

const fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 2, kKernels};

size_t bytes_of(int type) {
  constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? kBytes[type] : 0;
}

bool can_reduce(int type) {
  return type == ncclFloat32 || type == ncclFloat64 || type == ncclInt32 || type == ncclInt64 ||
         type == ncclUint8;
}

}  // namespace fakenccl
