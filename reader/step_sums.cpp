#include "reader/step_sums.h"

#include <algorithm>

#include "reader/columns/verified_payload.h"
#include "reader/metadata_decoder.h"
#include "reader/payload_reader.h"

namespace convtrace::reader {
namespace {

using namespace format;

/// Collects sums from the records of a trace.
class Collector {
 public:
  explicit Collector(const TraceContainer& container)
      : records_(container.records()), payload_(container.source()) {}

  /// @return whether the SUMS at the end of a closed trace cover all its events.
  bool take_consolidated() {
    uint64_t events = 0;
    for (const RecordEntry& entry : records_) {
      if (entry.header.kind == RecordKind::kEvents) events += entry.header.item_count;
    }
    bool any = false;
    for (const RecordEntry& entry : records_) {
      if (!is_sums(entry, kFlagConsolidated)) continue;
      any = true;
      if (!take_sums(entry, events)) return false;
    }
    return any;
  }

  /// Reads the SUMS along the way; where one is lost or inconsistent, the sums in the chunks
  /// themselves.
  void take_along_the_way() {
    sums_.clear();
    std::vector<const RecordEntry*> chunks;  // not covered by SUMS yet
    uint64_t events = 0;
    for (const RecordEntry& entry : records_) {
      if (entry.header.kind == RecordKind::kEvents) {
        chunks.push_back(&entry);
        events += entry.header.item_count;
      }
      if (!is_sums(entry, 0)) continue;
      if (!take_sums(entry, events)) take_chunks(chunks);
      chunks.clear();
      events = 0;
    }
    take_chunks(chunks);
  }

  [[nodiscard]] std::vector<StepSums> sums() && {
    merge(sums_);
    return std::move(sums_);
  }

 private:
  static bool is_sums(const RecordEntry& entry, uint8_t flags) {
    return entry.header.kind == RecordKind::kSums &&
           (entry.header.flags & kFlagConsolidated) == flags;
  }

  bool take_sums(const RecordEntry& entry, uint64_t events) {
    const Result<Bytes> raw = payload_.read(entry);
    if (!raw.ok()) return false;
    std::vector<StepSums> sums;
    uint64_t summed_up = 0;
    if (!decode_sums(raw.value(), sums, summed_up).ok() || summed_up != events) return false;
    sums_.insert(sums_.end(), sums.begin(), sums.end());
    return true;
  }

  void take_chunks(const std::vector<const RecordEntry*>& chunks) {
    for (const RecordEntry* entry : chunks) {
      const Result<Bytes> raw = payload_.read(*entry);
      const wire::Chunk* chunk = raw.ok() ? verified_chunk(raw.value()) : nullptr;
      if (chunk != nullptr && chunk->sums() != nullptr) (void)append_sums(*chunk->sums(), sums_);
    }
  }

  const std::vector<RecordEntry>& records_;
  PayloadReader payload_;
  std::vector<StepSums> sums_;
};

}  // namespace

std::vector<StepSums> load_step_sums(const TraceContainer& container) {
  Collector collector(container);
  if (!container.closed() || !collector.take_consolidated()) collector.take_along_the_way();
  return std::move(collector).sums();
}

const format::StepSums* find_step(const std::vector<format::StepSums>& sums, uint32_t step) {
  const auto found = std::ranges::lower_bound(sums, step, {}, &format::StepSums::step);
  return found != sums.end() && found->step == step ? &*found : nullptr;
}

}  // namespace convtrace::reader
