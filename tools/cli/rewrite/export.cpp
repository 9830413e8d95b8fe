#include "tools/cli/rewrite/export.h"

#include <utility>

#include "tools/cli/base/python_script.h"
#include "tools/common/complaints.h"

namespace convtrace::tools {

ExportCommand::ExportCommand(CLI::App& app)
    : app_(app.add_subcommand("export", "Traces in a format of other programs")) {
  app_->add_option("TRACE", traces_, "Traces, or folders of traces (ranks)")->required();
  app_->add_option(
          "--format", format_,
          "parquet: statistics, launches, allocations and findings; npy: values of tensors; ort: "
          "the "
          "files of ONNX Runtime's StatisticsSubscriber; statistic-csv: MindSpore's statistic.csv; "
          "perfetto: a file for the viewer at ui.perfetto.dev; tensorboard: numbers of each step")
      ->required()
      ->check(CLI::IsMember({"parquet", "npy", "ort", "statistic-csv", "perfetto", "tensorboard"}));
  app_->add_option("-o,--output", output_, "The new folder; a file for statistic-csv and perfetto")
      ->required()
      ->type_name("PATH");
  app_->add_option(
          "--by", by_,
          "How parquet is divided: rank (default); steps: buckets of steps with the rows of "
          "all ranks, sorted by rank")
      ->check(CLI::IsMember({"rank", "steps"}));
  app_->add_flag("--follow", follow_,
                 "Go on while a trace is written, until it is closed: for tensorboard");
  app_->add_option("--start-step", start_step_, "The first step")->type_name("N");
  app_->add_option("--end-step", end_step_, "The step behind the last one")->type_name("N");
  app_->add_flag("--overwrite", overwrite_, "Replace PATH if it is an earlier export");
  app_->footer(
      "Needs python3; parquet also its package pyarrow, tensorboard the package of that name.");
}

ExitCode ExportCommand::run() const {
  if (follow_ && format_ != "tensorboard") {
    complain(MessageId::kUsage, "--follow is for --format tensorboard");
    return ExitCode::kUsage;
  }
  if (by_ == "steps" && format_ != "parquet") {
    complain(MessageId::kUsage, "--by steps is for --format parquet");
    return ExitCode::kUsage;
  }
  std::vector<std::string> words{"--format", format_, "--output", output_, "--by", by_};
  if (follow_) words.emplace_back("--follow");
  if (overwrite_) words.emplace_back("--overwrite");
  for (const auto& [option, value] :
       {std::pair{"--start-step", start_step_}, std::pair{"--end-step", end_step_}})
    if (value) words.insert(words.end(), {option, std::to_string(*value)});
  words.emplace_back("--");
  words.insert(words.end(), traces_.begin(), traces_.end());
  return become_script("python/export.py", words);
}

}  // namespace convtrace::tools
