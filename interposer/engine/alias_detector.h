#pragma once
/// @file alias_detector.h
/// Judges whether a tagged op handed out memory that it does not own: events in, findings out.
///
/// A watch (S, O) says: output storage O lies over memory of input storage S, and nothing says that
/// O keeps S alive. When S dies and its memory is freed while O lives, whatever is allocated next
/// may overwrite O: that is the finding. It is held back until the same thread does its next op,
/// launch or allocation, and withdrawn if O dies first: then a keep-alive was being torn down.
///
/// Place:    observer_port.h feeds ops and deaths, memory_journal.h frees and allocations.
/// Threads:  any; a short mutex, behind one relaxed load where nothing is pending.
/// Errors:   bounded: beyond kMaxWatches no new watch is made (and counted).
/// Source:   docs/design.md "Aliasing". Pure: no clock, no memory of the host is touched.

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "format/events.h"

namespace convtrace::engine {

/// One tensor that a tagged op took or gave.
struct OpOperand {
  format::StringId slot;
  bool is_output = false;
  uint64_t data = 0;
  uint64_t bytes = 0;  ///< first to last byte of the elements
  uint64_t storage = 0;
  uint64_t storage_base = 0;
  uint64_t storage_bytes = 0;
  uint32_t version = 0;
  format::Device device{};
  uint64_t generation = 0;      ///< life of the framework block at storage_base; 0 unknown
  bool frees_reported = false;  ///< the allocator of this device reports what it frees
};

struct OpCall {
  format::Place place;
  uint32_t step = 0;
  uint32_t thread = 0;
  format::StringId op;
  bool declared_alias = false;
  bool schema_known = false;
  std::span<const OpOperand> operands;
};

/// What a finding says, without its sentence (alias_text.h).
struct AliasFinding {
  format::FindingKind kind = format::FindingKind::kOutputAliasesInput;
  format::Place place;
  uint32_t step = 0;
  uint32_t thread = 0;
  format::StringId op;
  format::StringId output;
  format::StringId input;
  uint64_t address = 0;  ///< first byte in common
  uint64_t bytes = 0;    ///< bytes in common
  format::ValueId value{};
  format::StackId alloc_stack{}, launch_stack{}, free_stack{};
  uint64_t occurrence = 1;  ///< how often this op did this in this scope, this time included
};

/// Memory that a watch depends on.
struct WatchedMemory {
  uint64_t base = 0;
  uint64_t generation = 0;  ///< 0 unknown
};

class AliasDetector {
 public:
  using Findings = std::vector<AliasFinding>;
  static constexpr size_t kMaxWatches = 4096;

  /// An op returned. It also is activity of its thread.
  /// @return whether it is worth a stack and the deaths of its storages: a watch or a warning.
  bool on_op(const OpCall& call, Findings& findings);

  /// The call stack of `thread`'s last op.
  void on_op_stack(uint32_t thread, format::StackId stack, Findings& findings);

  /// @return memory whose owner `storage` is, if a watch depends on it: worth its stacks.
  [[nodiscard]] bool owns_watched(uint64_t storage, WatchedMemory& memory) const;

  /// A storage is about to free its memory.
  /// @param already_freed its memory is known to be gone (only asked where frees are reported).
  void on_storage_dead(uint64_t storage, uint32_t thread, bool already_freed,
                       format::StackId free_stack, format::StackId alloc_stack, Findings& findings);

  /// A framework block was freed.
  void on_freed(uint64_t generation, uint32_t thread);

  /// `thread` allocated or launched something: what it freed may be overwritten from now on.
  void on_activity(uint32_t thread, Findings& findings);

  /// Warnings that still waited for their stack. Unconfirmed errors are withdrawn.
  void finish(Findings& findings);

  /// Whether frees and activity matter now. One relaxed load.
  [[nodiscard]] bool attentive() const noexcept {
    return attentive_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t watches_refused() const;

 private:
  struct Watch {
    uint64_t owner = 0, output = 0;
    WatchedMemory memory{};
    uint64_t owner_bytes = 0;
    bool frees_reported = false;
    uint64_t op_serial = 0;
    AliasFinding finding{};
  };
  struct Pending {
    Watch watch;
    uint32_t thread = 0;  ///< who let go of the memory last
    bool freed = false;
  };

  bool judge_pair(const OpCall& call, const OpOperand& output, const OpOperand& input);
  void watch_owners(const OpOperand& input, const OpOperand& output, const AliasFinding& finding);
  void add_watch(Watch watch);
  void confirm(uint32_t thread, Findings& findings);
  void announce(uint32_t thread, Findings& findings);
  void report(AliasFinding finding, Findings& findings);
  void note_attention() noexcept;

  mutable std::mutex mutex_;
  std::vector<Watch> watches_;
  std::vector<Pending> pending_;
  std::vector<AliasFinding> unannounced_;  ///< warnings that wait for their stack
  uint64_t op_serial_ = 0;
  std::map<uint32_t, uint64_t> last_op_of_thread_;
  using Key = std::tuple<format::FindingKind, format::StringId, format::StringId, format::StringId,
                         format::StringId>;
  std::map<Key, uint64_t> occurrences_;
  uint64_t refused_ = 0;
  std::atomic<bool> attentive_{false};
};

}  // namespace convtrace::engine
