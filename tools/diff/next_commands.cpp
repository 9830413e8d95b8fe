#include "tools/diff/next_commands.h"

#include "tools/common/escape.h"

namespace convtrace::diff {
namespace {

constexpr const char* kRuleFile = "convtrace-root.toml";
constexpr const char* kMostSamples = "4096";

std::vector<std::string> kernel_rule(const std::string& kernel) {
  return {std::string("cat > ") + kRuleFile + " <<'EOF'", "[[rule]]",
          "kernel = " + tools::quote_toml(kernel), "capture = \"snapshot\"", "EOF"};
}

std::string run_again(const char* output, const std::string& options,
                      const std::vector<std::string>& command) {
  std::string line = std::string("convtrace run --output ") + output + options + " --";
  for (const std::string& word : command) line += ' ' + tools::quote_shell(word);
  return command.empty() ? line + " COMMAND" : line;
}

}  // namespace

std::vector<std::string> next_commands(const DiffResult& result) {
  const RecordReport& root = result.root->record;
  const bool raw_kernel = !root.kernel.empty() && root.op.empty();
  const std::string step = root.step == format::kNoStep ? "all" : std::to_string(root.step);
  std::vector<std::string> lines;
  if (raw_kernel) lines = kernel_rule(root.kernel);
  if (result.ranks.size() > 1) {
    // The command line of a rank does not start the job that it was a part of.
    lines.push_back("export CONVTRACE_STEPS=" + step +
                    (raw_kernel ? std::string(" CONVTRACE_CONFIG=$PWD/") + kRuleFile
                                : std::string(" CONVTRACE_SAMPLES=") + kMostSamples));
    lines.emplace_back("# then start both jobs as before, each with another CONVTRACE_OUTPUT");
    return lines;
  }
  const std::string options = " --steps " + step +
                              (raw_kernel ? std::string(" --config ") + kRuleFile
                                          : std::string(" --samples ") + kMostSamples);
  lines.push_back(run_again("root-base.ctrace", options, result.base_command));
  lines.push_back(run_again("root-cand.ctrace", options, result.cand_command));
  lines.emplace_back("convtrace-diff root-base.ctrace root-cand.ctrace");
  return lines;
}

}  // namespace convtrace::diff
