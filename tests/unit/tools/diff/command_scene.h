#pragma once
/// @file command_scene.h
/// convtrace-diff called as a program is, over runs made for a test.

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/tools/diff/run.h"
#include "tools/common/json.h"
#include "tools/diff/command.h"

namespace convtrace::test {

using tools::Json;

struct Outcome {
  int code = 0;
  std::string out, err;
};

inline Outcome run(std::vector<std::string> arguments, diff::Terminal terminal = {}) {
  arguments.insert(arguments.begin(), "convtrace-diff");
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream out, err;
  const int code =
      diff::diff_command(static_cast<int>(argv.size()), argv.data(), out, err, terminal);
  return {code, out.str(), err.str()};
}

inline std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::set<std::string> keys(const Json& json) {
  std::set<std::string> names;
  for (const auto& [name, value] : json.items()) names.insert(name);
  return names;
}

inline bool has_all(const std::set<std::string>& names, const std::set<std::string>& wanted) {
  return std::ranges::includes(names, wanted);
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline Run diverging() {
  Run cand = test::training();
  scale(cand.at(1, "fc2", "output:0"), 1.5);
  scale(cand.at(1, "", "output:0"), 1.5);
  return cand;
}

/// base.ctrace and cand.ctrace in a folder of their own.
struct Pair {
  TempDir dir;
  std::string base = dir / "base.ctrace";
  std::string cand = dir / "cand.ctrace";
  Pair(const Run& b, const Run& c) {
    b.write(base);
    c.write(cand);
  }
};

inline void require_escaped(const std::string& text) {
  for (const char c : text) {
    INFO(text);
    REQUIRE((c == '\n' || static_cast<unsigned char>(c) >= 0x20));
    REQUIRE(c != '\x7f');
  }
}

}  // namespace convtrace::test
