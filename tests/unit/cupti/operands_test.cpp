#include "cupti/kernels/operands.h"

#include <array>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

using format::Confidence;

constexpr uint64_t kBlock = 0x10000;
constexpr uint64_t kBlockBytes = 0x1000;

struct OperandScene {
  OperandScene() {
    MemoryRange range;
    range.base = kBlock;
    range.bytes = kBlockBytes;
    generation = addresses.allocate(range).generation;
  }

  /// Scans parameters given as values; each lies where its layout says.
  template <typename... Values>
  std::vector<format::Operand> scan(const Values&... values) {
    std::vector<void*> pointers{const_cast<Values*>(&values)...};
    std::vector<ParamLayout> layout;
    size_t offset = 0;
    for (const auto& [bytes, alignment] : {std::pair{sizeof(Values), alignof(Values)}...}) {
      offset = (offset + alignment - 1) / alignment * alignment;
      layout.push_back({offset, bytes});
      offset += bytes;
    }
    LaunchInfo launch;
    launch.params = pointers.data();
    std::array<format::Operand, 8> found;
    const size_t count = scan_operands(launch, words_of(layout), addresses, tensor_maps, found);
    return {found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  AddressMap addresses;
  TensorMaps tensor_maps;
  uint64_t generation = 0;
};

TEST_CASE("operands: a pointer parameter is found with its place in the block", "[operands]") {
  OperandScene scene;
  const auto found = scene.scan(uint64_t{kBlock}, uint32_t{7}, uint64_t{kBlock + 0x40});
  REQUIRE(found.size() == 2);
  CHECK(found[0].param == 0);
  CHECK(found[0].confidence == Confidence::kPointerBase);
  CHECK(found[0].generation == scene.generation);
  CHECK(found[0].offset == 0);
  CHECK(found[1].param == 2);
  CHECK(found[1].confidence == Confidence::kPointerInterior);
  CHECK(found[1].offset == 0x40);
}

TEST_CASE("operands: between two launches of a kernel its pointers are looked up again",
          "[operands]") {
  OperandScene scene;
  const auto launch = [&] { return scene.scan(uint64_t{kBlock}, uint64_t{kBlock + 0x100000}); };
  REQUIRE(launch().size() == 1);
  MemoryRange other;
  other.base = kBlock + 0x100000;
  other.bytes = kBlockBytes;
  const uint64_t second = scene.addresses.allocate(other).generation;
  REQUIRE(launch().size() == 2);
  CHECK(launch()[1].generation == second);
  std::thread([&] {
    scene.addresses.release(kBlock, format::MemorySource::kDriver);
    other.base = kBlock;
    scene.addresses.allocate(other);
  }).join();
  CHECK(launch()[0].generation == second + 1);
  CHECK(launch()[1].generation == second);
}

TEST_CASE("operands: words inside a struct are found with less confidence", "[operands]") {
  struct Tensors {
    uint32_t count;
    uint64_t data[2];
  };
  OperandScene scene;
  const auto found = scene.scan(Tensors{2, {kBlock, kBlock + 8}});
  REQUIRE(found.size() == 2);
  CHECK(found[0].word == 8);
  CHECK(found[0].confidence == Confidence::kWordBase);
  CHECK(found[1].word == 16);
  CHECK(found[1].confidence == Confidence::kWordInterior);
}

TEST_CASE("operands: words are taken at device alignment, not at the parameter's start",
          "[operands]") {
  struct Packed {
    uint32_t words[4];
  };
  OperandScene scene;
  // The struct starts at offset 4; a pointer can lie at its offset 4, which is 8 on the device.
  Packed packed{};
  packed.words[1] = static_cast<uint32_t>(kBlock);
  const auto found = scene.scan(uint32_t{1}, packed);
  REQUIRE(found.size() == 1);
  CHECK(found[0].word == 4);
}

TEST_CASE("operands: numbers, null and unknown addresses are no operands", "[operands]") {
  OperandScene scene;
  CHECK(scene.scan(uint64_t{0}, uint64_t{1024}, uint64_t{kBlock + kBlockBytes}, 1.5).empty());
}

TEST_CASE("operands: memory that was freed is still named, by the life it had", "[operands]") {
  OperandScene scene;
  scene.addresses.release(kBlock, format::MemorySource::kDriver);
  const auto found = scene.scan(uint64_t{kBlock});
  REQUIRE(found.size() == 1);
  CHECK(found[0].generation == scene.generation);
}

TEST_CASE("operands: a launch with more pointers than fit keeps the first ones", "[operands]") {
  struct Many {
    uint64_t data[20];
  };
  OperandScene scene;
  Many many{};
  for (auto& word : many.data) word = kBlock;
  CHECK(scene.scan(many).size() == 8);
}

struct alignas(64) OpaqueMap {
  uint64_t words[16];
};

TEST_CASE("operands: a tensor map is a pointer to the memory that it describes", "[operands]") {
  OperandScene scene;
  OpaqueMap map{};
  map.words[3] = 0xfeed;
  scene.tensor_maps.learn(&map, kBlock + 0x40);
  const auto found = scene.scan(map, uint64_t{kBlock});
  REQUIRE(found.size() == 2);
  CHECK(found[0].param == 0);
  CHECK(found[0].word == 0);
  CHECK(found[0].confidence == Confidence::kPointerInterior);
  CHECK(found[0].address == kBlock + 0x40);
  CHECK(found[0].offset == 0x40);
  CHECK(found[1].param == 1);

  map.words[3] = 0xbeef;  // of another tensor, made before we looked
  CHECK(scene.scan(map).empty());
}

TEST_CASE("operands: a tensor map is found wherever the parameters begin", "[operands]") {
  OperandScene scene;
  OpaqueMap map{};
  scene.tensor_maps.learn(&map, kBlock);
  void* values[] = {&map};
  const ParamLayout as_on_sm_75[] = {{32, sizeof map}};
  LaunchInfo launch;
  launch.params = values;
  std::array<format::Operand, 8> found;
  CHECK(scan_operands(launch, words_of(as_on_sm_75), scene.addresses, scene.tensor_maps, found) ==
        1);
}

TEST_CASE("operands: a tensor map inside a struct is found, its own words are not pointers",
          "[operands]") {
  struct Arguments {
    uint64_t data;
    OpaqueMap map;
    uint64_t more;
  };
  OperandScene scene;
  Arguments arguments{kBlock, {}, kBlock + 8};
  arguments.map.words[0] = kBlock + 0x20;  // as the hardware may have it
  scene.tensor_maps.learn(&arguments.map, kBlock);
  const auto found = scene.scan(arguments);
  REQUIRE(found.size() == 3);
  CHECK(found[1].word == 64);
  CHECK(found[1].confidence == Confidence::kWordBase);
  CHECK(found[1].address == kBlock);
  CHECK(found[2].word == 192);
}

}  // namespace
}  // namespace convtrace::cupti
