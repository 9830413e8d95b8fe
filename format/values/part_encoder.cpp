#include "format/values/part_encoder.h"

// Declares ZSTD_c_literalCompressionMode. zstd is linked statically, so the function exists.
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include <new>

#include "format/base/checksum.h"
#include "format/values/planes.h"

namespace convtrace::format {
namespace {

/// Makes zstd skip almost everything in its search for repeats, which leaves its Huffman coder.
/// Levels below 0 use that coder only on request.
constexpr int kHuffmanLevel = -131072;
constexpr int kRepeatsLevel = 1;
/// XOR must save this much of an element, since a reader then has another part to decode.
constexpr double kWorthBits = 0.5;

constexpr size_t table_end(ElementForm form) {
  return kBlobHeaderBytes + form.width * sizeof(uint32_t);
}

}  // namespace

void PartEncoder::Free::operator()(ZSTD_CCtx_s* context) const noexcept { ZSTD_freeCCtx(context); }

Status PartEncoder::prepare() {
  if (payload_) return kOkStatus;
  plane_room_ = ZSTD_compressBound(kMaxPartBytes);
  huffman_.reset(ZSTD_createCCtx());
  zstd_.reset(ZSTD_createCCtx());
  planes_.reset(new (std::nothrow) std::byte[kMaxPartBytes]);
  Memory payload(new (std::nothrow) std::byte[table_end({kMaxPlanes}) + 2 * plane_room_]);
  if (!huffman_ || !zstd_ || !planes_ || !payload)
    return Status::make(StatusCode::kOutOfMemory, "snapshot");
  const auto set = [](const Context& context, ZSTD_cParameter parameter, int value) {
    return ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), parameter, value)) == 0;
  };
  const bool good = set(huffman_, ZSTD_c_compressionLevel, kHuffmanLevel) &&
                    set(huffman_, ZSTD_c_literalCompressionMode, ZSTD_ps_enable) &&
                    set(zstd_, ZSTD_c_compressionLevel, kRepeatsLevel);
  if (!good) return Status::make(StatusCode::kInternal, "snapshot");
  payload_ = std::move(payload);
  return kOkStatus;
}

PlaneChoice PartEncoder::plan(BlobHeader& header, Bytes raw, Bytes& base, const BasePart& offer) {
  header.part_bytes = static_cast<uint32_t>(raw.size());
  header.base_hash = 0;
  header.depth = 0;
  PlaneChoice choice = chooser_.choose(raw, {}, header.form);
  if (offer.bytes.size() == raw.size() && offer.depth < kMaxBaseDepth) {
    const PlaneChoice with_base = chooser_.choose(raw, offer.bytes, header.form);
    if (with_base.bits + kWorthBits < choice.bits) {
      choice = with_base;
      base = offer.bytes;
      header.base_hash = offer.hash;
      header.depth = static_cast<uint8_t>(offer.depth + 1);
    }
  }
  return choice;
}

Result<uint32_t> PartEncoder::store_plane(Bytes plane, PlaneCoding coding, std::byte* to) {
  const auto plane_bytes = static_cast<uint32_t>(plane.size());
  if (coding != PlaneCoding::kRaw) {
    ZSTD_CCtx_s* const context = (coding == PlaneCoding::kZstd ? zstd_ : huffman_).get();
    const size_t size = ZSTD_compress2(context, to, plane_room_, plane.data(), plane.size());
    if (ZSTD_isError(size))
      return Status::make(StatusCode::kInternal, "snapshot", static_cast<int64_t>(size));
    if (size < plane.size()) return static_cast<uint32_t>(size) | kFrameBit;
    // The sample was not representative.
  }
  std::memcpy(to, plane.data(), plane.size());
  return plane_bytes;
}

/// The copy comes first, so that the checksum reads from the cache.
Bytes PartEncoder::store_as_it_is(BlobHeader& header, Bytes raw) {
  header.form = {};
  std::byte* const to = payload_.get() + table_end(header.form);
  std::memcpy(to, raw.data(), raw.size());
  header.checksum = checksum64({to, raw.size()});
  encode_header(header, payload_.get());
  store_le(payload_.get() + kBlobHeaderBytes, header.part_bytes);
  return {payload_.get(), table_end(header.form) + raw.size()};
}

Result<Bytes> PartEncoder::encode(BlobHeader& header, Bytes raw, const BasePart& offer) {
  if (raw.empty() || raw.size() > kMaxPartBytes || raw.size() % header.form.width != 0)
    return Status::make(StatusCode::kInvalidArgument, "snapshot");
  CONVTRACE_TRY(prepare());
  Bytes base;
  const PlaneChoice choice = plan(header, raw, base, offer);
  if (choice.all_raw) return store_as_it_is(header, raw);
  header.checksum = checksum64(raw);
  split_planes(raw, base, header.form, {planes_.get(), raw.size()});
  encode_header(header, payload_.get());
  const size_t plane_bytes = raw.size() / header.form.width;
  size_t size = table_end(header.form);
  for (size_t p = 0; p < header.form.width; ++p) {
    const Bytes plane(planes_.get() + p * plane_bytes, plane_bytes);
    const Result<uint32_t> word = store_plane(plane, choice.coding[p], payload_.get() + size);
    if (!word.ok()) return word.status();
    store_le(payload_.get() + kBlobHeaderBytes + p * sizeof(uint32_t), word.value());
    size += word.value() & ~kFrameBit;
  }
  return Bytes(payload_.get(), size);
}

}  // namespace convtrace::format
