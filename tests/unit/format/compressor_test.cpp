#include "format/base/compressor.h"

#include "tests/support/catch.h"

namespace convtrace::format {
namespace {

std::vector<std::byte> text(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * i % 97);
  return bytes;
}

std::vector<std::byte> compressed(Bytes raw) {
  std::vector<std::byte> frame;
  REQUIRE(Compressor().compress(raw, frame).ok());
  return frame;
}

TEST_CASE("compressor: what goes in comes out", "[format]") {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{1} << 20}) {
    const std::vector<std::byte> raw = text(size);
    std::vector<std::byte> back(size);
    INFO(size << " bytes");
    REQUIRE(Decompressor().decompress_exact(compressed(raw), back).ok());
    CHECK(back == raw);
  }
}

TEST_CASE("decompressor: a frame of another size than stated is refused", "[format][limits]") {
  const std::vector<std::byte> frame = compressed(text(1000));
  for (const size_t size : {size_t{0}, size_t{999}, size_t{1001}}) {
    std::vector<std::byte> back(size);
    CHECK(Decompressor().decompress_exact(frame, back).code == StatusCode::kCorrupt);
  }
}

TEST_CASE("decompressor: anything but exactly one whole frame is refused", "[format][limits]") {
  const std::vector<std::byte> raw = text(1000);
  const std::vector<std::byte> frame = compressed(raw);
  std::vector<std::byte> back(raw.size());
  Decompressor decompressor;

  std::vector<std::byte> trailing = frame;
  trailing.push_back(std::byte{0});
  CHECK(decompressor.decompress_exact(trailing, back).code == StatusCode::kCorrupt);

  std::vector<std::byte> two = frame;
  two.insert(two.end(), frame.begin(), frame.end());
  CHECK(decompressor.decompress_exact(two, back).code == StatusCode::kCorrupt);

  for (size_t size = 0; size < frame.size(); ++size)
    CHECK_FALSE(decompressor.decompress_exact(Bytes(frame).first(size), back).ok());
  CHECK(decompressor.decompress_exact(raw, back).code == StatusCode::kCorrupt);
  CHECK(decompressor.decompress_exact(frame, back).ok());
}

}  // namespace
}  // namespace convtrace::format
