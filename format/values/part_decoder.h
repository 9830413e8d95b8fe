#pragma once
/// @file part_decoder.h
/// Decodes the payload of a BLOB record to the bytes of the part. Input is not trusted: every size
/// is checked before it is used, and the result matches its checksum or is refused.
///
/// Threads:  one owner thread an object.
/// Errors:   kCorrupt, kOutOfMemory.

#include <vector>

#include "format/base/compressor.h"
#include "format/values/blob.h"

namespace convtrace::format {

class PartDecoder {
 public:
  /// @param header   of `payload`, see decode_blob_header.
  /// @param base     the same part of the value header.base_hash; empty if header.depth is 0.
  /// @param[out] raw header.part_bytes bytes, filled.
  [[nodiscard]] Status decode(const BlobHeader& header, Bytes payload, Bytes base,
                              std::span<std::byte> raw);

 private:
  Decompressor decompressor_;
  std::vector<std::byte> planes_;
};

}  // namespace convtrace::format
