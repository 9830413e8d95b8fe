#include "tools/diff/facts/excuses.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>

namespace convtrace::diff {
namespace {

constexpr std::string_view kTf32 =
    "TF32 rounds what goes into products of f32 to 10 bits: relative differences of 1e-3 follow";
constexpr std::string_view kReduced =
    "partial sums of products are kept in 16 bits or in 32: last digits may differ";
constexpr std::string_view kCudnn =
    "cuDNN takes other algorithms, which add in another order, some in any order";
constexpr std::string_view kAlgorithms =
    "operations have other implementations, which add in another order, some in any order";
constexpr std::string_view kWorkspace =
    "cuBLAS repeats its results only with :4096:8 or :16:8, and picks algorithms by this size";
constexpr std::string_view kNccl =
    "NCCL adds what the ranks send in another order: all reduced gradients may differ in last "
    "digits";
constexpr std::string_view kBackend =
    "what the ranks send is added in another order: all reduced values may differ in last digits";
constexpr std::string_view kSeed =
    "other random numbers: initial weights, dropout and the order of data are other ones";
constexpr std::string_view kThreads =
    "sums on the CPU are cut into other parts: last digits may differ";
constexpr std::string_view kInstructions =
    "kernels on the CPU use other instructions and add in another order";
constexpr std::string_view kBlas = "products of matrices come from another library";
constexpr std::string_view kVersion =
    "other kernels may be chosen, which add in another order: last digits may differ";
constexpr std::string_view kTuned =
    "the autotuner chose, by time, another configuration, which adds in another order";
constexpr std::string_view kPackage =
    "it may compute in another way: another order of operations may change last digits";
constexpr std::string_view kTakenUp =
    "other packages take its kernels where it is installed, which add in another order";
constexpr std::string_view kImported =
    "one run alone imported it, which computes nothing: it excuses no difference";
constexpr std::string_view kIdle = "it computes nothing: it excuses no difference";
constexpr std::string_view kCompiling =
    "torch.compile joins operations and adds in another order: last digits may differ";
constexpr std::string_view kPythonItself =
    "functions of Python itself may add in another way, as sum() of floats since 3.12";
constexpr std::string_view kOptions = "options may choose what is computed";
constexpr std::string_view kVariables =
    "variables that a program may read; the values are not recorded";
constexpr std::string_view kMachine =
    "another machine's processor may have other instructions, which add in another order";
constexpr std::string_view kWorld =
    "ranks divide the data or the model in another way, and sums over ranks have other terms";
constexpr std::string_view kRecorded =
    "other values were recorded: what one run alone has cannot be compared";

using enum Excuse;

struct Row {
  std::string_view name;  ///< a fact, or with a '.' or '_' at its end the beginning of several
  Meaning meaning;
};

/// The first that matches applies; a difference without a match excuses nothing.
constexpr Row kRows[] = {
    {"switch.CUDA_VISIBLE_DEVICES", {kOnDevice, "another device of the machine may compute"}},
    {"switch.CUDA_LAUNCH_BLOCKING",
     {kNone, "launches wait for each other in one run: what a race makes shows"}},
    {"switch.PYTORCH_CUDA_ALLOC_CONF",
     {kNone, "tensors lie at other addresses: what is read too late or was never written shows"}},
    {"switch.torch_seed", {kMay, kSeed}},
    {"switch.PYTHONHASHSEED", {kMay, kSeed}},
    {"switch.cudnn_benchmark",
     {kOnDevice,
      "cuDNN takes the algorithm that was fastest in a trial, another one from run to run"}},
    {"switch.cudnn_deterministic", {kOnDevice, kCudnn}},
    {"switch.cudnn_enabled", {kOnDevice, kCudnn}},
    {"switch.cudnn_fp32_precision", {kOnDevice, kTf32}},
    {"switch.cudnn_conv_fp32_precision", {kOnDevice, kTf32}},
    {"switch.cudnn_rnn_fp32_precision", {kOnDevice, kTf32}},
    {"switch.cudnn_allow_tf32", {kOnDevice, kTf32}},
    {"switch.matmul_fp32_precision", {kRounding, kTf32}},
    {"switch.matmul_precision", {kRounding, kTf32}},
    {"switch.NVIDIA_TF32_OVERRIDE", {kOnDevice, kTf32}},
    {"switch.TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", {kOnDevice, kTf32}},
    {"switch.matmul_fp16_reduced", {kOnDevice, kReduced}},
    {"switch.matmul_bf16_reduced", {kOnDevice, kReduced}},
    {"switch.deterministic_algorithms", {kRounding, kAlgorithms}},
    {"switch.deterministic_warn_only", {kRounding, kAlgorithms}},
    {"switch.TF_CUDNN_DETERMINISTIC", {kOnDevice, kCudnn}},
    {"switch.XLA_FLAGS", {kRounding, kAlgorithms}},
    {"switch.fill_uninitialized_memory",
     {kNone, "new tensors are filled with NaN in one run: what reads memory never written shows"}},
    {"switch.default_dtype", {kRounding, "tensors made without a dtype have another one"}},
    {"switch.CUBLAS_WORKSPACE_CONFIG", {kOnDevice, kWorkspace}},
    {"switch.CUBLASLT_WORKSPACE_SIZE", {kOnDevice, kWorkspace}},
    {"switch.TORCH_BLAS_PREFER_CUBLASLT", {kOnDevice, kBlas}},
    {"switch.mkldnn_enabled", {kRounding, kBlas}},
    {"switch.mkldnn_",
     {kRounding, "oneDNN may round what goes into products of f32 to fewer bits"}},
    {"switch.NCCL_", {kOnDevice, kNccl}},
    {"switch.num_threads", {kRounding, kThreads}},
    {"switch.OMP_", {kRounding, kThreads}},
    {"switch.MKL_NUM_THREADS", {kRounding, kThreads}},
    {"switch.MKL_DYNAMIC", {kRounding, kThreads}},
    {"switch.OPENBLAS_NUM_THREADS", {kRounding, kThreads}},
    {"switch.MKL_CBWR", {kRounding, kInstructions}},
    {"switch.ATEN_CPU_CAPABILITY", {kRounding, kInstructions}},
    {"switch.DNNL_", {kRounding, kInstructions}},
    {"switch.ONEDNN_", {kRounding, kInstructions}},
    {"autotune.", {kRounding, kTuned}},
    {"version.python", {kMay, kPythonItself}},
    {"version.cupti", {kNone, ""}},
    {"version.", {kRounding, kVersion}},
    {"device.", {kRounding, kVersion}},
    {"world size", {kRounding, kWorld}},
    {"distributed.world_size", {kRounding, kWorld}},
    {"distributed.rank", {kMay, kWorld}},
    {"distributed.backend", {kRounding, kBackend}},
    {"compiled", {kRounding, kCompiling}},
    {"command line", {kMay, kOptions}},
    {"host", {kMay, kMachine}},
    {"environment", {kNone, kVariables}},
    {"setting.rules", {kNone, kRecorded}},
    {"setting.CONVTRACE_MODE", {kNone, kRecorded}},
    {"setting.CONVTRACE_STEPS", {kNone, kRecorded}},
    {"setting.CONVTRACE_INCLUDE", {kNone, kRecorded}},
    {"setting.CONVTRACE_EXCLUDE", {kNone, kRecorded}},
    {"setting.CONVTRACE_OPS", {kNone, kRecorded}},
    {"setting.CONVTRACE_COMPILED", {kNone, kRecorded}},
    {"setting.CONVTRACE_ALL_KERNELS", {kNone, kRecorded}},
};

/// Packages that programs import and that compute no value of a tensor: progress, logs, settings,
/// texts, tests, downloads. Their versions excuse nothing. Names as in
/// plain_name(), each between blanks.
constexpr std::string_view kIdlePackages =
    " _pytest attr attrs certifi charset_normalizer click colorama comet_ml coverage cycler "
    "debugpy decorator distutils filelock fsspec git gitdb h11 httpcore httpx hypothesis "
    "idna importlib_metadata iniconfig ipykernel ipython ipywidgets jedi jinja2 jsonschema "
    "jupyter_client jupyter_core loguru markdown markupsafe matplotlib mlflow more_itertools "
    "packaging parso pip pkg_resources platformdirs pluggy prompt_toolkit psutil pydantic "
    "pydantic_core pygments pyparsing pytest pyzmq requests rich seaborn setuptools six "
    "tensorboard tensorboardx tornado tqdm traitlets typer typing_extensions urllib3 wandb "
    "wcwidth werkzeug wheel yaml zipp zmq ";

/// Packages of kernels that others (or torch itself) take up where they are installed, without a
/// word in the program: that one run alone has one is an excuse.
constexpr std::string_view kTakenUpPackages =
    " apex bitsandbytes causal_conv1d deepspeed fla flash_attn flash_attn_interface "
    "flashinfer intel_extension_for_pytorch kernels liger_kernel mamba_ssm sageattention "
    "torch_npu torch_xla torchao transformer_engine unsloth vllm_flash_attn xformers ";

/// "Typing-Extensions" and "typing.extensions" are "typing_extensions".
std::string plain_name(std::string_view package) {
  std::string name(package);
  for (char& c : name)
    c = c == '-' || c == '.' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

Meaning meaning_of_package(std::string_view package, bool both_have_it) {
  const std::string name = ' ' + plain_name(package) + ' ';
  if (kIdlePackages.find(name) != std::string_view::npos) return {kNone, kIdle};
  if (both_have_it) return {kRounding, kPackage};
  const bool taken_up = kTakenUpPackages.find(name) != std::string_view::npos;
  return taken_up ? Meaning{kRounding, kTakenUp} : Meaning{kNone, kImported};
}

bool fits(std::string_view fact, std::string_view name) {
  const bool several = name.ends_with('.') || name.ends_with('_');
  return several ? fact.starts_with(name) : fact == name;
}

}  // namespace

Meaning meaning_of(const PreflightEntry& difference) {
  constexpr std::string_view kOfPackages = "package.", kNumpy = "version.numpy";
  const std::string_view fact = difference.name;
  const bool both_have_it = difference.base && difference.cand;
  if (fact.starts_with(kOfPackages))
    return meaning_of_package(fact.substr(kOfPackages.size()), both_have_it);
  if (fact == kNumpy && !both_have_it) return {kNone, kImported};
  const auto* found =
      std::ranges::find_if(kRows, [fact](const Row& r) { return fits(fact, r.name); });
  return found == std::end(kRows) ? Meaning{} : found->meaning;
}

}  // namespace convtrace::diff
