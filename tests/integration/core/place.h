#pragma once
/// @file place.h
/// Runs the engine's test program in a folder of its own, and reads the trace that it leaves.

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "reader/trace_reader.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace convtrace::test {

using reader::TraceState;
namespace fs = std::filesystem;

inline const std::vector<std::string> kForeignVariables = {"CUDA_INJECTION64_PATH", "LD_PRELOAD",
                                                           "RANK", "SLURM_PROCID", "WORLD_SIZE"};

/// One folder, in which the program runs.
struct Place {
  TempDir folder;

  [[nodiscard]] ProcessResult run(const std::string& scenario,
                                  std::vector<std::string> environment = {}) const {
    environment.push_back(std::string("LD_PRELOAD=") + STUB);
    environment.emplace_back("CONVTRACE_CPU_ALLOC=on");
    return run_process({PROGRAM, scenario},
                       {std::move(environment), kForeignVariables, folder.path()});
  }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path())) names.push_back(entry.path());
    std::sort(names.begin(), names.end());
    return names;
  }
};

/// All of a trace that these tests look at.
struct Contents {
  TraceState state = TraceState::kDamaged;
  format::TraceMeta meta;
  std::map<std::string, uint64_t> records;
  uint64_t last_step = 0;
  uint64_t lost = 0;
  std::vector<std::string> finding_texts;
  std::vector<format::FindingKind> findings;
  std::vector<std::vector<std::string>> stacks;  ///< alloc, launch, free of the last finding
};

inline std::vector<std::string> frames(const format::Definitions& definitions, format::StackId id) {
  std::vector<std::string> texts;
  for (const format::StringId frame : definitions.stack(id))
    texts.emplace_back(definitions.text(frame));
  return texts;
}

inline Contents read(const std::string& path) {
  INFO(path);
  auto opened = reader::TraceReader::open(path);
  REQUIRE(opened.ok());
  reader::TraceReader& trace = *opened.value();
  Contents found;
  while (const format::Event* event = trace.next()) {
    ++found.records[std::string(format::event_name(event->index()))];
    if (const auto* step = std::get_if<format::Step>(event)) found.last_step = step->index;
    if (const auto* loss = std::get_if<format::Loss>(event)) found.lost += loss->count;
    if (const auto* finding = std::get_if<format::Finding>(event)) {
      found.findings.push_back(finding->kind);
      found.finding_texts.emplace_back(finding->message);
      found.stacks = {frames(trace.definitions(), finding->alloc_stack),
                      frames(trace.definitions(), finding->launch_stack),
                      frames(trace.definitions(), finding->free_stack)};
    }
  }
  found.state = trace.state();
  found.meta = trace.meta();
  return found;
}

inline std::string fact(const Contents& trace, const std::string& name) {
  for (const auto& [key, value] : trace.meta.facts) {
    if (key == name) return value;
  }
  return {};
}

inline uint64_t lines(const std::string& text) {
  return static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace convtrace::test
