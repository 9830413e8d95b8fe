#include "tools/cli/rewrite/recovery.h"

#include <algorithm>

#include "format/file/trace_writer.h"
#include "reader/chunk_stream.h"
#include "reader/payload_reader.h"
#include "reader/snapshots.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

using format::EventHeader;

constexpr const char* kRecoveredFrom = "recovered.from";

/// META of the new trace: the same run, another file.
format::TraceMeta recovered_meta(const format::TraceMeta& original) {
  format::TraceMeta meta = original;
  std::erase_if(meta.facts, [](const auto& fact) { return fact.first == kRecoveredFrom; });
  meta.facts.emplace_back(kRecoveredFrom, uuid_text(original.uuid));
  std::ranges::sort(meta.facts);
  meta.uuid = {};
  return meta;
}

/// The position of a record's first event, from its header.
EventHeader begin_of(const format::RecordHeader& header) {
  return {.seq = 0, .t_ns = header.time_begin_ns, .step = header.step_begin, .thread = 0};
}

class Recovery {
 public:
  Recovery(reader::TraceContainer& trace, format::TraceWriter& writer)
      : trace_(trace), writer_(writer) {}

  Status copy(reader::Chunk& chunk);
  /// Copies every part of a value that is intact.
  Status copy_values();
  /// Call it after the last chunk: handles lost events after that.
  Status finish();
  [[nodiscard]] Recovered result() const;

 private:
  Status note_missing(uint64_t count, EventHeader where);
  Status copy_defined(reader::Chunk& chunk);

  reader::TraceContainer& trace_;
  format::TraceWriter& writer_;
  size_t after_ = 0;  ///< record after the last chunk
  Recovered result_;
};

Status Recovery::copy(reader::Chunk& chunk) {
  const format::RecordHeader& header = trace_.records()[chunk.record].header;
  const uint64_t first = chunk.decoder.first_seq();
  if (first > writer_.next_seq())
    CONVTRACE_TRY(note_missing(first - writer_.next_seq(), begin_of(header)));
  after_ = chunk.record + 1;
  ++result_.chunks;
  result_.events += header.item_count;
  const bool numbered =
      first >= writer_.next_seq();  // otherwise convtrace's writer did not make it
  if (numbered) writer_.skip_to(first);
  if (numbered && chunk.decoder.resolved_by(trace_.definition_check()))
    return writer_.append_chunk(header, chunk.payload.stored(), first, chunk.decoder.sums());
  CONVTRACE_TRY(copy_defined(chunk));
  writer_.skip_to(std::max(writer_.next_seq(), first + header.item_count));
  return kOkStatus;
}

/// Encodes `chunk` again without the events whose definitions are lost.
Status Recovery::copy_defined(reader::Chunk& chunk) {
  format::Loss loss{.header = {}, .reason = format::LossReason::kDamage, .count = 0};
  for (auto batch = chunk.decoder.next(); !batch.empty(); batch = chunk.decoder.next()) {
    for (const format::Event& event : batch) {
      if (trace_.definition_check().resolves(event)) {
        CONVTRACE_TRY(writer_.append(event));
      } else {
        ++loss.count;
      }
      loss.header = header_of(event);
    }
  }
  result_.events_without_definition += loss.count;
  loss.count += chunk.decoder.not_understood();
  if (loss.count > 0) CONVTRACE_TRY(writer_.append(loss));
  return writer_.flush();
}

Status Recovery::copy_values() {
  reader::PayloadReader payloads(trace_.source());
  Status written;
  reader::Snapshots(trace_.source(), trace_.records())
      .check_all([&](size_t record, const Status& decoded) {
        const Result<Bytes> payload =
            decoded.ok() ? payloads.read(trace_.records()[record]) : decoded;
        if (!payload.ok()) return trace_.report_lost(record, payload.status());
        if (written.ok()) written = writer_.append_blob(payload.value());
      });
  return written;
}

Status Recovery::note_missing(uint64_t count, EventHeader where) {
  result_.missing_events += count;
  CONVTRACE_TRY(writer_.append(
      format::Loss{.header = where, .reason = format::LossReason::kDamage, .count = count}));
  return writer_.flush();
}

Status Recovery::finish() {
  uint64_t count = 0;
  EventHeader where;
  for (size_t i = after_; i < trace_.records().size(); ++i) {
    const format::RecordHeader& header = trace_.records()[i].header;
    if (header.kind != format::RecordKind::kEvents) continue;
    count += header.item_count;
    where.t_ns = header.time_begin_ns;
    where.step = header.step_begin;
  }
  return count > 0 ? note_missing(count, where) : kOkStatus;
}

Recovered Recovery::result() const {
  Recovered result = result_;
  result.events -= result.events_without_definition;
  result.bytes = writer_.bytes_written();
  return result;
}

}  // namespace

Result<Recovered> recover(reader::TraceContainer& trace, std::unique_ptr<format::Sink> sink,
                          unsigned threads) {
  auto writer = format::TraceWriter::create(std::move(sink), recovered_meta(trace.meta()),
                                            trace.definitions());
  if (!writer.ok()) return writer.status();
  Recovery recovery(trace, *writer.value());
  reader::ChunkStream chunks(trace, threads);
  while (reader::Chunk* chunk = chunks.next()) CONVTRACE_TRY(recovery.copy(*chunk));
  CONVTRACE_TRY(recovery.finish());
  CONVTRACE_TRY(recovery.copy_values());
  CONVTRACE_TRY(writer.value()->close());
  return recovery.result();
}

}  // namespace convtrace::tools
