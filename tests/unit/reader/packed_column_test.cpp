// FORMAT.md section 6.1: what is packed is read back, and nothing else is taken for it.

#include "reader/columns/packed_column.h"

#include <algorithm>
#include <random>

#include "format/schema/conventions.h"
#include "tests/support/catch.h"
#include "tests/unit/reader/chunk_maker.h"

namespace convtrace {
namespace {

using reader::PackedColumn;

/// A stored column as it lies in a chunk.
class Stored {
 public:
  explicit Stored(const std::vector<uint8_t>& bytes) {
    builder_.Finish(builder_.CreateVector(bytes));
  }
  [[nodiscard]] const reader::PackedBytes* get() const {
    return flatbuffers::GetRoot<reader::PackedBytes>(builder_.GetBufferPointer());
  }

 private:
  flatbuffers::FlatBufferBuilder builder_;
};

bool fits(const std::vector<uint8_t>& bytes, size_t rows, size_t max_width = 8) {
  const Stored stored(bytes);
  return PackedColumn().bind(stored.get(), rows, max_width);
}

TEST_CASE("packed column: what is put is read back", "[reader][format]") {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 400; ++trial) {
    // Few or many zeros, narrow or wide.
    const uint64_t zeros = random() % 5, width = 1 + random() % 64;
    std::vector<uint64_t> values(random() % 200);
    for (uint64_t& value : values) value = random() % 4 < zeros ? 0 : random() >> (64 - width);
    const Stored stored(test::packed(values));
    PackedColumn column;
    REQUIRE(column.bind(stored.get(), values.size()));
    for (size_t row = 0; row < values.size(); ++row) REQUIRE(column.at(row) == values[row]);
    CHECK(column.next_row() == PackedColumn::kNone);
    REQUIRE(column.bind(stored.get(), values.size()));
    CHECK(column.empty() == std::ranges::all_of(values, [](uint64_t value) { return value == 0; }));
    PackedColumn::Block block;
    for (size_t row = 0; row < values.size() && !column.empty(); ++row) {
      if (row % block.size() == 0) column.read(block);
      REQUIRE(block[row % block.size()] == values[row]);
    }
  }
}

TEST_CASE("packed column: rows before the first that is stored are zero", "[reader]") {
  std::vector<uint64_t> values(500);
  values[400] = 0x123456789;
  const Stored stored(test::packed(values));
  PackedColumn column;
  REQUIRE(column.bind(stored.get(), values.size()));
  PackedColumn::Block block;
  for (size_t row = 0; row < values.size(); ++row) {
    if (row % block.size() == 0) column.read(block);
    REQUIRE(block[row % block.size()] == values[row]);
  }
}

TEST_CASE("packed column: zeros take no bytes, and what is dense no bitmap", "[format]") {
  CHECK(test::packed(std::vector<uint64_t>(1000)).empty());
  CHECK(test::packed(std::vector<uint64_t>(1000, 7)).size() == 1 + 1000);
  CHECK(test::packed(std::vector<uint64_t>(1000, 256)).size() == 1 + 2 * 1000);
  std::vector<uint64_t> one(1000);
  one[999] = UINT64_MAX;
  CHECK(test::packed(one).size() == 1 + 125 + 8);
}

TEST_CASE("packed column: the bytes are those of the specification", "[format]") {
  // Rows 1 and 3 of 4; planes of low and of high bytes.
  CHECK(test::packed({0, 0x1234, 0, 0x56}) ==
        std::vector<uint8_t>{0x02, 0b1010, 0x34, 0x56, 0x12, 0x00});
  CHECK(test::packed({0xAB, 0xCD}) == std::vector<uint8_t>{0x11, 0xAB, 0xCD});
}

TEST_CASE("packed column: only what has exactly its rows is taken", "[reader][limits]") {
  CHECK(fits({}, 5));
  CHECK(fits({0x11, 1, 2}, 2));
  CHECK_FALSE(fits({0x11, 1, 2}, 1));
  CHECK_FALSE(fits({0x11, 1, 2}, 3));
  CHECK(fits({0x01, 0b101, 1, 2}, 3));
  CHECK_FALSE(fits({0x01, 0b101, 1}, 3));
  CHECK_FALSE(fits({0x01, 0b101, 1, 2, 3}, 3));
  CHECK_FALSE(fits({0x01, 0b1001, 1, 2}, 3));  // a bit behind the last row
  CHECK_FALSE(fits({0x01}, 3));                // no bitmap
  CHECK_FALSE(fits({0x00}, 0));                // no width
  CHECK_FALSE(fits({0x31, 1}, 1));             // a reserved bit
  for (uint8_t width = 1; width <= 15; ++width) {
    std::vector<uint8_t> bytes(1 + width);
    bytes[0] = 0x10 | width;
    CHECK(fits(bytes, 1) == (width <= 8));
    CHECK(fits(bytes, 1, 4) == (width <= 4));
  }
}

TEST_CASE("zigzag: differences of either sign are small numbers", "[format]") {
  using format::wire::unzigzag;
  using format::wire::zigzag;
  CHECK(zigzag(0) == 0);
  CHECK(zigzag(UINT64_MAX) == 1);
  CHECK(zigzag(1) == 2);
  std::mt19937_64 random(6);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = random() >> random() % 64;
    REQUIRE(unzigzag(zigzag(value)) == value);
    REQUIRE(unzigzag(zigzag(0 - value)) == 0 - value);
  }
}

}  // namespace
}  // namespace convtrace
