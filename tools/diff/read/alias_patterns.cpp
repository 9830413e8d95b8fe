#include "tools/diff/read/alias_patterns.h"

#include <algorithm>
#include <utility>

namespace convtrace::diff {
namespace {

constexpr size_t kMostTensors = 256;

bool is_pointer(const format::Operand& operand) {
  return operand.confidence <= format::Confidence::kPointerInterior && operand.generation != 0;
}

}  // namespace

AliasPatterns::Pairs* AliasPatterns::pairs_of(const Target& target) {
  if (targets_.size() >= kMostTargets && !targets_.contains(target)) return nullptr;
  return &targets_[target];
}

void AliasPatterns::take(const format::Op& event, const Target& target, format::StringId slot) {
  using Moment = format::OpMoment;
  if (event.moment == Moment::kInput || event.moment == Moment::kOutput) {
    std::vector<Tensor>& tensors = tensors_[event.header.thread];
    if (tensors.size() < kMostTensors) tensors.push_back({slot, event.address, event.bytes});
  }
  if (event.moment != Moment::kEnd) return;
  const auto ended = tensors_.extract(event.header.thread);
  Pairs* const pairs = pairs_of(target);
  if (pairs == nullptr || ended.empty()) return;
  const std::vector<Tensor>& tensors = ended.mapped();
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t j = i + 1; j < tensors.size(); ++j) {
      const Tensor &a = tensors[i], &b = tensors[j];
      const bool overlap =
          a.address < b.address ? b.address - a.address < a.bytes : a.address - b.address < b.bytes;
      if (overlap && a.bytes != 0 && b.bytes != 0)
        pairs->emplace(std::pair(a.slot.value, b.slot.value), event.header.step);
    }
  }
}

bool AliasPatterns::overlaps(const format::Launch& event) {
  for (size_t i = 1; i < event.operands.size(); ++i) {
    const format::Operand& b = event.operands[i];
    if (!is_pointer(b)) continue;
    for (const format::Operand& a : event.operands.first(i)) {
      if (a.address == b.address && a.param != b.param && is_pointer(a)) return true;
    }
  }
  return false;
}

void AliasPatterns::take(const format::Launch& event, const Target& target) {
  Pairs* const pairs = pairs_of(target);
  if (pairs == nullptr) return;
  for (const format::Operand& a : event.operands) {
    for (const format::Operand& b : event.operands) {
      if (a.param < b.param && a.address == b.address && is_pointer(a) && is_pointer(b))
        pairs->emplace(std::pair(a.param, b.param), event.header.step);
    }
  }
}

void AliasPatterns::compare(const AliasPatterns& base, const AliasPatterns& cand, uint32_t rank,
                            const format::Definitions& names, std::vector<AliasDifference>& found) {
  AliasDifference like;
  like.rank = rank;
  only_in(base, cand, like, names, found);
  like.in_cand = true;
  only_in(cand, base, like, names, found);
  std::ranges::stable_sort(found, {}, &AliasDifference::step);
  if (found.size() > kMaxAliasDifferences) found.resize(kMaxAliasDifferences);
}

void AliasPatterns::only_in(const AliasPatterns& run, const AliasPatterns& other,
                            AliasDifference like, const format::Definitions& names,
                            std::vector<AliasDifference>& found) {
  for (const auto& [target, pairs] : run.targets_) {
    const auto same = other.targets_.find(target);
    if (same == other.targets_.end())
      continue;  // a target that one run never calls is reported elsewhere
    for (const auto& [pair, step] : pairs) {
      if (same->second.contains(pair)) continue;
      const auto slot = [&, is_kernel = target.is_kernel](uint32_t one) {  // clang 14 wants it so
        return is_kernel ? "arg:" + std::to_string(one)
                         : std::string(names.text(format::StringId{one}));
      };
      like.step = step;
      like.phase = target.phase;
      like.scope = names.text(target.scope);
      (target.is_kernel ? like.kernel : like.op) = names.text(target.name);
      (target.is_kernel ? like.op : like.kernel).clear();
      like.slot = slot(pair.first);
      like.other = slot(pair.second);
      found.push_back(like);
    }
  }
}

}  // namespace convtrace::diff
