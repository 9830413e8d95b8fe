#pragma once
/// @file overwritten.h
/// Judges whether a tensor that is still needed was overwritten by something that PyTorch does not
/// count (a kernel through a raw pointer): takes events, makes findings of the kind overwritten.
///
/// - Tensors that an op keeps for its backward (slots saved:I, ctx:NAME): recorded when its forward has
///   returned and again before its backward runs. If storage, place and number of in-place writes are
///   the same and the bytes differ, something else has written them. For a buffer of the module this is
///   a hint, unless the steps begin with the same bytes in it: a running average changes in each step.
///   Of attributes of ctx: also if a later call has kept a copy of its own operand or result in memory
///   that covers a part of theirs.
/// - Tensors that the code of a backward reads from an object that outlives the call, and that each
///   forward makes anew (slot state:NAME): the object then holds another tensor of that size, or other
///   bytes, from the forward of a later call, and still does behind the backward (slot
///   state_after:NAME). A hint where code between forward and backward pass wrote them,
///   perhaps on purpose.
/// - An output of a module or an op in the forward pass which the next reader of the same step, or the
///   module whose op made it, finds changed (a hook). It is reported when the output's gradient comes,
///   which proves that the output is a part of the graph; memory that a program reuses on purpose has
///   no gradient. Of an op of torch's own (CONVTRACE_OPS) the gradient is that of the module which passes
///   its output on.
/// - An output of an op of torch's own that another op has taken, if in the backward pass an op outside
///   of custom ops, which reads what autograd has saved, finds it changed: by an op that was not to
///   write it, or as a later op in the forward pass has found it, too. In host memory alone, since
///   records of a device arrive when the op around them has ended.
/// - The gradient of a module's output, if its bytes differ when the backward of the op that made that
///   output takes it (a hook) while others hold its memory. Of PyTorch's own operations: if they differ
///   behind the program's hooks (slots grad_output_hooked:I), unless hooks of every holder write the same
///   bytes there (each limits it).
/// - Tensors that a node of torch's own has saved from a module's input or output, or from the operands
///   of its own products (slots needed:NAME): before the node runs they are compared with the record of
///   that call, or with the record made when the module was left. Scores of a loss that is not what
///   they give when the backward pass begins are compared with the record of the output that they are.
///   Weights are a hint, unless a later call of the module has used others, which differ clearly.
/// - Tensors into which hooks have packed what such a node saves (slots packed:NAME), if what is packed
///   into that memory later lies there when the node is about to run.
/// - Data in memory that a loader or NumPy owns (slots lent:NAME), if it differs when the backward pass
///   begins.
///
/// The finding names the writer, if the first record of the bytes that the victim found is a result in
/// that memory or an operand after an op; else it names the victim.
///
/// Place:    used by trace_judge.h.
/// Threads:  one.
/// Memory:   the last 65536 values of each table.
/// Source:   docs/findings.md.

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "format/findings/common/recent.h"
#include "format/findings/ops/op_finding.h"
#include "format/findings/ops/open_ops.h"
#include "format/findings/ops/slot_roles.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

class Overwritten {
 public:
  using Findings = std::vector<OpFinding>;

  /// @param definitions  of the trace; outlive this.
  explicit Overwritten(const format::Definitions& definitions)
      : definitions_(definitions), roles_(definitions) {}

  /// @return whether this class makes findings of that kind.
  [[nodiscard]] static bool judges(format::FindingKind kind) {
    return kind == format::FindingKind::kOverwritten;
  }

  /// @param[out] findings  new ones are appended.
  void see(const format::Event& event, Findings& findings);

 private:
  /// A record of a value. `given`: a result, or an operand after its op. `last`: the last record that
  /// found the same bytes, if it has a slot.
  struct Seen {
    format::Place place;
    format::StringId op, slot;
    uint32_t step = 0;
    uint64_t hash = 0;
    bool given = false;
    uint64_t collectives = 0;  ///< collectives before it, whose writes PyTorch does not count
    Owner last{};
    double l2 = 0;  ///< 0 if unknown
  };

  /// An operand of a custom op, or a copy of it that the op has made and keeps on ctx.
  struct Filled {
    uint64_t address = 0, bytes = 0;
    format::Device device;
    Seen seen;
  };

