#include "reader/trace_container.h"

#include <algorithm>

#include "reader/metadata_decoder.h"
#include "reader/payload_reader.h"
#include "reader/record_scanner.h"
#include "reader/trace_index.h"

namespace convtrace::reader {
namespace {

using format::kSlotBytes;
using format::RecordEntry;
using format::RecordKind;

bool is_known(RecordKind kind) {
  return kind == RecordKind::kMeta || kind == RecordKind::kDefs || kind == RecordKind::kEvents ||
         kind == RecordKind::kSums || kind == RecordKind::kBlob;
}

bool may_skip(RecordKind kind) { return (static_cast<uint16_t>(kind) & format::kMaySkipBit) != 0; }

const char* text_of(const Status& payload_status) {
  switch (payload_status.code) {
    case StatusCode::kUnsupportedFeature: return "record stored in a way unknown here";
    case StatusCode::kIoError: return "record payload cannot be read from the disk";
    case StatusCode::kOutOfMemory: return "not enough memory for the record payload";
    default: return "record payload damaged";
  }
}

}  // namespace

const char* to_string(TraceState state) {
  switch (state) {
    case TraceState::kComplete: return "complete";
    case TraceState::kUnclosed: return "unclosed";
    case TraceState::kDamaged: return "damaged";
  }
  return "unknown";
}

struct TraceContainer::Impl {
  std::unique_ptr<ByteSource> source;
  PayloadReader payloads{*source};
  ProblemList problems;
  TraceIndex index;
  // For each record, whether it was reported already, so that a rewind does not report it again.
  std::vector<bool> reported, lost;
  format::TraceMeta meta;
  format::Definitions definitions;
  DefinitionCheck definition_check;
  std::optional<uint32_t> features;  ///< from an intact file header; META records repeat them
  uint64_t lost_records = 0;         ///< with payloads that are damaged
  uint64_t lost_events = 0;

  // A live file only.
  std::optional<RecordScanner> scanner;
  std::optional<RecordEntry> newest;  ///< found, but its payload may not be written yet

  explicit Impl(std::unique_ptr<ByteSource> bytes) : source(std::move(bytes)) {}

