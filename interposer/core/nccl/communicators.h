#pragma once
/// @file communicators.h
/// The communicators of NCCL in this process, by handle: what their group is called, who this rank
/// is in it, and how many calls were made.
///
/// Names:    equal on all members and on no other group: `nccl:` and a hash of the unique id that
///           all members were given; of a part of another communicator, that one's name, how many
///           parts were made of it before, and the color (`nccl:0123456789abcdef/0.1`).
/// Threads:  any.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "format/base/mutex.h"
#include "format/model/ids.h"

namespace convtrace::engine {

/// This process's rank of a communicator.
struct CommRank {
  uint32_t rank = 0;
  uint32_t size = 0;  ///< 0: not known yet
};

struct Communicator {
  std::string name;
  format::StringId group{};
  format::StringId members{};
  CommRank rank;
  std::optional<uint8_t> device;  ///< CUDA ordinal
};

class Communicators {
 public:
  /// A former communicator of the same handle is forgotten.
  void add(const void* comm, const Communicator& communicator);
  void forget(const void* comm);
  [[nodiscard]] std::optional<Communicator> find(const void* comm) const;
  void set_rank(const void* comm, CommRank rank, format::StringId members);

  /// A part is made of it, by a call that all its members make. @return how many were made before.
  [[nodiscard]] uint64_t count_part(const void* comm);
  /// @return how many collectives were called before; of a transfer to or from `peer`, how many
  /// transfers to it, or from it. @param kind  convtrace_nccl_kind.
  [[nodiscard]] uint64_t count_call(const void* comm, int kind, int peer);

 private:
  struct Entry {
    Communicator communicator;
    uint64_t parts = 0;
    uint64_t collectives = 0;
    std::map<std::pair<int, int>, uint64_t> transfers;  ///< by kind and peer
  };

  mutable Mutex mutex_;
  std::unordered_map<const void*, Entry> entries_ CONVTRACE_GUARDED_BY(mutex_);
};

/// @return "nccl:" and the hash of an id.
[[nodiscard]] std::string name_of_id(const void* id, uint64_t bytes);
/// @param what  the color, or how the part was made.
[[nodiscard]] std::string name_of_part(const std::string& whole, uint64_t before,
                                       const std::string& what);
/// @return the ranks in the job of a group's members, where that is known: of a group of all ranks,
/// in which this one has the rank that it has in the job. "": not known.
[[nodiscard]] std::string members_text(CommRank rank, uint32_t job_rank, uint32_t job_size);

}  // namespace convtrace::engine