  /// A buffer at the begin of a step. `alike`: two steps in a row began with the same bytes in it.
  struct Begun {
    uint32_t step = 0;
    uint64_t hash = 0;
    bool alike = false;
  };

  [[nodiscard]] static Owner owner_of(const format::ValueId& value, const Seen& seen);
  [[nodiscard]] Seen seen_of(const format::TensorStats& event, bool given) const;
  void kept(const format::TensorStats& event, SlotRole role, Findings& findings);
  [[nodiscard]] Filled filled_of(const format::TensorStats& event) const;
  void filled(const format::TensorStats& event);
  [[nodiscard]] const Seen* filled_over(const format::TensorStats& event, const Seen& made) const;
  [[nodiscard]] bool is_rewritten(const format::TensorStats& event, const Seen& made) const;
  [[nodiscard]] const Seen* first_over(const format::TensorStats& event, const Seen* made) const;
  void state(const format::TensorStats& event, SlotRole role, Findings& findings);
  void lent(const format::TensorStats& event, Findings& findings);
  void needed(const format::TensorStats& event, Findings& findings);
  void packed(const format::TensorStats& event, Findings& findings);
  void given(const format::TensorStats& event);
  void taken(const format::TensorStats& event);
  [[nodiscard]] bool is_around(const format::TensorStats& event, const Seen& made) const;
  void suspect(const format::TensorStats& event, const Seen& made);
  void shared(const format::TensorStats& event, SlotRole role, Findings& findings);
  void gradient(const format::TensorStats& event, Findings& findings);
  void hooked(const format::TensorStats& event);
  void confirm(uint64_t output, uint32_t step, Findings& findings);
  void read_back(const format::TensorStats& event, Findings& findings);
  [[nodiscard]] bool is_torchs(format::StringId op) const;
  void begin_step(const format::TensorStats& buffer);
  [[nodiscard]] bool is_read_only(const format::TensorStats& buffer) const;
  [[nodiscard]] OpFinding finding_of(const format::TensorStats& victim, const Seen& made) const;
  [[nodiscard]] static uint64_t key_of_torchs(const format::TensorStats& event);
  [[nodiscard]] uint64_t key_of_call(format::StringId op, const format::Place& place) const;
  [[nodiscard]] uint64_t key_of_shared(const format::TensorStats& event) const;
  [[nodiscard]] uint64_t key_of_copy(const format::TensorStats& event) const;
  [[nodiscard]] uint64_t key_in_call(const format::TensorStats& event) const;
  [[nodiscard]] uint64_t key_of_output(format::StringId op, const format::Place& place,
                                       format::StringId slot) const;
  void report(OpFinding finding, Findings& findings);

  const format::Definitions& definitions_;
  SlotRoles roles_;
  uint64_t collectives_ = 0;
  /// Records made when a forward ended: by op, module call, slot and value; a module's by call and
  /// value.
  Recent<Seen> kept_;
  Recent<Seen> values_;            ///< forward pass: the last record of each value
  Recent<Filled> of_calls_;        ///< operands of custom ops, by call, bytes and hash
  std::vector<Filled> filled_;     ///< in this step
  Recent<Seen> came_;              ///< backward pass: the last record by module call and value
  Recent<Seen> bytes_;             ///< by memory: the first record of the bytes that lie there now
  Recent<uint64_t> passed_on_;     ///< by output of a module: the key of what a torch op made in it
  OpenOps<std::monostate> open_;   ///< custom ops that are running
  Recent<Begun> begun_;            ///< buffers that ops save, by memory
  std::set<uint64_t> statistics_;  ///< storages of running statistics
  std::map<uint64_t, OpFinding> suspected_;  ///< by output: changed before it was read
  std::map<uint64_t, OpFinding> hooked_;     ///< by memory: gradients that hooks wrote in this pass
  std::map<uint64_t, OpFinding> read_;       ///< state of another call, until its backward ends
  using Key = std::tuple<format::StringId, format::StringId, format::StringId, format::StringId>;
  std::map<Key, uint64_t> occurrences_;
};

}  // namespace convtrace::judge
