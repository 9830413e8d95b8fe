#include "format/settings/pattern.h"

#include <string.h>

#include <algorithm>
#include <regex>

namespace convtrace::settings {
namespace {

constexpr std::string_view kRegexPrefix = "re:";

/// Kernel names are foreign text of any length. libstdc++'s default matcher recurses once per
/// character; its polynomial one does not, and rejects what would need backtracking.
#ifdef __GLIBCXX__
constexpr auto kRegexFlags =
    std::regex::ECMAScript | std::regex::optimize | std::regex_constants::__polynomial;
#else
constexpr auto kRegexFlags = std::regex::ECMAScript | std::regex::optimize;
#endif
constexpr size_t kMaxSearchedBytes = 16 * 1024;

/// Linear in practice: on a mismatch only the last `*` is tried again.
bool glob_matches(std::string_view glob, std::string_view name) noexcept {
  size_t g = 0, n = 0;
  size_t star = std::string_view::npos, star_name = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_name = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

/// @return the longest text without a wildcard: looking for it rules out most names at once.
std::string_view longest_literal(std::string_view glob) noexcept {
  std::string_view longest;
  for (size_t begin = 0; begin < glob.size();) {
    const size_t end = std::min(glob.find_first_of("*?", begin), glob.size());
    if (end - begin > longest.size()) longest = glob.substr(begin, end - begin);
    begin = end + 1;
  }
  return longest;
}

bool contains(std::string_view name, std::string_view part) noexcept {
  return memmem(name.data(), name.size(), part.data(), part.size()) != nullptr;
}

}  // namespace

struct Pattern::Compiled {
  std::regex expression;
};

Result<Pattern> Pattern::compile(std::string_view text) {
  const Status bad = Status::make(StatusCode::kInvalidArgument, "pattern");
  if (text.empty()) return bad;
  Pattern pattern;
  pattern.text_ = text;
  if (!text.starts_with(kRegexPrefix)) {
    pattern.literal_ = longest_literal(text);
    return pattern;
  }
  const std::string_view expression = text.substr(kRegexPrefix.size());
  try {
    pattern.compiled_ = std::make_shared<const Compiled>(
        Compiled{std::regex(expression.begin(), expression.end(), kRegexFlags)});
  } catch (const std::exception&) {  // std::regex_error, or memory for an absurd repetition count
    return bad;
  }
  return pattern;
}

bool Pattern::matches(std::string_view name) const noexcept {
  if (!compiled_) return contains(name, literal_) && glob_matches(text_, name);
  name = name.substr(0, kMaxSearchedBytes);
  try {
    return std::regex_search(name.begin(), name.end(), compiled_->expression);
  } catch (const std::exception&) {
    return false;
  }
}

Result<std::vector<Pattern>> compile_patterns(std::string_view text) {
  std::vector<Pattern> patterns;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(';', begin), text.size());
    if (end != begin) {
      Result<Pattern> pattern = Pattern::compile(text.substr(begin, end - begin));
      if (!pattern.ok()) {
        return Status::make(StatusCode::kInvalidArgument, "pattern", static_cast<int64_t>(begin));
      }
      patterns.push_back(std::move(pattern).value());
    }
    begin = end + 1;
  }
  return patterns;
}

}  // namespace convtrace::settings
