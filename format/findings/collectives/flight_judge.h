#pragma once
/// @file flight_judge.h
/// Judges what a program does to a tensor between the call of a collective and the wait for it:
/// takes events, makes findings.
///
/// - used-before-wait, read: a module, an optimizer, a clipping function, a backward pass or a
///   tagged op took memory that a collective writes, and had not waited for the collective when it
///   was done. A taker that waits inside, or that hands the tensor on as its output, is innocent.
///   A module takes its parameters, too, if all of them are being written.
/// - used-before-wait, copied: gradients are those of this rank alone, which it had sent in a flat
///   buffer (flat_buckets.h): a hint.
/// - used-before-wait, written: the program wrote a tensor, by torch's count, before it waited.
/// - receive-overlaps: a reception has memory in common with a tensor of a call that was not waited
///   for, or two receptions of one call have a part in common (windows of an all_gather); or a part
///   of a gradient that the optimizer takes was received over (exchanged.h). One tensor for all
///   parts of an all_gather is a warning, where it does not hold what this rank has sent: a program
///   may not want the results.
///
/// Passed over: what reads a tensor that is sent; the value of a loss, which a backward pass does
/// not need; whatever leaves no record, such as arithmetic outside of modules.
///
/// Place:    used by trace_judge.h.
/// Threads:  one.
/// Errors:   bounded by kMost tensors; the oldest is forgotten. After lost events all are.
/// Source:   docs/findings.md; the documentation of torch.distributed on asynchronous collectives.

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "format/findings/collectives/exchanged.h"
#include "format/findings/collectives/flat_buckets.h"
#include "format/findings/collectives/flight_finding.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

class FlightJudge {
 public:
  using Findings = std::vector<FlightFinding>;
  static constexpr size_t kMost = 4096;

  /// @param definitions  of the trace; outlive this.
  explicit FlightJudge(const format::Definitions& definitions)
      : definitions_(definitions), exchanged_(definitions), buckets_(definitions) {}

  /// @return whether this class makes findings of that kind.
  [[nodiscard]] static bool judges(format::FindingKind kind) {
    return kind == format::FindingKind::kUsedBeforeWait ||
           kind == format::FindingKind::kReceiveOverlaps;
  }

  /// @param[out] findings  new ones are appended.
  void see(const format::Event& event, Findings& findings);

 private:
  struct Flight {
    uint64_t serial = 0;
    format::Op call{};
    bool told = false;                           ///< there is a finding about it
    std::optional<format::TensorStats> changed;  ///< first record of the tensor as it was written
  };
  /// The meaning of a record, by the name of its slot.
  enum class Kind : uint8_t {
    kOther,
    kInput,
    kOutput,
    kOutputGradient,
    kGradient,
    kUnclipped,
    kNorm,
    kParameter
  };
  /// The event that ends a use.
  enum class End : uint8_t { kModule, kBackward, kOptimizer, kNone };
  /// A use that is under way.
  struct Use {
    uint64_t flight = 0;
    End end = End::kNone;
    FlightFinding finding;
  };
  /// Memory of a record.
  struct Memory {
    format::ValueId value;
    uint64_t address = 0, bytes = 0;
  };
  struct Parameter {
    format::StringId slot;
    Memory memory;
  };
  using Window = Parameter;  ///< one of the tensors that a call receives
  struct Sent {
    uint64_t bytes = 0, hash = 0;
  };

  void on(const format::TensorStats& event, Findings& findings);
  void on(const format::Scope& event, Findings& findings);
  void on(const format::Op& event, Findings& findings);
  void on_call(const format::Op& event, Findings& findings);
  void on_awaited(const format::Op& event, Findings& findings);
  void on_op_end(const format::Op& event, Findings& findings);
  void look_at_windows(const format::TensorStats& event, Findings& findings);
  void look_at_buckets(Findings& findings);
  void look_at_gradient(const format::TensorStats& event, Findings& findings);
  void take(const format::EventHeader& header, const format::Place& place, format::StringId slot,
            const Memory& memory, End end);
  void take_parameters(const format::Scope& event);
  void pass_on(const format::TensorStats& output);
  template <typename Which>
  void end_uses(Findings& findings, Which&& which);
  void keep(const format::TensorStats& parameter);
  [[nodiscard]] Kind kind_of(format::StringId slot);
  [[nodiscard]] Flight* find(uint64_t serial);
  void report(FlightFinding finding, Flight& flight, Findings& findings);
  void say(FlightFinding finding, Findings& findings);
  void forget();

  const format::Definitions& definitions_;
  Exchanged exchanged_;
  FlatBuckets buckets_;
  std::vector<std::optional<Kind>> kinds_;  ///< by slot
  bool any_ = false;                        ///< there was a call
  uint64_t last_ = 0;
  std::vector<Flight> flights_;  ///< oldest first
  uint64_t receiving_ = 0;       ///< the call of windows_
  std::vector<Window> windows_;
  std::optional<Sent> sent_;  ///< this rank's part in the call of windows_
  std::vector<Use> uses_;
  std::unordered_map<uint32_t, std::vector<Parameter>> parameters_;  ///< by scope
  std::unordered_map<uint32_t, uint64_t> begun_;  ///< by thread: last call when its op began
  std::unordered_map<uint32_t, std::vector<format::Op>> tensors_;  ///< by thread, of its op
  using Key = std::tuple<format::FindingKind, format::StringId, format::StringId, format::StringId,
                         format::StringId>;
  std::map<Key, uint64_t> occurrences_;
};

}  // namespace convtrace::judge
