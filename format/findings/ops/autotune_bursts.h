#pragma once
/// @file autotune_bursts.h
/// Finds kernels that an autotuner ran on the program's own data.
///
/// An autotuner launches one kernel in several configurations on the operands of its first call and
/// keeps the fastest. A kernel that works in place then does its work once per launch, and the
/// first result is wrong (Triton has `restore_value` against that). The pattern: within a call of a
/// tagged op a kernel family is launched several times in several configurations on the same
/// pointers, among them memory of an input that the op writes; and a later call of the op in the
/// same module launches it once. An op with several passes launches all of them in each call.
///
/// Place:    used by op_values.h.
/// Threads:  one.
/// Memory:   64 kernel families for each running op, 1024 bursts that wait for a later call.

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/findings/ops/op_finding.h"
#include "format/findings/ops/open_ops.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

class AutotuneBursts {
 public:
  explicit AutotuneBursts(const format::Definitions& definitions) : definitions_(definitions) {}

  /// @return whether any op is running. Launches outside of ops are ignored.
  [[nodiscard]] bool in_op() const { return open_.any(); }
  void on(const format::Launch& event);
  /// @return a burst of an earlier call, if this call shows at its end that it was one.
  std::optional<OpFinding> on(const format::Op& event);
  /// The input `slot` of an op that has ended has other values than before: the op writes it.
  /// @param left  statistics of that input after the op.
  void on_mutated(const format::TensorStats& left, format::StringId slot);
  /// Events were lost: forgets the running ops.
  void forget() { open_.clear(); }

 private:
  static constexpr size_t kMostFamilies = 64;
  static constexpr size_t kMostWaiting = 1024;
  static constexpr uint64_t kFewestLaunches = 4;
  struct Burst {
    format::KernelId kernel;          ///< the first one that was launched
    std::vector<uint64_t> addresses;  ///< values of the pointer parameters
    uint64_t configuration = 0;       ///< hash of the first launch's configuration
    uint64_t launches = 0;
    bool tried = false;  ///< in several configurations
    /// Set when its op has ended:
    format::EventHeader header;
    format::Place place;
    format::StringId slot;  ///< slot of an input that the op writes and the pointers point into
    format::ValueId value;
    uint64_t address = 0, bytes = 0;
  };
  using Families = std::unordered_map<uint32_t, Burst>;          ///< by name id
  using Target = std::pair<format::StringId, format::StringId>;  ///< op and scope
  struct OpenOp {
    Families families;
    std::vector<format::Op> written;
  };

  std::optional<OpFinding> end(const format::Op& event, OpenOp& op);
  static OpFinding finding_of(const format::Op& now, const Burst& then);

  const format::Definitions& definitions_;
  OpenOps<OpenOp> open_;
  std::map<Target, Families> waiting_;
};

}  // namespace convtrace::judge
