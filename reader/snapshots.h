#pragma once
/// @file snapshots.h
/// The values whose bytes a trace holds: where their parts are, and how to get them back.
///
/// An event names its value by what it has anyway: a TensorStats of capture `snapshot` means the
/// content {stats.hash, bytes}.
///
/// Threads:  one owner thread.
/// Memory:   about 100 bytes a part, and a few megabytes to read.
/// Errors:   Status. What is damaged or not there is an ordinary case: a process may have ended
///           before a value was written.
/// Source:   format/FORMAT.md section 6.8.

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "format/values/part_decoder.h"
#include "reader/payload_reader.h"

namespace convtrace::reader {

class Snapshots {
 public:
  /// Lists the BLOB records among `records`; reads the first bytes of each.
  /// @param source, @param records  outlive this.
  Snapshots(const ByteSource& source, std::span<const format::RecordEntry> records);

  /// @return whether all parts of the value are listed. They may still be damaged.
  [[nodiscard]] bool has(const format::ContentId& content) const;

  /// Gives the bytes of a value in order, a part at a time; each is valid during the call.
  /// @param take  returns whether to go on.
  /// @return kNotFound (not all of it is there), kCorrupt, and as PayloadReader::read.
  [[nodiscard]] Status read(const format::ContentId& content,
                            const std::function<bool(Bytes)>& take);

  /// Decodes each listed part. @param use  is told the place of its record, and what came of it:
  /// kNotFound if what it builds on is not there.
  void check_all(const std::function<void(size_t record, const Status&)>& use);

  /// @return bytes of all listed parts, as they were in memory.
  [[nodiscard]] uint64_t raw_bytes() const;

 private:
  struct Key {
    uint64_t hash, bytes, offset;
    auto operator<=>(const Key&) const = default;
  };
  struct Part {
    size_t record;  ///< in records_
    uint32_t part_bytes;
    uint8_t depth;
  };
  using Parts = std::map<Key, Part>;

  void list(size_t record);
  /// Decodes a part into buffers_[0], after those it builds on.
  Status decode(const Key& key, const Part& part);

  const ByteSource& source_;
  std::span<const format::RecordEntry> records_;
  Parts parts_;
  PayloadReader payloads_;
  format::PartDecoder decoder_;
  std::vector<std::byte> buffers_[2];
};

}  // namespace convtrace::reader
