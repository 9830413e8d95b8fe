#pragma once
/// @file contract_report.h
/// The reports of a judged contract.
///
/// Source:   docs/expect.md.

#include <ostream>

#include "tools/common/json.h"
#include "tools/diff/expect/judged.h"
#include "tools/diff/verdict/result.h"
#include "tools/report/brief.h"
#include "tools/report/text_layout.h"

namespace convtrace::diff {

/// What the reports are made of. All must outlive them.
struct ContractReport {
  const Contract& contract;
  const JudgedContract& judged;
  const DiffResult& result;
};

void write_text(const ContractReport& report, Terminal terminal, std::ostream& out);
/// Keys: docs/expect.md.
[[nodiscard]] tools::Json json_of(const ContractReport& report);
[[nodiscard]] report::Brief brief_of(const ContractReport& report);
/// JUnit XML, one case for each clause.
void write_junit(const ContractReport& report, std::ostream& out);

}  // namespace convtrace::diff
