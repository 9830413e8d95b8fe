#include "tools/diff/read/launch_keys.h"

namespace convtrace::diff {

uint32_t LaunchKeys::number(const LaunchKey& key) {
  const auto [entry, is_new] = numbers_.emplace(key, static_cast<uint32_t>(keys_.size()));
  if (is_new) keys_.push_back(key);
  return entry->second;
}

uint64_t LaunchKeys::in_common(const StepRecords& base, const StepRecords& cand,
                               const ScopeMap& scopes) {
  if (scopes.is_identity()) return in_common(base.launches, cand.launches);
  std::vector<uint32_t> translated;
  translated.reserve(cand.launches.size());
  for (const uint32_t launch : cand.launches) {
    LaunchKey key = keys_[launch];
    key.scope = scopes.of(key.scope).base;
    translated.push_back(number(key));
  }
  return in_common(base.launches, translated);
}

uint64_t LaunchKeys::in_common(std::span<const uint32_t> base, std::span<const uint32_t> cand) {
  counts_.resize(keys_.size());
  for (const uint32_t launch : base) ++counts_[launch];
  uint64_t common = 0;
  for (const uint32_t launch : cand) {
    if (counts_[launch] == 0) continue;
    --counts_[launch];
    ++common;
  }
  for (const uint32_t launch : base) counts_[launch] = 0;
  return common;
}

}  // namespace convtrace::diff
