#include "format/settings/glob.h"

#include <random>
#include <regex>

#include "tests/support/catch.h"

namespace convtrace::settings {
namespace {

/// A part of an expression of few letters, so that names match by chance.
std::string random_expression(std::mt19937& random, int depth) {
  static constexpr const char* kParts[] = {
      "a",   "b",     "ab", "\\.",   ".", "[ab]", "[^a\\]]", "^",     "$",   "\\w",
      "\\b", "(?=a)", "x",  "\\x61", "-", "\\(",  "{2}",     "(b|a)", "[a]", "[[:alpha:]]"};
  static constexpr const char* kQuantifiers[] = {"", "", "", "*", "+", "?", "{2}", "{0,1}", "+?"};
  std::string text;
  for (unsigned parts = 1 + random() % 4; parts > 0; --parts) {
    if (depth > 0 && random() % 5 == 0) {
      text += '(' + random_expression(random, depth - 1) + ')';
    } else {
      text += kParts[random() % std::size(kParts)];
    }
    text += kQuantifiers[random() % std::size(kQuantifiers)];
    if (random() % 12 == 0) text += '|';
  }
  return text;
}

}  // namespace

TEST_CASE("glob: the runs of letters that every match of an expression contains", "[settings]") {
  struct Case {
    std::string_view expression, glob;
  };
  const Case cases[] = {{"gemm", "*gemm*"},
                        {"^void gemm_[0-9]+x", "*void gemm_*x*"},
                        {"vectorized_.*_kernel<10,", "*vectorized_*_kernel<10,*"},
                        {"attn\\.(q|k)_proj$", "*attn.*_proj*"},
                        {"(fwd|bwd)_kernel", "*_kernel*"},
                        {"gemms?", "*gemm*"},
                        {"ab*c", "*a*c*"},
                        {"ab+c", "*ab*c*"},
                        {"ab+?c", "*a*c*"},
                        {"abc{0,2}d", "*ab*d*"},
                        {"conv\\d+_wgrad", "*conv*_wgrad*"},
                        {"gemm|conv", "*"},
                        {"x[[:digit:]]", "*"},
                        {"\\x67emm", "*"},
                        {".*", "*"}};
  for (const Case& c : cases) {
    CAPTURE(c.expression);
    CHECK(glob_around(c.expression).text() == c.glob);
  }
}

// As pattern.cpp searches; of libstdc++ in a time that is not exponential.
#ifdef __GLIBCXX__
constexpr auto kFlags = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto kFlags = std::regex::ECMAScript;
#endif

TEST_CASE("glob: whatever an expression is found in matches the one around it", "[settings]") {
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  size_t found = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string expression = random_expression(random, 2);
    std::regex compiled;
    try {
      compiled = std::regex(expression, kFlags);
    } catch (const std::regex_error&) {
      continue;
    }
    const Glob glob = glob_around(expression);
    for (int names = 0; names < 10; ++names) {
      std::string name;
      for (unsigned letters = random() % 8; letters > 0; --letters)
        name += "abx.-({]"[random() % 8];
      if (!std::regex_search(name, compiled)) continue;
      CAPTURE(expression, name);
      REQUIRE(glob.matches(name));
      found += glob.text() == "*" ? 0 : 1;
    }
  }
  CHECK(found > 100);
}

}  // namespace convtrace::settings
