#include "tools/cli/rewrite/stripping.h"

#include <algorithm>
#include <set>
#include <string>

#include "format/file/trace_writer.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

constexpr std::string_view kStrippedFrom = "stripped.from";

/// Settings whose values are file names, with or without a slash.
constexpr std::string_view kFileSettings[] = {"setting.CONVTRACE_OUTPUT",
                                              "setting.CONVTRACE_CONFIG", "setting.CONVTRACE_CUPTI",
                                              "setting.CONVTRACE_LOG_FILE"};

bool has_path(std::string_view value) { return value.find('/') != std::string_view::npos; }

/// A value with a slash names a path: of a library, of a home.
bool is_private(const std::string& name, const std::string& value) {
  return has_path(value) || name.starts_with("run.") ||
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

/// Defines everything of `all` in `kept` under the same ids, except stacks and texts that only
/// stacks use.
Status define_without_stacks(const format::Definitions& all, format::Definitions& kept) {
  std::set<uint32_t> frames;
  for (format::StackId id; (id = all.next(id));)
    for (const format::StringId frame : all.stack(id)) frames.insert(frame.value);
  for (format::StringId id; (id = all.next(id));)
    if (!frames.contains(id.value)) CONVTRACE_TRY(kept.define(id, all.text(id)));
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

}  // namespace

Result<Stripped> strip(reader::TraceReader& trace, std::unique_ptr<format::Sink> sink,
                       bool hashes_only) {
  format::Definitions kept;
  CONVTRACE_TRY(define_without_stacks(trace.definitions(), kept));
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

}  // namespace convtrace::tools
