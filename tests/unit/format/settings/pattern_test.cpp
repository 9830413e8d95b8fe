#include "format/settings/pattern.h"

#include "tests/support/catch.h"

namespace convtrace::settings {

TEST_CASE("pattern: a glob matches the whole name", "[settings]") {
  struct Case {
    std::string_view glob, name;
    bool matches;
  };
  const Case cases[] = {
      {"*", "", true},
      {"*", "anything", true},
      {"gemm", "gemm", true},
      {"gemm", "gemm2", false},
      {"gemm", "agemm", false},
      {"*gemm*", "sm90_gemm_tn", true},
      {"?emm", "gemm", true},
      {"?emm", "emm", false},
      {"a*b*c", "a__b__b__c", true},
      {"a*b*c", "a__c__b", false},
      {"layers.*.mlp", "layers.3.mlp", true},
      {"layers.*.mlp", "layers.3.mlp.0", false},
      {"[x]", "[x]", true},
      {"void k(float*, int)", "void k(float*, int)", true},
  };
  for (const Case& c : cases) {
    CAPTURE(c.glob, c.name);
    CHECK(Pattern::compile(c.glob).value().matches(c.name) == c.matches);
  }
}

TEST_CASE("pattern: re: is searched anywhere", "[settings]") {
  const Pattern pattern = Pattern::compile("re:gemm_(tn|nt)$").value();
  CHECK(pattern.matches("sm90_gemm_tn"));
  CHECK_FALSE(pattern.matches("sm90_gemm_tn2"));
  CHECK(pattern.text() == "re:gemm_(tn|nt)$");
}

TEST_CASE("pattern: bad expressions are refused", "[settings]") {
  for (const std::string_view text :
       {"", "re:(", "re:((", "re:[a", "re:*", R"(re:(a)\1)", R"(re:\88888888888888888888)",
        "re:a{1,88888888888888888888}"}) {
    CAPTURE(text);
    CHECK_FALSE(Pattern::compile(text).ok());
  }
}

TEST_CASE("pattern: names made to exhaust time or stack do neither", "[settings]") {
  const std::string name(60'000, 'a');
  CHECK(Pattern::compile("re:^(a*)*$").value().matches(std::string(2000, 'a')));
  CHECK_FALSE(Pattern::compile("re:^(a+)+b$").value().matches(name));
  CHECK_FALSE(Pattern::compile("*a*a*a*a*a*a*b").value().matches(std::string(2000, 'a')));
}

TEST_CASE("pattern: a list skips empty entries and says where a bad one is", "[settings]") {
  const auto patterns = compile_patterns("gemm*;;re:^void ;");
  REQUIRE(patterns.ok());
  REQUIRE(patterns.value().size() == 2);
  CHECK(patterns.value()[1].text() == "re:^void ");
  CHECK(compile_patterns("").value().empty());
  CHECK(compile_patterns("ok;re:(").status().detail == 3);
}

}  // namespace convtrace::settings
