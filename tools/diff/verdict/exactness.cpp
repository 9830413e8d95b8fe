#include "tools/diff/verdict/exactness.h"

#include <algorithm>
#include <map>

#include "tools/diff/facts/excuses.h"

namespace convtrace::diff {
namespace {

bool has_device(const format::TraceMeta& meta) {
  return std::ranges::any_of(meta.facts,
                             [](const auto& fact) { return fact.first.starts_with("device."); });
}

/// Fingerprints of the code, which preflight does not list.
std::map<std::string, std::string> code_of(const format::TraceMeta& meta) {
  std::map<std::string, std::string> code;
  for (const auto& [name, value] : meta.facts) {
    if (name.starts_with("code.")) code[name] = value;
  }
  return code;
}

/// @return whether a GPU run is deterministic: no operation adds in varying order, and none is
/// chosen by timing.
bool is_deterministic(const format::TraceMeta& meta) {
  const auto is_on = [&meta](const char* name) { return meta.fact(name) == "True"; };
  return is_on("switch.deterministic_algorithms") && !is_on("switch.deterministic_warn_only") &&
         !is_on("switch.cudnn_benchmark");
}

}  // namespace

ExactnessDecision decide_exactness(ExactChoice choice,
                                   const std::vector<PreflightEntry>& differences,
                                   const format::TraceMeta& base, const format::TraceMeta& cand,
                                   std::optional<bool> repeats) {
  if (!format::hash_alike(base, cand))
    return {Exactness::kInexact, "the runs' values are hashed in two ways"};
  if (choice == ExactChoice::kOn) return {Exactness::kExact, "--exact on"};
  if (choice == ExactChoice::kOff) return {Exactness::kInexact, "--exact off"};
  const bool on_device = has_device(base) || has_device(cand);
  for (const PreflightEntry& entry : differences) {
    const Excuse excuse = meaning_of(entry).excuse;
    if (excuse != Excuse::kNone && (excuse != Excuse::kOnDevice || on_device))
      return {Exactness::kInexact, "the runs differ in " + entry.name};
  }
  if (code_of(base) != code_of(cand)) return {Exactness::kInexact, "the runs differ in their code"};
  const std::string alike =
      "versions, devices, switches, seed, command line and code of both runs are the same, and ";
  if (repeats && !*repeats)
    return {Exactness::kInexact, "a repetition of the baseline has other bits"};
  if (repeats) return {Exactness::kExact, alike + "a repetition of the baseline has all its bits"};
  if (is_deterministic(base) && is_deterministic(cand))
    return {Exactness::kExact, alike + "deterministic algorithms are on"};
  if (!on_device) return {Exactness::kExact, alike + "both ran on the CPU alone"};
  return {
      Exactness::kInexact,
      "atomics and autotuning of a GPU need not repeat: deterministic algorithms are not on, or "
      "cuDNN's trials are, and there is no whole repetition: the baseline's command run again, "
      "as --noise, would decide"};
}

}  // namespace convtrace::diff
