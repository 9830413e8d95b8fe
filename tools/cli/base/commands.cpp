#include "tools/cli/base/commands.h"

namespace convtrace::tools {

void add_trace_options(CLI::App& command, TraceOptions& options, const char* json_help) {
  command.add_option("TRACE", options.path, "A .ctrace file")->required();
  command.add_flag("--json", options.json, json_help);
}

void add_copy_options(CLI::App& command, CopyOptions& options) {
  add_trace_options(command, options, "The report as one JSON object");
  command.add_option("-o,--output", options.output, "The new trace")->required()->type_name("OUT");
  command.add_flag("--overwrite", options.overwrite, "Replace OUT if it exists");
}

}  // namespace convtrace::tools
