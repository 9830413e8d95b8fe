#pragma once
/// @file part_encoder.h
/// Encodes one part of a value as the payload of a BLOB record: byte planes, each raw or as a zstd
/// frame.
///
/// Threads:  one owner thread an object.
/// Memory:   about a megabyte.
/// Errors:   kOutOfMemory, kInternal; nothing prints or aborts.
/// Source:   format/FORMAT.md section 6.8. Speeds and sizes: bench_snapshot.

#include <memory>

#include "format/base/status.h"
#include "format/values/blob.h"
#include "format/values/plane_choice.h"

struct ZSTD_CCtx_s;

namespace convtrace::format {

/// The same part of another value of the same length.
struct BasePart {
  Bytes bytes;  ///< empty: none
  uint64_t hash = 0;
  uint8_t depth = 0;  ///< BlobHeader::depth of the base itself
};

class PartEncoder {
 public:
  /// @param header  content, offset and form (of the elements) are set; the rest is filled in.
  /// @param raw     1 to kMaxPartBytes, a multiple of the form's width.
  /// @param base    used if it makes the part smaller and its chain is not too long.
  /// @return the payload, valid until the next call.
  [[nodiscard]] Result<Bytes> encode(BlobHeader& header, Bytes raw, const BasePart& base);

 private:
  struct Free {
    void operator()(ZSTD_CCtx_s* context) const noexcept;
  };
  using Context = std::unique_ptr<ZSTD_CCtx_s, Free>;
  /// Not initialised, which would cost a tenth of the time.
  using Memory = std::unique_ptr<std::byte[]>;

  [[nodiscard]] Status prepare();
  /// Chooses the form of the part and stores it in `header`. @param[out] base  the part to XOR
  /// with.
  [[nodiscard]] PlaneChoice plan(BlobHeader& header, Bytes raw, Bytes& base, const BasePart& offer);
  [[nodiscard]] Bytes store_as_it_is(BlobHeader& header, Bytes raw);
  /// Writes one plane to `to`. @return its word for the table.
  [[nodiscard]] Result<uint32_t> store_plane(Bytes plane, PlaneCoding coding, std::byte* to);

  PlaneChooser chooser_;
  Context huffman_, zstd_;
  Memory planes_, payload_;
  size_t plane_room_ = 0;  ///< largest size of a compressed plane
};

}  // namespace convtrace::format
