#include "reader/record_scanner.h"

#include <algorithm>
#include <map>

namespace convtrace::reader {
namespace {

using format::kSlotBytes;

/// Consecutive records are read with one small read each, damaged parts in large reads.
constexpr size_t kHopBytes = kSlotBytes;
constexpr size_t kSkipBytes = 256 << 10;
/// The amount that is skipped when the disk reports an error.
constexpr uint64_t kSectorBytes = 4096;
constexpr uint64_t kMajorityBytes = 1 << 20;

bool is_zero(const std::byte* slot) {
  return std::all_of(slot, slot + kSlotBytes, [](std::byte byte) { return byte == std::byte{0}; });
}

format::SlotView view(const std::byte* slot) { return format::SlotView(slot, kSlotBytes); }

}  // namespace

const std::byte* RecordScanner::slot(uint64_t offset, size_t ahead) {
  const uint64_t size = source_.size();
  if (offset > size || size - offset < kSlotBytes) return nullptr;
  const bool inside =
      offset >= window_offset_ && offset - window_offset_ + kSlotBytes <= window_.size();
  if (!inside) {
    const uint64_t count = std::min<uint64_t>(ahead, size - offset) / kSlotBytes * kSlotBytes;
    window_.resize(static_cast<size_t>(count));
    window_offset_ = offset;
    const Status read = source_.read(offset, window_);
    if (read.code == StatusCode::kTruncated) {  // the file shrank: this is its end now
      window_.clear();
      return nullptr;
    }
    if (!read.ok()) {
      unreadable_ = true;
      const uint64_t sector_end = std::min(size, align_up(offset + 1, kSectorBytes));
      const uint64_t slots = std::max<uint64_t>(1, (sector_end - offset) / kSlotBytes);
      window_.assign(static_cast<size_t>(slots * kSlotBytes), std::byte{0xFF});
    }
  }
  return window_.data() + (offset - window_offset_);
}

std::optional<format::RecordHeader> RecordScanner::header_at(uint64_t offset, uint64_t skipped,
                                                             size_t ahead) {
  const std::byte* bytes = slot(offset, ahead);
  if (bytes == nullptr) return std::nullopt;
  const auto header = format::decode_record_header(view(bytes));
  if (!header || header->file_tag != file_tag_) return std::nullopt;
  // A lost record took at least one slot, so no more than this can be missing. Without this bound a
  // single crafted number would hide the rest of the file.
  const bool plausible =
      header->seq >= next_seq_ && header->seq - next_seq_ <= skipped / kSlotBytes;
  return plausible ? header : std::nullopt;
}

std::optional<format::RecordHeader> RecordScanner::search(uint64_t begin) {
  uint64_t zeros_from = begin;  // everything from here to offset_ is zero
  auto header = header_at(offset_, 0, kHopBytes);
  while (!header) {
    const std::byte* bytes = slot(offset_, kSkipBytes);
    if (bytes == nullptr) {
      // The rest is shorter than a slot: a truncated record. Zeros before it: space that was never
      // written.
      tail_ = {zeros_from, 0};
      return std::nullopt;
    }
    const bool zero = is_zero(bytes);
    offset_ += kSlotBytes;
    if (!zero) zeros_from = offset_;
    header = header_at(offset_, offset_ - begin, kSkipBytes);
  }
  if (header->stored_size > source_.size() - offset_ - kSlotBytes) {
    tail_ = {offset_, header->seq - next_seq_};
    return std::nullopt;
  }
  return header;
}

std::optional<format::RecordEntry> RecordScanner::next() {
  const uint64_t begin = offset_;
  unreadable_ = false;
  const auto header = search(begin);
  if (!header) {
    offset_ = begin;
    window_.clear();  // another process may be writing at the end now
    return std::nullopt;
  }
  report_skipped(begin, offset_);
  lost_records_ += header->seq - next_seq_;
  next_seq_ = header->seq + 1;
  const format::RecordEntry entry{offset_, *header};
  offset_ += format::record_extent(*header);  // may lie beyond a truncated end
  return entry;
}

void RecordScanner::finish() {
  report_skipped(offset_, tail_.damage_end);
  lost_records_ += tail_.lost_records;
  cut_bytes_ = source_.size() - std::min(tail_.damage_end, source_.size());
}

void RecordScanner::report_skipped(uint64_t begin, uint64_t end) {
  if (end <= begin) return;
  problems_.add(begin, end - begin,
                unreadable_ ? "cannot be read from the disk; searched for the next record"
                            : "no record where one should be; searched for the next");
}

std::optional<uint32_t> majority_file_tag(const ByteSource& source) {
  std::vector<std::byte> head(static_cast<size_t>(std::min(source.size(), kMajorityBytes)));
  if (!source.read(0, head).ok()) return std::nullopt;
  std::map<uint32_t, int> votes;
  for (uint64_t at = kSlotBytes; at + kSlotBytes <= head.size();) {
    const auto header = format::decode_record_header(view(head.data() + at));
    if (header) ++votes[header->file_tag];
    at += header ? format::record_extent(*header) : kSlotBytes;
  }
  const auto most = std::ranges::max_element(
      votes, [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == votes.end()) return std::nullopt;
  return most->first;
}

}  // namespace convtrace::reader
