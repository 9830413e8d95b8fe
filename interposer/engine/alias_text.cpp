#include "interposer/engine/alias_text.h"

#include <cinttypes>
#include <cstdio>

namespace convtrace::engine {
namespace {

std::string or_else(std::string_view text, const char* otherwise) {
  return text.empty() ? std::string(otherwise) : std::string(text);
}

/// "(0x7f30c0a41040, 98304 bytes)"
std::string extent(const AliasFinding& finding) {
  char text[64];
  snprintf(text, sizeof text, "(0x%" PRIx64 ", %" PRIu64 " bytes)", finding.address, finding.bytes);
  return text;
}

/// "op demo::gelu in module h.0.mlp (call 0 of step 3, forward)"
std::string where(const AliasFinding& finding, const format::Definitions& definitions) {
  std::string text = "op " + or_else(definitions.text(finding.op), "(unnamed)");
  if (finding.place.scope) {
    const std::string_view scope = definitions.text(finding.place.scope);
    text += scope.empty() ? " in the root module" : " in module " + std::string(scope);
  }
  text += " (call " + std::to_string(finding.place.call);
  if (finding.step != format::kNoStep) text += " of step " + std::to_string(finding.step);
  return text + ", " + std::string(to_string(finding.place.phase)) + ")";
}

std::string repeated(const AliasFinding& finding) {
  if (finding.occurrence == 1) return "";
  return " It is occurrence " + std::to_string(finding.occurrence) + " of the same in this scope.";
}

std::string freed_under_output(const AliasFinding& finding, const std::string& output,
                               const std::string& input, const std::string& at) {
  return output + " of " + at + " lies over the memory of " + input + " " + extent(finding) +
         ", and that memory has been freed while " + output +
         " is still alive. The next allocation can be given the same bytes and overwrite " +
         output + ": its values are then silently wrong, without any crash. " +
         "Return a tensor that owns its memory (clone it, or allocate it in the op), or make " +
         output + " keep " + input +
         " alive; if the op means to return a view, return a real view of " + input +
         " and declare the alias in the op's schema." + repeated(finding);
}

std::string output_aliases_input(const AliasFinding& finding, const std::string& output,
                                 const std::string& input, const std::string& at) {
  return output + " aliases " + input + " " + extent(finding) + ", declared: none; in " + at +
         ". Writing to one changes the other, and " + output +
         " is only valid as long as the memory of " + input +
         " is. Return a tensor that owns its memory, or declare the alias in the op's schema." +
         repeated(finding);
}

}  // namespace

std::string describe(const AliasFinding& finding, const format::Definitions& definitions) {
  const std::string output = or_else(definitions.text(finding.output), "an output");
  const std::string input = or_else(definitions.text(finding.input), "an input");
  const std::string at = where(finding, definitions);
  return finding.kind == format::FindingKind::kFreedUnderOutput
             ? freed_under_output(finding, output, input, at)
             : output_aliases_input(finding, output, input, at);
}

}  // namespace convtrace::engine