  void take_file_header(const FileIdentity& identity);
  Status find_records(uint32_t file_tag, OpenPolicy policy);
  Status load_metas();
  void load_definitions();
  bool load_defs_with(uint8_t flag_mask, uint8_t flags);
  void load_appended(size_t from);
  void follow(bool ended);
  void note_unknown_kinds(size_t from);
  void report(size_t record, const char* text);
  void report_lost(size_t record, const char* text);
  std::optional<Bytes> payload_of(size_t record);
  bool load_meta(size_t record);
  bool load_defs(size_t record);
};

void TraceContainer::Impl::take_file_header(const FileIdentity& identity) {
  if (!identity.header) {
    problems.add(0, kSlotBytes, "the file header is damaged; META was used instead");
    return;
  }
  features = identity.header->required_features;
  meta.required_features = *features;
  meta.uuid = identity.header->uuid;
  meta.start_realtime_ns = identity.header->start_realtime_ns;
  meta.start_monotonic_ns = identity.header->start_monotonic_ns;
}

Status TraceContainer::Impl::find_records(uint32_t file_tag, OpenPolicy policy) {
  if (policy == OpenPolicy::kLive) {
    scanner.emplace(*source, file_tag, problems);
    follow(false);
    return kOkStatus;
  }
  std::optional<TraceIndex> found;
  if (policy != OpenPolicy::kScan) found = load_index(*source, file_tag, problems);
  if (!found && policy == OpenPolicy::kIndexOnly)
    return Status::make(StatusCode::kTruncated, "index");
  index = found ? std::move(*found) : scan_index(*source, file_tag, problems);
  lost_records = index.lost_records;
  note_unknown_kinds(0);
  return kOkStatus;
}

/// Adds the records that were appended to the live file.
void TraceContainer::Impl::follow(bool ended) {
  const size_t from = index.entries.size();
  while (const auto entry = scanner->next()) {
    if (newest) index.add(*newest);
    newest = entry;
  }
  // On some filesystems another process sees the new size of a file before its new bytes.
  if (newest && (ended || payloads.read_stored(*newest).ok())) {
    index.add(*newest);
    newest.reset();
  }
  if (ended) {
    scanner->finish();
    index.cut_bytes = scanner->cut_bytes();
  }
  lost_records += scanner->lost_records() - index.lost_records;
  index.lost_records = scanner->lost_records();
  note_unknown_kinds(from);
}

void TraceContainer::Impl::note_unknown_kinds(size_t from) {
  reported.resize(index.entries.size());
  lost.resize(index.entries.size());
  for (size_t i = from; i < index.entries.size(); ++i) {
    const RecordKind kind = index.entries[i].header.kind;
    if (!is_known(kind) && !may_skip(kind)) report_lost(i, "record of a kind unknown here");
  }
}

void TraceContainer::Impl::report(size_t record, const char* text) {
  if (reported[record]) return;
  reported[record] = true;
  problems.add(index.entries[record].offset, 0, text);
}

void TraceContainer::Impl::report_lost(size_t record, const char* text) {
  if (lost[record]) return;
  lost[record] = true;
  const auto& [offset, header] = index.entries[record];
  problems.add(offset, format::record_extent(header), text);
  ++lost_records;
  if (header.kind == RecordKind::kEvents) lost_events += header.item_count;
}

std::optional<Bytes> TraceContainer::Impl::payload_of(size_t record) {
  const Result<Bytes> raw = payloads.read(index.entries[record]);
  if (!raw.ok()) {
    report_lost(record, text_of(raw.status()));
    return std::nullopt;
  }
  if (!payloads.header_intact()) report(record, kHeaderDamaged);
  return raw.value();
}

bool TraceContainer::Impl::load_meta(size_t record) {
  const std::optional<Bytes> raw = payload_of(record);
  const bool good = raw && decode_meta(*raw, meta).ok();
  if (features) meta.required_features = *features;
  if (raw && !good) report_lost(record, "META damaged");
  return good;
}

bool TraceContainer::Impl::load_defs(size_t record) {
  const std::optional<Bytes> raw = payload_of(record);
  const bool good = raw && decode_defs(*raw, definitions).ok();
  if (raw && !good) report_lost(record, "DEFS damaged");
  return good;
}

/// @return kUnsupportedFeature, which a damaged file header could not report.
Status TraceContainer::Impl::load_metas() {
  for (size_t i = 0; i < index.entries.size(); ++i) {
    if (index.entries[i].header.kind == RecordKind::kMeta) load_meta(i);
  }
  return check_features(meta.required_features);
}

/// @return whether there were such records and all of them could be read.
bool TraceContainer::Impl::load_defs_with(uint8_t flag_mask, uint8_t flags) {
  bool any = false;
  bool all_good = true;
  for (size_t i = 0; i < index.entries.size(); ++i) {
    const format::RecordHeader& header = index.entries[i].header;
    if (header.kind != RecordKind::kDefs || (header.flags & flag_mask) != flags) continue;
    any = true;
    all_good = load_defs(i) && all_good;
  }
  return any && all_good;
}

/// Reads the consolidated set of a closed trace, else the definitions along the way.
void TraceContainer::Impl::load_definitions() {
  const bool complete =
      index.closed && load_defs_with(format::kFlagConsolidated, format::kFlagConsolidated);
  if (!complete) load_defs_with(format::kFlagConsolidated, 0);
  definition_check = DefinitionCheck(definitions);
}

/// META and DEFS of records that a live file has got since.
void TraceContainer::Impl::load_appended(size_t from) {
  bool defined = false;
  for (size_t i = from; i < index.entries.size(); ++i) {
    const RecordKind kind = index.entries[i].header.kind;
    if (kind == RecordKind::kMeta) load_meta(i);
    if (kind == RecordKind::kDefs) defined = load_defs(i) || defined;
  }
  if (defined) definition_check = DefinitionCheck(definitions);
}

TraceContainer::TraceContainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceContainer::~TraceContainer() = default;

Result<std::unique_ptr<TraceContainer>> TraceContainer::open(std::unique_ptr<ByteSource> source,
                                                             OpenPolicy policy) {
  auto impl = std::make_unique<Impl>(std::move(source));
  const Result<FileIdentity> identity = identify(*impl->source);
  if (!identity.ok()) return identity.status();
  impl->take_file_header(identity.value());
  CONVTRACE_TRY(impl->find_records(identity.value().file_tag, policy));
  CONVTRACE_TRY(impl->load_metas());
  impl->load_definitions();
  return std::unique_ptr<TraceContainer>(new TraceContainer(std::move(impl)));
}

void TraceContainer::refresh(bool ended) {
  if (!impl_->scanner) return;
  impl_->source->refresh();
  const size_t from = impl_->index.entries.size();
  impl_->follow(ended);
  impl_->load_appended(from);
}

const std::vector<RecordEntry>& TraceContainer::records() const { return impl_->index.entries; }
bool TraceContainer::closed() const { return impl_->index.closed; }
const ByteSource& TraceContainer::source() const { return *impl_->source; }
const format::TraceMeta& TraceContainer::meta() const { return impl_->meta; }
const format::Definitions& TraceContainer::definitions() const { return impl_->definitions; }
const DefinitionCheck& TraceContainer::definition_check() const { return impl_->definition_check; }
const ProblemList& TraceContainer::problems() const { return impl_->problems; }

RecordCounts TraceContainer::counts() const {
  RecordCounts counts;
  counts.records = impl_->index.entries.size();
  for (const RecordEntry& entry : impl_->index.entries) {
    if (entry.header.kind == RecordKind::kEvents) counts.events += entry.header.item_count;
  }
  counts.events -= impl_->lost_events;
  counts.lost_records = impl_->lost_records;
  counts.lost_events = impl_->lost_events;
  counts.skipped_bytes = impl_->problems.skipped_bytes();
  counts.cut_bytes = impl_->index.cut_bytes;
  return counts;
}

TraceState TraceContainer::state(uint64_t events_without_definition) const {
  const bool damaged =
      !impl_->problems.empty() || impl_->lost_records > 0 || events_without_definition > 0;
  if (damaged) return TraceState::kDamaged;
  return impl_->index.closed ? TraceState::kComplete : TraceState::kUnclosed;
}

void TraceContainer::report(size_t record, const char* text) { impl_->report(record, text); }

void TraceContainer::report_lost(size_t record, const char* text) {
  impl_->report_lost(record, text);
}

void TraceContainer::report_lost(size_t record, const Status& payload_status) {
  impl_->report_lost(record, text_of(payload_status));
}

}  // namespace convtrace::reader
