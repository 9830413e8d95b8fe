/// @file dropped_write.cpp
/// dropped-write: memory that a compiled region should have written is unchanged.
///
/// There are three proofs, each based on the writes in the generated code:
/// - The code gives the name of a view to another tensor before anything used the view: the part of
///   the larger tensor is never written (pytorch#193061). Fact `compiled_dropped.SCOPE.OP`.
/// - A kernel's output has the bits that its memory held before, which the kernel does not read.
/// - A batch norm's kernel leaves running statistics unchanged in two consecutive steps, although
///   its inputs changed, and it changes other statistics, or changed these before: an average
///   changes unless its momentum is 0, which applies to all statistics of a norm.
/// Silent: values without tells_writes(); outputs that are copies of inputs; outputs that the
/// kernel also reads (a ReLU of positive values changes nothing), except running statistics;
/// statistics that never change; memory without an earlier record in the step.

#include <algorithm>
#include <set>
#include <tuple>

#include "tools/check/model/checks.h"
#include "tools/check/values/compiled_calls.h"

namespace convtrace::check {
namespace {

class DroppedWrite : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const auto& [place, view] : around.facts.dropped_views())
      if (told_.emplace(place).second) tell_view(step, around, place, std::string(view));
    for (const KernelCall& call : kernel_calls(step, around.names)) {
      look("dropped-write");
      for (const Value* output : call.outputs) judge(step, around, call, *output);
    }
    held_.clear();
  }

 private:
  using Place = std::tuple<CallKey, uint32_t, format::StringId>;
  struct Statistics {
    uint64_t taken = 0;      ///< a sum over the hashes of the kernel's other inputs
    uint32_t unchanged = 0;  ///< steps running
    bool moved = false;      ///< in an earlier step
  };

  void judge(const StepValues& step, const Surroundings& around, const KernelCall& call,
             const Value& output) {
    if (const Value* read = read_of(call, output); read != nullptr)
      return average(step, around, call, output, *read);
    const bool copied = std::ranges::any_of(
        call.inputs, [&](const Value* input) { return input->stats.hash == output.stats.hash; });
    const Value* const before = last_before(step, output);
    if (before == nullptr || copied || !tells_writes(output) ||
        before->stats.hash != output.stats.hash)
      return;
    tell(step, around, call, output,
         "is what its memory held before, which the kernel does not read");
  }

  /// @return the input that the call read from an output's memory, or null.
  static const Value* read_of(const KernelCall& call, const Value& output) {
    const auto read = std::ranges::find_if(call.inputs, [&](const Value* one) {
      return one->storage != 0 && one->storage == output.storage &&
             one->address == output.address && one->bytes == output.bytes;
    });
    return read == call.inputs.end() ? nullptr : *read;
  }
  /// @return whether an operand is an argument of the region that the kernel changes: it reads it
  /// under one name and writes it under another.
  static bool moves(const KernelCall& call, const Value& output) {
    const Value* read = read_of(call, output);
    return read != nullptr && read->name != output.name && read->stats.hash != output.stats.hash &&
           output.dtype == format::DType::kF32;
  }

  /// @return the last earlier record of an output's memory that another call wrote.
  const Value* last_before(const StepValues& step, const Value& output) {
    if (held_.empty()) {
      for (const Value& value : step.values)
        if (value.storage != 0)
          held_[{value.storage, value.address, value.bytes}].push_back(&value);
    }
    if (output.storage == 0) return nullptr;
    const Value* last = nullptr;
    for (const Value* one : held_[{output.storage, output.address, output.bytes}])
      if (one->seq < output.seq && one->dtype == output.dtype) last = one;
    return last;
  }

  /// Judges the running statistics of a batch norm's kernel, over several steps.
  void average(const StepValues& step, const Surroundings& around, const KernelCall& call,
               const Value& output, const Value& read) {
    const std::string_view op = around.names.text(call.key.op);
    if (op.find("native_batch_norm") == op.npos || op.find("backward") < op.find("native_batch") ||
        call.key.phase == format::Phase::kBackward || output.name == read.name ||
        output.dtype != format::DType::kF32)
      return;
    Statistics now;
    for (const Value* input : call.inputs)
      if (input->storage != read.storage) now.taken += input->stats.hash;
    Statistics& before = statistics_[{call.key, call.occurrence, output.name}];
    const bool unchanged = read.stats.hash == output.stats.hash && output.finite();
    if (unchanged && before.taken != now.taken) now.unchanged = before.unchanged + 1;
    now.moved = before.moved || !unchanged;
    before = now;
    const bool others_move =
        std::ranges::any_of(call.outputs, [&](const Value* other) { return moves(call, *other); });
    if (now.unchanged == 2 && (now.moved || others_move))
      tell(step, around, call, output,
           "is as it was before in two steps running, and the kernel took other values in each");
  }

  void tell(const StepValues& step, const Surroundings& around, const KernelCall& call,
            const Value& output, const std::string& what) {
    Finding finding = about("dropped-write", Severity::kError, around, step.number, output);
    finding.text = std::string(around.names.text(output.name)) + " of kernel " +
                   kernel_text(around.facts, around.names, call.key) + ' ' + what + '.';
    finding.evidence = {"before and after the call: " + numbers_of(output),
                        "the generated code says that the kernel writes it"};
    finish(std::move(finding));
  }

  /// @param place  "SCOPE.OP"  @param value  "KERNEL VIEW OWNER"
  void tell_view(const StepValues& step, const Surroundings& around, std::string_view place,
                 const std::string& value) {
    look("dropped-write");
    const size_t first = value.find(' '), second = value.find(' ', first + 1);
    if (second == value.npos) return;
    const std::string kernel = value.substr(0, first);
    const std::string view = value.substr(first + 1, second - first - 1);
    const size_t op = place.rfind('.');
    Finding finding{.id = "dropped-write",
                    .severity = Severity::kError,
                    .rank = around.rank,
                    .step = step.number,
                    .scope = std::string(place.substr(0, op)),
                    .op = std::string(place.substr(op + 1))};
    finding.text = "What kernel " + kernel + " computes for " + view + ", a part of " +
                   value.substr(second + 1) + ", is never written there.";
    finding.evidence = {"in the generated code " + view +
                        " is a view that nothing uses before its "
                        "name is given to another tensor"};
    finish(std::move(finding));
  }

  void finish(Finding finding) {
    finding.cause = "a fault of the compiler, or of a pass over its graph";
    finding.next = "compare with a run without torch.compile: convtrace-diff EAGER COMPILED";
    report(std::move(finding));
  }

  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, std::vector<const Value*>> held_;
  std::map<Place, Statistics> statistics_;
  std::set<std::string, std::less<>> told_;
};

}  // namespace

std::unique_ptr<Check> make_dropped_write() { return std::make_unique<DroppedWrite>(); }

}  // namespace convtrace::check
