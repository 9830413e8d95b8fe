#include <array>
#include <optional>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/convtrace/commands.h"
#include "tools/convtrace/output.h"
#include "tools/convtrace/record_json.h"
#include "tools/convtrace/trace_input.h"

namespace convtrace::tools {
namespace {

constexpr size_t kEventKinds = std::variant_size_v<format::Event>;

/// What one pass over the events tells.
struct Summary {
  std::array<uint64_t, kEventKinds> records{};
  std::array<uint64_t, format::kLossReasonCount> lost{};
  std::array<uint64_t, 4> findings{};  ///< by level, unsuppressed
  std::optional<std::pair<uint32_t, uint32_t>> steps;

  void add(const format::Event& event) {
    ++records[event.index()];
    const uint32_t step = format::header_of(event).step;
    if (step != format::kNoStep) {
      if (!steps) steps = {step, step};
      steps->first = std::min(steps->first, step);
      steps->second = std::max(steps->second, step);
    }
    if (const auto* loss = std::get_if<format::Loss>(&event)) {
      lost[static_cast<size_t>(loss->reason)] += loss->count;
    }
    if (const auto* finding = std::get_if<format::Finding>(&event)) {
      if (!finding->suppressed) ++findings[static_cast<size_t>(finding->level)];
    }
  }
};

Summary summarize(reader::TraceReader& trace) {
  Summary summary;
  format::Event event;
  while (trace.next(event)) summary.add(event);
  summary.lost[static_cast<size_t>(format::LossReason::kDamage)] +=
      trace.counts().lost_records + trace.events_without_definition();
  return summary;
}

Json info_json(const reader::TraceReader& trace, const Summary& summary) {
  Json json;
  json["state"] = to_string(trace.state());
  json["bytes"] = trace.file_bytes();
  json["steps"] =
      summary.steps ? Json::array({summary.steps->first, summary.steps->second}) : Json();
  Json& records = json["records"] = Json::object();
  for (size_t i = 0; i < kEventKinds; ++i) records[format::event_name(i)] = summary.records[i];
  Json& lost = json["lost"] = Json::object();
  for (size_t i = 0; i < summary.lost.size(); ++i) {
    if (summary.lost[i] == 0) continue;
    lost[to_string(static_cast<format::LossReason>(i))] = summary.lost[i];
  }
  Json& findings = json["findings"] = Json::object();
  for (size_t i = 0; i < summary.findings.size(); ++i) {
    if (summary.findings[i] == 0) continue;
    findings[to_string(static_cast<format::Level>(i))] = summary.findings[i];
  }
  Json& problems = json["problems"] = Json::array();
  for (const reader::Problem& problem : trace.problems()) {
    problems.push_back(
        {{"offset", problem.offset}, {"bytes", problem.bytes}, {"text", problem.text}});
  }
  json["meta"] = meta_json(trace.meta());
  return json;
}

/// Rows of name and text, in two columns.
class Rows {
 public:
  void add(std::string name, std::string text) {
    rows_.emplace_back(std::move(name), std::move(text));
  }

  void print(Output& output) {
    size_t width = 0;
    for (const auto& [name, text] : rows_) width = std::max(width, name.size());
    for (auto& [name, text] : rows_) {
      name.resize(width + 2, ' ');
      output.line(name + text);
    }
  }

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

std::string command_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + quote_shell(word);
  return text;
}

void print_info(Output& output, const reader::TraceReader& trace, const Summary& summary) {
  const format::TraceMeta& meta = trace.meta();
  Rows rows;
  rows.add("state", to_string(trace.state()));
  rows.add("size", counted(trace.file_bytes(), "byte"));
  rows.add("command", command_text(meta.command_line));
  rows.add("process", "pid " + std::to_string(meta.pid) + " on " + escape_text(meta.host) +
                          ", rank " + std::to_string(meta.rank) + " of " +
                          std::to_string(meta.world_size));
  rows.add("steps", summary.steps ? std::to_string(summary.steps->first) + " to " +
                                        std::to_string(summary.steps->second)
                                  : "none");
  for (size_t i = 0; i < kEventKinds; ++i) {
    if (summary.records[i] == 0) continue;
    rows.add("records", count_text(summary.records[i]) + ' ' + std::string(format::event_name(i)));
  }
  for (size_t i = 0; i < summary.findings.size(); ++i) {
    if (summary.findings[i] == 0) continue;
    rows.add("findings", count_text(summary.findings[i]) + ' ' +
                             std::string(to_string(static_cast<format::Level>(i))));
  }
  for (size_t i = 0; i < summary.lost.size(); ++i) {
    if (summary.lost[i] == 0) continue;
    rows.add("lost", count_text(summary.lost[i]) + ": " +
                         std::string(to_string(static_cast<format::LossReason>(i))));
  }
  rows.add("convtrace", escape_text(meta.tool_version));
  for (const auto& [name, value] : meta.facts) {
    if (!value.empty()) rows.add(escape_text(name), escape_text(value));
  }
  rows.print(output);
}

}  // namespace

ExitCode show_info(const std::string& path, bool json) {
  const auto trace = open_trace(path);
  if (trace == nullptr) return ExitCode::kFailure;
  const Summary summary = summarize(*trace);
  Output output;
  if (json) {
    output.line(dump_json(info_json(*trace, summary)));
  } else {
    print_info(output, *trace, summary);
  }
  return output.finish(report_state(*trace, path));
}

}  // namespace convtrace::tools
