#pragma once
/// @file compressor.h
/// Payload compression: one zstd frame per payload, bounded in both directions.
///
/// Threads:  one owner thread per object; contexts are kept between calls because creating one
///           costs more than compressing a chunk.
/// Errors:   Status; zstd never prints or aborts.
/// Source:   zstd.h (notes on sizes from untrusted sources); format/FORMAT.md section 3.

#include <memory>
#include <vector>

#include "format/base/bytes.h"
#include "format/base/status.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace convtrace::format {

class Compressor {
 public:
  /// Level 1: on event chunks level 3 gained nothing and cost a third of the speed.
  static constexpr int kLevel = 1;

  /// Replaces `out` by one frame that states its content size.
  /// @return kOutOfMemory, kInternal (detail: zstd's error code).
  [[nodiscard]] Status compress(Bytes raw, std::vector<std::byte>& out);

 private:
  struct Free {
    void operator()(ZSTD_CCtx_s* context) const noexcept;
  };
  std::unique_ptr<ZSTD_CCtx_s, Free> context_;
};

class Decompressor {
 public:
  /// Fills `raw` exactly.
  ///
  /// Refuses, before anything is decoded, input that is not exactly one frame which claims
  /// raw.size() bytes.
  /// @return kCorrupt, kOutOfMemory.
  [[nodiscard]] Status decompress_exact(Bytes stored, std::span<std::byte> raw);

 private:
  struct Free {
    void operator()(ZSTD_DCtx_s* context) const noexcept;
  };
  std::unique_ptr<ZSTD_DCtx_s, Free> context_;
};

}  // namespace convtrace::format
