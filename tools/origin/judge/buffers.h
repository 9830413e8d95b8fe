#pragma once
/// @file buffers.h
/// parted, for buffers: finds a buffer that was equal on ranks in several steps, changed in them,
/// and no longer is equal.
///
/// Passed over: buffers that were never equal after a change, as running statistics of each rank's
/// own data.
/// Threads:  one.

#include <cstdint>
#include <span>
#include <unordered_map>

#include "tools/origin/judge/told.h"

namespace convtrace::origin {

class Buffers {
 public:
  struct Seen {
    uint32_t queue = 0;
    uint64_t hash = 0;
  };

  Buffers(const Job& job, Told& told) : job_(job), told_(told) {}
  /// @param seen  by queue, ascending; at least two.
  void see(uint32_t step, format::StringId scope, format::StringId name,
           std::span<const Seen> seen);

 private:
  struct Buffer {
    std::unordered_map<uint32_t, uint64_t> last{};  ///< by queue
    uint32_t equal_steps = 0;                       ///< steps in which it was equal and had changed
    bool parted = false;
  };

  void tell(uint32_t step, format::StringId scope, format::StringId name, const Buffer& buffer,
            std::span<const Seen> seen);

  const Job& job_;
  Told& told_;
  std::unordered_map<uint64_t, Buffer> buffers_;  ///< by scope and name
};

}  // namespace convtrace::origin
