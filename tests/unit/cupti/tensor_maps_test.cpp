#include "cupti/kernels/tensor_maps.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

struct Map {
  explicit Map(uint64_t number) { words[5] = number; }
  uint64_t words[16] = {};
};

TEST_CASE("tensor_maps: a map is known by its bytes, wherever they were copied", "[tensor_maps]") {
  TensorMaps maps;
  CHECK_FALSE(maps.any());
  const Map map(1);
  maps.learn(&map, 0x7000);
  CHECK(maps.any());
  char copy[sizeof map + 1];
  std::memcpy(copy + 1, &map, sizeof map);
  CHECK(maps.find(copy + 1) == 0x7000);
  CHECK(maps.find(std::make_unique<Map>(2).get()) == 0);
}

TEST_CASE("tensor_maps: of more maps than there is room for, most of the latest are known",
          "[tensor_maps]") {
  TensorMaps maps;
  constexpr uint64_t kCount = 20'000, kLatest = 1000;
  for (uint64_t i = 1; i <= kCount; ++i) maps.learn(std::make_unique<Map>(i).get(), i);
  uint64_t known = 0, wrong = 0;
  for (uint64_t i = 1; i <= kCount; ++i) {
    const uint64_t found = maps.find(std::make_unique<Map>(i).get());
    wrong += found != 0 && found != i;
    known += found == i && i > kCount - kLatest;
  }
  CHECK(wrong == 0);
  CHECK(known > kLatest * 9 / 10);
}

TEST_CASE("tensor_maps: who looks while others learn finds the right address or none",
          "[tensor_maps][threads]") {
  TensorMaps maps;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0};
  std::thread reader([&] {
    while (!stop.load()) {
      for (uint64_t i = 1; i < 100; ++i) {
        const Map map(i);
        const uint64_t found = maps.find(&map);
        if (found != 0 && found != i) wrong.fetch_add(1);
      }
    }
  });
  for (int round = 0; round < 20; ++round) {
    for (uint64_t i = 1; i < 10'000; ++i) maps.learn(std::make_unique<Map>(i).get(), i);
  }
  stop = true;
  reader.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace convtrace::cupti
