#pragma once
/// @file memory_judge.h
/// Judges what a program did with its memory: events in, findings out.
///
/// - use-after-free: a launch takes, as a parameter that is itself a pointer, an address in memory
///   that was freed and that nobody owns now.
/// - cross-stream-reuse: memory was given out again while work of another stream, which nothing
///   orders before its new use, may not be done with it.
/// - stale-read: a value is read whose memory was given to somebody else and rewritten.
///
/// Order is the order of the events: that of API calls on the host. A live process and a reader of
/// its trace see the same events, and come to the same findings.
///
/// Silent in doubt: where events were lost, where what a graph's memory is cannot be told, of words
/// inside structures (kernels for lists of tensors carry stale ones), of a pointer that may be the
/// end of the memory in front.
///
/// Place:    the writer thread, on what it writes; `convtrace findings --replay`.
/// Threads:  one.
/// Source:   docs/findings.md.

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "format/findings/common/recent.h"
#include "format/findings/memory/life_table.h"
#include "format/findings/memory/stale_values.h"
#include "format/findings/memory/stream_order.h"
#include "format/model/events.h"

namespace convtrace::judge {

/// What a finding says, without its sentence (finding_text.h).
struct MemoryFinding {
  /// What took the address when no kernel did.
  enum class Taker : uint8_t { kKernel, kCopyDestination, kCopySource, kTensor };
  format::FindingKind kind = format::FindingKind::kUseAfterFree;
  format::EventHeader header;  ///< of the event that showed it
  format::Place place;
  format::KernelId kernel;
  Taker taker = Taker::kKernel;
  uint16_t param = 0;
  bool in_graph = false;
  bool block = false;  ///< a framework's, which its allocator keeps and gives out again
  uint64_t address = 0;
  uint64_t offset = 0;      ///< bytes from the base of the memory
  uint64_t bytes = 0;       ///< of the memory
  uint64_t generation = 0;  ///< of the memory: the freed one, or the one given out again
  uint32_t freed_in_step = 0;
  uint64_t stream = 0;
  uint64_t other_stream = 0;  ///< cross-stream-reuse: where it was used before
  MadeValue made;             ///< stale-read: what was made there
  uint64_t hash = 0;          ///< stale-read: of what is there now
  format::StringId slot;      ///< stale-read: who reads it
  /// If the trace has them (CONVTRACE_STACKS=all): of the freed memory, or of that given out again;
  /// and of who took it.
  format::StackId alloc_stack, free_stack, launch_stack;
  uint64_t occurrence = 1;  ///< how often this kernel did this in this scope, this time included
};

class MemoryJudge {
 public:
  using Findings = std::vector<MemoryFinding>;

  /// Whether findings of that kind are its own.
  [[nodiscard]] static bool judges(format::FindingKind kind) {
    return kind == format::FindingKind::kUseAfterFree ||
           kind == format::FindingKind::kCrossStreamReuse ||
           kind == format::FindingKind::kStaleRead;
  }

  /// @param[out] findings  appended to.
  void see(const format::Event& event, Findings& findings);

  /// Words inside structures that point to freed memory: seen, not judged.
  [[nodiscard]] uint64_t stale_words() const { return stale_words_; }
  [[nodiscard]] const LifeTable& lives() const { return lives_; }

 private:
  using Layer = LifeTable::Layer;

  void on(const format::Launch& event, Findings& findings);
  void on(const format::Copy& event, Findings& findings);
  void on(const format::TensorStats& event, Findings& findings);
  void on(const format::Op& event);
  void on(const format::Alloc& event);
  void on(const format::Free& event);
  void on(const format::Sync& event);
  void on(const format::Loss& event);
  void on(const format::Diagnostic& event);

  void copied(uint64_t address, const format::Copy& event, Use use, MemoryFinding::Taker taker,
              Findings& findings);
  [[nodiscard]] static bool goes_on(const Life& life, Use use);
  template <typename Finding>
  void use(Life& life, Use use, Finding&& finding, Findings& findings);
  [[nodiscard]] std::optional<Use> unordered_use(Life& life, uint16_t slot);
  void check_freed(const format::Launch& event, const format::Operand& operand, Findings& findings);
  [[nodiscard]] bool may_be_end(const format::Launch& event, uint64_t address, Layer layer);
  [[nodiscard]] bool is_of_graphs(uint64_t address);
  bool note_block(const Life& block);
  void inherit(Life& life);
  void keep_unordered_uses(Life& life, uint16_t freeing);
  void forget_all();
  void tell_stacks(uint64_t generation, MemoryFinding& finding) const;
  void begin_launch(const format::Launch& event);
  [[nodiscard]] format::StackId stack_of(const MemoryFinding& finding) const;
  void report(MemoryFinding finding, Findings& findings);

  LifeTable lives_;
  StaleValues values_;
  StreamOrder order_;
  uint64_t epoch_ = order_.epoch();
  std::vector<Life> before_;  ///< of the allocation at hand
  uint32_t captures_ = 0;     ///< under way
  bool capture_seen_ = false;
  bool graph_memory_ = false;  ///< graphs allocate: what the driver owns cannot be told
  bool edges_ = true;          ///< what orders streams is seen
  uint64_t stale_words_ = 0;
  struct Stacks {
    format::StackId alloc, free;
  };
  Recent<Stacks> stacks_;  ///< by generation, where there are any
  /// Where a thread's next launch is made, and where its tensors are met.
  struct Calls {
    format::StackId launch, tensor;
    bool launched = false;  ///< with that stack: what follows may be its graph's kernels
  };
  std::unordered_map<uint32_t, Calls> calls_;  ///< by thread, where there are any
  using Key = std::tuple<format::FindingKind, format::KernelId, format::StringId, uint32_t>;
  std::map<Key, uint64_t> occurrences_;
};

}  // namespace convtrace::judge
