#pragma once
/// @file memory_judge.h
/// Judges how a program uses memory: takes events, makes findings.
///
/// - use-after-free: a launch has a pointer parameter with an address in memory that was freed
///   and not allocated again.
/// - cross-stream-reuse: memory was allocated again while work of another stream may still use
///   it, because nothing orders that work before the new use.
/// - stale-read: a value is read after its memory was allocated again and overwritten.
///
/// Events are ordered as the API calls on the host. A live process and a reader of its trace see
/// the same events, so they make the same findings.
///
/// In doubt it makes no finding: if events were lost, if memory may belong to a graph, for words
/// inside structures (kernels for lists of tensors have stale ones), and for a pointer that may be
/// the end of the memory before it.
///
/// Place:    the writer thread, for events that it writes; `convtrace findings --replay`.
/// Threads:  one.
/// Source:   docs/findings.md.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "format/findings/common/recent.h"
#include "format/findings/memory/life_table.h"
#include "format/findings/memory/stale_values.h"
#include "format/findings/memory/stream_order.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

/// The contents of a finding, without its text.
struct MemoryFinding {
  /// The user of the address, if it is no kernel.
  enum class Taker : uint8_t { kKernel, kCopyDestination, kCopySource, kTensor };
  format::FindingKind kind = format::FindingKind::kUseAfterFree;
  format::EventHeader header;  ///< the header of the event that caused the finding
  format::Place place;
  format::KernelId kernel;
  Taker taker = Taker::kKernel;
  uint16_t param = 0;
  bool in_graph = false;
  bool block = false;  ///< memory of a framework, whose allocator keeps it and allocates it again
  uint64_t address = 0;
  uint64_t offset = 0;  ///< bytes from the base of the memory
  uint64_t bytes = 0;   ///< size of the memory
  /// Generation of the memory that was freed, or of the one that was allocated in its place.
  uint64_t generation = 0;
  uint32_t freed_in_step = 0;
  uint64_t stream = 0;
  uint64_t other_stream = 0;  ///< cross-stream-reuse: the stream of the former use
  MadeValue made;             ///< stale-read: the value that was made there
  uint64_t hash = 0;          ///< stale-read: hash of the present contents
  format::StringId slot;      ///< stale-read: slot of the reader
  /// With CONVTRACE_STACKS=all: call stacks of the memory that was freed or allocated again, and of
  /// its user.
  format::StackId alloc_stack, free_stack, launch_stack;
  /// Number of times that this kernel did this in this scope, including this one.
  uint64_t occurrence = 1;
};

/// The operand that held the address: "arg:1", "destination", "source"; "" for a tensor, which has
/// a slot.
[[nodiscard]] std::string slot_text(const MemoryFinding& finding);

/// @return one paragraph for readers who do not know the manual.
[[nodiscard]] std::string describe(const MemoryFinding& finding,
                                   const format::Definitions& definitions);

/// @return the record without its message. The caller interns a slot that is slot_text().
[[nodiscard]] format::Finding record_of(const MemoryFinding& finding);

class MemoryJudge {
 public:
  using Findings = std::vector<MemoryFinding>;

  /// @return whether this class makes findings of that kind.
  [[nodiscard]] static bool judges(format::FindingKind kind) {
    return kind == format::FindingKind::kUseAfterFree ||
           kind == format::FindingKind::kCrossStreamReuse ||
           kind == format::FindingKind::kStaleRead;
  }

  /// Processes an event. @param[out] findings  new ones are appended.
  void see(const format::Event& event, Findings& findings);

  /// @return the number of words inside structures that pointed to freed memory; they are not
  /// judged.
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
  std::vector<Life> before_;  ///< freed allocations at the place of the present one
  uint32_t captures_ = 0;     ///< number of active captures
  bool capture_seen_ = false;
  bool graph_memory_ = false;  ///< graphs allocate: the driver's memory is not fully known
  bool edges_ = true;          ///< calls that order streams are reported
  uint64_t stale_words_ = 0;
  struct Stacks {
    format::StackId alloc, free;
  };
  Recent<Stacks> stacks_;  ///< by generation, if there are any
  /// Call stacks of a thread's next launch and of its tensors.
  struct Calls {
    format::StackId launch, tensor;
    bool launched = false;  ///< a launch with that stack happened; launches of its graph may follow
  };
  std::unordered_map<uint32_t, Calls> calls_;  ///< by thread, if there are any
  using Key = std::tuple<format::FindingKind, format::KernelId, format::StringId, uint32_t>;
  std::map<Key, uint64_t> occurrences_;
};

}  // namespace convtrace::judge
