#include <optional>
#include <utility>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/python_script.h"
#include "tools/common/complaints.h"

namespace convtrace::tools {
namespace {

struct ExportOptions {
  std::string format, output, by = "rank";
  bool follow = false, overwrite = false;
  std::optional<uint64_t> start_step, end_step;
  std::vector<std::string> traces;
};

/// Returns only when Python cannot be started.
ExitCode export_traces(const ExportOptions& options) {
  if (options.follow && options.format != "tensorboard") {
    complain(MessageId::kUsage, "--follow is for --format tensorboard");
    return ExitCode::kUsage;
  }
  if (options.by == "steps" && options.format != "parquet") {
    complain(MessageId::kUsage, "--by steps is for --format parquet");
    return ExitCode::kUsage;
  }
  std::vector<std::string> words{"--format",     options.format, "--output",
                                 options.output, "--by",         options.by};
  if (options.follow) words.emplace_back("--follow");
  if (options.overwrite) words.emplace_back("--overwrite");
  for (const auto& [option, value] :
       {std::pair{"--start-step", options.start_step}, std::pair{"--end-step", options.end_step}})
    if (value) words.insert(words.end(), {option, std::to_string(*value)});
  words.emplace_back("--");
  words.insert(words.end(), options.traces.begin(), options.traces.end());
  return become_script("python/export.py", words);
}

}  // namespace

void add_export(Commands& commands) {
  auto [command, options] =
      commands.add<ExportOptions>("export", "Traces in a format of other programs", export_traces);
  command.add_option("TRACE", options.traces, "Traces, or folders of traces (ranks)")->required();
  command
      .add_option(
          "--format", options.format,
          "parquet: statistics, launches, allocations and findings; npy: values of tensors; ort: "
          "the "
          "files of ONNX Runtime's StatisticsSubscriber; statistic-csv: MindSpore's statistic.csv; "
          "perfetto: a file for the viewer at ui.perfetto.dev; tensorboard: numbers of each step")
      ->required()
      ->check(CLI::IsMember({"parquet", "npy", "ort", "statistic-csv", "perfetto", "tensorboard"}));
  command
      .add_option("-o,--output", options.output,
                  "The new folder; a file for statistic-csv and perfetto")
      ->required()
      ->type_name("PATH");
  command
      .add_option(
          "--by", options.by,
          "How parquet is divided: rank (default); steps: buckets of steps with the rows of "
          "all ranks, sorted by rank")
      ->check(CLI::IsMember({"rank", "steps"}));
  command.add_flag("--follow", options.follow,
                   "Go on while a trace is written, until it is closed: for tensorboard");
  command.add_option("--start-step", options.start_step, "The first step")->type_name("N");
  command.add_option("--end-step", options.end_step, "The step behind the last one")
      ->type_name("N");
  command.add_flag("--overwrite", options.overwrite, "Replace PATH if it is an earlier export");
  command.footer(
      "Needs python3; parquet also its package pyarrow, tensorboard the package of that name.");
}

}  // namespace convtrace::tools
