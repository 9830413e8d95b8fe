// Speed and size of stored values on one core: JSON rows on stdout.
//
// usage: bench_snapshot [--quick]

#include <zstd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>

#include "format/values/part_decoder.h"
#include "format/values/part_encoder.h"
#include "format/values/planes.h"
#include "tests/bench/rows.h"

namespace {

using namespace convtrace;
using namespace convtrace::format;
using bench::Goal;
using bench::seconds_of;
using Buffer = std::vector<std::byte>;

constexpr size_t kBytes = size_t{32} << 20;

/// Weights of 16 layers, each with its own scale, as training leaves them.
Buffer weights(DType dtype) {
  Buffer bytes(kBytes);
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> pool(1 << 20);
  for (float& value : pool) value = normal(random);
  const uint32_t size = element_bytes(dtype);
  const size_t count = kBytes / size;
  for (size_t i = 0; i < count; ++i) {
    const float scale = 0.01f * static_cast<float>(1 + i * 16 / count);
    const float value =
        scale * pool[random() % pool.size()] * (1 + 1e-6f * static_cast<float>(i % 7));
    // The upper bytes of an f32 are the bf16.
    std::memcpy(&bytes[i * size], reinterpret_cast<const std::byte*>(&value) + 4 - size, size);
  }
  return bytes;
}

Buffer random_bytes() {
  Buffer bytes(kBytes);
  std::mt19937_64 random(2);
  for (size_t i = 0; i < kBytes; i += 8) store_le(&bytes[i], random());
  return bytes;
}

void require(bool good) {
  if (!good) std::abort();
}

/// A tensor as the parts that a trace would hold.
class Parts {
 public:
  Parts(const Buffer& raw, DType dtype)
      : raw_(raw), dtype_(dtype), parts_(raw.size() / kPartBytes) {}

  /// @param keep  what comes out, for decode(); a trace would write it to a file.
  void encode(bool keep = false) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      part.header = {};
      part.header.content = {1, raw_.size()};
      part.header.offset = i * kPartBytes;
      part.header.form = element_form(dtype_);
      const Result<Bytes> payload = encoder_.encode(part.header, raw(i), {});
      require(payload.ok());
      if (keep) part.payload.assign(payload.value().begin(), payload.value().end());
      part.stored = payload.value().size();
    }
  }

  void decode(Buffer& out) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const auto to = std::span(out).subspan(i * kPartBytes, kPartBytes);
      require(decoder_.decode(parts_[i].header, parts_[i].payload, {}, to).ok());
    }
  }

  [[nodiscard]] size_t stored() const {
    size_t bytes = 0;
    for (const Part& part : parts_) bytes += part.stored;
    return bytes;
  }

  [[nodiscard]] Bytes raw(size_t i) const {
    return Bytes(raw_).subspan(i * kPartBytes, kPartBytes);
  }
  [[nodiscard]] size_t count() const { return parts_.size(); }

 private:
  struct Part {
    BlobHeader header;
    Buffer payload;
    size_t stored = 0;
  };
  const Buffer& raw_;
  DType dtype_;
  std::vector<Part> parts_;
  PartEncoder encoder_;
  PartDecoder decoder_;
};

double rate(double seconds) { return static_cast<double>(kBytes) / 1e9 / seconds; }

/// What an ideal order-0 code of each byte plane of each part would take.
double entropy_bound(const Parts& parts, DType dtype) {
  const ElementForm form = element_form(dtype);
  const size_t plane_bytes = kPartBytes / form.width;
  Buffer planes(kPartBytes);
  double bits = 0;
  for (size_t i = 0; i < parts.count(); ++i) {
    split_planes(parts.raw(i), {}, form, planes);
    for (size_t p = 0; p < form.width; ++p) {
      std::array<double, 256> counts{};
      for (size_t b = 0; b < plane_bytes; ++b)
        ++counts[static_cast<uint8_t>(planes[p * plane_bytes + b])];
      for (const double count : counts) {
        if (count > 0) bits -= count * std::log2(count / static_cast<double>(plane_bytes));
      }
    }
  }
  return bits / 8;
}

void speeds(bench::Rows& rows, int repetitions, const Buffer& bf16) {
  const Buffer f32 = weights(DType::kF32);
  Buffer back(kBytes);
  Parts f32_parts(f32, DType::kF32);
  Parts bf16_parts(bf16, DType::kBF16);
  bf16_parts.encode(true);
  std::vector<double> bf16_rates, f32_rates, decode_rates;
  for (int i = 0; i < repetitions; ++i) {
    bf16_rates.push_back(rate(seconds_of([&] { bf16_parts.encode(); })));
    f32_rates.push_back(rate(seconds_of([&] { f32_parts.encode(); })));
    decode_rates.push_back(rate(seconds_of([&] { bf16_parts.decode(back); })));
  }
  require(back == bf16);
  const char* const against = "one core, 32 MiB of weights";
  rows.print({"snapshot.codec.bf16", "GB/s", Goal::kAtLeast, 1.2, against}, bf16_rates);
  rows.print({"snapshot.codec.f32", "GB/s", Goal::kAtLeast, 1.6, against}, f32_rates);
  rows.print({"snapshot.decode", "GB/s", Goal::kAtLeast, 2.5, "one core, the same bf16 weights"},
             decode_rates);
  rows.print({"snapshot.codec.bf16_bound", "fraction", Goal::kAtLeast, 0.97,
              "order-0 entropy of the byte planes of each part"},
             {entropy_bound(bf16_parts, DType::kBF16) / static_cast<double>(bf16_parts.stored())});
}

/// Pairs, so that a drift of the machine favours neither.
void against_zstd(bench::Rows& rows, int repetitions, const Buffer& bf16) {
  Parts parts(bf16, DType::kBF16);
  Buffer frame(ZSTD_compressBound(kPartBytes));
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  std::vector<double> ratios;
  for (int i = 0; i < repetitions; ++i) {
    const double plain = seconds_of([&] {
      for (size_t p = 0; p < parts.count(); ++p) {
        const Bytes raw = parts.raw(p);
        require(!ZSTD_isError(
            ZSTD_compressCCtx(context, frame.data(), frame.size(), raw.data(), raw.size(), 1)));
      }
    });
    ratios.push_back(plain / seconds_of([&] { parts.encode(); }));
  }
  ZSTD_freeCCtx(context);
  rows.print({"snapshot.codec.bf16_vs_zstd", "factor", Goal::kAtLeast, 1.8,
              "zstd level 1 of the same 256 KiB parts"},
             ratios);
}

void incompressible(bench::Rows& rows, int repetitions) {
  const Buffer noise = random_bytes();
  Parts parts(noise, DType::kF32);
  Buffer copy(kBytes);
  std::vector<double> fractions;
  for (int i = 0; i < repetitions + 1; ++i) {
    const double plain = seconds_of([&] { std::memcpy(copy.data(), noise.data(), kBytes); });
    const double encoded = seconds_of([&] { parts.encode(); });
    if (i > 0) fractions.push_back(plain / encoded);  // the first touches the pages
  }
  rows.print({"snapshot.incompressible", "fraction", Goal::kAtLeast, 0.6, "memcpy of 32 MiB"},
             fractions);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const int repetitions = quick ? 15 : 45;
  bench::Rows rows;
  const Buffer bf16 = weights(DType::kBF16);
  speeds(rows, repetitions, bf16);
  against_zstd(rows, repetitions, bf16);
  incompressible(rows, repetitions);
  return 0;
}
