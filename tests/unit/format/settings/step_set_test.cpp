#include "format/settings/step_set.h"

#include <vector>

#include "tests/support/catch.h"

namespace convtrace::settings {
namespace {

std::vector<uint32_t> members(const StepSet& set, uint32_t below) {
  std::vector<uint32_t> result;
  for (uint32_t i = 0; i < below; ++i) {
    if (set.contains(i)) result.push_back(i);
  }
  return result;
}

}  // namespace

TEST_CASE("step_set: each form contains exactly its steps", "[settings]") {
  struct Case {
    std::string_view text;
    std::vector<uint32_t> below_20;
  };
  const Case cases[] = {
      {"0", {0}},
      {"7", {7}},
      {"5-8", {5, 6, 7, 8}},
      {"3-3", {3}},
      {"17-", {17, 18, 19}},
      {"0|5-6|9", {0, 5, 6, 9}},
      {"4-14,every=5", {4, 9, 14}},
      {"all,every=7", {0, 7, 14}},
      {"2-,every=6", {2, 8, 14}},
      {"9|1|9", {1, 9}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const auto set = StepSet::parse_steps(c.text);
    REQUIRE(set.ok());
    CHECK(members(set.value(), 20) == c.below_20);
  }
}

TEST_CASE("step_set: the default and `all` contain the unknown step too", "[settings]") {
  CHECK(StepSet().contains(0xFFFFFFFF));
  CHECK(StepSet::parse_steps("all").value().contains(0xFFFFFFFF));
  CHECK_FALSE(StepSet::parse_steps("0-4294967294").value().contains(0xFFFFFFFF));
}

TEST_CASE("step_set: a bad text is refused at its first bad character", "[settings]") {
  struct Case {
    std::string_view text;
    int64_t at;
  };
  const Case cases[] = {{"", 0},
                        {"x", 0},
                        {"5-3", 2},
                        {"1||2", 2},
                        {"1|", 2},
                        {"1,2", 1},
                        {" 1", 0},
                        {"1 ", 1},
                        {"-3", 0},
                        {"1-2-3", 3},
                        {"5,every=0", 8},
                        {"5,every=", 8},
                        {"5,evry=2", 1},
                        {"all-3", 3},
                        {"4294967295", 0},
                        {"99999999999", 0},
                        {"1-99999999999", 2}};
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const auto set = StepSet::parse_steps(c.text);
    REQUIRE_FALSE(set.ok());
    CHECK(set.status().code == StatusCode::kInvalidArgument);
    CHECK(set.status().detail == c.at);
  }
}

TEST_CASE("step_set: ranks are separated by commas and know no `every`", "[settings]") {
  CHECK(members(StepSet::parse_ranks("0-3,7").value(), 10) == std::vector<uint32_t>{0, 1, 2, 3, 7});
  CHECK(members(StepSet::parse_ranks("all").value(), 3) == std::vector<uint32_t>{0, 1, 2});
  CHECK_FALSE(StepSet::parse_ranks("0|1").ok());
  CHECK_FALSE(StepSet::parse_ranks("0-8,every=2").ok());
}

TEST_CASE("step_set: printing gives back what was parsed", "[settings]") {
  for (const std::string_view text : {"all", "0", "5-8", "5-", "0|5-8|100-120,every=50"})
    CHECK(StepSet::parse_steps(text).value().steps_text() == text);
  for (const std::string_view text : {"all", "0-3,7", "2-"})
    CHECK(StepSet::parse_ranks(text).value().ranks_text() == text);
}

}  // namespace convtrace::settings
