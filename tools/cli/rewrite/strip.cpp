// A stripped trace has no raw and stored values, stacks, command line, host and process, and nothing
// that names a path. Everything that the diff needs is kept: hashes, statistics, shapes, names of
// modules and kernels, versions and switches.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "format/file/trace_writer.h"
#include "tools/cli/base/commands.h"
#include "tools/cli/base/new_file.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/trace_input.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

struct Stripped {
  uint64_t events = 0;
  uint64_t bytes = 0;        ///< size of the new trace
  uint64_t values = 0;       ///< tensors whose raw elements are left out
  uint64_t stacks = 0;       ///< call stacks left out
  uint64_t diagnostics = 0;  ///< messages left out
  uint64_t locations = 0;    ///< facts with a file name that were left out
};

constexpr std::string_view kStrippedFrom = "stripped.from", kSource = "source.";

/// Settings whose values are file names, with or without a slash.
constexpr std::string_view kFileSettings[] = {"setting.CONVTRACE_OUTPUT",
                                              "setting.CONVTRACE_CONFIG", "setting.CONVTRACE_CUPTI",
                                              "setting.CONVTRACE_LOG_FILE"};

bool has_path(std::string_view value) { return value.find('/') != std::string_view::npos; }

/// A value with a slash names a path: of a library, of a home.
bool is_private(const std::string& name, const std::string& value) {
  return has_path(value) || name.starts_with("run.") || name.starts_with(kSource) ||
         std::ranges::find(kFileSettings, name) != std::end(kFileSettings);
}

/// META of the new trace. A trace that was stripped before keeps the name of its original.
format::TraceMeta stripped_meta(const format::TraceMeta& original) {
  format::TraceMeta meta = original;
  std::erase_if(meta.facts, [](const auto& fact) { return is_private(fact.first, fact.second); });
  if (std::ranges::none_of(meta.facts,
                           [](const auto& fact) { return fact.first == kStrippedFrom; }))
    meta.facts.emplace_back(kStrippedFrom, uuid_text(original.uuid));
  std::ranges::sort(meta.facts);
  meta.uuid = {};
  meta.host.clear();
  meta.pid = 0;
  meta.command_line.clear();
  return meta;
}

/// Defines everything of `all` in `kept` under the same ids, except stacks, texts that only stacks
/// use, and what facts told of paths and sources.
Status define_without_stacks(const format::Definitions& all, const format::TraceMeta& meta,
                             format::Definitions& kept) {
  std::set<uint32_t> frames;
  std::set<std::string_view> left_out;
  for (const auto& [name, value] : meta.facts)
    if (has_path(value) || name.starts_with(kSource)) left_out.insert(value);
  for (format::StackId id; (id = all.next(id));)
    for (const format::StringId frame : all.stack(id)) frames.insert(frame.value);
  for (format::StringId id; (id = all.next(id));)
    if (!frames.contains(id.value) && !left_out.contains(all.text(id)))
      CONVTRACE_TRY(kept.define(id, all.text(id)));
  for (format::KernelId id; (id = all.next(id));) CONVTRACE_TRY(kept.define(id, all.kernel(id)));
  return kOkStatus;
}

class Stripper {
 public:
  Stripper(format::TraceWriter& writer, const format::Definitions& names, bool hashes_only)
      : writer_(writer), names_(names), hashes_only_(hashes_only) {}

  Status copy(const format::Event& event) {
    if (std::holds_alternative<format::Diagnostic>(event)) {
      ++result_.diagnostics;
      return kOkStatus;
    }
    const auto* fact = std::get_if<format::Fact>(&event);
    if (fact != nullptr &&
        (format::is_location(names_.text(fact->name)) || has_path(fact->value))) {
      ++result_.locations;
      return kOkStatus;
    }
    format::Event stripped = event;
    format::visit_event([this](auto& e) { strip(e); }, stripped);
    ++result_.events;
    return writer_.append(stripped);
  }
  [[nodiscard]] const Stripped& result() const { return result_; }

