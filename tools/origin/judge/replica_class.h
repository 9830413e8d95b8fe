#pragma once
/// @file replica_class.h
/// The state that replicas.cpp keeps for parameters, and for ranks on which they were equal.
///
/// Threads:  plain values.

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "format/model/ids.h"
#include "tools/origin/judge/judges.h"

namespace convtrace::origin {

/// A rank's last value of a parameter.
struct Last {
  uint64_t hash = 0;
  bool known = false;
  bool trusted = false;  ///< equal ones are no coincidence
};

/// One value of a step.
struct Entry {
  uint32_t key = 0;
  ParameterMoment moment = ParameterMoment::kInitial;
  uint32_t queue = 0;
  const ParameterSeen* seen = nullptr;
  size_t order = 0;  ///< the last of a step counts
};

struct Key {
  format::StringId scope, name;
  std::vector<Last> last{};       ///< by queue
  std::vector<uint64_t> first{};  ///< by queue; 0: not known
  bool reduced = false;           ///< its gradient was equal on ranks, and no constant
};

/// A value that is not the same on all ranks of a class.
struct Apart {
  uint32_t key = 0;
  std::vector<uint32_t> minority{};  ///< queues; empty: no value has a majority
  bool stale = false;                ///< the minority's is that of the step before
};

/// Ranks on which parameters were equal before a step.
struct Class {
  std::vector<uint32_t> queues{};
  size_t equal_gradients = 0, equal_updates = 0;
  std::vector<Apart> gradients{}, updates{};
  std::set<uint32_t> parted{}, updated{};  ///< keys
};

}  // namespace convtrace::origin
