#pragma once
/// @file exchange.h
/// What the ranks of one collective, or of one transfer, bring together, and the two kernels of each
/// rank: one puts what it sends, one waits until all have and takes what it is to receive.
///
/// Threads:  the driver double runs one kernel at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/fakecuda/fakecuda.h"

namespace fakenccl {

enum class Kind {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kTransfer
};

struct Exchange {
  Kind kind = Kind::kTransfer;
  int size = 0;  ///< ranks that put
  size_t count = 0;
  int type = 0;
  int op = 0;
  double factor = 1;  ///< of a premul_sum
  int root = 0;
  std::vector<std::vector<std::byte>> data{};  ///< by rank
  int puts = 0;
};

/// One rank's part. It stays, since a graph may run it any number of times.
struct Task {
  std::shared_ptr<Exchange> exchange;
  int rank = 0;
  uint64_t send = 0;
  uint64_t send_bytes = 0;
  uint64_t receive = 0;
  uint64_t receive_bytes = 0;
  bool puts = true;   ///< false: the destination of a transfer
  bool takes = true;  ///< false: its source
};

size_t bytes_of(int type);
bool can_reduce(int type);
extern const fakecuda_image kImage;
inline constexpr const char* kPut = "_Z17ncclDevKernel_putP4Task";
inline constexpr const char* kTake = "_Z18ncclDevKernel_takeP4Task";

}  // namespace fakenccl
