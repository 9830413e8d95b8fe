#include "reader/trace_check.h"

#include <algorithm>
#include <string>

#include "reader/columns/definition_check.h"
#include "reader/event_decoder.h"
#include "reader/metadata_decoder.h"
#include "reader/payload_reader.h"
#include "reader/record_scanner.h"
#include "reader/snapshots.h"
#include "reader/trace_index.h"

namespace convtrace::reader {
namespace {

using format::kSlotBytes;
using format::RecordEntry;
using format::RecordHeader;
using format::RecordKind;

/// Times and steps of a chunk, from its events.
struct Span {
  uint64_t time_begin_ns = 0, time_end_ns = 0;
  uint32_t step_begin = format::kNoStep, step_end = format::kNoStep;
  bool urgent = false, notes = false, facts = false, any = false;

  void add(const format::Event& event) {
    const format::EventHeader& header = header_of(event);
    time_begin_ns = any ? std::min(time_begin_ns, header.t_ns) : header.t_ns;
    time_end_ns = std::max(time_end_ns, header.t_ns);
    any = true;
    if (header.step != format::kNoStep) {
      step_begin = std::min(step_begin, header.step);
      step_end = step_end == format::kNoStep ? header.step : std::max(step_end, header.step);
    }
    const auto* finding = std::get_if<format::Finding>(&event);
    urgent = urgent || (finding != nullptr && finding->level == format::Level::kError);
    notes = notes || finding != nullptr || std::holds_alternative<format::Loss>(event);
    facts = facts || std::holds_alternative<format::Fact>(event);
  }
  [[nodiscard]] bool agrees(const RecordHeader& header) const {
    return time_begin_ns == header.time_begin_ns && time_end_ns == header.time_end_ns &&
           step_begin == header.step_begin && step_end == header.step_end &&
           urgent == ((header.flags & format::kFlagUrgent) != 0) &&
           notes == ((header.flags & format::kFlagNotes) != 0) &&
           facts == ((header.flags & format::kFlagFacts) != 0);
  }
};

/// @return whether all definitions in `part` are in `all`, with the same values.
bool covers(const format::Definitions& all, const format::Definitions& part) {
  for (format::StringId id; (id = part.next(id));) {
    if (!all.has(id) || all.text(id) != part.text(id)) return false;
  }
  for (format::KernelId id; (id = part.next(id));) {
    const format::KernelDef a = all.kernel(id), b = part.kernel(id);
    if (!all.has(id) || a.name != b.name || a.family != b.family) return false;
  }
  for (format::StackId id; (id = part.next(id));) {
    if (!all.has(id) || !std::ranges::equal(all.stack(id), part.stack(id))) return false;
  }
  return true;
}

class Check {
 public:
  Check(const ByteSource& source, const FileIdentity& identity, TraceCheckResult& result)
      : source_(source), identity_(identity), result_(result), payloads_(source) {}

  void run();

 private:
  void check_record(const RecordEntry& entry);
  void check_payload(const RecordEntry& entry, Bytes raw);
  void check_padding(const RecordEntry& entry);
  void check_meta(const RecordEntry& entry, Bytes raw);
  void check_defs(const RecordEntry& entry, Bytes raw);
  void check_events(const RecordEntry& entry, Bytes raw);
  void check_sums(const RecordEntry& entry, Bytes raw);
  void check_blobs();
  void check_index(const RecordEntry& entry, Bytes raw);
  void check_footer(const RecordEntry& entry);
  void check_consolidated();
  void problem(const RecordEntry& entry, std::string text, uint64_t bytes = 0) {
    result_.problems.add(entry.offset, bytes, std::move(text));
  }

