#include "tools/common/escape.h"

#include <cstdint>
#include <cstdio>

namespace convtrace::tools {
namespace {

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 1;
  bool valid = false;
};

/// Decodes the first code point of a text that is not empty; overlong forms, surrogates and values
/// beyond U+10FFFF are invalid (RFC 3629).
CodePoint decode_first(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {lead, 1, false};
  uint32_t value = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {lead, 1, false};
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[length] || surrogate || value > 0x10FFFF) return {lead, 1, false};
  return {value, length, true};
}

bool is_unsafe(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0)  // C0, DEL, C1
         || (c >= 0x200E && c <= 0x200F)      // directional marks
         || (c >= 0x2028 && c <= 0x202E)      // separators, embeddings, overrides
         || (c >= 0x2066 && c <= 0x2069)      // isolates
         || c == 0xFEFF;                      // invisible
}

std::string hex_escape(CodePoint point) {
  char text[16];
  const char* form = point.value <= 0xFF ? "\\x%02x" : "\\u{%x}";
  std::snprintf(text, sizeof text, form, static_cast<unsigned>(point.value));
  return text;
}

}  // namespace

std::string escape_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = decode_first(text);
    if (!point.valid || is_unsafe(point.value)) {
      out += hex_escape(point);
    } else if (point.value == '\\') {
      out += "\\\\";
    } else {
      out += text.substr(0, point.bytes);
    }
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::string quote_markup(std::string_view safe_text) {
  std::string out;
  for (const char c : safe_text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string escape_markup(std::string_view text) { return quote_markup(escape_text(text)); }

std::string escape_csv(std::string_view text) {
  std::string out = "\"";
  if (!text.empty() && std::string_view("=+-@").find(text.front()) != std::string_view::npos)
    out += '\'';
  for (const char c : escape_text(text)) {
    out += c;
    if (c == '"') out += c;
  }
  return out + '"';
}

std::string quote_toml(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const CodePoint point = decode_first(text);
    if (!point.valid) {
      out += "\\uFFFD";
    } else if (is_unsafe(point.value)) {
      char escaped[16];
      std::snprintf(escaped, sizeof escaped, "\\u%04X", static_cast<unsigned>(point.value));
      out += escaped;
    } else {
      if (point.value == '"' || point.value == '\\') out += '\\';
      out += text.substr(0, point.bytes);
    }
    text.remove_prefix(point.bytes);
  }
  return out + '"';
}

std::string quote_shell(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(text);
  std::string out = "'";
  while (!text.empty()) {
    const CodePoint point = decode_first(text);
    if (!point.valid || is_unsafe(point.value)) {
      out += hex_escape(point);
    } else if (point.value == '\'') {
      out += "'\\''";
    } else {
      out += text.substr(0, point.bytes);
    }
    text.remove_prefix(point.bytes);
  }
  return out + '\'';
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quote_shell(word);
  return line;
}

}  // namespace convtrace::tools
