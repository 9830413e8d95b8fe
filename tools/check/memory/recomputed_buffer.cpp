/// @file recomputed_buffer.cpp
/// recomputed-buffer: a module's buffers moved in the forward pass, and again when the module was
/// recomputed for backward.
///
/// Why it is a fault: a recomputation repeats the forward pass only for its values. Running
/// statistics that change in it include each batch twice, and counters count it twice.
/// Judged: buffers whose bits change in a call of a recomputation, in a step in which a call of the
/// forward pass with the same inputs changed them, too.
/// Silent: only the batch counter of a norm with a momentum; a recomputation with other tensors as
/// buffers; buffers that one of the two passes leaves unchanged, so that each batch counts once; a
/// recomputation that writes the value that is already there; calls in a backward pass with inputs
/// that no call of the forward pass had; buffers that the program has put back before the next
/// forward pass, which records them again.
/// Hint: the vectors of a spectral norm, which converge with each call; a trace that ends with the
/// first such step, which does not show whether the buffers are put back.
/// Not told apart: a momentum that was chosen for two updates.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

using format::Phase;

constexpr std::string_view kInitial = "buffer_initial:";

/// @return the number of a scalar integer, the statistics of another value.
std::string told(const Value& value) {
  const bool counts = value.measured() && value.stats.count == 1 &&
                      number_class(value.dtype) == format::NumberClass::kSigned;
  return counts ? std::to_string(value.stats.min.as_i64()) : numbers_of(value);
}

class RecomputedBuffer : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    std::map<Parameter, const Value*> moved;  // in the forward pass of this step
    Pairs again;
    for (const Value& value : step.values) {
      const bool initial = around.names.text(value.slot).starts_with(kInitial);
      if (value.role != Role::kBuffer && !initial) continue;
      const Parameter buffer{value.place.scope, value.name};
      if (initial) drop_restored(pending_, buffer, value);
      const auto [last, is_new] = last_.try_emplace(buffer, value.stats.hash);
      const bool changed = is_new || last->second != value.stats.hash;
      last->second = value.stats.hash;
      if (!changed || initial) continue;
      if (value.place.phase == Phase::kForward) moved[buffer] = &value;
      if (value.place.phase != Phase::kRecompute) continue;
      drop_restored(again, buffer, value);
      look("recomputed-buffer");
      const auto before = moved.find(buffer);
      if (before == moved.end() || !repeats(step, value.place)) continue;
      // Another tensor replaced the buffer, which kept its value after the forward pass.
      if (before->second->storage != value.storage || !told_.insert(buffer).second) continue;
      again.emplace_back(*before->second, value);
    }
    tell(around, Severity::kWarning);
    pending_ = std::move(again);
    pending_step_ = step.number;
  }

  void end(const Surroundings& around) override { tell(around, Severity::kHint); }

 private:
  using Pairs = std::vector<std::pair<Value, Value>>;  ///< behind forward, behind the recomputation

  static void drop_restored(Pairs& pairs, const Parameter& buffer, const Value& now) {
    std::erase_if(pairs, [&](const auto& pair) {
      const auto& [before, again] = pair;
      return Parameter{again.place.scope, again.name} == buffer &&
             before.stats.hash == now.stats.hash;
    });
  }

  /// @return whether a recomputed call has the inputs of a call of the forward pass, as far as they
  /// are recorded.
  static bool repeats(const StepValues& step, const format::Place& place) {
    const auto call = step.calls.find({place.scope, {}, Phase::kRecompute, place.call});
    if (call == step.calls.end()) return true;
    const auto hash = [](const Value* value) { return value->stats.hash; };
    const auto first = step.calls.lower_bound({place.scope, {}, Phase::kForward, 0});
    bool any = false;
    for (auto once = first; once != step.calls.end() && once->first.scope == place.scope &&
                            !once->first.op && once->first.phase == Phase::kForward;
         ++once) {
      any = true;
      if (std::ranges::equal(once->second.inputs, call->second.inputs, {}, hash, hash)) return true;
    }
    return !any;
  }

  /// The vectors of a power iteration.
  static bool converges(const Surroundings& around, const Value& value) {
    const std::string_view name = around.names.text(value.name);
    return name == "weight_u" || name == "weight_v" ||
           around.facts.class_of(value.place.scope) == "_SpectralNorm";
  }

  /// The number of batches of a norm with a momentum, which does not compute with it.
  static bool is_idle_count(const Surroundings& around, const Value& value) {
    return around.names.text(value.name) == "num_batches_tracked" &&
           around.facts.of_module(value.place.scope, "attributes").find("momentum=0.") !=
               std::string_view::npos;
  }

  /// Reports the buffers of the last step that were not put back since.
  void tell(const Surroundings& around, Severity severity) {
    const Pairs again = std::exchange(pending_, {});
    const auto is_idle = [&](const auto& pair) { return is_idle_count(around, pair.second); };
    if (std::ranges::all_of(again, is_idle)) return;
    const auto accumulates = [&](const auto& pair) { return !converges(around, pair.second); };
    const bool warns = std::ranges::any_of(again, accumulates);
    const auto& [before, first] = warns ? *std::ranges::find_if(again, accumulates) : again.front();
    std::map<format::StringId, std::string> modules;
    for (const auto& [_, value] : again) {
      std::string& names = modules[value.place.scope];
      names += (names.empty() ? "" : ", ") + std::string(around.names.text(value.name));
    }
    const format::StringId scope = first.place.scope;
    Finding finding = about("recomputed-buffer", warns ? severity : Severity::kHint, around,
                            pending_step_, first);
    finding.text =
        "Buffers of " + module_name(around.names, scope) + " (" + modules[scope] + ")" +
        (modules.size() == 1 ? ""
                             : " and of " + tools::counted(modules.size() - 1, "further module")) +
        " move in the forward pass, and again when it is recomputed for backward.";
    finding.evidence = {"behind the forward pass: " + told(before),
                        "behind the recomputation: " + told(first)};
    for (const auto& [other, names] : modules)
      if (other != scope && finding.evidence.size() < 6)
        finding.evidence.push_back(module_name(around.names, other) + ": " + names);
    explain(around.facts.class_of(scope), warns, finding);
    report(std::move(finding));
  }

  static void explain(std::string_view kind, bool accumulates, Finding& finding) {
    if (!accumulates) {
      finding.cause = "a power iteration inside of torch.utils.checkpoint";
      finding.next = "nothing, unless the recomputed weight has to have the bits of the first one";
    } else if (kind.ends_with("Norm1d") || kind.ends_with("Norm2d") || kind.ends_with("Norm3d") ||
               kind.ends_with("BatchNorm")) {
      finding.cause = "running statistics of a norm inside of torch.utils.checkpoint";
      finding.next =
          "keep the norm outside of what is recomputed, or let it move in one of the two passes: "
          "context_fn of checkpoint() can set its momentum to 0 for the second";
    } else {
      finding.cause = "a buffer that a call changes, inside of torch.utils.checkpoint";
      finding.next =
          "change the buffer outside of what is recomputed, or not in the second pass: context_fn "
          "of checkpoint() can tell the module which one it is";
    }
  }

  std::map<Parameter, uint64_t> last_;  ///< hashes
  std::set<Parameter> told_;
  Pairs pending_;  ///< told unless the program puts the buffers back before the next step
  uint32_t pending_step_ = 0;
};

}  // namespace

std::unique_ptr<Check> make_recomputed_buffer() { return std::make_unique<RecomputedBuffer>(); }

}  // namespace convtrace::check
