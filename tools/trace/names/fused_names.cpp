#include "tools/trace/names/fused_names.h"

namespace convtrace::diff {

FusedNames usual_fused_names() {
  return {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
          {"gate_up_proj", {"gate_proj", "up_proj"}},
          {"qkv", {"q", "k", "v"}},
          {"linear_qkv", {"q_proj", "k_proj", "v_proj"}},
          {"linear_fc1", {"gate_proj", "up_proj"}}};
}

std::string beside(std::string_view path, std::string_view name) {
  const size_t dot = path.rfind('.');
  return std::string(dot == std::string_view::npos ? "" : path.substr(0, dot + 1)) +
         std::string(name);
}

}  // namespace convtrace::diff
