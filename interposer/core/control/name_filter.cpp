#include "interposer/core/control/name_filter.h"

#include <algorithm>

#include "cupti/kernels/kernel_name.h"
#include "format/base/count_noun.h"
#include "format/settings/nearest.h"

namespace convtrace::engine {

NameFilter::NameFilter(std::vector<settings::Pattern> include,
                       std::vector<settings::Pattern> exclude,
                       const format::Definitions& definitions)
    : definitions_(definitions) {
  replace(std::move(include), std::move(exclude));
}

void NameFilter::replace(std::vector<settings::Pattern> include,
                         std::vector<settings::Pattern> exclude) {
  const Lock lock(mutex_);
  include_.clear();
  exclude_.clear();
  for (auto& pattern : include) include_.push_back({std::move(pattern), "CONVTRACE_INCLUDE"});
  for (auto& pattern : exclude) exclude_.push_back({std::move(pattern), "CONVTRACE_EXCLUDE"});
  scopes_.clear();
  kernels_.clear();
  asked_ = wanted_ = 0;
  active_.store(!include_.empty() || !exclude_.empty(), std::memory_order_relaxed);
}

bool NameFilter::wants(format::StringId scope) {
  return answer(&NameFilter::scopes_, scope.value,
                [&] { return std::vector{std::string(definitions_.text(scope))}; });
}

bool NameFilter::wants(format::KernelId kernel) {
  return answer(&NameFilter::kernels_, kernel.value, [&] {
    const format::KernelDef def = definitions_.kernel(kernel);
    std::string name(definitions_.text(def.name));
    return std::vector{cupti::demangle(name), name, std::string(definitions_.text(def.family))};
  });
}

template <typename NamesOf>
bool NameFilter::answer(Answers NameFilter::*answers_of, uint32_t id, NamesOf names_of) {
  if (!active()) return true;
  {
    const SharedLock lock(mutex_);
    const Answers& answers = this->*answers_of;
    if (id < answers.size() && answers[id] != Answer::kUnknown) return answers[id] == Answer::kYes;
  }
  const std::vector<std::string> names = names_of();
  const Lock lock(mutex_);
  const bool wanted = judge(names);
  Answers& answers = this->*answers_of;
  if (id >= answers.size()) answers.resize(id + size_t{1}, Answer::kUnknown);
  answers[id] = wanted ? Answer::kYes : Answer::kNo;
  seen_.add(names.front());
  ++asked_;
  wanted_ += wanted ? 1 : 0;
  return wanted;
}

bool NameFilter::judge(std::span<const std::string> names) {
  // Both lists are always evaluated, so that matches of either are counted.
  const bool included = include_.empty() || matches_any(include_, names);
  const bool excluded = matches_any(exclude_, names);
  return included && !excluded;
}

bool NameFilter::matches_any(std::vector<Entry>& entries, std::span<const std::string> names) {
  bool any = false;
  for (Entry& entry : entries) {
    for (const std::string& name : names) {
      if (!entry.pattern.matches(name)) continue;
      ++entry.matched;
      any = true;
      break;
    }
  }
  return any;
}

std::vector<Notice> NameFilter::report() const {
  std::vector<Notice> lines;
  const SharedLock lock(mutex_);
  report(include_, lines);
  report(exclude_, lines);
  const auto matched = [](const Entry& entry) { return entry.matched != 0; };
  const bool included = include_.empty() || std::ranges::any_of(include_, matched);
  if (asked_ != 0 && wanted_ == 0 && included) {
    lines.push_back({messages::kNothingLeft,
                     (include_.empty() ? "CONVTRACE_EXCLUDE leaves none of the "
                                       : "CONVTRACE_INCLUDE and CONVTRACE_EXCLUDE leave "
                                         "none of the ") +
                         count_noun(asked_, "name") +
                         " that occurred: there are no values of them in the trace"});
  }
  return lines;
}

void NameFilter::report(const std::vector<Entry>& entries, std::vector<Notice>& lines) const {
  for (const Entry& entry : entries) {
    const std::string& pattern = entry.pattern.text();
    if (entry.matched == 0) {
      lines.push_back(settings::unmatched(
          entry.setting, pattern, "no kernel and no module ran in a step whose values were wanted",
          seen_));
    } else {
      lines.push_back({messages::kMatched, std::string(entry.setting) + ' ' +
                                               settings::quoted(pattern) + ": matched " +
                                               count_noun(entry.matched, "name")});
    }
  }
}

}  // namespace convtrace::engine
