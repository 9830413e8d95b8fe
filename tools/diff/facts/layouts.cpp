#include "tools/diff/facts/layouts.h"

#include <string_view>

#include "reader/kind_set.h"
#include "reader/trace_reader.h"

namespace convtrace::diff {

std::set<std::string> layouts_of(const std::string& path) {
  std::set<std::string> layouts;
  auto reader = reader::TraceReader::open(path, reader::OpenPolicy::kIndexOrScan);
  if (!reader.ok()) return layouts;
  reader.value()->select([](const format::RecordHeader& chunk) {
    const bool any = (chunk.flags & format::kFlagFacts) != 0;
    return any ? reader::kKindSet<format::Fact> : reader::kNoKinds;
  });
  while (const format::Event* event = reader.value()->next()) {
    const auto* fact = std::get_if<format::Fact>(event);
    if (fact == nullptr) continue;
    const std::string_view name = reader.value()->definitions().text(fact->name);
    if (!name.starts_with("placement.")) continue;
    const std::string_view text = fact->value;
    const size_t from = text.find("mesh="), to = text.find(", local=");
    if (from < to && to != std::string_view::npos) layouts.emplace(text.substr(from, to - from));
  }
  return layouts;
}

bool placed_unlike(const std::string& base_path, const std::string& cand_path) {
  return layouts_of(base_path) != layouts_of(cand_path);
}

}  // namespace convtrace::diff
