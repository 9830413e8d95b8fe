#pragma once
/// @file browser.h
/// Pages of the tools in a real browser, where there is one.

#include <stdio.h>

#include <fstream>
#include <memory>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tools/common/json.h"

namespace convtrace::test {

inline std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  char buffer[4096];
  while (const size_t n = pipe ? fread(buffer, 1, sizeof buffer, pipe.get()) : 0)
    text.append(buffer, n);
  return text;
}

inline constexpr const char* kChromium =
    "timeout 120 chromium --headless --no-sandbox --disable-gpu ";

inline bool has_chromium() { return !output_of("command -v chromium").empty(); }

/// Opens the page in Chromium, runs `script` in it. @param waits  the script waits for promises; the
/// page then has a clock of its own, which does not tell how long anything took. @return what the
/// script put into `told`; null where no Chromium is installed.
inline tools::Json driven(const std::string& html, const std::string& script, bool waits = false) {
  if (!has_chromium()) return {};
  const test::TempDir dir;
  std::ofstream(dir / "page.html")
      << html << "<script>(async () => { const told = {};\ntry {\n"
      << script
      << "\n} catch (error) { told.thrown = String(error); }\n"
         "const out = document.createElement('output');\n"
         "out.textContent = 'TOLD' + btoa(unescape(encodeURIComponent(JSON.stringify(told))));\n"
         "document.body.append(out); })();</script>";
  const std::string dom =
      output_of(kChromium + ("--user-data-dir=" + (dir / "profile")) +
                (waits ? " --virtual-time-budget=30000" : "") +
                " --window-size=390,844 --dump-dom file://" + (dir / "page.html") +
                " 2>/dev/null | grep -o 'TOLD[A-Za-z0-9+/=]*'"
                " | cut -c5- | base64 -d");
  INFO(dom.size());
  REQUIRE_FALSE(dom.empty());
  const tools::Json told = tools::Json::parse(dom);
  REQUIRE(told.value("thrown", std::string()) == "");
  return told;
}

/// @return what checks the accessibility of a page; empty where it or Chromium is not installed.
inline std::string axe_script() {
  if (!has_chromium()) return {};
  return output_of("cat " CONVTRACE_ROOT
                   "/.venv/lib/python*/site-packages/axe_core_python/axe.min.js 2>/dev/null");
}

/// @return `passed`: how many rules a page follows, all of it unfolded; `found`: what it breaks.
inline tools::Json axe_of(const std::string& html, const std::string& axe) {
  return driven(html + "<script>" + axe + "</script>", R"(
      document.querySelectorAll('details').forEach((part) => { part.open = true; });
      const result = await axe.run({resultTypes: ['violations']});
      told.passed = result.passes.length;
      told.found = result.violations.map((v) => v.id + ' (' + v.impact + '): ' + v.nodes.map((n) => n.target + ' ' + n.failureSummary).join('; '));
    )",
                true);
}

}  // namespace convtrace::test
