#include "format/findings/ops/op_finding.h"

#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::judge;

namespace {

OpFinding finding_in(format::Definitions& definitions, const char* scope) {
  OpFinding finding;
  finding.place = {definitions.intern(scope), 2, format::Phase::kForward};
  finding.header.step = 7;
  finding.op = definitions.intern("demo::bias_relu");
  finding.slot = definitions.intern("output:0");
  finding.other = definitions.intern("input:1");
  finding.address = 0x7f30c0a41040;
  finding.bytes = 98304;
  return finding;
}

}  // namespace

TEST_CASE("op_text: freed-under-output names all that one needs to act", "[judge][alias]") {
  format::Definitions definitions;
  OpFinding finding = finding_in(definitions, "h.0.mlp");
  finding.kind = format::FindingKind::kFreedUnderOutput;
  const std::string text = describe(finding, definitions);
  for (const char* part :
       {"output:0", "input:1", "demo::bias_relu", "h.0.mlp", "step 7", "call 2", "forward",
        "0x7f30c0a41040", "98304 bytes", "freed", "clone", "keep input:1 alive", "schema"}) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("op_text: who overwrites a freed output is told once it is known", "[judge][alias]") {
  format::Definitions definitions;
  OpFinding finding = finding_in(definitions, "h.0.mlp");
  finding.kind = format::FindingKind::kFreedUnderOutput;
  finding.given_to = 4096;
  const std::string known = describe(finding, definitions);
  CHECK(known.find("given it out again, to an allocation of 4096 bytes") != std::string::npos);
  CHECK(known.find("keep input:1 alive") != std::string::npos);
  finding.other = {};
  const std::string unknown = describe(finding, definitions);
  CHECK(unknown.find("to an allocation of 4096 bytes") != std::string::npos);
  CHECK(unknown.find("before the op returned") != std::string::npos);
  CHECK(unknown.find("an input") == std::string::npos);
}

TEST_CASE("op_text: output-aliases-input begins with the pair, as documented", "[judge][alias]") {
  format::Definitions definitions;
  OpFinding finding = finding_in(definitions, "");
  const std::string text = describe(finding, definitions);
  CHECK(text.find("output:0 aliases input:1 (0x7f30c0a41040, 98304 bytes), declared: none") == 0);
  CHECK(text.find("the root module") != std::string::npos);
  CHECK(text.find("occurrence") == std::string::npos);
  finding.occurrence = 16;
  CHECK(describe(finding, definitions).find("occurrence 16") != std::string::npos);
}

TEST_CASE("op_text: unknown names leave a readable sentence", "[judge][alias]") {
  const format::Definitions definitions;
  const std::string text = describe(OpFinding{}, definitions);
  CHECK(text.find("an output aliases an input") == 0);
  CHECK(text.find("op (unnamed) (call 0") != std::string::npos);
}
