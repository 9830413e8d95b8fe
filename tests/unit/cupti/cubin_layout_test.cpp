#include "cupti/cubin_layout.h"

#include <cstddef>
#include <map>
#include <random>
#include <string>

#include "cupti/cubin_table.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"
#include "tests/unit/cupti/cubins/layouts.h"

namespace convtrace::cupti {
namespace {

using Layout = std::vector<ParamLayout>;
using Layouts = std::map<std::string, Layout>;

/// nvcc's output of this build.
std::string cubin_of(const std::string& architecture) {
  return test::read_file(std::string(CUBINS) + "/layouts_" + architecture + ".cubin");
}

Layouts read(const std::string& cubin) {
  Layouts layouts;
  for (KernelLayout& one : read_cubin_layouts(std::as_bytes(std::span(cubin))))
    layouts.emplace(one.kernel, std::move(one.params));
  return layouts;
}

/// What the host compiler makes of a parameter list: a struct with the same members.
struct StructsParams {
  char flag;
  Tensors tensors;
  short bias;
  double scale;
};

TEST_CASE("cubin_layout: real cubins give the layout that the host compiler gives",
          "[cubin_layout]") {
  const std::string architecture = GENERATE("75", "90", "120");
  CAPTURE(architecture);
  const Layouts layouts = read(cubin_of(architecture));
  REQUIRE(layouts.size() == 6);
  CHECK(layouts.at("add") == Layout{{0, 8}, {8, 8}, {16, 8}, {24, 4}});
  CHECK(layouts.at("structs") == Layout{{offsetof(StructsParams, flag), sizeof(char)},
                                        {offsetof(StructsParams, tensors), sizeof(Tensors)},
                                        {offsetof(StructsParams, bias), sizeof(short)},
                                        {offsetof(StructsParams, scale), sizeof(double)}});
  CHECK(layouts.at("none").empty());
  CHECK(layouts.at("large") == Layout{{0, sizeof(Large)}, {sizeof(Large), 8}});

  // Where the parameters begin decides what is aligned: the buffer need not begin with the first.
  const Layout map = layouts.at("map");
  REQUIRE(map.size() == 2);
  CHECK(map[0].bytes == sizeof(TensorMap));
  CHECK(map[1].offset == map[0].offset + sizeof(TensorMap));

  size_t mangled = 0;
  for (const auto& [kernel, params] : layouts) {
    if (kernel.find("4fillIdE") == std::string::npos) continue;
    ++mangled;
    CHECK(params == Layout{{0, 8}, {8, 8}});
  }
  CHECK(mangled == 1);
}

TEST_CASE("cubin_layout: what is no cubin has no kernels", "[cubin_layout]") {
  CHECK(read("").empty());
  CHECK(read(std::string(64, '\0')).empty());
  CHECK(read(test::read_file("/proc/self/exe")).empty());  // an ELF file for another machine
}

TEST_CASE("cubin_layout: of a cubin that was cut off no parameter is invented", "[cubin_layout]") {
  const std::string whole = cubin_of("90");
  const Layouts all = read(whole);
  uint64_t wrong = 0;
  for (size_t size = 0; size < whole.size(); size += 1 + size % 7) {
    for (const auto& [kernel, params] : read(whole.substr(0, size)))
      wrong += !all.contains(kernel) || all.at(kernel) != params;
  }
  CHECK(wrong == 0);
}

TEST_CASE("cubin_layout: damage never leads outside the file or beyond what a GPU takes",
          "[cubin_layout]") {
  const std::string whole = cubin_of("75");
  std::mt19937 random(1);
  uint64_t beyond = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = whole;
    // Half of the damage where the section headers are, which a random place seldom hits.
    for (int n = 0; n < 8; ++n) {
      const size_t from = random() % 2 == 0 ? 0 : whole.size() - whole.size() / 10;
      damaged[from + random() % (whole.size() - from)] = static_cast<char>(random());
    }
    for (const auto& [kernel, params] : read(damaged)) {
      for (const ParamLayout& param : params) beyond += param.offset + param.bytes > 32 * 1024;
    }
  }
  CHECK(beyond == 0);
}

TEST_CASE("cubin_table: kernels are known while a module that holds them is loaded",
          "[cubin_layout]") {
  const std::string cubin = cubin_of("90");
  const auto bytes = std::as_bytes(std::span(cubin));
  CubinTable table;
  CHECK_FALSE(table.find("add").has_value());
  table.load(1, bytes);
  table.load(2, bytes);
  REQUIRE(table.find("add").has_value());
  CHECK(table.find("add")->size() == 4);
  table.unload(1);
  CHECK(table.find("add").has_value());
  table.unload(2);
  CHECK_FALSE(table.find("add").has_value());
}

TEST_CASE("cubin_table: two kernels of one name and other parameters are both unknown",
          "[cubin_layout]") {
  CubinTable table;
  // With sm_75's parameters elsewhere, the struct that is aligned to 64 bytes lies elsewhere.
  const std::string one = cubin_of("75"), other = cubin_of("90");
  table.load(1, std::as_bytes(std::span(one)));
  table.load(2, std::as_bytes(std::span(other)));
  CHECK_FALSE(table.find("map").has_value());
  CHECK(table.find("add").has_value());
  table.unload(1);
  CHECK(table.find("map").has_value());
}

}  // namespace
}  // namespace convtrace::cupti
