#include <algorithm>
#include <cctype>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/origin/model/rank_text.h"
#include "tools/origin/report/reports.h"

namespace convtrace::origin {
namespace {

using tools::escape_text;

constexpr size_t kShown = 20;

class Text : public diff::TextReport {
 public:
  Text(const OriginResult& result, diff::Terminal terminal, std::ostream& out)
      : TextReport(terminal, out), result_(result) {}

  void write() {
    headline(result_.origins.empty() ? "32;1" : "31;1", origin::headline(result_));
    for (const std::string& why : result_.incomplete) line("incomplete  ", why);
    for (const std::string& note : result_.notes) line("note        ", escape_text(note));
    for (size_t i = 0; i < std::min(result_.origins.size(), kShown); ++i)
      origin(result_.origins[i]);
    const uint64_t more = result_.origins.size() - std::min(result_.origins.size(), kShown) +
                          result_.origins_left_out;
    if (more != 0) line("\nand ", std::to_string(more) + " more (--json has the first thousand)");
  }

 private:
  void origin(const Origin& one) {
    out_ << "\n"
         << paint("31;1", std::string(to_string(one.kind))) << "  " << place_of(one) << "\n";
    std::string text = escape_text(one.text);
    if (one.times > 1) text += " (" + tools::count_text(one.times) + " times)";
    line("  ", text);
    for (const std::string& each : one.evidence) line("    seen      ", escape_text(each));
    line("    received  ", received_text(one));
    line("    next      ", escape_text(one.next));
  }

  const OriginResult& result_;
};

std::string who_of(const Origin& origin) {
  if (origin.rank) return "rank " + std::to_string(*origin.rank);
  return origin.suspects.empty() ? "a rank" : "one of " + ranks_named(origin.suspects);
}

}  // namespace

std::string headline(const OriginResult& result) {
  std::string text;
  if (result.origins.empty()) {
    text = result.joined == 0 && result.values == 0 ? "Nothing to judge between ranks"
                                                    : "Nothing found";
  } else {
    const Origin& first = result.origins.front();
    text = who_of(first) + " went wrong first, in step " + std::to_string(first.step) + ": " +
           std::string(to_string(first.kind));
    const uint64_t more = result.origins.size() - 1 + result.origins_left_out;
    if (more != 0) text += ", and " + tools::counted(more, "other origin");
    text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  }
  return text + "; read: " + tools::counted(result.ranks.size(), "rank") + ", " +
         tools::counted(result.steps, "step") + ", " +
         tools::counted(result.collectives, "collective") + ", " +
         tools::counted(result.transfers, "transfer") + ".";
}

std::string place_of(const Origin& origin) {
  std::string text = origin.rank || !origin.suspects.empty() ? who_of(origin) : "rank not known";
  text += ", step " + std::to_string(origin.step);
  if (origin.phase) text += ", " + std::string(to_string(*origin.phase));
  if (origin.scope)
    text += ", " + (origin.scope->empty() ? "root module" : escape_text(*origin.scope));
  for (const std::string* part : {&origin.op, &origin.slot})
    if (!part->empty()) text += ", " + escape_text(*part);
  return text;
}

std::string received_text(const Origin& origin) {
  if (origin.ranks.empty()) return "";
  std::string text = "by " + ranks_named(origin.ranks);
  if (origin.through)
    text += (origin.kind == Kind::kNan ? ", first through " : ", at ") +
            escape_text(origin.through->op) + " number " + std::to_string(origin.through->number) +
            " of group " + escape_text(origin.through->group) + " in step " +
            std::to_string(origin.through->step);
  return text;
}

void write_text(const OriginResult& result, diff::Terminal terminal, std::ostream& out) {
  Text(result, terminal, out).write();
}

}  // namespace convtrace::origin
