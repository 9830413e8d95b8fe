#include "format/settings/glob.h"

#include <string.h>

#include <algorithm>

namespace convtrace::settings {
namespace {

/// Linear in practice: on a mismatch only the last `*` is extended.
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

std::string_view longest_literal(std::string_view glob) noexcept {
  std::string_view longest;
  for (size_t begin = 0; begin < glob.size();) {
    const size_t end = std::min(glob.find_first_of("*?", begin), glob.size());
    if (end - begin > longest.size()) longest = glob.substr(begin, end - begin);
    begin = end + 1;
  }
  return longest;
}

/// Collects runs of letters that every match contains, one after another.
class Runs {
 public:
  void add(char letter) { glob_ += letter; }
  /// Removes the last letter, which may be absent in a match.
  void drop_last() {
    if (glob_.back() != '*') glob_.pop_back();
  }
  void end() {
    if (glob_.back() != '*') glob_ += '*';
  }
  [[nodiscard]] std::string glob() {
    end();
    return std::move(glob_);
  }

 private:
  std::string glob_ = "*";
};

constexpr size_t kNone = std::string_view::npos;
constexpr std::string_view kEscapedLetters = "^$\\.*+?()[]{}|/-";
constexpr std::string_view kClassEscapes = "dDwWsSbB";

/// @return the position of the bracket that ends the class at `begin`; kNone if there is none, or
/// if the class contains another bracket.
size_t end_of_class(std::string_view text, size_t begin) {
  size_t i = begin + 1;
  if (i < text.size() && text[i] == '^') ++i;
  if (i < text.size() && text[i] == ']') return kNone;
  for (; i < text.size() && text[i] != ']'; ++i) {
    if (text[i] == '[') return kNone;
    if (text[i] == '\\') ++i;
  }
  return i < text.size() ? i : kNone;
}

/// @return the same for a group.
size_t end_of_group(std::string_view text, size_t begin) {
  size_t depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '[') {
      i = end_of_class(text, i);
      if (i == kNone) return kNone;
    } else if (text[i] == '(') {
      ++depth;
    } else if (text[i] == ')' && --depth == 0) {
      return i;
    }
  }
  return kNone;
}

bool is_one_of(std::string_view letters, char letter) { return letters.find(letter) != kNone; }

}  // namespace

Glob::Glob(std::string_view text) : text_(text), literal_(longest_literal(text)) {}

bool Glob::matches(std::string_view name) const noexcept {
  return memmem(name.data(), name.size(), literal_.data(), literal_.size()) != nullptr &&
         glob_matches(text_, name);
}

Glob glob_around(std::string_view expression) {
  Glob all("*");
  Runs runs;
  for (size_t i = 0; i < expression.size(); ++i) {
    switch (const char letter = expression[i]) {
      case '|': return all;
      case '*':
      case '?':
      case '{': runs.drop_last(); [[fallthrough]];
      case '.':
      case '^':
      case '$':
        runs.end();
        if (letter == '{') i = std::min(expression.find('}', i), expression.size());
        break;
      case '+':
        // A second quantifier may allow zero of it.
        if (is_one_of("*?{", expression[std::min(i + 1, expression.size() - 1)])) runs.drop_last();
        runs.end();
        break;
      case '(':
      case '[':
        runs.end();
        i = letter == '(' ? end_of_group(expression, i) : end_of_class(expression, i);
        if (i == kNone) return all;
        break;
      case '\\':
        if (++i == expression.size()) return all;
        if (is_one_of(kEscapedLetters, expression[i])) {
          runs.add(expression[i]);
        } else if (is_one_of(kClassEscapes, expression[i])) {
          runs.end();
        } else {
          return all;  // such as \x41
        }
        break;
      default: runs.add(letter);
    }
  }
  return Glob(runs.glob());
}

}  // namespace convtrace::settings
