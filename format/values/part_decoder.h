#pragma once
/// @file part_decoder.h
/// The payload of a BLOB record back to the bytes that were in memory. Hostile input is an ordinary
/// case: every size is checked before it is used, and what comes out is what the checksum says or
/// nothing.
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
  /// @param[out] raw header.part_bytes of it, filled.
  [[nodiscard]] Status decode(const BlobHeader& header, Bytes payload, Bytes base,
                              std::span<std::byte> raw);

 private:
  Decompressor decompressor_;
  std::vector<std::byte> planes_;
};

}  // namespace convtrace::format
