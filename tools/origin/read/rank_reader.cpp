#include "tools/origin/read/rank_reader.h"

#include <algorithm>
#include <utility>

#include "reader/trace_reader.h"
#include "tools/origin/read/rank_scan.h"

namespace convtrace::origin {

RankReader::RankReader(std::string path, format::Definitions& names)
    : path_(std::move(path)), scan_(std::make_unique<RankScan>(names)) {}
RankReader::~RankReader() = default;
RankReader::RankReader(RankReader&&) noexcept = default;

Status RankReader::open() {
  const auto opened = reader::TraceReader::open(path_);
  if (!opened.ok()) return opened.status();
  const reader::TraceReader& trace = *opened.value();
  meta_ = trace.meta();
  meta_.facts.clear();
  meta_.facts.shrink_to_fit();
  meta_.command_line.clear();
  uint32_t step = 0;
  for (const format::RecordEntry& entry : trace.container().records()) {
    const format::RecordHeader& header = entry.header;
    if (header.kind != format::RecordKind::kEvents) continue;
    if (header.step_begin != format::kNoStep) step = header.step_begin;
    const uint32_t end = header.step_end == format::kNoStep ? step : header.step_end;
    chunks_.push_back({step, std::max(step, end), header.item_count});
    seqs_.push_back(header.seq);
    events_ += header.item_count;
  }
  return kOkStatus;
}

RankFacts RankReader::facts() const {
  RankFacts facts{.path = path_,
                  .rank = meta_.rank,
                  .world_size = meta_.world_size,
                  .events = events_,
                  .new_hashes = format::hashes_anew(meta_),
                  .has_steps = !chunks_.empty(),
                  .first_step = UINT32_MAX};
  for (const ChunkSpan& chunk : chunks_) {
    facts.first_step = std::min(facts.first_step, chunk.step_begin);
    facts.last_step = std::max(facts.last_step, chunk.step_end);
  }
  return facts;
}

void RankReader::read_to(uint32_t step, RankQueue& queue) {
  const size_t first = next_;
  while (next_ < chunks_.size() && chunks_[next_].step_begin <= step) ++next_;
  const bool last = next_ == chunks_.size();
  if (first == next_ && !chunks_.empty()) return;
  auto opened = reader::TraceReader::open(path_);
  if (!opened.ok()) {  // it was there when the command began
    queue.complete = queue.closed = false;
    queue.finished = true;
    next_ = chunks_.size();
    return;
  }
  reader::TraceReader& trace = *opened.value();
  if (first < next_) {
    const uint64_t from = seqs_[first], to = seqs_[next_ - 1];
    trace.select([from, to](const format::RecordHeader& chunk) {
      const bool inside = from <= chunk.seq && chunk.seq <= to;
      return inside ? reader::kKindSet<format::TensorStats, format::Collective, format::Loss,
                                       format::Fact, format::Finding>
                    : reader::kNoKinds;
    });
    scan_->begin(trace.definitions(), queue);
    while (const format::Event* event = trace.next()) scan_->take(*event);
  }
  if (trace.state() != reader::TraceState::kComplete) queue.complete = false;
  queue.damaged |= trace.state() == reader::TraceState::kDamaged;
  queue.closed = trace.container().closed();
  queue.finished = last;
}

}  // namespace convtrace::origin
