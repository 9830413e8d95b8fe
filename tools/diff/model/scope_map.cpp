#include "tools/diff/model/scope_map.h"

#include <algorithm>
#include <string_view>

#include "tools/diff/model/sequence_align.h"
#include "tools/trace/model/hash_mix.h"

namespace convtrace::diff {
namespace {

using format::StringId;

/// No text has this id, since the texts of a trace take memory.
constexpr uint32_t kNoText = 0x80000000;

constexpr float kSameShape = 2, kSameName = 3, kSameLeaf = 1, kSameWeights = 4, kSameOutputs = 2;
/// Confidence of a renaming: with the same values; with parameters of the same shapes, or the same
/// last word; with only an output of the same shape, which in a transformer means little.
constexpr float kConfidenceValues = 0.9F, kConfidenceShapes = 0.7F, kConfidenceGuess = 0.4F;

/// Records the scopes of a step. @return whether one of them is new.
bool see(const StepRecords& step, std::vector<bool>& seen) {
  bool any = false;
  for (const ValueRecord& record : step.values) {
    const uint32_t id = record.key.scope.value;
    if (id < seen.size() && seen[id]) continue;
    if (id >= seen.size()) seen.resize(id + size_t{1});
    seen[id] = any = true;
  }
  return any;
}

/// The last word of a path that is no number: it names what a module is, not which of many.
std::string_view leaf(std::string_view path) {
  while (!path.empty()) {
    const size_t dot = path.rfind('.');
    const std::string_view word = path.substr(dot == path.npos ? 0 : dot + 1);
    if (word.find_first_not_of("0123456789") != word.npos) return word;
    path = path.substr(0, dot == path.npos ? 0 : dot);
  }
  return path;
}

}  // namespace

/// The properties of a module without its name, and its name.
struct ScopeMap::Module {
  StringId scope;
  std::string_view path, leaf;
  uint64_t shape = 0;  ///< hash of names, types and shapes of outputs and parameters
  uint64_t weights = 0, inputs = 0, outputs = 0;  ///< hashes of their values; 0: none
  bool has_parameters = false;

  /// A block and the last module inside give out the same, and take other values.
  [[nodiscard]] bool same_outputs(const Module& other) const {
    return outputs != 0 && outputs == other.outputs &&
           (inputs == 0 || other.inputs == 0 || inputs == other.inputs);
  }
  [[nodiscard]] bool same_values(const Module& other) const {
    return (weights != 0 && weights == other.weights) || same_outputs(other);
  }

  [[nodiscard]] float confidence(const Module& other) const {
    if (scope == other.scope) return 1;
    if (same_values(other)) return kConfidenceValues;
    return has_parameters || leaf == other.leaf ? kConfidenceShapes : kConfidenceGuess;
  }

  [[nodiscard]] float fit(const Module& other) const {
    const bool same_shape = shape == other.shape && shape != 0;
    const bool same_name = scope == other.scope;
    if (!same_shape && !same_name) return 0;
    return (same_shape ? kSameShape : 0) + (same_name ? kSameName : 0) +
           (leaf == other.leaf ? kSameLeaf : 0) +
           (weights != 0 && weights == other.weights ? kSameWeights : 0) +
           (same_outputs(other) ? kSameOutputs : 0);
  }
};

std::vector<ScopeMap::Module> ScopeMap::modules_of(
    const StepRecords& step, const std::unordered_set<uint32_t>& settled) const {
  std::vector<Module> modules;
  std::unordered_map<uint32_t, size_t> places;
  for (const ValueRecord& r : step.values) {
    const StringId scope = r.key.scope;
    if (settled.contains(scope.value)) continue;
    const auto [place, is_new] = places.emplace(scope.value, modules.size());
    if (is_new) {
      const std::string_view path = names_.text(scope);
      modules.push_back({.scope = scope, .path = path, .leaf = leaf(path)});
    }
    if (r.key.phase == format::Phase::kEvaluation) continue;  // one run may have more evaluation
    const bool of_module = !r.key.op && !r.key.family && r.key.call == 0 && r.key.occurrence == 0;
    const bool is_param = r.kind == Role::kParameter;
    Module& module = modules[place->second];
    if (of_module && r.kind == Role::kInput && r.key.phase == format::Phase::kForward)
      module.inputs += mix_all({r.key.slot.value, r.stats.hash});
    if (!of_module || (!is_param && r.kind != Role::kOutput)) continue;
    uint64_t shape = mix_all({r.key.slot.value, static_cast<uint64_t>(r.key.phase),
                              static_cast<uint64_t>(r.dtype), r.stats.count});
    for (const uint64_t extent : step.shape_of(r)) shape = mix_all({shape, extent});
    module.shape += shape;
    module.has_parameters |= is_param;
    const uint64_t content = mix_all({r.key.slot.value, r.stats.hash});
    if (r.key.phase == format::Phase::kForward)
      (is_param ? module.weights : module.outputs) += content;
  }
  return modules;
}

void ScopeMap::learn(const StepRecords& base, const StepRecords& cand) {
  const bool base_grew = see(base, base_seen_), cand_grew = see(cand, cand_seen_);
  if (!base_grew && !cand_grew) return;
  if (!renames_.empty()) rename(modules_of(cand, cand_settled_));
  std::vector<Module> ours = modules_of(base, base_settled_);
  std::vector<Module> theirs = modules_of(cand, cand_settled_);
  const auto names = [](const std::vector<Module>& modules) {
    std::vector<uint32_t> ids;
    for (const Module& module : modules) ids.push_back(module.scope.value);
    std::ranges::sort(ids);
    return ids;
  };
  if (names(ours) == names(theirs)) {
    for (const Module& module : ours) settle(module.scope, module.scope, 1);
    return;
  }
  // The choice among equally good alignments must not depend on which run is the baseline.
  const bool exchange =
      std::ranges::lexicographical_compare(theirs, ours, {}, &Module::path, &Module::path);
  const auto pairs = align_sequences(ours.size(), theirs.size(), exchange,
                                     [&](size_t a, size_t b) { return ours[a].fit(theirs[b]); });
  for (const auto& [a, b] : pairs) {
    const Module& module = ours[a];
    const Module& partner = theirs[b];
    settle(module.scope, partner.scope, module.confidence(partner));
  }
}

void ScopeMap::rename(std::span<const Module> cand) {
  for (const Module& module : cand) {
    const auto path = path_in_base(module.path, renames_);
    if (path) settle(names_.intern(*path), module.scope, 1);
  }
}

void ScopeMap::settle(StringId base, StringId cand, float confidence) {
  base_settled_.insert(base.value);
  cand_settled_.insert(cand.value);
  if (base == cand) return;
  pairs_[cand.value] = {base, confidence};
  taken_.insert(base.value);
}

ScopePair ScopeMap::of(StringId cand) const {
  if (const auto found = pairs_.find(cand.value); found != pairs_.end()) return found->second;
  return {{taken_.contains(cand.value) ? cand.value | kNoText : cand.value}, 1};
}

}  // namespace convtrace::diff
