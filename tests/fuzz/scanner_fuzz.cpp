// Anything after a good record: what the scanner finds lies in the file, in order, and is the same
// whether the file was there at once or grew.

#include <cstdint>
#include <cstdlib>

#include "format/file/record_writer.h"
#include "reader/record_scanner.h"
#include "tests/fuzz/seal_records.h"
#include "tests/support/memory_sink.h"

namespace convtrace {
namespace {

using Content = std::vector<std::byte>;

constexpr uint32_t kTag = 0x5EED;

Content good_beginning() {
  const test::SharedBytes bytes = std::make_shared<Content>();
  format::RecordWriter writer(std::make_unique<test::MemorySink>(bytes));
  format::FileHeader header;
  header.file_tag = kTag;
  if (!writer.write_file_header(header).ok()) std::abort();
  if (!writer.write({.kind = format::RecordKind::kMeta}, {}).ok()) std::abort();
  return *bytes;
}

/// As much of the bytes as are there yet.
class Grown final : public reader::ByteSource {
 public:
  explicit Grown(const Content& bytes, uint64_t size) : bytes_(bytes), size_(size) {}
  [[nodiscard]] uint64_t size() const noexcept override { return size_; }
  void refresh() noexcept override { size_ = bytes_.size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<std::byte> to) const noexcept override {
    if (offset > size_ || to.size() > size_ - offset) std::abort();
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), to.size(), to.begin());
    return kOkStatus;
  }

 private:
  const Content& bytes_;
  uint64_t size_;
};

/// @return the offsets of the records found, checked; `first` bytes are there at first.
std::vector<uint64_t> scan(const Content& bytes, uint64_t first) {
  Grown source(bytes, first);
  reader::ProblemList problems;
  reader::RecordScanner scanner(source, kTag, problems);
  std::vector<uint64_t> offsets;
  uint64_t end = format::kSlotBytes, next_seq = 0;
  const auto take = [&] {
    while (const auto entry = scanner.next()) {
      const auto& [offset, header] = *entry;
      const bool good = offset >= end && offset % format::kSlotBytes == 0 &&
                        offset + format::kSlotBytes + header.stored_size <= bytes.size() &&
                        header.seq >= next_seq;
      if (!good) std::abort();
      end = offset + format::record_extent(header);
      next_seq = header.seq + 1;
      offsets.push_back(offset);
    }
  };
  take();
  source.refresh();
  take();
  scanner.finish();
  if (problems.skipped_bytes() + scanner.cut_bytes() > bytes.size()) std::abort();
  return offsets;
}

void check(const Content& bytes, size_t beginning) {
  const std::vector<uint64_t> at_once = scan(bytes, bytes.size());
  if (at_once.empty() || at_once.front() != format::kSlotBytes) std::abort();
  const size_t added = bytes.size() - beginning;
  for (const uint64_t first : {beginning, beginning + added / 3, bytes.size() - added / 5}) {
    if (scan(bytes, first) != at_once) std::abort();
  }
}

}  // namespace
}  // namespace convtrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace convtrace;
  static const Content beginning = good_beginning();
  const auto input = std::as_bytes(std::span(data, size));
  Content bytes = beginning;
  bytes.insert(bytes.end(), input.begin(), input.end());
  check(bytes, beginning.size());
  test::seal_records(bytes, kTag);
  check(bytes, beginning.size());
  return 0;
}
