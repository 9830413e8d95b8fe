#include "tools/check/run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "tools/check/catalog.h"
#include "tools/check/judge.h"
#include "tools/common/escape.h"
#include "tools/common/live_wait.h"
#include "tools/common/text.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::check {
namespace {

/// Joins findings of one id at one place: the first stays, the others are counted.
std::vector<Finding> joined(std::vector<Finding> all) {
  std::vector<Finding> kept;
  std::map<std::tuple<std::string_view, uint32_t, std::string, std::string, std::string>, size_t>
      known;
  for (Finding& finding : all) {
    const auto [entry, is_new] = known.try_emplace(
        {finding.id, finding.rank, finding.scope.value_or("-"), finding.op, finding.slot},
        kept.size());
    if (is_new) {
      kept.push_back(std::move(finding));
    } else {
      Finding& first = kept[entry->second];
      ++first.times;
      if (finding.severity < first.severity) {  // worse
        finding.times = first.times;
        first = std::move(finding);
      }
    }
  }
  return kept;
}

/// Puts the trace into the command that a finding proposes.
void name_trace(Finding& finding, const std::string& path) {
  constexpr std::string_view kWord = " TRACE";
  const size_t at = finding.next.find(kWord);
  if (at != std::string::npos)
    finding.next.replace(at + 1, kWord.size() - 1, tools::quote_shell(path));
}

/// Reads on until every trace is closed or its process is gone, or the user presses Ctrl-C.
void follow(const std::vector<std::unique_ptr<TraceJudge>>& judges,
            const std::function<void(const Finding&)>& live) {
  std::vector<std::unique_ptr<tools::LiveWait>> waits;
  for (size_t i = 0; i < judges.size(); ++i) waits.push_back(std::make_unique<tools::LiveWait>());
  std::vector<bool> ended(judges.size());
  while (!tools::LiveWait::interrupted()) {
    int most_ms = tools::LiveWait::kMostMs;  // once a round, however many traces there are
    for (size_t i = 0; i < judges.size(); ++i) {
      if (ended[i]) continue;
      reader::TraceReader& trace = judges[i]->trace();
      if (!trace.container().closed()) waits[i]->wait(trace.meta(), std::exchange(most_ms, 0));
      ended[i] = trace.container().closed() || waits[i]->writer_gone();
      trace.refresh(ended[i]);
      for (const Finding& finding : judges[i]->read_on()) live(finding);
    }
    if (std::ranges::find(ended, false) == ended.end()) return;
  }
}

/// @param tell  null: the traces are read as they are.
bool judge_all(const std::vector<std::string>& paths, const Wanted& wanted,
               const std::function<void(const Finding&)>* tell, CheckResult& result,
               std::vector<RankResult>& ranks, std::string& error) {
  std::vector<std::unique_ptr<TraceJudge>> judges;  // of traces that are being written
  for (const std::string& path : paths) {
    const auto take = [&](const std::string& file, std::unique_ptr<reader::TraceReader> trace) {
      judges.push_back(std::make_unique<TraceJudge>(file, std::move(trace), wanted));
      if (tell != nullptr) return;
      (void)judges.back()->read_on();
      ranks.push_back(judges.back()->finish());
      judges.clear();
    };
    const auto policy =
        tell != nullptr ? reader::OpenPolicy::kLive : reader::OpenPolicy::kIndexOrScan;
    if (!diff::visit_traces(path, policy, take, result.incomplete, error)) return false;
    result.paths.push_back(path);
  }
  if (tell != nullptr) follow(judges, *tell);
  for (const auto& judge : judges) ranks.push_back(judge->finish());
  std::ranges::stable_sort(ranks, {}, [](const RankResult& rank) {
    return std::tuple(rank.rank, rank.start_realtime_ns);
  });
  return true;
}

/// Brings the results of all ranks together.
void conclude(std::vector<RankResult> ranks, const Wanted& wanted, CheckResult& result) {
  std::vector<Finding> findings;
  std::map<std::string_view, uint64_t> looks;
  std::vector<std::pair<std::string_view, uint64_t>> across;
  for (Finding& finding : judge_ranks(ranks, across))
    if (wanted(finding.id)) findings.push_back(std::move(finding));
  for (const auto& [id, times] : across) looks[id] += times;
  for (RankResult& rank : ranks) {
    for (Finding& finding : rank.findings) {
      name_trace(finding, rank.path);
      findings.push_back(std::move(finding));
    }
    for (const auto& [id, times] : rank.looks) looks[id] += times;
    if (!rank.story.steps.empty()) {
      rank.story.path = rank.path;
      result.stories.push_back(std::move(rank.story));
    }
    result.values += rank.values;
    if (rank.late_values != 0)
      result.notes.push_back(rank.path + ": " + tools::counted(rank.late_values, "value") +
                             " came three steps late, and are not judged");
    if (rank.parallel_from)
      result.notes.push_back(rank.path + ": threads train at once from step " +
                             std::to_string(*rank.parallel_from) +
                             " on; they share one count of steps, so no step is judged");
    result.steps = std::max(result.steps, rank.steps_seen);
    result.steps_trained = std::max(result.steps_trained, rank.steps_trained);
    if (!rank.complete) result.incomplete.push_back(diff::not_whole(rank.path));
    for (const std::string& gap : rank.losses.gaps())
      result.incomplete.push_back(tools::escape_text(rank.path) + ": " + gap);
  }
  std::set<uint32_t> numbers;
  for (const RankResult& rank : ranks)
    if (!numbers.insert(rank.rank).second)
      result.notes.push_back(rank.path + " is a further trace of rank " +
                             std::to_string(rank.rank) +
                             ": the one with most training steps is compared with other ranks");
  result.ranks = numbers.size();
  result.findings = joined(std::move(findings));
  std::ranges::stable_sort(result.findings, {}, [](const Finding& finding) {
    return std::tuple(finding.severity, finding.step.value_or(format::kNoStep),
                      catalog_position(finding.id), finding.rank);
  });
  for (const CatalogRow& row : catalog())
    if (wanted(row.id)) result.looked.push_back({row.id, row.what, looks[row.id]});
}

}  // namespace

bool check_run(const std::vector<std::string>& paths, const Wanted& wanted, CheckResult& result,
               std::string& error) {
  std::vector<RankResult> ranks;
  if (!judge_all(paths, wanted, nullptr, result, ranks, error)) return false;
  conclude(std::move(ranks), wanted, result);
  return true;
}

bool check_live(const std::vector<std::string>& paths, const Wanted& wanted,
                const std::function<void(const Finding&)>& tell, CheckResult& result,
                std::string& error) {
  std::vector<RankResult> ranks;
  if (!judge_all(paths, wanted, &tell, result, ranks, error)) return false;
  conclude(std::move(ranks), wanted, result);
  return true;
}

}  // namespace convtrace::check
