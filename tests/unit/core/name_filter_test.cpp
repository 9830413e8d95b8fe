#include "interposer/core/control/name_filter.h"

#include <algorithm>

#include "tests/support/catch.h"

namespace convtrace::engine {
namespace {

struct FilterFixture {
  explicit FilterFixture(const char* include, const char* exclude = "")
      : filter(settings::compile_patterns(include).value(),
               settings::compile_patterns(exclude).value(), definitions) {}

  bool scope(const char* name) { return filter.wants(definitions.intern(name)); }
  bool kernel(const char* name, const char* family) {
    return filter.wants(
        definitions.intern_kernel({definitions.intern(name), definitions.intern(family)}));
  }

  format::Definitions definitions;
  NameFilter filter;
};

TEST_CASE("name_filter: without patterns everything is wanted", "[engine][filter]") {
  FilterFixture f("");
  CHECK(f.scope("h.0"));
  CHECK(f.scope(""));
  CHECK(f.kernel("gemm", "gemm"));
  CHECK(f.filter.report().empty());
}

TEST_CASE("name_filter: include comes first, then exclude", "[engine][filter]") {
  FilterFixture f("h.*;re:head$", "*.norm");
  for (int again = 0; again < 2; ++again) {
    CHECK(f.scope("h.0.mlp"));
    CHECK_FALSE(f.scope("h.0.norm"));
    CHECK(f.scope("lm_head"));
    CHECK_FALSE(f.scope("embedding"));
    CHECK_FALSE(f.scope(""));
  }
  const auto lines = f.filter.report();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].text == "CONVTRACE_INCLUDE \"h.*\": matched 2 names");
  CHECK(lines[1].text == "CONVTRACE_INCLUDE \"re:head$\": matched 1 name");
  CHECK(lines[2].text == "CONVTRACE_EXCLUDE \"*.norm\": matched 1 name");
  CHECK(std::ranges::all_of(lines,
                            [](const Notice& line) { return line.message == messages::kMatched; }));
}

TEST_CASE("name_filter: patterns that leave nothing are said to", "[engine][filter]") {
  FilterFixture all("", "*");
  CHECK_FALSE(all.scope("h.0"));
  CHECK_FALSE(all.scope("h.1"));
  auto lines = all.filter.report();
  REQUIRE(lines.size() == 2);
  CHECK(lines[1].message == messages::kNothingLeft);
  CHECK(lines[1].text.starts_with("CONVTRACE_EXCLUDE leaves none of the 2 names that occurred"));
  FilterFixture both("h.*", "h.0*");
  CHECK_FALSE(both.scope("h.0"));
  CHECK(
      both.filter.report().back().text.starts_with("CONVTRACE_INCLUDE and CONVTRACE_EXCLUDE "
                                                   "leave none of the 1 name that occurred"));
  FilterFixture wrong("x.*");  // its own line says it, with what was meant
  CHECK_FALSE(wrong.scope("h.0"));
  CHECK(wrong.filter.report().size() == 1);
}

TEST_CASE("name_filter: a kernel is known by each of its names", "[engine][filter]") {
  const std::string pattern = GENERATE("add(float*, int)", "_Z3addPfi", "add_family", "re:^add\\(");
  FilterFixture f(pattern.c_str());
  CHECK(f.kernel("_Z3addPfi", "add_family"));
  CHECK_FALSE(f.kernel("_Z3subPfi", "sub_family"));
}

TEST_CASE("name_filter: a pattern that matched nothing is named, with what was probably meant",
          "[engine][filter]") {
  FilterFixture f("bodi.*;head", "drop");
  CHECK_FALSE(f.scope("body.0"));
  CHECK(f.scope("head"));
  const auto lines = f.filter.report();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].message == messages::kUnmatched);
  CHECK(lines[0].text ==
        "CONVTRACE_INCLUDE \"bodi.*\" matched nothing; nearest of those that occurred: "
        "\"body.0\", \"head\"");
  CHECK(lines[1].message == messages::kMatched);
  CHECK(lines[2].text.starts_with("CONVTRACE_EXCLUDE \"drop\" matched nothing; "));
}

}  // namespace
}  // namespace convtrace::engine
