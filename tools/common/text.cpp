#include "tools/common/text.h"

#include <cxxabi.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace convtrace::tools {

std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "nan";  // printf shows its sign bit, which means nothing
  char text[48];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string count_text(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

std::string counted(uint64_t value, std::string_view noun) {
  return count_text(value) + ' ' + std::string(noun) + (value == 1 ? "" : "s");
}

std::string status_text(const Status& status) {
  // The system's own words say more than "input/output error".
  if (status.code == StatusCode::kIoError && status.detail != 0) {
    return std::strerror(static_cast<int>(status.detail));
  }
  std::string text = to_string(status.code);
  switch (status.code) {
    case StatusCode::kNoSpace:
      if (status.detail != 0) {
        text += ": ";
        text += std::strerror(static_cast<int>(status.detail));
      }
      break;
    case StatusCode::kUnsupportedVersion:
    case StatusCode::kUnsupportedFeature:
      text += " (" + std::to_string(status.detail) + ')';
      break;
    default:
      break;
  }
  return text;
}

std::string demangled(std::string_view name) {
  if (!name.starts_with("_Z")) return std::string(name);
  int failure = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &failure), std::free);
  return failure == 0 && text != nullptr ? std::string(text.get()) : std::string(name);
}

std::string device_text(format::Device device) {
  switch (device.type) {
    case format::Device::Type::kCpu:
      return "cpu";
    case format::Device::Type::kCuda:
      return "cuda:" + std::to_string(device.index);
    case format::Device::Type::kOther:
      break;
  }
  return "other:" + std::to_string(device.index);
}

std::string uuid_text(const std::array<uint8_t, 16>& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : uuid) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

}  // namespace convtrace::tools
