#include "tools/diff/verdict/data_flow.h"

#include <algorithm>
#include <optional>

namespace convtrace::diff {
namespace {

class Flow {
 public:
  Flow(const StepPair& pair, uint32_t root, const PairReporter& reporter)
      : pair_(pair), reporter_(reporter), root_(root), root_record_(pair.base_of(root)) {}

  DataFlow find() {
    find_sources();
    find_consumers();
    return std::move(flow_);
  }

 private:
  [[nodiscard]] const ValueRecord& record(uint32_t match) const { return pair_.base_of(match); }
  [[nodiscard]] bool in_one_call(uint32_t a, uint32_t b) const {
    return call_key(record(a)) == call_key(record(b));
  }
  /// @return the first record of the same value, which its producer left.
  [[nodiscard]] uint32_t origin(uint32_t match) const {
    const uint32_t from = pair_.lineage.seen_from[match];
    return from == kNoMatch ? match : from;
  }
  void add(std::vector<FlowStep>& steps, size_t& more, uint32_t match, std::string as,
           bool by_order) {
    if (steps.size() == DataFlow::kMax) {
      ++more;
    } else {
      steps.push_back({reporter_.of_match(pair_, match), std::move(as), by_order});
    }
  }
  void add_source(uint32_t match, const std::string& as = "", bool by_order = false) {
    add(flow_.sources, flow_.more_sources, match, as, by_order);
  }
  void add_consumer(uint32_t match, const std::string& as = "", bool by_order = false) {
    add(flow_.consumers, flow_.more_consumers, match, as, by_order);
  }
  [[nodiscard]] std::string slot(uint32_t match) const {
    return reporter_.text(record(match).key.slot);
  }

  /// Whether `later` was made of `earlier`, by what their slots mean.
  [[nodiscard]] bool is_made_of(uint32_t later, uint32_t earlier) const {
    const ValueRecord& made = record(later);
    const ValueRecord& from = record(earlier);
    switch (made.kind) {
      case SlotKind::kOutput:
      case SlotKind::kBuffer:
        return from.kind == SlotKind::kInput && in_one_call(later, earlier);
      case SlotKind::kGrad:
        return from.kind == SlotKind::kGradOutput && made.key.scope == from.key.scope;
      case SlotKind::kGradInput:
        return from.kind == SlotKind::kGradOutput && in_one_call(later, earlier);
      case SlotKind::kParam:
        return from.kind == SlotKind::kGrad && is_update(made) &&
               parameter_key(made) == parameter_key(from);
      default:
        return false;
    }
  }

  void find_sources() {
    for (uint32_t m = 0; m < root_; ++m) {
      if (!is_made_of(root_, m)) continue;
      const uint32_t from = origin(m);
      add_source(from, from == m ? "" : slot(m));
    }
    if (flow_.sources.empty() && origin(root_) != root_) add_source(origin(root_));
    if (!flow_.sources.empty() || is_first_of_data()) return;
    if (const auto before = neighbour(-1)) add_source(*before, "", true);
  }

  [[nodiscard]] bool is_first_of_data() const {
    return root_record_.key.phase == format::Phase::kData || root_record_.kind == SlotKind::kParam;
  }

  void find_consumers() {
    for (uint32_t m = root_ + 1; m < pair_.size(); ++m) {
      const ValueRecord& one = record(m);
      if (is_changed_consumer(m) || pair_.lineage.seen_from[m] == root_) {
        if (one.kind == SlotKind::kInput) {
          add_consumer(result_of(m), slot(m));
        } else if (one.kind == SlotKind::kOutput || one.kind == SlotKind::kLoss) {
          add_consumer(m);
        }
      } else if (is_made_of(m, root_)) {
        add_consumer(m, root_record_.kind == SlotKind::kInput ? slot(root_) : "");
      }
    }
    if (!flow_.consumers.empty() || root_record_.kind == SlotKind::kParam) return;
    if (const auto after = neighbour(1)) add_consumer(*after, "", true);
  }

  /// @return the output of the call that `input` was given to; the input if it has none.
  [[nodiscard]] uint32_t result_of(uint32_t input) const {
    for (uint32_t m = input + 1; m < pair_.size(); ++m) {
      if (record(m).kind == SlotKind::kOutput && call_key(record(m)) == call_key(record(input)))
        return m;
    }
    return input;
  }

  [[nodiscard]] bool is_changed_consumer(uint32_t match) const {
    return std::ranges::any_of(pair_.lineage.changed, [&](const ChangedBetween& changed) {
      return changed.producer == root_ && changed.consumer == match;
    });
  }

  /// @return the next value of the root's phase in that direction that is of another call and no
  /// parameter; behind the root, one that differs.
  [[nodiscard]] std::optional<uint32_t> neighbour(int direction) const {
    for (int64_t m = int64_t{root_} + direction; m >= 0 && m < pair_.size(); m += direction) {
      const auto at = static_cast<uint32_t>(m);
      const ValueRecord& one = record(at);
      const bool is_result = one.kind == SlotKind::kOutput || one.kind == SlotKind::kGradOutput ||
                             one.kind == SlotKind::kLoss;
      if (!is_result || in_one_call(root_, at) || one.key.phase != root_record_.key.phase) continue;
      if (direction < 0 || pair_.comparisons[at].bits_differ) return at;
    }
    return std::nullopt;
  }

  const StepPair& pair_;
  const PairReporter& reporter_;
  const uint32_t root_;
  const ValueRecord& root_record_;
  DataFlow flow_;
};

}  // namespace

DataFlow flow_of(const StepPair& pair, uint32_t root, const PairReporter& reporter) {
  return Flow(pair, root, reporter).find();
}

}  // namespace convtrace::diff