 private:
  /// Leaves out the stacks.
  void strip(auto& event) {
    format::each_column(event, [this](auto, const char*, auto& value) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, format::StackId>) {
        result_.stacks += value ? 1 : 0;
        value = {};
      }
    });
  }
  void strip(format::TensorStats& tensor) {
    result_.values += tensor.capture == format::Capture::kSnapshot || !tensor.samples.empty() ||
                      !tensor.leading.empty();
    tensor.samples = tensor.leading = {};
    if (tensor.capture == format::Capture::kSnapshot) tensor.capture = format::Capture::kStats;
    if (!hashes_only_) return;
    format::Stats of_hash;
    of_hash.hash = tensor.stats.hash;
    of_hash.count = tensor.stats.count;
    tensor.stats = of_hash;
    tensor.capture = format::Capture::kHash;
  }
  format::TraceWriter& writer_;
  const format::Definitions& names_;
  const bool hashes_only_;
  Stripped result_;
};

/// @param trace        at its first event; read to its end.
/// @param hashes_only  statistics are left out, too.
/// @return kNoSpace, kIoError, kOutOfMemory of the new trace.
Result<Stripped> strip(reader::TraceReader& trace, std::unique_ptr<format::Sink> sink,
                       bool hashes_only) {
  format::Definitions kept;
  CONVTRACE_TRY(define_without_stacks(trace.definitions(), trace.meta(), kept));
  auto made = format::TraceWriter::create(std::move(sink), stripped_meta(trace.meta()), kept);
  if (!made.ok()) return made.status();
  format::TraceWriter& writer = *made.value();
  Stripper stripper(writer, kept, hashes_only);
  while (const format::Event* event = trace.next()) CONVTRACE_TRY(stripper.copy(*event));
  CONVTRACE_TRY(writer.close());
  Stripped result = stripper.result();
  result.bytes = writer.bytes_written();
  return result;
}

struct StripOptions : CopyOptions {
  bool hashes_only = false;
};

void print_report(Output& output, const std::string& path, const Stripped& stripped) {
  output.line(escape_text(path) + ": " + counted(stripped.events, "event") + ", " +
              counted(stripped.bytes, "byte"));
  output.line("left out: raw values of " + counted(stripped.values, "tensor") + ", " +
              counted(stripped.stacks, "stack") + ", " + counted(stripped.diagnostics, "message") +
              ", " + counted(stripped.locations, "location") + ", command line, host and paths");
}

Json report_json(const std::string& path, const Stripped& stripped) {
  Json json;
  json["output"] = escape_text(path);
  json["events"] = stripped.events;
  json["bytes"] = stripped.bytes;
  json["left_out"] = {{"tensors", stripped.values},
                      {"stacks", stripped.stacks},
                      {"diagnostics", stripped.diagnostics},
                      {"locations", stripped.locations}};
  return json;
}

ExitCode strip_trace(const StripOptions& options) {
  std::error_code ignored;
  if (std::filesystem::equivalent(options.path, options.output, ignored)) {
    complain(MessageId::kIsInput, options.output, "is the trace itself, which is never changed");
    return ExitCode::kUsage;
  }
  const auto trace = open_trace(options.path);
  if (trace == nullptr) return ExitCode::kFailure;
  NewFile file(options.output, options.overwrite);
  auto sink = file.create();
  if (sink == nullptr) return ExitCode::kFailure;
  const Result<Stripped> stripped = strip(*trace, std::move(sink), options.hashes_only);
  if (!stripped.ok()) {
    complain(MessageId::kNotWritten, options.output, status_text(stripped.status()));
    return ExitCode::kFailure;
  }
  if (!file.keep()) return ExitCode::kFailure;
  Output output;
  if (options.json) {
    output.line(dump_json(report_json(options.output, stripped.value())));
  } else {
    print_report(output, options.output, stripped.value());
  }
  return output.finish(report_state(*trace, options.path));
}

}  // namespace

void add_strip(Commands& commands) {
  auto [command, options] = commands.add<StripOptions>(
      "strip", "Write a trace anew without raw values, stacks, command line, host and paths",
      strip_trace);
  add_copy_options(command, options);
  command.add_flag("--hashes", options.hashes_only,
                   "Leave the statistics out, too: what is left only tells equal from unequal");
  command.footer(
      "What stays: names of modules, kernels and parameters, shapes, statistics and hashes of "
      "tensors, addresses, versions and switches. Names that you gave your modules are not "
      "hidden.");
}

}  // namespace convtrace::tools
