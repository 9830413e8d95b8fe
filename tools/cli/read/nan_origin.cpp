#include "tools/cli/read/nan_origin.h"

#include <map>

#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

using Facts = std::map<std::string, std::string, std::less<>>;

/// The facts of a module, as of a step.
Facts facts_of(reader::TraceReader& trace, const std::string& scope, uint32_t step) {
  Facts facts;
  trace.rewind();
  while (const format::Event* event = trace.next()) {
    const auto* fact = std::get_if<format::Fact>(event);
    if (fact == nullptr || !fact->scope) continue;
    if (fact->header.step != format::kNoStep && fact->header.step > step) continue;
    if (trace.definitions().text(fact->scope) == scope)
      facts[std::string(trace.definitions().text(fact->name))] = fact->value;
  }
  return facts;
}

std::string code_text(const std::string& scope, const std::string& op, const Facts& facts) {
  const auto value = [&facts](std::string_view name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::string() : found->second;
  };
  const std::string path = value("class"), forward = value("forward"), call = value("call");
  if (path.empty() && forward.empty() && op.empty()) return "";
  std::string text =
      "Its code: " + (op.empty() ? "" : "op " + op + ", in ") + tools::module_text(scope);
  std::string inside = path.substr(path.rfind('.') + 1);
  if (!forward.empty()) inside += (inside.empty() ? "" : ", ") + forward;
  if (!call.empty()) inside += (inside.empty() ? "called at " : ", called at ") + call;
  return escape_text(inside.empty() ? text : text + " (" + inside + ')');
}

}  // namespace

NanOrigin origin_of(reader::TraceReader& trace, const Seen& birth, const NanFound& found,
                    const std::string& path) {
  const format::Definitions& names = trace.definitions();
  std::string scope(names.text(birth.place.scope)), op(names.text(birth.op));
  bool known = static_cast<bool>(birth.place.scope);
  if (found.made_by) {
    if (const auto maker = found.made_by->place()) {
      scope = maker->scope;
      op = maker->op;
      known = !maker->in_no_module;
    }
  }
  NanOrigin origin;
  const bool given = birth.place.phase == format::Phase::kData;  // no code of the program made it
  if (known && !given) origin.code = code_text(scope, op, facts_of(trace, scope, birth.step));
  const format::Phase phase = birth.place.phase;
  const bool computed = phase == format::Phase::kForward || phase == format::Phase::kLoss ||
                        phase == format::Phase::kBackward;
  // The operations inside a module name the one that made it. The root module and a loss have no
  // path, so all operations are recorded.
  const std::string inside = known && phase != format::Phase::kLoss && !scope.empty() ? scope : "*";
  const bool recorded = trace.meta().fact("setting.CONVTRACE_OPS") == inside;
  const std::vector<std::string>& words = trace.meta().command_line;
  if (computed && op.empty() && !recorded) {
    origin.next = "convtrace run --output ops.ctrace --ops " + quote_shell(inside) + " --steps " +
                  std::to_string(birth.step) + " -- " +
                  (words.empty() ? "COMMAND" : shell_line(words)) +
                  " && convtrace show --nan ops.ctrace";
  } else {
    origin.next = "convtrace check " + quote_shell(path) +
                  "    # what loss, gradients and updates were before it";
  }
  return origin;
}

}  // namespace convtrace::tools
