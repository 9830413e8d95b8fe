#include "tools/diff/compare/noise.h"

#include <algorithm>
#include <optional>

namespace convtrace::diff {
namespace {

RecordKey place_of(RecordKey key) {
  key.call = 0;
  key.occurrence = 0;
  return key;
}

std::optional<RecordKey> family_of(const RecordKey& key) {
  if (!key.family) return std::nullopt;
  return RecordKey{
      .scope = {}, .op = {}, .family = key.family, .slot = key.slot, .phase = key.phase};
}

/// The keys under which similar values share a band, in the order of NoiseModel::like_.
std::array<std::optional<RecordKey>, 2> likenesses(const RecordKey& key) {
  return {place_of(key), family_of(key)};
}

/// A repetition in another precision has other bits, which counts for floats only.
bool is_repetition(const ValueRecord& a, const ValueRecord& b) {
  return a.stats.count == b.stats.count && (a.dtype == b.dtype || (is_float(a) && is_float(b)));
}

}  // namespace

void NoiseBand::widen(const NoiseBand& other) {
  rms = std::max(rms, other.rms);
  norm = std::max(norm, other.norm);
  mean = std::max(mean, other.mean);
  bits |= other.bits;
}

void NoiseModel::learn(const ValueView& base, const ValueView& repetition) {
  const ValueRecord& a = base.record;
  const ValueRecord& b = repetition.record;
  if (!is_repetition(a, b) || a.stats.hash == b.stats.hash) return;
  const auto keys = likenesses(a.key);
  values_[a.key].bits = true;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i]) like_[i][*keys[i]].bits = true;
  }
  if (!has_statistics(a) || !has_statistics(b)) return;
  const Apart apart = measure(base, repetition);
  const NoiseBand seen = {apart.rms, apart.norm, apart.mean, true};
  values_[a.key].widen(seen);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i]) like_[i][*keys[i]].widen(seen);
  }
}

NoiseBand NoiseModel::band(const RecordKey& key) const {
  NoiseBand band;
  if (const auto value = values_.find(key); value != values_.end()) band = value->second;
  const auto keys = likenesses(key);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!keys[i]) continue;
    const auto like = like_[i].find(*keys[i]);
    if (like == like_[i].end()) continue;
    band.widen(like->second);
  }
  return band;
}

}  // namespace convtrace::diff
