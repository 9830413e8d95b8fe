#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/findings/trace_judge.h"
#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_json.h"
#include "tools/cli/base/record_text.h"
#include "tools/cli/base/trace_input.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/stories.h"
#include "tools/common/symbols.h"
#include "tools/common/text.h"
#include "tools/report/brief.h"

namespace convtrace::tools {
namespace {

constexpr size_t kLinesShown = 20;

struct FindingsOptions : TraceOptions {
  bool brief = false;   ///< the first finding alone, as a short answer in JSON
  bool replay = false;  ///< judge the recorded events anew
  bool strict = false;  ///< a warning ends with kFindings, too
};

/// Keeps findings until all are known, then writes them: as text a paragraph for each story, as
/// JSON a line for each finding.
class Listing {
 public:
  Listing(const reader::TraceReader& trace, const FindingsOptions& options)
      : trace_(trace),
        symbols_(trace.meta()),
        json_(options.json || options.brief),
        brief_(options.brief),
        strict_(options.strict),
        all_stacks_(trace.meta().fact("setting.CONVTRACE_STACKS") == "all") {}

  /// @param slot  of a finding whose slot has no number in the trace.
  void add(const format::Finding& finding, const std::optional<std::string>& slot = {}) {
    ++(finding.suppressed ? suppressed_ : counts_[static_cast<size_t>(finding.level)]);
    const Stacks stacks{.alloc = frames_of(finding.alloc_stack),
                        .launch = frames_of(finding.launch_stack),
                        .free = frames_of(finding.free_stack),
                        .all_taken = all_stacks_};
    parts_.push_back(part_of(finding, slot));
    if (!json_) {
      paragraphs_.push_back(finding_paragraph(finding, stacks, trace_.definitions()));
      return;
    }
    Json line = event_json(finding, trace_.definitions(), trace_.meta().rank);
    line["stacks"] = {{"alloc", stacks.alloc}, {"launch", stacks.launch}, {"free", stacks.free}};
    if (slot) line["slot"] = *slot;
    objects_.push_back(std::move(line));
  }
  [[nodiscard]] ExitCode finish(ExitCode state, const std::string& path) {
    if (brief_) {
      output_.line(report::brief_json(short_answer(state, path)));
    } else {
      write();
    }
    for (const std::string& line : symbols_.obstacles()) complain(MessageId::kNoNames, path, line);
    if (state != ExitCode::kClean) return output_.finish(state);
    const bool found =
        count(format::Level::kError) != 0 || (strict_ && count(format::Level::kWarning) != 0);
    return output_.finish(found ? ExitCode::kFindings : ExitCode::kClean);
  }

 private:
  [[nodiscard]] std::vector<std::string> frames_of(format::StackId stack) {
    return symbols_.frames(stack_texts(trace_.definitions(), stack));
  }

  [[nodiscard]] StoryPart part_of(const format::Finding& finding,
                                  const std::optional<std::string>& slot) const {
    const format::Definitions& names = trace_.definitions();
    return {.kind = finding.kind,
            .level = finding.level,
            .suppressed = finding.suppressed,
            .step = finding.header.step,
            .place = place_text(names, {finding.place.scope, 0, finding.place.phase}),
            .op = std::string(names.text(finding.op)),
            .kernel = std::string(names.text(names.kernel(finding.kernel).name)),
            .slot = slot ? *slot : std::string(names.text(finding.slot)),
            .other = std::string(names.text(finding.other)),
            .storage = finding.value.storage,
            .generation = finding.value.generation,
            .address = finding.address,
            .bytes = finding.bytes,
            .stacks = static_cast<size_t>(static_cast<bool>(finding.alloc_stack)) +
                      static_cast<bool>(finding.launch_stack) +
                      static_cast<bool>(finding.free_stack)};
  }

  void write() {
    const std::vector<Story> stories = tell_stories(parts_);
    for (size_t number = 0; number < stories.size(); ++number) {
      if (!json_) paragraph(stories[number], number == 0);
      for (const size_t i : stories[number]) {
        if (!json_) break;
        objects_[i]["story"] = number;
        output_.line(dump_json(objects_[i]));
      }
    }
    if (!json_ && !parts_.empty()) output_.line("\nfound: " + counts_text());
  }

  [[nodiscard]] report::Brief short_answer(ExitCode state, const std::string& path) const {
    report::Brief brief{.verdict = state == ExitCode::kClean ? "clean" : "incomplete",
                        .headline = counts_text()};
    if (state != ExitCode::kClean)
      brief.cannot_tell.emplace_back("the trace is unclosed or damaged: its end was not judged");
    for (const Story& story : tell_stories(parts_)) {
      const StoryPart& part = parts_[story.front()];
      if (part.suppressed) continue;
      const Json& finding = objects_[story.front()];
      brief.verdict = to_string(part.level);
      for (const char* key : {"rank", "step", "phase", "scope", "op", "kernel", "slot"})
        brief.place[key] = finding.value(key, Json());
      brief.confidence = report::confidence_of(part.level);
      brief.cause = to_string(part.kind);
      brief.evidence = {finding.value("message", "")};
      for (const char* what : {"alloc", "launch", "free"}) {
        const Json& frames = finding["stacks"][what];
        if (!frames.empty())
          brief.evidence.push_back(std::string(what) + ": " + frames.front().get<std::string>());
      }
      brief.next = {"convtrace findings " + quote_shell(path)};
      break;
    }
    return brief;
  }

