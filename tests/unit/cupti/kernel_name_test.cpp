#include "cupti/kernels/kernel_name.h"

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

/// What profilers show for real programs, and the family of each.
struct Real {
  const char* name;  ///< as the driver gives it, or demangled
  const char* family;
};

constexpr Real kReal[] = {
    // PyTorch, eager
    {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_"
     "addIfEESt5arrayIPcLm3EEEEvi"
     "T0_T1_",
     "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
     "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"},
    {"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
     "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() "
     "const::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
     "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
     "at::TensorIteratorBase&)::{lambda()}::operator()() const::{lambda()}::operator()() "
     "const::{lambda(float)}, std::array<char*, 2ul> >(int)"},
    {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
     "namespace)::TensorListMetadata<4>, at::native::(anonymous "
     "namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)0, false> >(int)",
     "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>, "
     "at::native::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)0, false> >(int)"},
    {"void at_cuda_detail::cub::CUB_200700_700_750_800_860_900_1000_1200_NS::DeviceReduceKernel<"
     "float*>(float*)",
     "void at_cuda_detail::cub::DeviceReduceKernel<float*>(float*)"},
    {"void cub::_V_300001_SM_1000::detail::scan::DeviceScanKernel<int*>(int*)",
     "void cub::detail::scan::DeviceScanKernel<int*>(int*)"},
    {"void thrust::THRUST_200700_800_NS::cuda_cub::core::_kernel_agent<cuda::std::__4::tuple<int> "
     ">()",
     "void thrust::cuda_cub::core::_kernel_agent<cuda::std::tuple<int> >()"},
    {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, "
     "false, false, cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)",
     "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, "
     "false, false, cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)"},
    {"fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::"
     "Params)",
     "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::"
     "Params)"},
    // cuBLAS, cuDNN, NCCL: each number is the tile, the type or the architecture
    {"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn",
     "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"},
    {"nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT", "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT"},
    {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_"
     "segment"
     "_k_off_kernel__5x_cublas",
     "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_"
     "segment"
     "_k_off_kernel__5x_cublas"},
    {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_nn_align8>("
     "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_nn_align8::Params)",
     "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_nn_align8>("
     "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_nn_align8::Params)"},
    {"void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, "
     "false, "
     "false>(cublasSplitKParams<float>)",
     "void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, "
     "false, "
     "false>(cublasSplitKParams<float>)"},
    {"_5x_cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1",
     "_5x_cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1"},
    {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
     "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
    // Triton and TorchInductor
    {"triton_poi_fused__to_copy_add_mul_0", "triton_poi_fused__to_copy_add_mul"},
    {"triton_red_fused_native_layer_norm_12", "triton_red_fused_native_layer_norm"},
    {"triton_tem_fused_addmm_7", "triton_tem_fused_addmm"},
    {"triton_for_fused_2", "triton_for_fused"},
    {"triton_poi_fused_5", "triton_poi_fused"},
    {"triton_poi_fused_add_0_0d1d2d", "triton_poi_fused_add"},
    {"triton__0d1d2d3de", "triton_"},
    {"_attn_fwd", "_attn_fwd"},
    {"_fwd_kernel_0d1d2d34d5d", "_fwd_kernel"},
    {"_layer_norm_fwd_fused", "_layer_norm_fwd_fused"},
    // XLA, CuPy, Numba
    {"loop_add_fusion_12", "loop_add_fusion"},
    {"fusion_3", "fusion"},
    {"input_reduce_fusion", "input_reduce_fusion"},
    {"gemm_fusion_dot_17_0", "gemm_fusion_dot"},
    {"cupy_add__float32_float32_float32", "cupy_add__float32_float32_float32"},
    {"cudapy::__main__::add[abi:v12][abi:cw51cXTLSUwv1](Array<float, 1, C, mutable, aligned>)",
     "cudapy::__main__::add[abi:cw51cXTLSUwv1](Array<float, 1, C, mutable, aligned>)"},
    // nvcc: in a file of its own, anonymous and static
    {"_ZN43_GLOBAL__N__45283582_10_layouts_cu_6d5184964anonEPf", "anon(float*)"},
    {"__nv_static_41__41_tmpxft_00001a2b_00000000_7_file_cpp1_ii_1f2e3d4c__Z6kernelPf",
     "kernel(float*)"},
};

TEST_CASE("kernel_name: real names and their families", "[kernel_name]") {
  for (const Real& real : kReal) {
    CAPTURE(real.name);
    CHECK(kernel_family(demangle(real.name)) == real.family);
    CHECK(kernel_family(real.family) == real.family);  // a rule may name the family
  }
}

TEST_CASE("kernel_name: only a namespace of its form names a build", "[kernel_name]") {
  CHECK(kernel_family("a::CUB_impl::k()") == "a::CUB_impl::k()");
  CHECK(kernel_family("a::__detail::k()") == "a::__detail::k()");
  CHECK(kernel_family("k<CUB_200_NS>()") == "k<CUB_200_NS>()");
  CHECK(kernel_family("confusion_2") == "confusion_2");
}

}  // namespace
}  // namespace convtrace::cupti
