#include "interposer/core/observer/kernel_message.h"

#include <vector>

namespace convtrace::engine {
namespace {

constexpr uint32_t kMaxParams = 4096;  // 32 KiB of parameters, 8 bytes each

}  // namespace

std::optional<cupti::KernelSignature> parse_kernel(const Message& message,
                                                   const format::Definitions& definitions) {
  const auto fixed = message.as<convtrace_kernel>();
  if (!fixed || fixed->param_count > kMaxParams) return std::nullopt;
  std::vector<convtrace_kernel_param> params(fixed->param_count);
  if (!message.copy(sizeof *fixed, params.size(), params.data())) return std::nullopt;
  cupti::KernelSignature signature;
  signature.kernel = definitions.text(format::StringId{fixed->name});
  for (const convtrace_kernel_param& param : params) {
    if (param.dtype >= format::kEnumCount<format::DType>) return std::nullopt;
    signature.params.push_back({format::StringId{param.slot}, param.is_pointer != 0,
                                static_cast<format::DType>(param.dtype)});
  }
  return signature;
}

}  // namespace convtrace::engine
