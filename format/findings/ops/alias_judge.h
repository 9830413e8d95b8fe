#pragma once
/// @file alias_judge.h
/// Judges whether a tagged op returned memory that it does not own: takes events, makes findings.
///
/// A watch (S, O) means: output storage O overlaps memory of input storage S, and nothing shows
/// that O keeps S alive. If S dies and its memory is freed while O lives, a later allocation may
/// overwrite O: that is the finding. It is held back until the same thread runs its next op, launch
/// or allocation, and dropped if O dies first, because then only a keep-alive was being destroyed.
///
/// An output may also lie in memory whose owner is not among the inputs: a buffer that the op
/// keeps, or memory that its allocator does not know. Mostly another library owns it. But if the
/// buffer is freed while O lives, or if the allocator later allocates the unknown memory (so it was
/// freed, before the op returned or since), that is the same finding.
///
/// Place:    used by trace_judge.h.
/// Threads:  one.
/// Errors:   bounded. Beyond kMaxWatches no new watch is made, and that is counted; of outputs
///           without a known owner the last kMostUnowned are kept. After lost events everything is
///           forgotten.
/// Source:   docs/findings.md.

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "format/findings/common/recent.h"
#include "format/findings/ops/op_finding.h"
#include "format/model/events.h"

namespace convtrace::judge {

class AliasJudge {
 public:
  using Findings = std::vector<OpFinding>;
  static constexpr size_t kMaxWatches = 4096;
  static constexpr size_t kMostUnowned = 256;

  /// @return whether this class makes findings of that kind.
  [[nodiscard]] static bool judges(format::FindingKind kind) {
    return kind == format::FindingKind::kFreedUnderOutput ||
           kind == format::FindingKind::kOutputAliasesInput;
  }

  /// @param[out] findings  new ones are appended.
  void see(const format::Event& event, Findings& findings) {
    const bool waits = !pending_.empty() || !unannounced_.empty();
    if (waits || !std::holds_alternative<format::Launch>(event)) judge(event, findings);
  }

  [[nodiscard]] uint64_t watches_refused() const { return refused_; }

 private:
  struct Watch {
    uint64_t owner = 0, output = 0;  ///< storages
    uint64_t base = 0, bytes = 0;    ///< range of the owner
    uint64_t generation = 0;         ///< the owner's allocation; 0: its allocator does not report
    bool frees_reported = false;
    bool freed = false;  ///< that allocation was freed
    uint64_t op_serial = 0;
    OpFinding finding{};
  };
  /// The allocation and free of memory that was freed.
  struct Ended {
    uint64_t t_ns = 0;
    format::StackId alloc{}, free{};
  };
  /// The memory of an output in unowned_. Each allocation and free is compared with all of them.
  struct Ground {
    uint64_t address = 0, bytes = 0, generation = 0;
  };
  struct Pending {
    Watch watch;
    uint32_t thread = 0;  ///< that freed the memory last
    bool freed = false;
  };

  void judge(const format::Event& event, Findings& findings);
  void on(const format::Op& event, Findings& findings);
  void on(const format::Alloc& event, Findings& findings);
  void on(const format::Free& event);
  void forget();
  void on_activity(const format::EventHeader& now, const format::Alloc* alloc, Findings& findings);
  void on_end(const format::Op& end, Findings& findings);
  void on_stack(const format::Op& event, Findings& findings);
  void on_storage_dead(const format::Op& event, Findings& findings);

  void watch_owners(const format::Op& input, const format::Op& output, const OpFinding& finding);
  void add_watch(Watch watch);
  [[nodiscard]] bool has_owner(uint64_t output) const;
  [[nodiscard]] bool is_unowned_output(uint64_t storage) const;
  template <typename Which>
  void forget_unowned(Which&& which);
  void free_under_outputs(const format::Free& event);
  void watch_unowned(const format::Op& output, OpFinding finding);
  void confirm(const format::EventHeader& now, const format::Alloc* alloc, Findings& findings);
  void announce(const format::EventHeader& now, Findings& findings);
  void report(OpFinding finding, const format::EventHeader& now, Findings& findings);

  std::unordered_map<uint32_t, std::vector<format::Op>> tensors_;  ///< by thread, of its current op
  std::vector<Watch> watches_;
  std::vector<Watch> unowned_;   ///< without an owner; oldest first
  std::vector<Ground> grounds_;  ///< memory of each element of unowned_, in the same order
  std::vector<Pending> pending_;
  std::vector<OpFinding> unannounced_;  ///< warnings that wait for their stack
  uint64_t op_serial_ = 0;
  std::map<uint32_t, uint64_t> last_op_of_thread_;
  std::unordered_map<uint32_t, uint64_t> begun_;  ///< by thread: time at which its last op began
  Recent<Ended> ended_;                           ///< by address, if there are call stacks
  using Key = std::tuple<format::FindingKind, format::StringId, format::StringId, format::StringId,
                         format::StringId>;
  std::map<Key, uint64_t> occurrences_;
  uint64_t refused_ = 0;
};

}  // namespace convtrace::judge
