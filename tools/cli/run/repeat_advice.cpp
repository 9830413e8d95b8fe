#include "tools/cli/run/repeat_advice.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "tools/common/escape.h"

namespace convtrace::tools {
namespace {

using Facts = std::map<std::string, std::string, std::less<>>;

/// A switch that lets a GPU choose, with the advice that fixes the choice.
struct Switch {
  std::string_view fact;
  std::vector<std::string_view> repeats;  ///< values for which results repeat
  std::string_view advice;
};

const std::vector<Switch>& gpu_switches() {
  static const std::vector<Switch> kSwitches = {
      {"switch.cudnn_benchmark",
       {"False"},
       "torch.backends.cudnn.benchmark = False: cuDNN takes the algorithm that was fastest in a "
       "trial"},
      {"switch.deterministic_algorithms",
       {"True"},
       "torch.use_deterministic_algorithms(True): operations that add in any order (atomics) are "
       "replaced, or named by an error"},
      {"switch.deterministic_warn_only",
       {"False", ""},
       "torch.use_deterministic_algorithms(True) without warn_only: operations that add in any "
       "order only warn now"},
      {"switch.CUBLAS_WORKSPACE_CONFIG",
       {":4096:8", ":16:8"},
       "export CUBLAS_WORKSPACE_CONFIG=:4096:8: cuBLAS repeats its results only with it"}};
  return kSwitches;
}

std::string text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string value_of(const Facts& facts, std::string_view name) {
  const auto found = facts.find(name);
  return found == facts.end() ? std::string() : found->second;
}

/// Seeds and switches that differ between the runs themselves.
void add_differing(const Json& report, std::vector<std::string>& lines) {
  for (const Json& entry : report.value("preflight", Json::array())) {
    const std::string name = text_of(entry, "name");
    const std::string values =
        escape_text(text_of(entry, "base")) + " | " + escape_text(text_of(entry, "cand"));
    if (name == "switch.torch_seed") {
      lines.push_back(
          "torch.manual_seed(0) at the start of the script, and no seed of the clock after it: "
          "PyTorch's seed is another one in each run (" +
          values + ")");
    } else if (name.starts_with("switch.")) {
      lines.push_back("set " + escape_text(name.substr(7)) + " to one value: it differs (" +
                      values + ")");
    }
  }
}

/// Settings of modules and optimizers that differ between the runs themselves.
void add_settings(const Json& report, std::vector<std::string>& lines) {
  for (const Json& fact : report.value("facts", Json::array())) {
    if (!fact.value("configuration", false)) continue;
    lines.push_back("set " + escape_text(text_of(fact, "name")) + " of " +
                    (text_of(fact, "kind") == "optimizer" ? "the optimizer"
                                                          : escape_text(text_of(fact, "first"))) +
                    " to one value: it differs (" + escape_text(text_of(fact, "base")) + " | " +
                    escape_text(text_of(fact, "cand")) + ")");
  }
}

/// An initial weight or a batch differs, for another reason than PyTorch's seed.
void add_origin(const Json& first, const Facts& facts, std::vector<std::string>& lines) {
  const bool weights =
      text_of(first, "slot").starts_with("param:") && text_of(first, "phase") != "optimizer";
  const bool data = text_of(first, "phase") == "data";
  if (!weights && !data) return;
  lines.push_back(std::string(weights ? "the initial weights differ" : "the data differ") +
                  ", and PyTorch's seed does not: draw them from generators with a fixed seed "
                  "(random.seed(0), numpy.random.seed(0), torch.Generator, " +
                  (weights ? "or one checkpoint" : "a DataLoader's generator and workers") +
                  "), never from the clock");
  if (data && value_of(facts, "switch.PYTHONHASHSEED").empty())
    lines.emplace_back("export PYTHONHASHSEED=0: the order of sets is another one in each run");
}

/// Equal inputs give different results.
void add_computation(const Facts& facts, std::vector<std::string>& lines) {
  const bool gpu = std::ranges::any_of(
      facts, [](const auto& fact) { return fact.first.starts_with("device."); });
  for (const Switch& each : gpu_switches()) {
    const std::string value = value_of(facts, each.fact);
    const bool everywhere = each.fact == "switch.deterministic_algorithms";
    if ((gpu || everywhere) && std::ranges::find(each.repeats, value) == each.repeats.end())
      lines.emplace_back(each.advice);
  }
  const std::string threads = value_of(facts, "switch.num_threads");
  if (!gpu && threads != "1" && !threads.empty())
    lines.push_back("torch.set_num_threads(1), to see whether its " + escape_text(threads) +
                    " threads add in another order each time");
  if (value_of(facts, "setting.CONVTRACE_POISON") != "1")
    lines.emplace_back(
        "convtrace run --poison 1 -- CMD, and convtrace check of its trace: memory that was not "
        "written, or was freed, then holds NaN, and the op that reads it is named");
}

}  // namespace

std::vector<std::string> repeat_advice(const Json& report, const format::TraceMeta& meta) {
  const Facts facts(meta.facts.rbegin(),
                    meta.facts.rend());  // the last of several facts with one name is valid
  std::vector<std::string> lines;
  add_differing(report, lines);
  add_settings(report, lines);
  const Json first = report.value("first_bit_difference", Json());
  if (!lines.empty() || !first.is_object()) {
    if (lines.empty())
      lines.emplace_back("make each run do the same work: values or steps are in one run only");
    return lines;
  }
  add_origin(first, facts, lines);
  if (!lines.empty()) return lines;
  lines.emplace_back(
      "if that place draws random numbers, draw them from a generator with a fixed seed");
  add_computation(facts, lines);
  return lines;
}

}  // namespace convtrace::tools
