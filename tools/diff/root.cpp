#include "tools/diff/root.h"

#include <algorithm>

namespace convtrace::diff {
namespace {

using ClassMap = std::unordered_map<uint64_t, Class>;

void raise(Class& worst, Class seen) { worst = std::max(worst, seen); }

template <typename Map, typename Key>
Class worst_of(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? Class::kIdentical : found->second;
}

/// Classes of everything seen so far in a step that can be an input of something later in it.
class InputClasses {
 public:
  explicit InputClasses(const ClassMap& parameters) {
    for (const auto& [key, verdict] : parameters) {
      raise(parameters_[static_cast<uint32_t>(key >> 32)], verdict);
    }
  }

  void add(const ValueRecord& record, Class verdict) {
    switch (record.kind) {
      case SlotKind::kInput:
        raise(inputs_[call_key(record)], verdict);
        break;
      case SlotKind::kGradOutput:
        raise(inputs_[call_key(record)], verdict);
        raise(gradients_of_scope_[record.key.scope.value], verdict);
        break;
      case SlotKind::kGrad:
        raise(gradients_[parameter_key(record)], verdict);
        break;
      default:
        break;
    }
    if (record.kind != SlotKind::kGrad && record.kind != SlotKind::kParam) raise(before_, verdict);
  }

  /// Of everything before that a value of no known origin can be made of.
  [[nodiscard]] Class before() const { return before_; }

  [[nodiscard]] Class worst_input_of(const ValueRecord& record) const {
    const uint32_t scope = record.key.scope.value;
    switch (record.kind) {
      case SlotKind::kOutput:
      case SlotKind::kGradInput:
        return std::max(worst_of(inputs_, call_key(record)), worst_of(parameters_, scope));
      case SlotKind::kGrad:
        return worst_of(gradients_of_scope_, scope);
      case SlotKind::kParam:
        return worst_of(gradients_, parameter_key(record));
      case SlotKind::kLoss:
      case SlotKind::kGradOutput:
        return before_;
      default:
        return Class::kIdentical;
    }
  }

 private:
  std::unordered_map<RecordKey, Class, KeyHash> inputs_;
  std::unordered_map<uint32_t, Class> parameters_, gradients_of_scope_;
  ClassMap gradients_;
  Class before_ = Class::kIdentical;
};

std::optional<ChangedBetween> earliest(const std::vector<ChangedBetween>& changed) {
  const auto first = std::ranges::min_element(changed, {}, &ChangedBetween::producer);
  return first == changed.end() ? std::nullopt : std::optional(*first);
}

}  // namespace

std::optional<RootChoice> RootFinder::examine(const StepRecords& base, const Alignment& alignment,
                                              const std::vector<Comparison>& comparisons,
                                              const Lineage& lineage) {
  InputClasses inputs(parameters_);
  std::vector<Class> classes(comparisons.size());
  std::optional<RootChoice> root;
  for (uint32_t m = 0; m < comparisons.size(); ++m) {
    const ValueRecord& record = base.values[alignment.matches[m].base];
    classes[m] = comparisons[m].verdict;
    // A hash cannot say by how much an input differs, but the record it came from can.
    if (classes[m] == Class::kBitDifference && lineage.seen_from[m] != kNone) {
      classes[m] = classes[lineage.seen_from[m]];
    } else if (classes[m] == Class::kBitDifference && inputs.before() >= Class::kDiverged) {
      classes[m] = inputs.before();
    }
    const Class own = comparisons[m].verdict;
    if (own >= Class::kDiverged && own != Class::kChangedBetween) {
      Class worst = inputs.worst_input_of(record);
      // What a module gives out is made by those inside of it.
      if (root && is_inside(names_.text(base.values[alignment.matches[root->match].base].key.scope),
                            names_.text(record.key.scope))) {
        worst = std::max(worst, comparisons[root->match].verdict);
      }
      if (!root || (agrees(worst) && !agrees(root->worst_input))) root = {m, {}, worst};
    }
    inputs.add(record, classes[m]);
    if (record.kind == SlotKind::kParam) parameters_[parameter_key(record)] = classes[m];
  }
  // The value was still right at its producer: whatever parted after that may be a victim of it.
  if (const auto changed = earliest(lineage.changed); changed) {
    if (!root || changed->producer < root->match) return RootChoice{changed->producer, changed};
  }
  return root;
}

}  // namespace convtrace::diff
