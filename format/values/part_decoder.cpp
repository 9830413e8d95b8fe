#include "format/values/part_decoder.h"

#include "format/base/checksum.h"
#include "format/values/planes.h"

namespace convtrace::format {

Status PartDecoder::decode(const BlobHeader& header, Bytes payload, Bytes base,
                           std::span<std::byte> raw) {
  constexpr Status kBad = Status::make(StatusCode::kCorrupt, "snapshot");
  const size_t width = header.form.width;
  const size_t table = width * sizeof(uint32_t);
  const bool fits = payload.size() >= kBlobHeaderBytes + table && raw.size() == header.part_bytes &&
                    base.size() == (header.depth == 0 ? 0 : raw.size());
  if (!fits) return kBad;
  const Bytes words = payload.subspan(kBlobHeaderBytes, table);
  Bytes left = payload.subspan(kBlobHeaderBytes + table);
  const size_t plane_bytes = raw.size() / width;
  planes_.resize(raw.size());
  const std::byte* planes[kMaxPlanes] = {};
  for (size_t p = 0; p < width; ++p) {
    const auto word = load_le<uint32_t>(words.data() + p * sizeof(uint32_t));
    const size_t stored = word & ~kFrameBit;
    if (stored > left.size()) return kBad;
    if ((word & kFrameBit) != 0) {
      const auto plane = std::span(planes_).subspan(p * plane_bytes, plane_bytes);
      CONVTRACE_TRY(decompressor_.decompress_exact(left.first(stored), plane));
      planes[p] = plane.data();
    } else {
      if (stored != plane_bytes) return kBad;
      planes[p] = left.data();
    }
    left = left.subspan(stored);
  }
  if (!left.empty()) return kBad;
  join_planes(planes, base, header.form, raw);
  return checksum64(raw) == header.checksum ? kOkStatus : kBad;
}

}  // namespace convtrace::format
