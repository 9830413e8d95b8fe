#include "interposer/engine/name_filter.h"

#include "tests/support/catch.h"

namespace convtrace::engine {
namespace {

struct Fixture {
  explicit Fixture(const char* include, const char* exclude = "")
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
  Fixture f("");
  CHECK(f.scope("h.0"));
  CHECK(f.scope(""));
  CHECK(f.kernel("gemm", "gemm"));
  CHECK(f.filter.unmatched().empty());
}

TEST_CASE("name_filter: include comes first, then exclude", "[engine][filter]") {
  Fixture f("h.*;re:head$", "*.norm");
  for (int again = 0; again < 2; ++again) {
    CHECK(f.scope("h.0.mlp"));
    CHECK_FALSE(f.scope("h.0.norm"));
    CHECK(f.scope("lm_head"));
    CHECK_FALSE(f.scope("embedding"));
    CHECK_FALSE(f.scope(""));
  }
  CHECK(f.filter.unmatched().empty());
}

TEST_CASE("name_filter: a kernel is known by each of its names", "[engine][filter]") {
  const std::string pattern = GENERATE("add(float*, int)", "_Z3addPfi", "add_family", "re:^add\\(");
  Fixture f(pattern.c_str());
  CHECK(f.kernel("_Z3addPfi", "add_family"));
  CHECK_FALSE(f.kernel("_Z3subPfi", "sub_family"));
}

TEST_CASE("name_filter: a pattern that matched nothing is named, with what was probably meant",
          "[engine][filter]") {
  Fixture f("bodi.*;head", "drop");
  CHECK_FALSE(f.scope("body.0"));
  CHECK(f.scope("head"));
  const auto lines = f.filter.unmatched();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find("CONVTRACE_INCLUDE: \"bodi.*\" matched nothing") != std::string::npos);
  CHECK(lines[0].find("body.0") != std::string::npos);
  CHECK(lines[1].find("CONVTRACE_EXCLUDE: \"drop\"") != std::string::npos);
}

}  // namespace
}  // namespace convtrace::engine
