#include "cupti/kernel_name.h"

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

TEST_CASE("kernel_name: mangled names become C++, others stay", "[kernel_name]") {
  CHECK(demangle("_Z3addPfi") == "add(float*, int)");
  CHECK(demangle("triton_poi_fused_add_0") == "triton_poi_fused_add_0");
  CHECK(demangle("f") == "f");
  CHECK(demangle("_Znot mangled") == "_Znot mangled");
  CHECK(demangle("").empty());
}

TEST_CASE("kernel_name: kernels of an anonymous namespace are one family whatever the file hash",
          "[kernel_name]") {
  const std::string nvcc = demangle("_ZN35_GLOBAL__N__28af0092_7_anon_cu_main6kernelEPf");
  CHECK(kernel_family(nvcc) == "kernel(float*)");
  CHECK(kernel_family("void (anonymous namespace)::kernel<float>(float*)") ==
        "void kernel<float>(float*)");
  CHECK(kernel_family("_INTERNAL_1a2b3c4d_7_file_cu_5e6f7a8b::kernel(float*)") == "kernel(float*)");
  CHECK(kernel_family("my_INTERNAL_thing::kernel()") == "my_INTERNAL_thing::kernel()");
}

TEST_CASE("kernel_name: lambda numbers do not split a family", "[kernel_name]") {
  CHECK(kernel_family("void k<f(int)::{lambda(float)#2}>(f(int)::{lambda(float)#2})") ==
        "void k<f(int)::{lambda(float)}>(f(int)::{lambda(float)})");
  CHECK(kernel_family("void k<{unnamed type#3}>()") == "void k<{unnamed type}>()");
  CHECK(
      kernel_family("void k<__nv_dl_wrapper_t<__nv_dl_tag<void (*)(int, int), &launch, 7u>>>()") ==
      "void k<__nv_dl_wrapper_t<__nv_dl_tag<void (*)(int, int), &launch>>>()");
}

TEST_CASE("kernel_name: numbers that mean something stay", "[kernel_name]") {
  CHECK(kernel_family("sgemm_128x64_32") == "sgemm_128x64_32");
  CHECK(kernel_family("void k<4, 128>(int)") == "void k<4, 128>(int)");
  CHECK(kernel_family("layer_norm_2d") == "layer_norm_2d");
  CHECK(kernel_family("kernel_0") == "kernel_0");
}

TEST_CASE("kernel_name: Triton and Inductor suffixes are dropped", "[kernel_name]") {
  CHECK(kernel_family("triton_poi_fused_add_mul_0") == "triton_poi_fused_add_mul");
  CHECK(kernel_family("triton_per_fused__softmax_12") == "triton_per_fused__softmax");
  CHECK(kernel_family("add_kernel_0d1d2d3de") == "add_kernel");
  CHECK(kernel_family("matmul_0d1d2d3d4d5d6d7d8d9d10d11d") == "matmul");
}

TEST_CASE("kernel_name: a family is never empty", "[kernel_name]") {
  CHECK(kernel_family("(anonymous namespace)::") == "(anonymous namespace)::");
  CHECK(kernel_family("").empty());
}

}  // namespace
}  // namespace convtrace::cupti
