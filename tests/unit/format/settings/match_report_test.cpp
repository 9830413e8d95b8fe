#include "format/settings/match_report.h"

#include "tests/support/catch.h"

namespace convtrace::settings {
namespace {

SeenNames seen(std::initializer_list<std::string_view> names) {
  SeenNames all;
  for (const std::string_view name : names) all.add(name);
  return all;
}

}  // namespace

TEST_CASE("match_report: a name that matches has no distance", "[settings]") {
  for (const auto& [pattern, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"*gemm*", "void gemm_nn<4>()"},
                                                                  {"h.?.mlp", "h.0.mlp"},
                                                                  {"*", ""},
                                                                  {"re:head$", "lm_head"}})
    CHECK(pattern_distance(pattern, name) == 0);
}

TEST_CASE("match_report: the usual slips are nearer than other names", "[settings]") {
  const SeenNames names = seen({"h.0.attn", "h.0.mlp", "h.0.mlp.fc", "lm_head", "embedding",
                                "void gemm_nn<float, 4>(float*)", "softmax_forward"});
  struct Case {
    const char *pattern, *first;
  };
  const Case cases[] = {{"attn", "h.0.attn"},
                        {"mlp.*", "h.0.mlp.fc"},
                        {"H.0.MLP", "h.0.mlp"},
                        {"*gem_nn*", "void gemm_nn<float, 4>(float*)"},
                        {"re:^soft_max", "softmax_forward"},
                        {"lmhead", "lm_head"}};
  for (const Case& c : cases) {
    const Notice line = unmatched("CONVTRACE_INCLUDE", c.pattern, "name", names);
    CAPTURE(line.text);
    CHECK(line.text.find("occurred: \"" + std::string(c.first) + "\", ") != std::string::npos);
    CHECK(std::count(line.text.begin(), line.text.end(), '"') == 8);  // the pattern and three names
  }
}

TEST_CASE("match_report: where nothing was asked about that is what it says", "[settings]") {
  CHECK(unmatched("a.toml:1: kernel", "x", "no kernel was launched", {}).text ==
        "a.toml:1: kernel \"x\" matched nothing; no kernel was launched");
}

TEST_CASE("match_report: names without an end cost no time without an end", "[settings]") {
  SeenNames names;
  for (int i = 0; i < 10'000; ++i) names.add(std::string(100'000, 'x'));
  CHECK(names.names().size() == SeenNames::kMost);
  CHECK(unmatched("r", std::string(100'000, 'y'), "name", names).message == messages::kUnmatched);
}

}  // namespace convtrace::settings
