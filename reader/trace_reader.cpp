#include "reader/trace_reader.h"

#include <algorithm>

#include "reader/definition_check.h"
#include "reader/event_decoder.h"
#include "reader/metadata_decoder.h"
#include "reader/payload_reader.h"
#include "reader/record_scanner.h"
#include "reader/trace_index.h"

namespace convtrace::reader {
namespace {

using format::FileHeader;
using format::kSlotBytes;
using format::RecordEntry;
using format::RecordKind;

Status unknown_feature(uint32_t features) {
  const uint32_t unknown = features & ~format::kKnownRequiredFeatures;
  if (unknown == 0) return kOkStatus;
  return Status::make(StatusCode::kUnsupportedFeature, "required_features",
                      std::countr_zero(unknown));
}

bool is_known(RecordKind kind) {
  return kind == RecordKind::kMeta || kind == RecordKind::kDefs || kind == RecordKind::kEvents;
}

bool may_skip(RecordKind kind) { return (static_cast<uint16_t>(kind) & format::kMaySkipBit) != 0; }

}  // namespace

const char* to_string(TraceState state) {
  switch (state) {
    case TraceState::kComplete:
      return "complete";
    case TraceState::kUnclosed:
      return "unclosed";
    case TraceState::kDamaged:
      return "damaged";
  }
  return "unknown";
}

struct TraceReader::Impl {
  std::unique_ptr<ByteSource> source;
  PayloadReader payloads{*source};
  ProblemList problems;
  TraceIndex index;
  // Per entry: what has been told already, so that rewinding does not repeat it.
  std::vector<bool> reported, lost;
  format::TraceMeta meta;
  format::Definitions definitions;
  DefinitionCheck definition_check;
  uint64_t lost_records = 0;
  uint64_t lost_events = 0;  ///< of unreadable chunks, by their headers
  uint64_t events_without_definition = 0;

  EventDecoder decoder;
  size_t next_entry = 0;
  size_t loaded_entry = 0;

  explicit Impl(std::unique_ptr<ByteSource> bytes) : source(std::move(bytes)) {}

