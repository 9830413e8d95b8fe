#include "cupti/kernels/kernel_name.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "format/base/demangle.h"

namespace convtrace::cupti {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_identifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

size_t skip_digits(std::string_view text, size_t pos) {
  while (pos < text.size() && is_digit(text[pos])) ++pos;
  return pos;
}

/// `{lambda(float)#2}` and `{unnamed type#3}`: the number counts those before it in the file.
void erase_closure_numbers(std::string& text) {
  for (size_t pos = 0; (pos = text.find('#', pos)) != std::string::npos; ++pos) {
    const size_t end = skip_digits(text, pos + 1);
    if (end > pos + 1 && end < text.size() && text[end] == '}') text.erase(pos, end - pos);
  }
}

/// nvcc's tag of an extended lambda, `__nv_dl_tag<function type, &function, 7u>`: the last argument
/// is its number.
void erase_device_lambda_numbers(std::string& text) {
  constexpr std::string_view kTag = "__nv_dl_tag<";
  for (size_t pos = 0; (pos = text.find(kTag, pos)) != std::string::npos;) {
    pos += kTag.size();
    int depth = 1;
    size_t last_comma = std::string::npos;
    size_t end = pos;
    for (; end < text.size() && depth > 0; ++end) {
      const char c = text[end];
      if (c == '<' || c == '(') ++depth;
      if (c == '>' || c == ')') --depth;
      if (c == ',' && depth == 1) last_comma = end;
    }
    if (depth != 0 || last_comma == std::string::npos) continue;
    const size_t digits = last_comma + 2;  // ", "
    const size_t after = skip_digits(text, digits);
    if (after > digits && text.compare(after, 2, "u>") == 0)
      text.erase(last_comma, after + 1 - last_comma);
  }
}

/// Namespaces that contain properties of a build: `_INTERNAL_1a2b3c4d_7_file_cu_...` of nvcc for
/// the static names of a file, with a hash of its path; `CUB_200700_800_NS`, `THRUST_...` and
/// `_V_300001_SM_1000`, with the library's version and the architectures; `__4` of libcu++.
bool names_a_build(std::string_view scope) {
  constexpr std::string_view kVersioned[] = {"CUB_", "THRUST_", "_V_", "__"};
  if (scope.starts_with("_INTERNAL_")) return true;
  return std::any_of(std::begin(kVersioned), std::end(kVersioned), [scope](std::string_view start) {
    return scope.starts_with(start) && scope.size() > start.size() && is_digit(scope[start.size()]);
  });
}

void erase_build_namespaces(std::string& text) {
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size(); ++pos) {
    if (is_identifier(text[pos])) continue;
    if (text.compare(pos, 2, "::") == 0 &&
        names_a_build(std::string_view(text).substr(begin, pos - begin))) {
      text.erase(begin, pos + 2 - begin);
      pos = begin - 1;  // continue with the text that is there now
    } else {
      begin = pos + 1;
    }
  }
}

/// Numba numbers the overloads in a process: `add[abi:v12][abi:cw51c...]`.
void erase_overload_numbers(std::string& text) {
  constexpr std::string_view kTag = "[abi:v";
  for (size_t pos = 0; (pos = text.find(kTag, pos)) != std::string::npos; ++pos) {
    const size_t end = skip_digits(text, pos + kTag.size());
    if (end > pos + kTag.size() && end < text.size() && text[end] == ']')
      text.erase(pos, end + 1 - pos);
  }
}

/// Older Triton appends one group a parameter: its position, then `d` (divisible by 16), `c`
/// (constant 1) or `e` (even), as in `add_kernel_0d1d2d3de`.
void erase_triton_signature(std::string& text) {
  const size_t pos = text.rfind('_');
  if (pos == std::string::npos || pos + 1 == text.size()) return;
  size_t at = pos + 1;
  bool has_letter = false;
  for (unsigned expected = 0; at < text.size(); ++expected) {
    const std::string number = std::to_string(expected);
    if (text.compare(at, number.size(), number) != 0) return;
    at += number.size();
    while (at < text.size() && (text[at] == 'd' || text[at] == 'c' || text[at] == 'e')) {
      has_letter = true;
      ++at;
    }
  }
  if (has_letter) text.resize(pos);
}

void erase_last_number(std::string& text) {
  const size_t pos = text.rfind('_');
  if (pos == std::string::npos || pos + 1 == text.size()) return;
  if (skip_digits(text, pos + 1) == text.size()) text.resize(pos);
}

/// Generated kernels are numbered in order of generation: `triton_poi_fused_add_12` by
/// TorchInductor, `loop_add_fusion_3` and `gemm_fusion_dot_17_0` by XLA.
void erase_generated_numbers(std::string& text) {
  if (text.starts_with("triton_")) {
    erase_last_number(text);
  } else if (text.starts_with("fusion_") || text.find("_fusion_") != std::string::npos) {
    erase_last_number(text);
    erase_last_number(text);
  }
}

/// `__nv_static_41__41_tmpxft_..._file_cpp1_ii_hash__Z6kernelPf`: older nvcc's name for a static
/// kernel, with the number of a process in it.
std::string_view without_static_prefix(std::string_view name) {
  const size_t mangled = name.starts_with("__nv_static_") ? name.find("__Z") : name.npos;
  return mangled == name.npos ? name : name.substr(mangled + 1);
}

}  // namespace

std::string demangle(const std::string& name) {
  const std::string mangled(without_static_prefix(name));
  const std::string text = demangled(mangled);
  return text == mangled ? name : text;
}

std::string kernel_family(const std::string& demangled) {
  std::string family = demangled;
  erase_all(family, "(anonymous namespace)::");
  erase_build_namespaces(family);
  erase_closure_numbers(family);
  erase_device_lambda_numbers(family);
  erase_overload_numbers(family);
  const bool plain_identifier = family.find_first_of("(<: ") == std::string::npos;
  if (plain_identifier) {
    erase_triton_signature(family);
    erase_generated_numbers(family);
  }
  return family.empty() ? demangled : family;
}

}  // namespace convtrace::cupti
