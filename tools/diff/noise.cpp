#include "tools/diff/noise.h"

#include <algorithm>
#include <cmath>

namespace convtrace::diff {
namespace {

RecordKey family_of(RecordKey key) {
  key.call = 0;
  key.occurrence = 0;
  return key;
}

bool is_measured(const ValueRecord& record) { return record.capture != format::Capture::kHash; }

void widen(double& band, double seen) {
  if (std::isfinite(seen)) band = std::max(band, seen);
}

}  // namespace

void NoiseModel::learn(const ValueView& base, const ValueView& repetition) {
  const ValueRecord& a = base.record;
  const ValueRecord& b = repetition.record;
  if (a.dtype != b.dtype || a.stats.count != b.stats.count) return;
  NoiseBand& value = values_[a.key];
  NoiseBand& family = families_[family_of(a.key)];
  if (a.stats.hash == b.stats.hash) return;
  value.bits = family.bits = true;
  if (!is_measured(a) || !is_measured(b)) return;
  const Measured measured = measure(base, repetition);
  for (size_t i = 0; i < kMeasuredFields; ++i) {
    widen(value.absolute[i], measured.difference[i]);
    if (measured.scale[i] > 0) {
      widen(family.relative[i], measured.difference[i] / measured.scale[i]);
    }
  }
}

NoiseBand NoiseModel::band(const RecordKey& key) const {
  NoiseBand band;
  if (const auto family = families_.find(family_of(key)); family != families_.end()) {
    band = family->second;
  }
  if (const auto value = values_.find(key); value != values_.end()) {
    band.absolute = value->second.absolute;
  }
  return band;
}

}  // namespace convtrace::diff
