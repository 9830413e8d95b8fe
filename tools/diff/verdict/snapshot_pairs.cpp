#include "tools/diff/verdict/snapshot_pairs.h"

#include "format/model/dtype.h"
#include "tools/common/element.h"

namespace convtrace::diff {

std::vector<std::byte> SnapshotPairs::Side::read(const format::ContentId& content) {
  if (!snapshots_) {
    const reader::TraceContainer& container = trace_.container();
    snapshots_.emplace(container.source(), container.records());
  }
  std::vector<std::byte> bytes;
  bool too_large = false;
  const Status status = snapshots_->read(content, [&](Bytes part) {
    too_large = part.size() > kMaxValueBytes - bytes.size();
    if (!too_large) bytes.insert(bytes.end(), part.begin(), part.end());
    return !too_large;
  });
  if (!status.ok() && !too_large) bytes.clear();
  return bytes;
}

template <typename Value>
std::optional<ElementReport> SnapshotPairs::compare_values(const Value& a, const Value& b,
                                                           bool with_histogram) {
  const auto stored = [](const Value& value) {
    return value.capture == format::Capture::kSnapshot && value.bytes != 0;
  };
  const bool alike = a.dtype == b.dtype && a.bytes == b.bytes && a.stats.hash != b.stats.hash;
  const bool numbers = format::number_class(a.dtype) != format::NumberClass::kBytes;
  if (!stored(a) || !stored(b) || !alike || !numbers) return std::nullopt;
  std::vector<std::byte> base = base_.read({a.stats.hash, a.bytes});
  std::vector<std::byte> cand = cand_.read({b.stats.hash, b.bytes});
  if (base.empty() || base.size() != cand.size()) return std::nullopt;
  const double norm = std::max(a.stats.l2, b.stats.l2);
  ElementComparer comparer(a.dtype, rms_of(norm, std::min(a.stats.finite, b.stats.finite)));
  const double low = std::min(tools::extreme_as_double(a.dtype, a.stats.min),
                              tools::extreme_as_double(b.dtype, b.stats.min));
  const double high = std::max(tools::extreme_as_double(a.dtype, a.stats.max),
                               tools::extreme_as_double(b.dtype, b.stats.max));
  if (with_histogram && low < high) comparer.count_between(low, high);
  comparer.add(tools::as_samples(a.dtype, std::move(base)),
               tools::as_samples(a.dtype, std::move(cand)));
  ElementReport report = comparer.report();
  report.count = a.bytes / format::element_bytes(a.dtype) * format::values_in_element(a.dtype);
  return report;
}

std::optional<ElementReport> SnapshotPairs::compare(const ValueRecord& base,
                                                    const ValueRecord& cand) {
  return compare_values(base, cand);
}

void SnapshotPairs::compare(RootReport& root) {
  const auto fill = [this](RecordReport& record) {
    record.elements = compare_values(record.base, record.cand, true);
  };
  fill(root.record);
  if (root.consumer) fill(*root.consumer);
  if (root.effect) fill(*root.effect);
  for (RecordReport& record : root.around)
    record.elements = compare_values(record.base, record.cand);
}

}  // namespace convtrace::diff
