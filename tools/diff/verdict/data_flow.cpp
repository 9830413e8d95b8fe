#include "tools/diff/verdict/data_flow.h"

#include <algorithm>

namespace convtrace::diff {
namespace {

class Flow {
 public:
  Flow(const StepPair& pair, uint32_t root, const std::optional<MadeBy>& made,
       const PairReporter& reporter)
      : pair_(pair),
        reporter_(reporter),
        root_(root),
        root_record_(pair.base_of(root)),
        made_(made) {}

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

  /// @return whether `later` was made of `earlier`, by the meaning of their slots.
  [[nodiscard]] bool is_made_of(uint32_t later, uint32_t earlier) const {
    const ValueRecord& made = record(later);
    const ValueRecord& from = record(earlier);
    switch (made.kind) {
      case Role::kOutput:
      case Role::kBuffer: return from.kind == Role::kInput && in_one_call(later, earlier);
      case Role::kGradient:
      case Role::kUnclipped:
        return from.kind == Role::kGradOutput && made.key.scope == from.key.scope;
      case Role::kGradInput: return from.kind == Role::kGradOutput && in_one_call(later, earlier);
      case Role::kParameter:
        return is_parameter_gradient(from.kind) && is_update(made) &&
               parameter_key(made) == parameter_key(from);
      default: return false;
    }
  }

  void find_sources() {
    for (uint32_t m = 0; m < root_; ++m) {
      if (!is_made_of(root_, m)) continue;
      const uint32_t from = origin(m);
      add_source(from, from == m ? "" : slot(m));
    }
    if (flow_.sources.empty() && origin(root_) != root_) add_source(origin(root_));
    if (flow_.sources.empty() && made_) add_makers();
    if (!flow_.sources.empty() || is_first_of_data()) return;
    if (const auto before = neighbour(-1)) add_source(*before, "", true);
  }

  /// The gradients that the makers were given.
  void add_makers() {
    for (uint32_t m = 0; m < root_; ++m) {
      const ValueRecord& one = pair_.cand_of(m);
      if (one.kind != Role::kGradOutput && one.kind != Role::kGradInput) continue;
      for (const Maker& maker : made_->makers) {
        const bool is_its = maker.scope == reporter_.text(one.key.scope) &&
                            maker.call == one.key.call && maker.op == reporter_.text(one.key.op);
        if (is_its && !maker.own_code) add_source(m, "", made_->is_likely());
      }
    }
  }

  [[nodiscard]] bool is_first_of_data() const {
    return root_record_.key.phase == format::Phase::kData || root_record_.kind == Role::kParameter;
  }

  void find_consumers() {
    for (uint32_t m = root_ + 1; m < pair_.size(); ++m) {
      const ValueRecord& one = record(m);
      if (is_changed_consumer(m) || pair_.lineage.seen_from[m] == root_) {
        if (one.kind == Role::kInput) {
          add_consumer(result_of(m), slot(m));
        } else if (one.kind == Role::kOutput || one.kind == Role::kLoss) {
          add_consumer(m);
        }
      } else if (is_made_of(m, root_)) {
        add_consumer(m, root_record_.kind == Role::kInput ? slot(root_) : "");
      }
    }
    if (!flow_.consumers.empty() || root_record_.kind == Role::kParameter) return;
    if (const auto after = neighbour(1)) add_consumer(*after, "", true);
  }

  /// @return the output of the call that `input` was given to; the input if it has none.
  [[nodiscard]] uint32_t result_of(uint32_t input) const {
    for (uint32_t m = input + 1; m < pair_.size(); ++m) {
      if (record(m).kind == Role::kOutput && call_key(record(m)) == call_key(record(input)))
        return m;
    }
    return input;
  }

  [[nodiscard]] bool is_changed_consumer(uint32_t match) const {
    return std::ranges::any_of(pair_.lineage.changed, [&](const ChangedBetween& changed) {
      return changed.producer == root_ && changed.consumer == match;
    });
  }

  /// @return the next value of the root's phase in that direction that belongs to another call and
  /// is no parameter; after the root, one that differs.
  [[nodiscard]] std::optional<uint32_t> neighbour(int direction) const {
    for (int64_t m = int64_t{root_} + direction; m >= 0 && m < pair_.size(); m += direction) {
      const auto at = static_cast<uint32_t>(m);
      const ValueRecord& one = record(at);
      const bool is_result =
          one.kind == Role::kOutput || one.kind == Role::kGradOutput || one.kind == Role::kLoss;
      if (!is_result || in_one_call(root_, at) || one.key.phase != root_record_.key.phase) continue;
      if (direction < 0 || pair_.comparisons[at].bits_differ) return at;
    }
    return std::nullopt;
  }

  const StepPair& pair_;
  const PairReporter& reporter_;
  const uint32_t root_;
  const ValueRecord& root_record_;
  const std::optional<MadeBy>& made_;
  DataFlow flow_;
};

/// The health of a run's gradients, by their comparison with those of the other run.
class Healths {
 public:
  Healths(const StepPair& pair, bool in_base) : pair_(pair) {
    match_of_.assign((in_base ? pair.base : pair.cand).values.size(), kNoMatch);
    for (uint32_t m = 0; m < pair.size(); ++m) {
      const Match& match = pair.alignment.matches[m];
      match_of_[in_base ? match.base : match.cand] = m;
      if (pair.comparisons[m].bits_differ) first_difference_ = std::min(first_difference_, m);
    }
  }
  [[nodiscard]] uint32_t match_of(size_t value) const { return match_of_[value]; }
  /// A differing hash does not show the size of a difference, unless it is the first of all.
  [[nodiscard]] Health of(size_t value) const {
    const uint32_t match = match_of_[value];
    if (match == kNoMatch) return Health::kNotKnown;
    const Class verdict = pair_.comparisons[match].verdict;
    if (verdict == Class::kBitDifference)
      return match == first_difference_ ? Health::kBad : Health::kNotKnown;
    return verdict < Class::kDiverged ? Health::kGood : Health::kBad;
  }

 private:
  const StepPair& pair_;
  std::vector<uint32_t> match_of_;
  uint32_t first_difference_ = kNoMatch;
};

std::optional<MadeBy> maker_in(const StepPair& pair, uint32_t root, bool in_base,
                               const format::Definitions& names) {
  const Healths healths(pair, in_base);
  std::vector<Passed> passed;
  for (const ValueRecord& record : (in_base ? pair.base : pair.cand).values)
    passed.push_back(passed_of(record));
  const Match& match = pair.alignment.matches[root];
  return made_by(passed, in_base ? match.base : match.cand, names,
                 [&](size_t value) { return healths.of(value); });
}

}  // namespace

DataFlow flow_of(const StepPair& pair, uint32_t root, const std::optional<MadeBy>& made,
                 const PairReporter& reporter) {
  return Flow(pair, root, made, reporter).find();
}

/// Either run may have records that the other one lacks. The candidate is the run in doubt.
std::optional<MadeBy> maker_of_root(const StepPair& pair, uint32_t root,
                                    const format::Definitions& names) {
  auto in_cand = maker_in(pair, root, false, names);
  if (!in_cand || !in_cand->is_likely()) return in_cand;
  auto in_base = maker_in(pair, root, true, names);
  return in_base && !in_base->is_likely() ? in_base : in_cand;
}

}  // namespace convtrace::diff
