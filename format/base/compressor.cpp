#include "format/base/compressor.h"

#include <zstd.h>

namespace convtrace::format {

void Compressor::Free::operator()(ZSTD_CCtx_s* context) const noexcept { ZSTD_freeCCtx(context); }
void Decompressor::Free::operator()(ZSTD_DCtx_s* context) const noexcept { ZSTD_freeDCtx(context); }

Status Compressor::compress(Bytes raw, std::vector<std::byte>& out) {
  if (!context_) context_.reset(ZSTD_createCCtx());
  if (!context_) return Status::make(StatusCode::kOutOfMemory, "compress");
  out.resize(ZSTD_compressBound(raw.size()));
  const size_t size =
      ZSTD_compressCCtx(context_.get(), out.data(), out.size(), raw.data(), raw.size(), kLevel);
  if (ZSTD_isError(size))
    return Status::make(StatusCode::kInternal, "compress", static_cast<int64_t>(size));
  out.resize(size);
  return kOkStatus;
}

Status Decompressor::decompress_exact(Bytes stored, std::span<std::byte> raw) {
  constexpr Status kBad = Status::make(StatusCode::kCorrupt, "decompress");
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != raw.size()) return kBad;
  if (ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) return kBad;
  if (!context_) context_.reset(ZSTD_createDCtx());
  if (!context_) return Status::make(StatusCode::kOutOfMemory, "decompress");
  const size_t size =
      ZSTD_decompressDCtx(context_.get(), raw.data(), raw.size(), stored.data(), stored.size());
  return size == raw.size() ? kOkStatus : kBad;
}

}  // namespace convtrace::format
