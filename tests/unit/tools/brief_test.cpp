#include "tools/report/brief.h"

#include <string>

#include "tests/support/catch.h"

namespace convtrace::test {
namespace {

using report::Brief;
using report::brief_json;
using tools::Json;

/// An answer each of whose texts has `bytes` bytes.
Brief of_length(size_t bytes, const std::string& letter) {
  std::string text;
  while (text.size() + letter.size() <= bytes) text += letter;
  return {.verdict = "diverged",
          .headline = text,
          .place = {{"rank", 4'294'967'295U},
                    {"step", 4'294'967'294U},
                    {"phase", "communication"},
                    {"scope", text},
                    {"op", text},
                    {"slot", text},
                    {"kernel", text},
                    {"suspects", text}},
          .cause = text,
          .confidence = report::Confidence::kProven,
          .evidence = {text, text, text, text},
          .next = {text, text},
          .cannot_tell = {text, text, text, text}};
}

TEST_CASE("brief: never longer than its limit, and always JSON", "[report]") {
  for (const std::string& letter :
       {std::string("x"), std::string("\""), std::string("\x01"), std::string("\xc3\xa9"),
        std::string("\xf0\x9f\x98\x80"), std::string("\xff")}) {
    for (const size_t bytes :
         std::initializer_list<size_t>{0, 1, 2, 11, 12, 13, 100, 400, 5000, 100'000}) {
      const std::string text = brief_json(of_length(bytes, letter));
      CHECK(text.size() <= report::kMostBriefBytes);
      const Json json = Json::parse(text);
      CHECK(json["verdict"] == "diverged");
      CHECK(json["place"]["step"] == 4'294'967'294U);
      CHECK(json["evidence"].size() == 3);
    }
  }
}

TEST_CASE("brief: short texts are kept whole, and what is left out is counted", "[report]") {
  const Json json = Json::parse(brief_json(of_length(12, "x")));
  CHECK(json["headline"] == std::string(12, 'x'));
  CHECK(json["next"].size() == 2);
  CHECK(json["left_out"] == 2);  // a fourth evidence, a fourth of what is not known
  CHECK(Json::parse(brief_json({.verdict = "clean"})) == Json{{"verdict", "clean"},
                                                              {"headline", ""},
                                                              {"place", nullptr},
                                                              {"cause", nullptr},
                                                              {"confidence", nullptr},
                                                              {"evidence", Json::array()},
                                                              {"next", Json::array()},
                                                              {"cannot_tell", Json::array()},
                                                              {"left_out", 0}});
}

TEST_CASE("brief: commands are whole or left out, sentences are cut", "[report]") {
  Brief brief = of_length(300, "word ");
  brief.next = {std::string(900, 'c')};
  Json json = Json::parse(brief_json(brief));
  CHECK(json["next"] == Json{std::string(900, 'c')});
  CHECK(json["headline"].get<std::string>().ends_with("..."));
  brief.next = {std::string(900, 'c'), std::string(2000, 'd')};
  json = Json::parse(brief_json(brief));
  CHECK(json["next"] == Json::array());
  CHECK(json["left_out"] == 4);
}

}  // namespace
}  // namespace convtrace::test
