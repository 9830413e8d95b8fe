#include "format/file/trace_writer.h"

#include <sys/random.h>

#include <algorithm>

#include "format/base/checksum.h"
#include "format/base/clock.h"
#include "format/file/event_encoder.h"
#include "format/file/metadata_encoder.h"
#include "format/file/record_codec.h"
#include "format/file/record_writer.h"

namespace convtrace::format {
namespace {

void fill_in(TraceMeta& meta) {
  const bool has_uuid = std::ranges::any_of(meta.uuid, [](uint8_t byte) { return byte != 0; });
  if (!has_uuid && getrandom(meta.uuid.data(), meta.uuid.size(), GRND_NONBLOCK) !=
                       static_cast<ssize_t>(meta.uuid.size())) {
    // Early during boot there is no entropy; clock and process id still distinguish traces.
    store_le(reinterpret_cast<std::byte*>(meta.uuid.data()), now_ns(CLOCK_REALTIME));
    store_le(reinterpret_cast<std::byte*>(meta.uuid.data() + 8), uint64_t{meta.pid} + 1);
  }
  if (meta.start_realtime_ns == 0 && meta.start_monotonic_ns == 0) {
    meta.start_realtime_ns = now_ns(CLOCK_REALTIME);
    meta.start_monotonic_ns = now_ns(CLOCK_MONOTONIC);
  }
}

}  // namespace

struct TraceWriter::Impl {
  RecordWriter records;
  const Definitions& definitions;
  TraceMeta identity;  ///< uuid and clocks, which every META record repeats
  EventEncoder chunk;
  Definitions::Counts stored;
  std::vector<StepSums> new_sums;  ///< sums of the chunks since the last SUMS record
  std::vector<StepSums> all_sums;
  uint32_t chunks_to_sum_up = 0;
  uint64_t events_to_sum_up = 0;
  uint64_t event_count = 0;  ///< including those of the open chunk
  uint64_t next_seq = 0;     ///< event_count, and the numbers that were left out
  bool closed = false;

  Impl(std::unique_ptr<Sink> sink, const Definitions& defs)
      : records(std::move(sink)), definitions(defs), chunk(defs) {}

  Status start(TraceMeta meta);
  Status write_meta(TraceMeta meta);
  Status write_defs(Definitions::Counts from, uint8_t flags);
  Status write_sums(const std::vector<StepSums>& sums, uint64_t events, uint8_t flags);
  Status sum_up(std::span<const StepSums> sums, uint32_t events);
  Status append(const Event& event);
  Status add(const Event& event);
  Status append_chunk(const RecordHeader& header, Bytes payload, uint64_t first_seq,
                      std::span<const StepSums> sums);
  Status append_blob(Bytes payload);
  Status flush();
  Status close();

