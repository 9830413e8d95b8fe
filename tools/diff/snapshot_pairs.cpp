#include "tools/diff/snapshot_pairs.h"

#include "format/dtype.h"
#include "tools/common/element.h"

namespace convtrace::diff {
namespace {

reader::Snapshots snapshots_of(const reader::TraceReader& trace) {
  const reader::TraceContainer& container = trace.container();
  return {container.source(), container.records()};
}

bool stored(const SideReport& side) {
  return side.capture == format::Capture::kSnapshot && side.bytes != 0;
}

}  // namespace

SnapshotPairs::SnapshotPairs(const reader::TraceReader& base, const reader::TraceReader& cand)
    : base_(snapshots_of(base)), cand_(snapshots_of(cand)) {}

void SnapshotPairs::compare(RootReport& root) {
  compare(root.record);
  if (root.consumer) compare(*root.consumer);
  if (root.effect) compare(*root.effect);
  for (RecordReport& record : root.around) compare(record);
}

void SnapshotPairs::compare(RecordReport& record) {
  const SideReport& a = record.base;
  const SideReport& b = record.cand;
  const bool alike = a.dtype == b.dtype && a.bytes == b.bytes && a.stats.hash != b.stats.hash;
  const bool numbers = format::number_class(a.dtype) != format::NumberClass::kBytes;
  if (!stored(a) || !stored(b) || !alike || !numbers) return;
  const std::vector<std::byte> base = read(base_, a);
  const std::vector<std::byte> cand = read(cand_, b);
  if (base.empty() || base.size() != cand.size()) return;
  ElementComparer comparer(a.dtype);
  comparer.add(base, cand);
  record.elements = comparer.report();
  record.elements->count = a.bytes / tools::component_bytes(a.dtype);
}

std::vector<std::byte> SnapshotPairs::read(reader::Snapshots& from, const SideReport& side) {
  std::vector<std::byte> bytes;
  bool too_large = false;
  const Status status = from.read({side.stats.hash, side.bytes}, [&](Bytes part) {
    too_large = part.size() > kMaxValueBytes - bytes.size();
    if (!too_large) bytes.insert(bytes.end(), part.begin(), part.end());
    return !too_large;
  });
  if (!status.ok() && !too_large) bytes.clear();
  return bytes;
}

}  // namespace convtrace::diff
