#include "tools/diff/facts/preflight.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "reader/kind_set.h"
#include "reader/trace_reader.h"
#include "tools/common/escape.h"
#include "tools/diff/model/step_offset.h"

namespace convtrace::diff {
namespace {

using Facts = std::map<std::string, std::string>;

/// @return whether torch.compile compiled a part of the program: calls in its regions are facts. If
/// they are not recorded (`--compiled off`), the package functorch shows it: the first compiled
/// function imports it, which neither torch nor an import of torch._dynamo does (2.13).
bool is_compiled(const format::TraceMeta& meta) {
  return std::ranges::any_of(meta.facts, [](const auto& fact) {
    return fact.first.starts_with("compiled.") || fact.first == "package.functorch";
  });
}

Facts facts_of(const format::TraceMeta& meta) {
  Facts facts(meta.facts.begin(), meta.facts.end());
  for (const auto& [name, value] : meta.facts)
    facts[name] = value;  // later values replace earlier ones
  facts["convtrace"] = meta.tool_version;
  facts["world size"] = std::to_string(meta.world_size);
  facts["host"] = meta.host;
  facts["command line"] = tools::shell_line(meta.command_line);
  facts["compiled"] = is_compiled(meta) ? "yes" : "no";
  return facts;
}

/// Facts of the files rather than of the run: where the trace is, how it was made, libraries for
/// names of frames, the process's start. Also facts that are reported elsewhere: those of facts.h,
/// what calls of compiled regions are made of, and how the program ended (coverage.h).
bool is_about_files(std::string_view name) {
  if (name == kUpdatesBefore) return true;  // reported with the offset of the steps
  // Their effect is recorded in CONVTRACE_STEPS.
  if (name == "overhead" || name == "setting.CONVTRACE_OVERHEAD") return true;
  if (name == "setting.CONVTRACE_OVERWRITE" || name == "setting.CONVTRACE_SOURCE") return true;
  for (const char* prefix : {"recovered.", "stripped.", "library.", "code.", "source.", "compiled.",
                             "compiled_made.", "compiled_dropped.", "run.", "exit."})
    if (name.starts_with(prefix)) return true;
  return name.starts_with("setting.") && (name.ends_with("output") || name.ends_with("OUTPUT") ||
                                          name.ends_with("log_file") || name.ends_with("LOG_FILE"));
}

/// @return the environment variables that differ from the other run's, with the values of this run;
/// nullopt if this run has none of them.
std::optional<std::string> variables_of(const std::set<std::string>& ours,
                                        const std::set<std::string>& theirs) {
  constexpr size_t kMost = 8;
  std::vector<std::string> differing;
  std::ranges::set_difference(ours, theirs, std::back_inserter(differing));
  std::string text;
  for (size_t i = 0; i < std::min(kMost, differing.size()); ++i)
    text += (i == 0 ? "" : " ") + differing[i];
  if (differing.size() > kMost)
    text += " and " + std::to_string(differing.size() - kMost) + " more";
  return text.empty() ? std::nullopt : std::optional(std::move(text));
}

/// "NAME=#HASH" of each.
std::set<std::string> variables(const format::TraceMeta& meta) {
  std::istringstream text(std::string(meta.fact("run.environment").value_or("")));
  return {std::istream_iterator<std::string>(text), {}};
}

/// torchrun alone tells a rank its number in its role; on one machine all ranks are local.
bool is_of_torchrun(const format::TraceMeta& meta) {
  constexpr std::string_view kRole = "ROLE_RANK=", kAll = "WORLD_SIZE=",
                             kLocal = "LOCAL_WORLD_SIZE=";
  std::string role, all, local;
  for (const std::string& one : variables(meta))
    for (const auto& [name, hash] : {std::pair(kRole, &role), {kAll, &all}, {kLocal, &local}})
      if (one.starts_with(name)) *hash = one.substr(name.size());
  return !role.empty() && !all.empty() && all == local;
}

/// Lets torchrun start what it started: "python -u train.py" of a rank.
void start_by_torchrun(RunCommand& command, uint32_t ranks) {
  std::vector<std::string>& words = command.words;
  if (words.size() < 2) return;
  const bool unbuffered = words[1] == "-u";
  std::vector<std::string> job = {words[0],
                                  "-m",
                                  "torch.distributed.run",
                                  "--standalone",
                                  "--nproc-per-node",
                                  std::to_string(ranks)};
  job.insert(job.end(), words.begin() + (unbuffered ? 2 : 1), words.end());
  words = std::move(job);
  command.torchrun_ranks = ranks;
}

/// Adds the variables of the environment whose hashes differ.
void compare_environments(const format::TraceMeta& base, const format::TraceMeta& cand,
                          std::vector<PreflightEntry>& entries) {
  const std::set<std::string> a = variables(base), b = variables(cand);
  if (a.empty() || b.empty()) return;  // not recorded
  PreflightEntry entry{kEnvironment, variables_of(a, b), variables_of(b, a)};
  if (entry.base || entry.cand) entries.push_back(std::move(entry));
}

int weight(std::string_view name) {
  constexpr std::string_view kOrder[] = {"version.", "compiled", "switch.", "device.", "package."};
  constexpr int kCount = std::size(kOrder);
  for (int i = 0; i < kCount; ++i) {
    if (name.starts_with(kOrder[i])) return i;
  }
  return name.starts_with("setting.") ? kCount + 1 : kCount;
}

/// @return the meshes and placements that the DTensors of a trace recorded: "mesh=(tp=2), at=(0,),
/// placements=(Shard(dim=0),)" each. Reads only chunks with facts (`placement.NAME`, format/FORMAT.md
/// section 6.6).
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

}  // namespace

RunCommand command_of(const format::TraceMeta& meta) {
  const auto value = [&meta](const char* name) {
    return std::string(meta.fact(name).value_or(""));
  };
  RunCommand command{.words = meta.command_line,
                     .executable = value("run.executable"),
                     .directory = value("run.directory"),
                     .python_path = value("run.pythonpath"),
                     .compiled = is_compiled(meta)};
  constexpr std::string_view kOfFile = "code.";
  for (const auto& [name, hash] : meta.facts)
    if (name.starts_with(kOfFile) && name.ends_with(".py"))
      command.files[name.substr(kOfFile.size())] = hash;
  if (meta.world_size > 1 && is_of_torchrun(meta)) start_by_torchrun(command, meta.world_size);
  return command;
}

std::vector<PreflightEntry> compare_meta(const format::TraceMeta& base,
                                         const format::TraceMeta& cand) {
  const Facts a = facts_of(base);
  const Facts b = facts_of(cand);
  std::vector<PreflightEntry> entries;
  const auto value = [](const Facts& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::nullopt : std::optional(found->second);
  };
  Facts all = a;
  all.insert(b.begin(), b.end());
  for (const auto& [name, ignored] : all) {
    PreflightEntry entry{name, value(a, name), value(b, name)};
    // A kernel that one run alone has is no other choice.
    if (name.starts_with("autotune.") && (!entry.base || !entry.cand)) continue;
    if (entry.base != entry.cand && !is_about_files(name)) entries.push_back(std::move(entry));
  }
  compare_environments(base, cand, entries);
  // A fact that only one run has is mostly a consequence of others, so it comes after them.
  std::ranges::stable_sort(entries, {}, [](const PreflightEntry& e) {
    return std::pair(weight(e.name), !e.base || !e.cand);
  });
  return entries;
}

void add_entry(std::vector<PreflightEntry>& entries, PreflightEntry entry) {
  if (std::ranges::find(entries, entry) == entries.end()) entries.push_back(std::move(entry));
}

bool placed_unlike(const std::string& base, const std::string& cand) {
  return layouts_of(base) != layouts_of(cand);
}

}  // namespace convtrace::diff