  const ByteSource& source_;
  const FileIdentity& identity_;
  TraceCheckResult& result_;
  PayloadReader payloads_;
  EventDecoder decoder_;
  format::Definitions definitions_;   ///< from all DEFS records so far
  format::Definitions consolidated_;  ///< from the consolidated DEFS only
  DefinitionCheck definition_check_;
  bool definitions_changed_ = false;
  // Step sums: of the chunks since the last SUMS, of all chunks, of the consolidated SUMS.
  std::vector<format::StepSums> new_sums_, all_sums_, consolidated_sums_;
  uint64_t summed_up_events_ = 0;
  uint64_t next_event_seq_ = 0;
  uint64_t data_end_ = kSlotBytes;
  uint64_t first_index_ = 0;
  std::vector<RecordEntry> seen_;  ///< without INDEX and FOOTER, for the index
  size_t indexed_ = 0;
};

void Check::run() {
  RecordScanner scanner(source_, identity_.file_tag, result_.problems);
  while (const auto entry = scanner.next()) {
    if (result_.closed) problem(*entry, "a record after the footer");
    check_record(*entry);
  }
  scanner.finish();
  result_.cut_bytes = scanner.cut_bytes();
  if (scanner.lost_records() > 0) {
    result_.problems.add(0, 0,
                         std::to_string(scanner.lost_records()) + " record numbers are missing");
  }
  if (result_.closed && result_.cut_bytes > 0) {
    result_.problems.add(source_.size() - result_.cut_bytes, result_.cut_bytes,
                         "bytes after the footer");
  }
  check_blobs();
}

void Check::check_record(const RecordEntry& entry) {
  const RecordHeader& header = entry.header;
  ++result_.records;
  if (result_.records == 1 && header.kind != RecordKind::kMeta)
    problem(entry, "the first record is not META");
  if (header.kind == RecordKind::kFooter) return check_footer(entry);
  if (header.kind != RecordKind::kIndex) {
    if (first_index_ != 0) problem(entry, "a record of data after the index");
    seen_.push_back(entry);
    data_end_ = entry.offset + format::record_extent(header);
  } else if (first_index_ == 0) {
    first_index_ = entry.offset;
    check_consolidated();
  }
  const Result<Bytes> raw = payloads_.read(entry);
  if (!raw.ok()) {
    const bool unknown = raw.status().code == StatusCode::kUnsupportedFeature;
    return problem(entry,
                   unknown ? "stored in a way unknown here"
                           : "payload: " + std::string(to_string(raw.status().code)),
                   format::record_extent(header));
  }
  check_padding(entry);
  check_payload(entry, raw.value());
}

void Check::check_payload(const RecordEntry& entry, Bytes raw) {
  switch (entry.header.kind) {
    case RecordKind::kMeta: return check_meta(entry, raw);
    case RecordKind::kDefs: return check_defs(entry, raw);
    case RecordKind::kEvents: return check_events(entry, raw);
    case RecordKind::kSums: return check_sums(entry, raw);
    case RecordKind::kBlob:
      if (!format::decode_blob_header(raw)) problem(entry, "stored value damaged");
      return;
    case RecordKind::kIndex: return check_index(entry, raw);
    default:
      if ((static_cast<uint16_t>(entry.header.kind) & format::kMaySkipBit) == 0) {
        problem(entry, "kind " + std::to_string(static_cast<unsigned>(entry.header.kind)) +
                           " is unknown here");
      }
  }
}

void Check::check_padding(const RecordEntry& entry) {
  const uint64_t begin = entry.offset + kSlotBytes + entry.header.stored_size;
  const uint64_t end = entry.offset + format::record_extent(entry.header);
  // The file ends inside the padding, as after a kill in the middle of a write: the record is whole.
  if (end > source_.size()) return;
  format::Slot padding{};
  const auto bytes = std::span(padding).first(static_cast<size_t>(end - begin));
  if (!source_.read(begin, bytes).ok()) return problem(entry, "its padding is cut short");
  if (std::ranges::any_of(bytes, [](std::byte b) { return b != std::byte{0}; }))
    problem(entry, "its padding is not zero");
}

void Check::check_meta(const RecordEntry& entry, Bytes raw) {
  format::TraceMeta meta;
  if (!decode_meta(raw, meta).ok()) return problem(entry, "META damaged");
  if (entry.header.item_count != 1) problem(entry, "META counts other than one item");
  if (!identity_.header) return;
  const format::FileHeader& header = *identity_.header;
  const bool same = meta.uuid == header.uuid &&
                    meta.start_realtime_ns == header.start_realtime_ns &&
                    meta.start_monotonic_ns == header.start_monotonic_ns &&
                    meta.required_features == header.required_features;
  if (!same) problem(entry, "META differs from the file header");
}

void Check::check_defs(const RecordEntry& entry, Bytes raw) {
  const bool consolidated = (entry.header.flags & format::kFlagConsolidated) != 0;
  if (!decode_defs(raw, consolidated ? consolidated_ : definitions_).ok())
    problem(entry, "definitions damaged, or other than before");
  definitions_changed_ = true;
}

void Check::check_consolidated() {
  if (!covers(consolidated_, definitions_))
    result_.problems.add(data_end_, 0, "the consolidated definitions are not those before");
  format::merge(all_sums_);
  if (consolidated_sums_ != all_sums_)
    result_.problems.add(data_end_, 0, "the consolidated step sums are not those of the chunks");
}

void Check::check_sums(const RecordEntry& entry, Bytes raw) {
  std::vector<format::StepSums> sums;
  uint64_t events = 0;
  if (!decode_sums(raw, sums, events).ok()) return problem(entry, "step sums damaged");
  if ((entry.header.flags & format::kFlagConsolidated) != 0) {
    consolidated_sums_.insert(consolidated_sums_.end(), sums.begin(), sums.end());
    if (events != result_.events) problem(entry, "step sums of another number of events");
    return;
  }
  format::merge(new_sums_);
  if (sums != new_sums_ || events != result_.events - summed_up_events_)
    problem(entry, "step sums differ from those of the chunks before");
  new_sums_.clear();
  summed_up_events_ = result_.events;
}

void Check::check_events(const RecordEntry& entry, Bytes raw) {
  if (!decoder_.load(raw, entry.header.item_count).ok()) return problem(entry, "events damaged");
  if (definitions_changed_) definition_check_ = DefinitionCheck(definitions_);
  definitions_changed_ = false;
  const std::vector<format::StepSums> sums = decoder_.sums();
  new_sums_.insert(new_sums_.end(), sums.begin(), sums.end());
  all_sums_.insert(all_sums_.end(), sums.begin(), sums.end());
  Span span;
  uint64_t undefined = 0, disordered = 0;
  for (auto batch = decoder_.next(); !batch.empty(); batch = decoder_.next()) {
    for (const format::Event& event : batch) {
      const uint64_t seq = header_of(event).seq;
      if (seq < next_event_seq_) ++disordered;
      next_event_seq_ = seq + 1;
      if (!definition_check_.resolves(event)) ++undefined;
      span.add(event);
    }
  }
  const uint64_t unknown = decoder_.not_understood();
  result_.events += entry.header.item_count;
  const auto count = [&](uint64_t events, const char* what) {
    if (events > 0) problem(entry, std::to_string(events) + what);
  };
  count(unknown, " events that only a newer convtrace understands");
  count(undefined, " events name what is not defined before them");
  count(disordered, " events whose numbers do not ascend");
  if (unknown == 0 && !span.agrees(entry.header))
    problem(entry, "times, steps or flags differ from the events");
}

/// Called at the end: a part may build on any other, which an unclosed trace may not contain yet.
void Check::check_blobs() {
  Snapshots(source_, seen_).check_all([this](size_t record, const Status& status) {
    const bool awaited = status.code == StatusCode::kNotFound && !result_.closed;
    if (status.ok() || awaited) return;
    problem(seen_[record], "stored value: " + std::string(to_string(status.code)));
  });
}

void Check::check_index(const RecordEntry& entry, Bytes raw) {
  if (raw.size() != uint64_t{entry.header.item_count} * format::kIndexEntryBytes)
    return problem(entry, "the index has another size than its entries");
  for (; !raw.empty(); raw = raw.subspan(format::kIndexEntryBytes), ++indexed_) {
    const auto header =
        format::decode_record_header(format::SlotView(raw.data() + sizeof(uint64_t), kSlotBytes));
    const bool same = indexed_ < seen_.size() && header && *header == seen_[indexed_].header &&
                      load_le<uint64_t>(raw.data()) == seen_[indexed_].offset;
    if (!same)
      return problem(entry, "entry " + std::to_string(indexed_) + " differs from the file");
  }
}

void Check::check_footer(const RecordEntry& entry) {
  result_.closed = true;
  format::Slot slot{};
  if (!source_.read(entry.offset, slot).ok()) return problem(entry, "cannot be read");
  const auto footer = format::decode_footer(slot);
  const uint64_t index = first_index_ != 0 ? first_index_ : entry.offset;
  const bool fits = footer && footer->index_offset == index && footer->data_end == data_end_ &&
                    footer->event_count == result_.events && footer->record_count == seen_.size() &&
                    indexed_ == seen_.size();
  if (!fits) problem(entry, "the footer does not agree with the file");
}

}  // namespace

Result<TraceCheckResult> check_trace(const ByteSource& source) {
  const Result<FileIdentity> identity = identify(source);
  if (!identity.ok()) return identity.status();
  TraceCheckResult result;
  if (!identity.value().header) result.problems.add(0, kSlotBytes, "the file header is damaged");
  Check(source, identity.value(), result).run();
  return result;
}

}  // namespace convtrace::reader
