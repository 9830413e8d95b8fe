#include "interposer/engine/name_filter.h"

#include <mutex>

#include "cupti/kernel_name.h"
#include "format/settings/nearest.h"

namespace convtrace::engine {

NameFilter::NameFilter(std::vector<settings::Pattern> include,
                       std::vector<settings::Pattern> exclude,
                       const format::Definitions& definitions)
    : definitions_(definitions) {
  for (auto& pattern : include) include_.emplace_back(std::move(pattern), "CONVTRACE_INCLUDE");
  for (auto& pattern : exclude) exclude_.emplace_back(std::move(pattern), "CONVTRACE_EXCLUDE");
}

bool NameFilter::wants(format::StringId scope) {
  return answer(scopes_, scope.value,
                [&] { return std::vector{std::string(definitions_.text(scope))}; });
}

bool NameFilter::wants(format::KernelId kernel) {
  return answer(kernels_, kernel.value, [&] {
    const format::KernelDef def = definitions_.kernel(kernel);
    std::string name(definitions_.text(def.name));
    return std::vector{cupti::demangle(name), name, std::string(definitions_.text(def.family))};
  });
}

template <typename NamesOf>
bool NameFilter::answer(Answers& answers, uint32_t id, NamesOf names_of) {
  if (!active()) return true;
  {
    const std::shared_lock lock(mutex_);
    if (id < answers.size() && answers[id] != Answer::kUnknown) return answers[id] == Answer::kYes;
  }
  const std::vector<std::string> names = names_of();
  const bool wanted = judge(names);
  const std::unique_lock lock(mutex_);
  if (id >= answers.size()) answers.resize(id + size_t{1}, Answer::kUnknown);
  answers[id] = wanted ? Answer::kYes : Answer::kNo;
  seen_.push_back(names.front());
  return wanted;
}

bool NameFilter::judge(std::span<const std::string> names) {
  // Both lists are asked, so that a pattern of either is known to match something.
  const bool included = include_.empty() || matches_any(include_, names);
  const bool excluded = matches_any(exclude_, names);
  return included && !excluded;
}

bool NameFilter::matches_any(std::deque<Entry>& entries, std::span<const std::string> names) {
  bool any = false;
  for (Entry& entry : entries) {
    for (const std::string& name : names) {
      if (!entry.pattern.matches(name)) continue;
      entry.matched.store(true, std::memory_order_relaxed);
      any = true;
      break;
    }
  }
  return any;
}

std::vector<std::string> NameFilter::unmatched() const {
  std::vector<std::string> lines;
  const std::shared_lock lock(mutex_);
  add_unmatched(include_, lines);
  add_unmatched(exclude_, lines);
  return lines;
}

void NameFilter::add_unmatched(const std::deque<Entry>& entries,
                               std::vector<std::string>& lines) const {
  const std::vector<std::string_view> names(seen_.begin(), seen_.end());
  for (const Entry& entry : entries) {
    if (entry.matched.load(std::memory_order_relaxed)) continue;
    std::string line = std::string(entry.setting) + ": " + settings::quoted(entry.pattern.text()) +
                       " matched nothing";
    if (!names.empty()) {
      line += "; the nearest name that occurred is " +
              settings::quoted(settings::nearest(entry.pattern.text(), names));
    }
    lines.push_back(std::move(line));
  }
}

}  // namespace convtrace::engine
