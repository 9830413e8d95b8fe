#include "format/settings/nearest.h"

#include "tests/support/catch.h"

namespace convtrace::settings {

TEST_CASE("nearest: distance counts insertions, deletions, substitutions and swaps", "[settings]") {
  struct Case {
    std::string_view a, b;
    size_t distance;
  };
  const Case cases[] = {{"", "", 0},          {"", "abc", 3},        {"abc", "", 3},
                        {"steps", "step", 1}, {"setps", "steps", 1}, {"kitten", "sitting", 3},
                        {"MODE", "mode", 0},  {"ab", "ba", 1},       {"abc", "xyz", 3}};
  for (const Case& c : cases) {
    CAPTURE(c.a, c.b);
    CHECK(edit_distance(c.a, c.b) == c.distance);
    CHECK(edit_distance(c.b, c.a) == c.distance);
  }
}

TEST_CASE("nearest: the closest candidate wins, the first of equals", "[settings]") {
  const std::string_view names[] = {"steps", "ranks", "mode"};
  CHECK(nearest("stesp", names) == "steps");
  CHECK(nearest("rank", names) == "ranks");
  CHECK(nearest("sanks", names) == "ranks");
  CHECK(nearest("x", {}).empty());
}

TEST_CASE("nearest: what is like none of them gets no candidate", "[settings]") {
  const std::string_view names[] = {"steps", "ranks", "mode"};
  for (const char* word : {"x", "zzzzz", "overwrite"}) CHECK(nearest(word, names).empty());
  CHECK(suggestion("stesp", names, "none") == "the nearest is steps");
  CHECK(suggestion("overwrite", names, "none") == "none");
}

TEST_CASE("nearest: quoted text cannot break a line and stays short", "[settings]") {
  CHECK(quoted("a\nb\x1b[31m") == "\"a?b?[31m\"");
  CHECK(quoted(std::string(500, 'x')).size() == 85);
}

}  // namespace convtrace::settings
