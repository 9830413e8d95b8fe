#include "interposer/core/control/process_facts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <span>

#include "format/base/bytes.h"
#include "format/base/checksum.h"

namespace convtrace::engine {
namespace {

constexpr std::string_view kMask = "***";
constexpr size_t kMaxCommandLineBytes = 256 * 1024;

/// Environment variables that change results of kernels, or the order of kernels.
constexpr std::string_view kNumericsNames[] = {"ATEN_CPU_CAPABILITY",
                                               "CUBLASLT_WORKSPACE_SIZE",
                                               "CUBLAS_WORKSPACE_CONFIG",
                                               "CUDA_LAUNCH_BLOCKING",
                                               "CUDA_VISIBLE_DEVICES",
                                               "DNNL_DEFAULT_FPMATH_MODE",
                                               "DNNL_MAX_CPU_ISA",
                                               "MKL_CBWR",
                                               "MKL_DYNAMIC",
                                               "MKL_NUM_THREADS",
                                               "NCCL_ALGO",
                                               "NCCL_PROTO",
                                               "NVIDIA_TF32_OVERRIDE",
                                               "OMP_DYNAMIC",
                                               "OMP_NUM_THREADS",
                                               "ONEDNN_DEFAULT_FPMATH_MODE",
                                               "ONEDNN_MAX_CPU_ISA",
                                               "OPENBLAS_NUM_THREADS",
                                               "PYTHONHASHSEED",
                                               "PYTORCH_CUDA_ALLOC_CONF",
                                               "TF_CUDNN_DETERMINISTIC",
                                               "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
                                               "TORCH_BLAS_PREFER_CUBLASLT",
                                               "XLA_FLAGS"};
static_assert(std::is_sorted(std::begin(kNumericsNames), std::end(kNumericsNames)));

/// Names, or with a '_' at the end prefixes, of variables that differ between two starts of one program
/// (shell, terminal, session, job), that are recorded elsewhere, or that are convtrace's.
constexpr std::string_view kOfStart[] = {
    "_",          "COLUMNS",        "CONVTRACE",     "CONVTRACE_",  "DBUS_",       "DISPLAY",
    "HOSTNAME",   "HISTFILE",       "INVOCATION_ID", "LINES",       "LSB_",        "LD_PRELOAD",
    "LS_COLORS",  "JOURNAL_STREAM", "MASTER_ADDR",   "MASTER_PORT", "OLDPWD",      "PBS_",
    "OMPI_",      "PMI_",           "PMIX_",         "HYDRA_",      "KUBERNETES_", "PWD",
    "PYTHONPATH", "SHLVL",          "SLURM_",        "SSH_",        "STY",         "TERM",
    "TMUX",       "TMUX_",          "TORCHELASTIC_", "VSCODE_",     "WINDOWID",    "XDG_"};

bool is_of_start(std::string_view name) {
  return std::ranges::any_of(kOfStart, [name](std::string_view one) {
    return one.size() > 1 && one.ends_with('_') ? name.starts_with(one) : name == one;
  });
}

bool contains_ignoring_case(std::string_view text, std::string_view word) {
  const auto equal = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  };
  return std::search(text.begin(), text.end(), word.begin(), word.end(), equal) != text.end();
}

/// "--api-key" of "--api-key=abc"; the whole argument when there is no '='.
std::string_view name_part(std::string_view argument) {
  return argument.substr(0, argument.find_first_of("=:"));
}

bool is_option(std::string_view argument) { return argument.size() > 1 && argument[0] == '-'; }

}  // namespace

bool is_secret_name(std::string_view name) {
  constexpr std::string_view kWords[] = {"token",  "key",        "passw",      "secret",
                                         "passwd", "credential", "passphrase", "auth"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [name](std::string_view word) { return contains_ignoring_case(name, word); });
}

std::vector<std::string> mask_secrets(std::vector<std::string> command_line) {
  bool hide_next = false;
  for (size_t i = 1; i < command_line.size(); ++i) {
    std::string& argument = command_line[i];
    if (hide_next && !is_option(argument)) {
      argument = kMask;
      hide_next = false;
      continue;
    }
    const std::string_view name = name_part(argument);
    const bool secret = is_secret_name(name) && name.find('/') == std::string_view::npos;
    hide_next = secret && name.size() == argument.size() && is_option(argument);
    if (secret && name.size() < argument.size())
      argument = std::string(argument.substr(0, name.size() + 1)) + std::string(kMask);
  }
  return command_line;
}

std::vector<std::string> read_command_line() {
  std::string text;
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char buffer[4096];
  for (;;) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || text.size() > kMaxCommandLineBytes) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  close(fd);
  std::vector<std::string> arguments;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    arguments.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return arguments;
}

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "unknown";
  return name;
}

std::vector<std::pair<std::string, std::string>> numerics_switches(const char* const* environment) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    const std::string_view name = entry.substr(0, equals);
    if (equals == std::string_view::npos ||
        !std::binary_search(std::begin(kNumericsNames), std::end(kNumericsNames), name)) {
      continue;
    }
    facts.emplace_back("switch." + std::string(name), entry.substr(equals + 1));
  }
  std::sort(facts.begin(), facts.end());
  return facts;
}

std::string hashed_environment(const char* const* environment) {
  constexpr size_t kMostBytes = 64 * 1024;
  std::vector<std::string> entries;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.size() == entry.size() || is_of_start(name) || is_secret_name(name) ||
        std::ranges::binary_search(kNumericsNames, name) || name.find(' ') != name.npos)
      continue;
    const auto value = std::as_bytes(std::span(entry.substr(name.size() + 1)));
    char hash[16];
    std::snprintf(hash, sizeof hash, "=#%08" PRIx32, checksum32(value));
    entries.push_back(std::string(name) + hash);
  }
  std::ranges::sort(entries);
  std::string all;
  for (const std::string& entry : entries) all += (all.empty() ? "" : " ") + entry;
  return all.size() <= kMostBytes ? all : "";
}

format::TraceMeta process_meta(const char* const* environment, bool with_environment) {
  format::TraceMeta meta;
  meta.tool_version = CONVTRACE_VERSION;
  meta.host = host_name();
  meta.pid = static_cast<uint32_t>(getpid());
  meta.command_line = mask_secrets(read_command_line());
  meta.facts = numerics_switches(environment);
  if (with_environment) meta.facts.emplace_back("run.environment", hashed_environment(environment));
  std::error_code ignored;  // set where the directory was removed
  const std::string directory = std::filesystem::current_path(ignored).string();
  if (!directory.empty()) meta.facts.emplace_back("run.directory", directory);
  return meta;
}

}  // namespace convtrace::engine
