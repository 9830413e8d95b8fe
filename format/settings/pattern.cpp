#include "format/settings/pattern.h"

#include <algorithm>
#include <optional>
#include <regex>

#include "format/settings/glob.h"

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

/// A back-reference such as "\1" needs backtracking, which takes exponential time.
bool has_back_reference(std::string_view expression) {
  for (size_t at = 0; (at = expression.find('\\', at)) != std::string_view::npos; at += 2) {
    const char next = at + 1 < expression.size() ? expression[at + 1] : 0;
    if (next >= '1' && next <= '9') return true;
  }
  return false;
}

/// libstdc++ reads the number of a repetition or a back-reference into a long without a bound.
bool has_absurd_number(std::string_view expression) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr size_t kMostDigits = 9;
  for (size_t at = 0; (at = expression.find_first_of("{,\\", at)) != std::string_view::npos;) {
    const size_t end = std::min(expression.find_first_not_of(kDigits, ++at), expression.size());
    if (end - at > kMostDigits) return true;
  }
  return false;
}

/// libstdc++ compiles nested groups by recursion.
bool is_nested_deeply(std::string_view expression) {
  constexpr int kDeepest = 100;
  int depth = 0, deepest = 0;
  for (const char letter : expression) {
    depth += letter == '(' ? 1 : letter == ')' ? -1 : 0;
    deepest = std::max(deepest, depth);
  }
  return deepest > kDeepest;
}

}  // namespace

struct Pattern::Compiled {
  Glob glob;  ///< the pattern itself, or the glob around an expression
  std::optional<std::regex> expression;
};

Result<Pattern> Pattern::compile(std::string_view text) {
  const Status bad = Status::make(StatusCode::kInvalidArgument, "pattern");
  if (text.empty()) return bad;
  Pattern pattern;
  pattern.text_ = text;
  if (!text.starts_with(kRegexPrefix)) {
    pattern.compiled_ = std::make_shared<const Compiled>(Compiled{Glob(text), std::nullopt});
    return pattern;
  }
  const std::string_view expression = text.substr(kRegexPrefix.size());
  if (has_absurd_number(expression) || has_back_reference(expression) ||
      is_nested_deeply(expression))
    return bad;
  try {
    // libstdc++ reads the byte behind a "(" at the end, so the text must be terminated.
    const char* const terminated = pattern.text_.c_str() + kRegexPrefix.size();
    std::regex compiled(terminated, expression.size(), kRegexFlags);
    pattern.compiled_ =
        std::make_shared<const Compiled>(Compiled{glob_around(expression), std::move(compiled)});
  } catch (const std::exception&) {  // std::regex_error, or memory for an absurd repetition count
    return bad;
  }
  return pattern;
}

bool Pattern::matches(std::string_view name) const noexcept {
  const auto& [glob, expression] = *compiled_;
  if (!expression) return glob.matches(name);
  name = name.substr(0, kMaxSearchedBytes);
  if (!glob.matches(name)) return false;
  try {
    return std::regex_search(name.begin(), name.end(), *expression);
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
      if (!pattern.ok())
        return Status::make(StatusCode::kInvalidArgument, "pattern", static_cast<int64_t>(begin));
      patterns.push_back(std::move(pattern).value());
    }
    begin = end + 1;
  }
  return patterns;
}

}  // namespace convtrace::settings