  Result<uint32_t> read_file_header();
  Status find_records(uint32_t file_tag, OpenPolicy policy);
  Status load_metas(bool header_good);
  void load_definitions();
  bool load_defs_with(uint8_t flag_mask, uint8_t flags);
  bool load_next_chunk();
  void report(size_t entry, const char* text);
  void report_lost(size_t entry, const char* text);
  std::optional<Bytes> payload_of(size_t entry);
};

/// @return the file tag.
Result<uint32_t> TraceReader::Impl::read_file_header() {
  format::Slot slot{};
  const size_t available = static_cast<size_t>(std::min<uint64_t>(source->size(), slot.size()));
  const std::span<std::byte> head = std::span(slot).first(available);
  CONVTRACE_TRY(source->read(0, head));
  if (available < slot.size()) {
    const StatusCode code =
        format::has_magic(head) ? StatusCode::kTruncated : StatusCode::kNotATrace;
    return Status::make(code, "FileHeader");
  }
  const Result<FileHeader> header = format::decode_file_header(slot);
  if (header.ok()) {
    CONVTRACE_TRY(unknown_feature(header.value().required_features));
    meta.uuid = header.value().uuid;
    meta.start_realtime_ns = header.value().start_realtime_ns;
    meta.start_monotonic_ns = header.value().start_monotonic_ns;
    return header.value().file_tag;
  }
  if (header.status().code == StatusCode::kUnsupportedVersion) return header.status();
  const std::optional<uint32_t> tag = majority_file_tag(*source);
  if (!tag) return header.status();
  problems.add(0, kSlotBytes, "the file header is damaged; META was used instead");
  return *tag;
}

Status TraceReader::Impl::find_records(uint32_t file_tag, OpenPolicy policy) {
  std::optional<TraceIndex> found;
  if (policy != OpenPolicy::kScan) found = load_index(*source, file_tag, problems);
  if (!found && policy == OpenPolicy::kIndexOnly) {
    return Status::make(StatusCode::kTruncated, "index");
  }
  index = found ? std::move(*found) : scan_index(*source, file_tag, problems);
  lost_records = index.lost_records;
  reported.resize(index.entries.size());
  lost.resize(index.entries.size());
  for (size_t i = 0; i < index.entries.size(); ++i) {
    const RecordKind kind = index.entries[i].header.kind;
    if (!is_known(kind) && !may_skip(kind)) report_lost(i, "record of a kind unknown here");
  }
  return kOkStatus;
}

void TraceReader::Impl::report(size_t entry, const char* text) {
  if (reported[entry]) return;
  reported[entry] = true;
  problems.add(index.entries[entry].offset, 0, text);
}

void TraceReader::Impl::report_lost(size_t entry, const char* text) {
  if (lost[entry]) return;
  lost[entry] = true;
  const auto& [offset, header] = index.entries[entry];
  problems.add(offset, format::record_extent(header), text);
  ++lost_records;
  if (header.kind == RecordKind::kEvents) lost_events += header.item_count;
}

std::optional<Bytes> TraceReader::Impl::payload_of(size_t entry) {
  const Result<Bytes> raw = payloads.read(index.entries[entry]);
  if (!raw.ok()) {
    report_lost(entry, raw.status().code == StatusCode::kUnsupportedFeature
                           ? "record stored in a way unknown here"
                           : "record payload damaged");
    return std::nullopt;
  }
  if (!payloads.header_intact()) report(entry, "record header damaged; the index's copy was used");
  return raw.value();
}

Status TraceReader::Impl::load_metas(bool header_good) {
  uint32_t features = 0;
  for (size_t i = 0; i < index.entries.size(); ++i) {
    if (index.entries[i].header.kind != RecordKind::kMeta) continue;
    const std::optional<Bytes> raw = payload_of(i);
    if (raw && !decode_meta(*raw, meta, features).ok()) report_lost(i, "META damaged");
  }
  return header_good ? kOkStatus : unknown_feature(features);
}

/// @return whether there were such records and all of them could be read.
bool TraceReader::Impl::load_defs_with(uint8_t flag_mask, uint8_t flags) {
  bool any = false;
  bool all_good = true;
  for (size_t i = 0; i < index.entries.size(); ++i) {
    const format::RecordHeader& header = index.entries[i].header;
    if (header.kind != RecordKind::kDefs || (header.flags & flag_mask) != flags) continue;
    any = true;
    const std::optional<Bytes> raw = payload_of(i);
    const bool good = raw && decode_defs(*raw, definitions).ok();
    if (raw && !good) report_lost(i, "DEFS damaged");
    all_good = all_good && good;
  }
  return any && all_good;
}

/// The consolidated set of a closed trace says everything; else what was written along the way.
void TraceReader::Impl::load_definitions() {
  const bool complete =
      index.closed && load_defs_with(format::kFlagConsolidated, format::kFlagConsolidated);
  if (!complete) load_defs_with(format::kFlagConsolidated, 0);
  definition_check = DefinitionCheck(definitions);
}

/// @return whether a further chunk was loaded.
bool TraceReader::Impl::load_next_chunk() {
  while (next_entry < index.entries.size()) {
    const size_t i = next_entry++;
    const format::RecordHeader& header = index.entries[i].header;
    if (header.kind != RecordKind::kEvents) continue;
    const std::optional<Bytes> raw = payload_of(i);
    if (!raw) continue;
    loaded_entry = i;
    if (decoder.load(*raw, header.item_count).ok()) return true;
    report_lost(i, "events damaged");
  }
  return false;
}

TraceReader::TraceReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceReader::~TraceReader() = default;

Result<std::unique_ptr<TraceReader>> TraceReader::open(const std::string& path, OpenPolicy policy) {
  Result<std::unique_ptr<ByteSource>> source = FileSource::open(path);
  if (!source.ok()) return source.status();
  return open(std::move(source).value(), policy);
}

Result<std::unique_ptr<TraceReader>> TraceReader::open(std::unique_ptr<ByteSource> source,
                                                       OpenPolicy policy) {
  auto impl = std::make_unique<Impl>(std::move(source));
  const Result<uint32_t> file_tag = impl->read_file_header();
  if (!file_tag.ok()) return file_tag.status();
  const bool header_good = impl->problems.empty();
  CONVTRACE_TRY(impl->find_records(file_tag.value(), policy));
  CONVTRACE_TRY(impl->load_metas(header_good));
  impl->load_definitions();
  return std::unique_ptr<TraceReader>(new TraceReader(std::move(impl)));
}

TraceState TraceReader::state() const {
  const bool damaged =
      !impl_->problems.empty() || impl_->lost_records > 0 || impl_->events_without_definition > 0;
  if (damaged) return TraceState::kDamaged;
  return impl_->index.closed ? TraceState::kComplete : TraceState::kUnclosed;
}

const format::TraceMeta& TraceReader::meta() const { return impl_->meta; }
const format::Definitions& TraceReader::definitions() const { return impl_->definitions; }
const std::vector<Problem>& TraceReader::problems() const { return impl_->problems.kept(); }
uint64_t TraceReader::file_bytes() const { return impl_->source->size(); }
uint64_t TraceReader::events_without_definition() const { return impl_->events_without_definition; }

RecordCounts TraceReader::counts() const {
  RecordCounts counts;
  counts.records = impl_->index.entries.size();
  for (const RecordEntry& entry : impl_->index.entries) {
    if (entry.header.kind == RecordKind::kEvents) counts.events += entry.header.item_count;
  }
  counts.events -= impl_->lost_events;
  counts.lost_records = impl_->lost_records;
  counts.skipped_bytes = impl_->problems.skipped_bytes();
  return counts;
}

bool TraceReader::next(format::Event& event) {
  for (;;) {
    switch (impl_->decoder.next(event)) {
      case EventDecoder::Outcome::kEnd:
        if (!impl_->load_next_chunk()) return false;
        break;
      case EventDecoder::Outcome::kNotUnderstood:
        impl_->report(impl_->loaded_entry, "events that only a newer convtrace understands");
        break;
      case EventDecoder::Outcome::kEvent:
        if (impl_->definition_check.resolves(event)) return true;
        ++impl_->events_without_definition;
        break;
    }
  }
}

void TraceReader::rewind() {
  impl_->decoder.clear();
  impl_->next_entry = 0;
  impl_->events_without_definition = 0;
}

}  // namespace convtrace::reader
