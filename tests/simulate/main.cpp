// Makes up a job of many ranks and writes their traces; see docs/lab/scale.md.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>

#include "tests/simulate/job.h"

namespace {

using namespace convtrace::simulate;

constexpr uint64_t kMostCalls = 500'000;  ///< beyond that a job is cheap

/// Names for the enumerators 0, 1, ...; help and errors list the names alone.
template <typename Enum, size_t kCount>
CLI::Validator one_of(const std::string_view (&names)[kCount]) {
  std::map<std::string, std::string> numbers;
  std::string all;
  for (size_t i = 0; i < kCount; ++i) {
    numbers.emplace(names[i], std::to_string(i));
    all += (i == 0 ? "" : ",") + std::string(names[i]);
  }
  return CLI::Validator(
      [numbers, all](std::string& word) {
        const auto found = numbers.find(word);
        if (found == numbers.end()) return word + " is none of " + all;
        word = found->second;
        return std::string();
      },
      "{" + all + "}");
}

/// @return "" or why not.
std::string read_origins(const std::vector<std::string>& places,
                         const std::vector<FaultKind>& kinds, Options& options) {
  if (kinds.size() > places.size()) return "--kind: there are fewer --origin";
  for (size_t i = 0; i < places.size(); ++i) {
    Origin origin;
    char end = 0;
    if (std::sscanf(places[i].c_str(), "%u:%u%c", &origin.rank, &origin.step, &end) != 2)
      return "--origin: " + places[i] + " is not RANK:STEP";
    if (!kinds.empty()) origin.kind = kinds[std::min(i, kinds.size() - 1)];
    options.origins.push_back(origin);
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Makes up the traces of a job of many ranks.", "simulate_job"};
  Options options;
  std::vector<std::string> places;
  std::vector<FaultKind> kinds;
  app.add_option("--ranks", options.ranks, "ranks of the job")
      ->required()
      ->check(CLI::Range(1, 65536));
  app.add_option("--steps", options.steps, "training steps")
      ->required()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--output", options.output, "a new folder for the traces and job.json")
      ->required();
  app.add_option("--origin", places,
                 "RANK:STEP where something goes wrong; several; none: nothing does");
  app.add_option("--kind", kinds,
                 "what goes wrong, of each origin; the last is that of the others, too")
      ->transform(one_of<FaultKind>(kFaultNames));
  app.add_option("--seed", options.seed, "of data, weights, and where within a step");
  app.add_option("--collectives", options.collectives,
                 "about so many a rank and step, by more layers")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--dp", options.data, "replicas");
  app.add_option("--tp", options.tensor, "ranks that share a layer");
  app.add_option("--pp", options.stages, "stages of the pipeline");
  app.add_option("--micro-batches", options.micro_batches, "passes of a step");
  app.add_option("--elements", options.elements, "of an activation")
      ->check(CLI::Range(32, 1'000'000));
  app.add_option("--types", options.types, "of activations")->transform(one_of<Types>(kTypeNames));
  app.add_option("--threads", options.threads, "that compute statistics and write");
  app.add_flag("--sharded", options.sharded, "replicas divide gradients and updates among them");
  app.add_flag("--cheap", options.cheap,
               "small tensors, values of one layer of eight; of itself beyond 500,000 calls");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::string error = read_origins(places, kinds, options);
  const uint64_t calls =
      uint64_t{options.ranks} * options.steps * std::max(16U, options.collectives);
  options.cheap = options.cheap || calls > kMostCalls;
  JobResult result;
  if (!error.empty() || !make_job(options, result, error)) {
    std::fprintf(stderr, "simulate_job: %s\n", error.c_str());
    return 2;
  }
  std::printf(
      "%u ranks (%u dp, %u tp, %u pp), %u steps, %lu collectives, %lu events, %lu bytes%s\n",
      result.layout.ranks, result.layout.data, result.layout.tensor, result.layout.stages,
      result.steps, result.calls, result.events, result.bytes,
      result.hangs ? "; some rank waits for ever" : "");
  for (const Fault& fault : result.faults)
    std::printf("rank %u, step %u: %s\n", fault.origin.rank, fault.origin.step,
                fault.struck ? fault.text.c_str() : "the job did not come so far");
  return 0;
}
