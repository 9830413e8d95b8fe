#pragma once
/// @file snapshots.h
/// The values that a trace stores: finds their parts and reads them.
///
/// An event refers to its value by fields that it has anyway: a TensorStats with capture `snapshot`
/// means the content {stats.hash, bytes}.
///
/// Threads:  one owner thread.
/// Memory:   about 100 bytes a part, and a few megabytes while reading.
/// Errors:   Status. Damaged or missing values are normal: a process may have ended before a value
///           was written.
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
  /// Lists the BLOB records among `records`, and reads the first bytes of each.
  /// @param source, @param records  outlive this.
  Snapshots(const ByteSource& source, std::span<const format::RecordEntry> records);

  /// @return whether all parts of the value are listed. They may still be damaged.
  [[nodiscard]] bool has(const format::ContentId& content) const;

  /// Reads the bytes of a value in order, a part at a time; each part is valid during the call.
  /// @param take  returns whether to continue.
  /// @return kNotFound (not all of it is there), kCorrupt, and as PayloadReader::read.
  [[nodiscard]] Status read(const format::ContentId& content,
                            const std::function<bool(Bytes)>& take);

  /// Decodes each listed part. @param use  called with the index of its record and the result:
  /// kNotFound if a part that it builds on is missing.
  void check_all(const std::function<void(size_t record, const Status&)>& use);

  /// @return the number of bytes in memory of all listed parts.
  [[nodiscard]] uint64_t raw_bytes() const;

 private:
  struct Key {
    uint64_t hash, bytes, offset;
    auto operator<=>(const Key&) const = default;
  };
  /// Index in records_.
  struct Part {
    size_t record;
    uint32_t part_bytes;
    uint8_t depth;
  };
  using Parts = std::map<Key, Part>;

  void list(size_t record);
  /// Decodes a part into buffers_[0], after the parts that it builds on.
  Status decode(const Key& key, const Part& part);

  const ByteSource& source_;
  std::span<const format::RecordEntry> records_;
  Parts parts_;
  PayloadReader payloads_;
  format::PartDecoder decoder_;
  std::vector<std::byte> buffers_[2];
};

}  // namespace convtrace::reader
