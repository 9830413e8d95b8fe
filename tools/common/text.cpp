#include "tools/common/text.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "format/base/demangle.h"

namespace convtrace::tools {

std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "nan";  // printf shows its sign bit, which means nothing
  char text[48];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

namespace {

/// Fixed form with `digits` significant digits, thousands apart. @pre 1e-6 <= value < 1e15.
std::string plain_text(double value, int digits) {
  const int lead = static_cast<int>(std::floor(std::log10(value))) + 1;  // digits before the point
  const double unit = std::pow(10.0, std::max(0, lead - digits));
  const double rounded = std::round(value / unit) * unit;
  if (lead >= digits) return count_text(static_cast<uint64_t>(rounded));
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits - lead, value);
  std::string_view shown = text;
  shown = shown.substr(0, shown.find_last_not_of('0') + 1);
  if (shown.ends_with('.')) shown.remove_suffix(1);
  return std::string(shown);
}

}  // namespace

std::string percent_text(double share, int digits) {
  constexpr double kLeast = 1e-4, kMost = 1e12;
  const double percent = 100 * share;
  if (!std::isfinite(percent) || percent <= 0) return number_text(percent) + " %";
  if (percent < kLeast) return "under 0.0001 %";
  if (percent >= kMost) return "over 1,000,000,000,000 %";
  for (; digits < 7; ++digits) {
    const std::string text = plain_text(percent, digits);
    if (share >= 1 || text != "100") return text + " %";
  }
  return "over 99.99 %";
}

std::string times_text(double factor) {
  if (!(factor > 0.001) || !std::isfinite(factor)) return number_text(factor, 3);
  return factor >= 1e9 ? "over 1,000,000,000" : plain_text(factor, 3);
}

std::string count_text(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

std::string counted(uint64_t value, std::string_view noun) {
  return count_text(value) + ' ' + std::string(noun) + (value == 1 ? "" : "s");
}

std::string module_text(std::string_view scope) {
  return scope.empty() ? "the root module" : "module " + std::string(scope);
}

std::string status_text(const Status& status) {
  // The system's own words say more than "input/output error".
  if (status.code == StatusCode::kIoError && status.detail != 0)
    return std::strerror(static_cast<int>(status.detail));
  std::string text = to_string(status.code);
  switch (status.code) {
    case StatusCode::kNoSpace:
      if (status.detail != 0) {
        text += ": ";
        text += std::strerror(static_cast<int>(status.detail));
      }
      break;
    case StatusCode::kUnsupportedVersion:
    case StatusCode::kUnsupportedFeature: text += " (" + std::to_string(status.detail) + ')'; break;
    default: break;
  }
  return text;
}

std::string demangled(std::string_view name) { return convtrace::demangled(std::string(name)); }

namespace {

/// @return where the parameter list of a function's name begins; its size: there is none.
size_t parameters_of(std::string_view name) {
  if (!name.ends_with(')')) return name.size();
  int depth = 0;
  for (size_t at = name.size(); at-- > 1;) {
    if (name[at] == ')') ++depth;
    if (name[at] == '(' && --depth == 0) return at;
  }
  return name.size();
}

/// @return the begin of the name after a return type: after the last space outside all brackets.
size_t behind_return_type(std::string_view name) {
  size_t begin = 0;
  int depth = 0;
  for (size_t at = 0; at < name.size(); ++at) {
    const char c = name[at];
    if (c == '<' || c == '(' || c == '{') ++depth;
    if (c == '>' || c == ')' || c == '}') --depth;
    if (c == ' ' && depth == 0) begin = at + 1;
  }
  return depth == 0 ? begin : 0;
}

/// @return the nearest place at or before `at` where a character of UTF-8 begins.
size_t character_at(std::string_view text, size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

std::string kernel_title(std::string_view name) {
  constexpr size_t kMost = 120, kHead = 60;
  constexpr std::string_view kMore = "...";
  std::string title = demangled(name);
  if (const size_t end = parameters_of(title); end < title.size()) {
    title.erase(end);
    title.erase(0, behind_return_type(title));
  }
  for (const std::string_view part : {"(anonymous namespace)::", "at::native::"})
    erase_all(title, part);
  if (title.size() <= kMost) return title;
  const size_t head = character_at(title, kHead);
  const size_t tail = character_at(title, title.size() - (kMost - kMore.size() - kHead));
  return title.substr(0, head) + std::string(kMore) + title.substr(tail);
}

std::string device_text(format::Device device) {
  switch (device.type) {
    case format::Device::Type::kCpu: return "cpu";
    case format::Device::Type::kCuda: return "cuda:" + std::to_string(device.index);
    case format::Device::Type::kOther: break;
  }
  return "other:" + std::to_string(device.index);
}

std::vector<std::string> stack_texts(const format::Definitions& definitions,
                                     format::StackId stack) {
  std::vector<std::string> frames;
  for (const format::StringId frame : definitions.stack(stack))
    frames.emplace_back(definitions.text(frame));
  return frames;
}

std::string uuid_text(const std::array<uint8_t, 16>& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : uuid) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

}  // namespace convtrace::tools
