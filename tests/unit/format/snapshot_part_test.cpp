#include <zstd.h>

#include <algorithm>
#include <random>

#include "format/values/part_decoder.h"
#include "format/values/part_encoder.h"
#include "tests/support/catch.h"

namespace convtrace::format {
namespace {

using Buffer = std::vector<std::byte>;

enum class Kind { kWeights, kZeros, kNoise, kSparse, kCounting };
constexpr Kind kContents[] = {Kind::kWeights, Kind::kZeros, Kind::kNoise, Kind::kSparse,
                              Kind::kCounting};

Buffer values(Kind kind, size_t bytes, uint64_t seed = 1) {
  Buffer buffer(bytes);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  for (size_t i = 0; i < bytes; i += 4) {
    uint32_t word = 0;
    if (kind == Kind::kWeights) word = std::bit_cast<uint32_t>(normal(random));
    if (kind == Kind::kNoise) word = static_cast<uint32_t>(random());
    if (kind == Kind::kSparse && random() % 50 == 0) word = static_cast<uint32_t>(random());
    if (kind == Kind::kCounting) word = static_cast<uint32_t>(i / 8 * (i / 4 % 2));
    std::memcpy(&buffer[i], &word, std::min<size_t>(4, bytes - i));
  }
  return buffer;
}

struct Encoded {
  BlobHeader header;
  Buffer payload;
};

Encoded encoded(const Buffer& raw, DType dtype, const BasePart& base = {}) {
  Encoded result;
  result.header.content = {42, raw.size()};
  result.header.form = element_form(dtype);
  PartEncoder encoder;
  const Result<Bytes> payload = encoder.encode(result.header, raw, base);
  REQUIRE(payload.ok());
  result.payload.assign(payload.value().begin(), payload.value().end());
  return result;
}

Buffer decoded(const Buffer& payload, Bytes base = {}) {
  const auto header = decode_blob_header(payload);
  REQUIRE(header);
  Buffer raw(header->part_bytes);
  REQUIRE(PartDecoder().decode(*header, payload, base, raw).ok());
  return raw;
}

TEST_CASE("snapshot part: every type and kind of values comes back", "[format][snapshot]") {
  for (uint8_t type = 0; type < kEnumCount<DType>; ++type) {
    const auto dtype = static_cast<DType>(type);
    const size_t width = element_form(dtype).width;
    for (const Kind kind : kContents) {
      for (const size_t count : {size_t{1}, size_t{31}, size_t{1023}, kPartBytes / width}) {
        const Buffer raw = values(kind, count * width);
        INFO(to_string(dtype) << ", kind " << static_cast<int>(kind) << ", " << count);
        const Encoded one = encoded(raw, dtype);
        CHECK(decode_blob_header(one.payload) == one.header);
        CHECK(decoded(one.payload) == raw);
      }
    }
  }
}

TEST_CASE("snapshot part: the largest part a reader takes comes back", "[format][snapshot]") {
  const Buffer raw = values(Kind::kWeights, kMaxPartBytes);
  CHECK(decoded(encoded(raw, DType::kF64).payload) == raw);
}

TEST_CASE("snapshot part: weights shrink, noise does not grow", "[format][snapshot]") {
  const Buffer weights = values(Kind::kWeights, kPartBytes);
  CHECK(encoded(weights, DType::kF32).payload.size() < weights.size() * 9 / 10);
  const Buffer noise = values(Kind::kNoise, kPartBytes);
  CHECK(encoded(noise, DType::kF32).payload.size() == noise.size() + kBlobHeaderBytes + 4);
  const Buffer zeros = values(Kind::kZeros, kPartBytes);
  CHECK(encoded(zeros, DType::kF32).payload.size() < 200);
}

TEST_CASE("snapshot part: frames are read by any zstd", "[format][snapshot]") {
  const Buffer raw = values(Kind::kWeights, kPartBytes);
  const Encoded one = encoded(raw, DType::kF32);
  size_t at = kBlobHeaderBytes + 4 * sizeof(uint32_t);
  size_t frames = 0;
  for (size_t p = 0; p < 4; ++p) {
    const auto word = load_le<uint32_t>(&one.payload[kBlobHeaderBytes + 4 * p]);
    const size_t stored = word & ~kFrameBit;
    if ((word & kFrameBit) != 0) {
      ++frames;
      Buffer plane(kPartBytes / 4);
      CHECK(ZSTD_decompress(plane.data(), plane.size(), &one.payload[at], stored) == plane.size());
      const Bytes frame(&one.payload[at], stored);
      CHECK(ZSTD_getFrameContentSize(frame.data(), frame.size()) == plane.size());
    }
    at += stored;
  }
  CHECK(frames > 0);
  CHECK(at == one.payload.size());
}

TEST_CASE("snapshot part: the XOR with a base is taken when it pays", "[format][snapshot]") {
  const Buffer before = values(Kind::kWeights, kPartBytes);
  Buffer after = before;
  for (size_t i = 0; i < after.size(); i += 4) after[i] ^= std::byte{3};  // the last bits move
  const BasePart base{before, 7, 2};
  const Encoded one = encoded(after, DType::kF32, base);
  CHECK(one.header.base_hash == 7);
  CHECK(one.header.depth == 3);
  CHECK(one.payload.size() < encoded(after, DType::kF32).payload.size() / 10);
  CHECK(decoded(one.payload, before) == after);

  const Buffer other = values(Kind::kWeights, kPartBytes, 2);
  const Encoded unrelated = encoded(other, DType::kF32, base);
  CHECK(unrelated.header.depth == 0);
  CHECK(decoded(unrelated.payload) == other);
}

TEST_CASE("snapshot part: a base of another size or too deep is not used", "[format][snapshot]") {
  const Buffer raw = values(Kind::kWeights, 4096);
  const Buffer longer = values(Kind::kWeights, 8192);
  CHECK(encoded(raw, DType::kF32, {longer, 7, 0}).header.depth == 0);
  CHECK(encoded(raw, DType::kF32, {raw, 7, kMaxBaseDepth}).header.depth == 0);
  CHECK(encoded(raw, DType::kF32, {raw, 7, kMaxBaseDepth - 1}).header.depth == kMaxBaseDepth);
}

TEST_CASE("snapshot part: what does not fit is refused", "[format][snapshot][limits]") {
  BlobHeader header;
  header.form = {4, true};
  PartEncoder encoder;
  CHECK_FALSE(encoder.encode(header, {}, {}).ok());
  CHECK_FALSE(encoder.encode(header, Buffer(6), {}).ok());
  CHECK_FALSE(encoder.encode(header, Buffer(kMaxPartBytes + 4), {}).ok());
}

TEST_CASE("snapshot part: a header field outside its limits is refused", "[format][limits]") {
  const Encoded good = encoded(values(Kind::kWeights, 4096), DType::kF32);
  const auto refused = [&](auto change) {
    Encoded bad = good;
    change(bad.header);
    encode_header(bad.header, bad.payload.data());
    return !decode_blob_header(bad.payload);
  };
  CHECK_FALSE(refused([](BlobHeader&) {}));
  CHECK(refused([](BlobHeader& h) { h.form.width = 0; }));
  CHECK(refused([](BlobHeader& h) { h.form.width = 3; }));
  CHECK(refused([](BlobHeader& h) { h.form.width = 16; }));
  CHECK(refused([](BlobHeader& h) { h.depth = kMaxBaseDepth + 1; }));
  CHECK(refused([](BlobHeader& h) { h.base_hash = 1; }));
  CHECK(refused([](BlobHeader& h) { h.part_bytes = 0; }));
  CHECK(refused([](BlobHeader& h) { h.part_bytes = 4094; }));
  CHECK(refused([](BlobHeader& h) { h.content.bytes = h.part_bytes = kMaxPartBytes + 4; }));
  CHECK(refused([](BlobHeader& h) { h.offset = 4; }));
  CHECK(refused([](BlobHeader& h) { h.offset = ~uint64_t{0} - 100; }));
  CHECK(refused([](BlobHeader& h) { h.content.bytes = 4092; }));
}

TEST_CASE("snapshot part: no damage gives other bytes", "[format][snapshot][limits]") {
  const Buffer raw = values(Kind::kWeights, 2048);
  const Encoded good = encoded(raw, DType::kBF16);
  PartDecoder decoder;
  const auto outcome = [&](const Buffer& payload) {
    const auto header = decode_blob_header(payload);
    if (!header) return true;
    Buffer back(header->part_bytes);
    return !decoder.decode(*header, payload, {}, back).ok() || back == raw;
  };
  for (size_t size = 0; size < good.payload.size(); ++size) {
    Buffer cut = good.payload;
    cut.resize(size);
    const auto header = decode_blob_header(cut);
    Buffer back(raw.size());
    CHECK_FALSE((header && decoder.decode(*header, cut, {}, back).ok()));
  }
  std::mt19937_64 random(3);
  for (size_t at = 0; at < good.payload.size(); ++at) {
    Buffer bad = good.payload;
    bad[at] ^= static_cast<std::byte>(1u << random() % 8);
    INFO("byte " << at);
    CHECK(outcome(bad));
  }
  Buffer longer = good.payload;
  longer.push_back({});
  Buffer back(raw.size());
  CHECK_FALSE(decoder.decode(good.header, longer, {}, back).ok());
}

TEST_CASE("snapshot part: a base that is missing or not asked for is refused", "[format][limits]") {
  const Buffer before = values(Kind::kWeights, 4096);
  Buffer after = before;
  after[0] ^= std::byte{1};
  const Encoded delta = encoded(after, DType::kF32, {before, 7, 0});
  REQUIRE(delta.header.depth == 1);
  Buffer back(after.size());
  PartDecoder decoder;
  CHECK_FALSE(decoder.decode(delta.header, delta.payload, {}, back).ok());
  CHECK_FALSE(decoder.decode(delta.header, delta.payload, after, back).ok());  // another one
  const Encoded plain = encoded(after, DType::kF32);
  CHECK_FALSE(decoder.decode(plain.header, plain.payload, before, back).ok());
}

}  // namespace
}  // namespace convtrace::format