  [[nodiscard]] uint64_t count(format::Level level) const {
    return counts_[static_cast<size_t>(level)];
  }

  [[nodiscard]] std::string counts_text() const {
    const uint64_t warnings = count(format::Level::kWarning);
    std::string text =
        counted(count(format::Level::kError), "error") + ", " + counted(warnings, "warning");
    if (const uint64_t hints = count(format::Level::kInfo)) text += ", " + counted(hints, "hint");
    if (suppressed_ != 0) text += ", " + count_text(suppressed_) + " suppressed by a rule";
    if (warnings != 0 && !strict_) text += " (--strict: exit code 4 for a warning, too)";
    return text;
  }

  void paragraph(const Story& story, bool first) {
    if (!first) output_.line("");
    output_.line(paragraphs_[story.front()]);
    if (story.size() == 1) return;
    output_.line("  of the same memory or by the same code:");
    const std::vector<std::string> lines = story_lines(parts_, story);
    for (size_t i = 0; i < std::min(lines.size(), kLinesShown); ++i)
      output_.line("    " + lines[i]);
    if (lines.size() > kLinesShown)
      output_.line("    and " + std::to_string(lines.size() - kLinesShown) +
                   " other places (--json has all)");
  }

  const reader::TraceReader& trace_;
  Symbols symbols_;
  bool json_, brief_, strict_, all_stacks_;
  Output output_;
  std::array<uint64_t, format::kEnumCount<format::Level>> counts_{};  ///< not suppressed
  uint64_t suppressed_ = 0;
  std::vector<StoryPart> parts_;
  std::vector<std::string> paragraphs_;  ///< one for each finding; empty for JSON
  std::vector<Json> objects_;            ///< one for each finding; empty for text
};

/// Judges a trace as the process that wrote it did. Recorded findings of the same kinds are not
/// listed: they only show which findings a rule suppressed, because the trace does not contain the
/// rules.
class Replay {
 public:
  Replay(const reader::TraceReader& trace, Listing& listing)
      : listing_(listing), judge_(trace.definitions()) {}

  void see(const format::Event& event) {
    const auto* const recorded = std::get_if<format::Finding>(&event);
    if (recorded == nullptr) {
      list_all();
      found_ = judge_.see(event);
    } else if (!judge::TraceJudge::judges(recorded->kind)) {
      listing_.add(*recorded);
    } else if (!found_.empty()) {  // recorded findings follow the event that caused them
      list_next(recorded->suppressed);
    }
  }
  void list_all() {
    while (!found_.empty()) list_next(false);
  }

 private:
  void list_next(bool suppressed) {
    judge::Verdict& verdict = found_.front();
    verdict.record.suppressed = suppressed;
    const bool named = static_cast<bool>(verdict.record.slot);
    listing_.add(verdict.record, named ? std::nullopt : std::optional(verdict.slot));
    found_ = found_.subspan(1);
  }

  Listing& listing_;
  judge::TraceJudge judge_;
  std::span<judge::Verdict> found_;
};

std::string unwatched_text(const format::Diagnostic& said) {
  const std::string from = said.header.step == 0 || said.header.step == format::kNoStep
                               ? ""
                               : "from step " + std::to_string(said.header.step) + " on ";
  return from + std::string(said.message) + "; what uses it after its free is not found";
}

ExitCode show_findings(const FindingsOptions& options) {
  const std::string& path = options.path;
  const auto trace = open_trace(path);
  if (trace == nullptr) return ExitCode::kFailure;
  Listing listing(*trace, options);
  Replay again(*trace, listing);
  std::string unwatched;
  while (const format::Event* event = trace->next()) {
    if (const auto* said = std::get_if<format::Diagnostic>(event))
      if (said->site == format::kCpuMemorySite) unwatched = unwatched_text(*said);
    if (options.replay) {
      again.see(*event);
    } else if (const auto* finding = std::get_if<format::Finding>(event)) {
      listing.add(*finding);
    }
  }
  again.list_all();
  if (!unwatched.empty()) complain(MessageId::kUnwatched, path, unwatched);
  return listing.finish(report_state(*trace, path), path);
}

}  // namespace

void add_findings(Commands& commands) {
  auto [command, options] = commands.add<FindingsOptions>(
      "findings", "What convtrace found wrong, with the stacks", show_findings);
  add_trace_options(command, options, "One JSON object a line");
  command.add_flag("--replay", options.replay,
                   "Judge the recorded allocations, launches and synchronisations anew");
  command.add_flag("--brief", options.brief, "The first finding alone, as JSON of at most 2 kB");
  command.add_flag("--strict", options.strict, "End with 4 for a warning, too");
}

}  // namespace convtrace::tools