  /// Runs `step` unless the writer is finished or has failed. If memory runs out the trace ends,
  /// not the host.
  template <typename Function>
  Status guarded(Function step) noexcept {
    if (!records.status().ok()) return records.status();
    if (closed) return Status::make(StatusCode::kInvalidArgument, "trace is closed");
    try {
      return step();
    } catch (...) {
      return records.fail(Status::make(StatusCode::kOutOfMemory, "trace"));
    }
  }
};

Status TraceWriter::Impl::start(TraceMeta meta) {
  fill_in(meta);
  FileHeader header;
  header.uuid = meta.uuid;
  header.start_realtime_ns = meta.start_realtime_ns;
  header.start_monotonic_ns = meta.start_monotonic_ns;
  header.required_features = meta.required_features;
  header.file_tag = file_tag_of(meta.uuid);
  identity.uuid = meta.uuid;
  identity.start_realtime_ns = meta.start_realtime_ns;
  identity.start_monotonic_ns = meta.start_monotonic_ns;
  identity.required_features = meta.required_features;
  CONVTRACE_TRY(records.write_file_header(header));
  return write_meta(std::move(meta));
}

Status TraceWriter::Impl::write_meta(TraceMeta meta) {
  meta.uuid = identity.uuid;
  meta.start_realtime_ns = identity.start_realtime_ns;
  meta.start_monotonic_ns = identity.start_monotonic_ns;
  meta.required_features = identity.required_features;
  RecordHeader header{.kind = RecordKind::kMeta};
  header.item_count = 1;
  return records.write(header, encode_meta(meta));
}

Status TraceWriter::Impl::write_defs(Definitions::Counts from, uint8_t flags) {
  const Definitions::Counts to = definitions.counts();
  while (from != to) {
    const DefsPayload payload = encode_defs(definitions, from, to);
    RecordHeader header{.kind = RecordKind::kDefs, .flags = flags};
    header.item_count = payload.item_count;
    CONVTRACE_TRY(records.write(header, payload.bytes));
    from = payload.end;
  }
  stored = to;
  return kOkStatus;
}

Status TraceWriter::Impl::write_sums(const std::vector<StepSums>& sums, uint64_t events,
                                     uint8_t flags) {
  for (size_t begin = 0; begin < sums.size(); begin += kMaxSums) {
    const auto part =
        std::span(sums).subspan(begin).first(std::min<size_t>(kMaxSums, sums.size() - begin));
    RecordHeader header{.kind = RecordKind::kSums, .flags = flags};
    header.step_begin = part.front().step;
    header.step_end = part.back().step;
    header.item_count = static_cast<uint32_t>(part.size());
    CONVTRACE_TRY(records.write(header, encode_sums(part, events)));
  }
  return kOkStatus;
}

/// Called after a chunk was written.
Status TraceWriter::Impl::sum_up(std::span<const StepSums> sums, uint32_t events) {
  new_sums.insert(new_sums.end(), sums.begin(), sums.end());
  events_to_sum_up += events;
  if (++chunks_to_sum_up < kSumsEvery) return kOkStatus;
  merge(new_sums);
  CONVTRACE_TRY(write_sums(new_sums, events_to_sum_up, 0));
  all_sums.insert(all_sums.end(), new_sums.begin(), new_sums.end());
  new_sums.clear();
  chunks_to_sum_up = 0;
  events_to_sum_up = 0;
  return kOkStatus;
}

Status TraceWriter::Impl::add(const Event& event) {
  CONVTRACE_TRY(chunk.add(event));
  ++event_count;
  ++next_seq;
  return kOkStatus;
}

Status TraceWriter::Impl::append(const Event& event) {
  if (add(event).code == StatusCode::kLimitExceeded) {
    Loss loss{.header = header_of(event), .reason = LossReason::kRecordTooLarge, .count = 1};
    CONVTRACE_TRY(add(loss));
  }
  return chunk.full() || chunk.summary().urgent ? flush() : kOkStatus;
}

Status TraceWriter::Impl::append_chunk(const RecordHeader& header, Bytes payload,
                                       uint64_t first_seq, std::span<const StepSums> sums) {
  CONVTRACE_TRY(flush());
  CONVTRACE_TRY(write_defs(stored, 0));
  CONVTRACE_TRY(records.write_stored(header, payload));
  event_count += header.item_count;
  next_seq = first_seq + header.item_count;
  return sum_up(sums, header.item_count);
}

/// The payload is stored as it is, since its planes are compressed already.
Status TraceWriter::Impl::append_blob(Bytes payload) {
  RecordHeader header{.kind = RecordKind::kBlob};
  header.item_count = 1;
  header.stored_size = header.raw_size = static_cast<uint32_t>(payload.size());
  header.payload_checksum = checksum32(payload);
  return records.write_stored(header, payload);
}

Status TraceWriter::Impl::flush() {
  const ChunkSummary summary = chunk.summary();
  if (summary.event_count == 0) return kOkStatus;
  // All names of an event were interned before the event was appended, so they are in this range.
  CONVTRACE_TRY(write_defs(stored, 0));
  RecordHeader header{.kind = RecordKind::kEvents};
  if (summary.urgent) header.flags |= kFlagUrgent;
  if (summary.notes) header.flags |= kFlagNotes;
  if (summary.facts) header.flags |= kFlagFacts;
  header.time_begin_ns = summary.time_begin_ns;
  header.time_end_ns = summary.time_end_ns;
  header.step_begin = summary.step_begin;
  header.step_end = summary.step_end;
  header.item_count = summary.event_count;
  CONVTRACE_TRY(records.write(header, chunk.finish(next_seq - summary.event_count)));
  CONVTRACE_TRY(sum_up(chunk.sums(), summary.event_count));
  chunk.clear();
  return kOkStatus;
}

Status TraceWriter::Impl::close() {
  CONVTRACE_TRY(flush());
  CONVTRACE_TRY(write_defs({}, kFlagConsolidated));
  all_sums.insert(all_sums.end(), new_sums.begin(), new_sums.end());
  merge(all_sums);
  CONVTRACE_TRY(write_sums(all_sums, event_count, kFlagConsolidated));
  CONVTRACE_TRY(records.write_index_and_footer(event_count));
  closed = true;
  return kOkStatus;
}

TraceWriter::TraceWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceWriter::~TraceWriter() = default;

Result<std::unique_ptr<TraceWriter>> TraceWriter::create(std::unique_ptr<Sink> sink, TraceMeta meta,
                                                         const Definitions& definitions) {
  auto impl = std::make_unique<Impl>(std::move(sink), definitions);
  if (Status s = impl->guarded([&] { return impl->start(std::move(meta)); }); !s.ok()) return s;
  return std::unique_ptr<TraceWriter>(new TraceWriter(std::move(impl)));
}

Status TraceWriter::append(const Event& event) {
  return impl_->guarded([&] { return impl_->append(event); });
}

Status TraceWriter::append_meta(const TraceMeta& meta) {
  return impl_->guarded([&] { return impl_->write_meta(meta); });
}

Status TraceWriter::append_chunk(const RecordHeader& header, Bytes payload, uint64_t first_seq,
                                 std::span<const StepSums> sums) {
  return impl_->guarded([&] { return impl_->append_chunk(header, payload, first_seq, sums); });
}

Status TraceWriter::append_blob(Bytes payload) {
  return impl_->guarded([&] { return impl_->append_blob(payload); });
}

uint64_t TraceWriter::next_seq() const { return impl_->next_seq; }
void TraceWriter::skip_to(uint64_t seq) { impl_->next_seq = seq; }

Status TraceWriter::flush() {
  return impl_->guarded([&] { return impl_->flush(); });
}

uint64_t TraceWriter::open_chunk_age_ns(uint64_t now_ns) const {
  const ChunkSummary& summary = impl_->chunk.summary();
  const bool empty = summary.event_count == 0 || now_ns < summary.time_begin_ns;
  return empty ? 0 : now_ns - summary.time_begin_ns;
}

Status TraceWriter::close() {
  return impl_->guarded([&] { return impl_->close(); });
}

Status TraceWriter::status() const { return impl_->records.status(); }
uint64_t TraceWriter::bytes_written() const { return impl_->records.bytes_written(); }
uint64_t TraceWriter::events_written() const { return impl_->event_count; }

}  // namespace convtrace::format
