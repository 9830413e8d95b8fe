#include "tools/diff/report/determinism.h"

#include <algorithm>
#include <iterator>

namespace convtrace::diff {
namespace {

constexpr std::string_view kTf32 =
    "TF32 rounds what goes into products of f32 to 10 bits: relative differences of 1e-3 follow";
constexpr std::string_view kReduced =
    "partial sums of products are kept in 16 bits or in 32: last digits differ";
constexpr std::string_view kCudnn =
    "cuDNN takes other algorithms, which add in another order, some in any order";
constexpr std::string_view kAlgorithms =
    "operations have other implementations, which add in another order, some in any order";
constexpr std::string_view kWorkspace =
    "cuBLAS repeats its results only with :4096:8 or :16:8, and picks algorithms by this size";
constexpr std::string_view kNccl =
    "NCCL adds what the ranks send in another order: all reduced gradients differ in last digits";
constexpr std::string_view kBackend =
    "what the ranks send is added in another order: all reduced values differ in last digits";
constexpr std::string_view kSeed =
    "other random numbers: initial weights, dropout and the order of data are other ones";
constexpr std::string_view kThreads =
    "sums on the CPU are cut into other parts: last digits differ";
constexpr std::string_view kInstructions =
    "kernels on the CPU use other instructions and add in another order";
constexpr std::string_view kBlas = "products of matrices come from another library";
constexpr std::string_view kVersion =
    "other kernels may be chosen, which add in another order: last digits differ";
constexpr std::string_view kTuned =
    "the autotuner chose, by time, another configuration, which adds in another order";
constexpr std::string_view kPackage =
    "it may compute in another way: a changed order of operations changes last digits";
constexpr std::string_view kWorld =
    "ranks divide the data or the model in another way, and sums over ranks have other terms";
constexpr std::string_view kRecorded =
    "other values were recorded: what one run alone has cannot be compared";

struct Meaning {
  std::string_view name;  ///< a fact, or with a '.' or '_' at its end the beginning of several
  std::string_view text;
};

/// The first that matches applies.
constexpr Meaning kMeanings[] = {
    {"switch.torch_seed", kSeed},
    {"switch.PYTHONHASHSEED", kSeed},
    {"switch.cudnn_benchmark",
     "cuDNN takes the algorithm that was fastest in a trial, another one from run to run"},
    {"switch.cudnn_deterministic", kCudnn},
    {"switch.cudnn_enabled", kCudnn},
    {"switch.cudnn_fp32_precision", kTf32},
    {"switch.cudnn_conv_fp32_precision", kTf32},
    {"switch.cudnn_rnn_fp32_precision", kTf32},
    {"switch.cudnn_allow_tf32", kTf32},
    {"switch.matmul_fp32_precision", kTf32},
    {"switch.matmul_precision", kTf32},
    {"switch.NVIDIA_TF32_OVERRIDE", kTf32},
    {"switch.TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", kTf32},
    {"switch.matmul_fp16_reduced", kReduced},
    {"switch.matmul_bf16_reduced", kReduced},
    {"switch.deterministic_algorithms", kAlgorithms},
    {"switch.deterministic_warn_only", kAlgorithms},
    {"switch.TF_CUDNN_DETERMINISTIC", kCudnn},
    {"switch.XLA_FLAGS", kAlgorithms},
    {"switch.fill_uninitialized_memory",
     "new tensors are filled with NaN in one run: what reads memory never written shows"},
    {"switch.default_dtype", "tensors made without a dtype have another one"},
    {"switch.CUBLAS_WORKSPACE_CONFIG", kWorkspace},
    {"switch.CUBLASLT_WORKSPACE_SIZE", kWorkspace},
    {"switch.TORCH_BLAS_PREFER_CUBLASLT", kBlas},
    {"switch.mkldnn_enabled", kBlas},
    {"switch.mkldnn_", "oneDNN may round what goes into products of f32 to fewer bits"},
    {"switch.NCCL_", kNccl},
    {"switch.num_threads", kThreads},
    {"switch.OMP_", kThreads},
    {"switch.MKL_NUM_THREADS", kThreads},
    {"switch.MKL_DYNAMIC", kThreads},
    {"switch.OPENBLAS_NUM_THREADS", kThreads},
    {"switch.MKL_CBWR", kInstructions},
    {"switch.ATEN_CPU_CAPABILITY", kInstructions},
    {"switch.DNNL_", kInstructions},
    {"switch.ONEDNN_", kInstructions},
    {"autotune.", kTuned},
    {"version.python", ""},
    {"version.cupti", ""},
    {"version.", kVersion},
    {"device.", kVersion},
    {"package.", kPackage},
    {"setting.rules", kRecorded},
    {"setting.CONVTRACE_MODE", kRecorded},
    {"setting.CONVTRACE_STEPS", kRecorded},
    {"setting.CONVTRACE_INCLUDE", kRecorded},
    {"setting.CONVTRACE_EXCLUDE", kRecorded},
    {"setting.CONVTRACE_OPS", kRecorded},
    {"setting.CONVTRACE_COMPILED", kRecorded},
    {"setting.CONVTRACE_ALL_KERNELS", kRecorded},
    {"world size", kWorld},
    {"distributed.world_size", kWorld},
    {"distributed.backend", kBackend},
};

bool fits(std::string_view fact, std::string_view name) {
  const bool several = name.ends_with('.') || name.ends_with('_');
  return several ? fact.starts_with(name) : fact == name;
}

}  // namespace

std::string_view meaning_of(std::string_view fact) {
  const auto* found =
      std::ranges::find_if(kMeanings, [fact](const Meaning& m) { return fits(fact, m.name); });
  return found == std::end(kMeanings) ? "" : found->text;
}

bool explains_rounding(std::string_view fact) {
  const std::string_view meaning = meaning_of(fact);
  return !meaning.empty() && meaning != kSeed && meaning != kRecorded;
}

}  // namespace convtrace::diff
