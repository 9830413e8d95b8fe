#include <algorithm>
#include <vector>

#include "tests/support/catch.h"
#include "tools/diff/align/align.h"
#include "tools/diff/align/lineage.h"
#include "tools/diff/model/scope_map.h"
#include "tools/diff/read/launch_keys.h"

namespace {

using namespace convtrace;
using diff::Alignment;
using diff::ValueRecord;

/// One record per letter; equal letters are equal keys, told apart by their occurrence.
std::vector<ValueRecord> records(const std::string& letters) {
  std::vector<ValueRecord> list;
  for (const char letter : letters) {
    ValueRecord record;
    record.key.scope.value = static_cast<uint32_t>(letter);
    record.key.occurrence = static_cast<uint32_t>(
        std::ranges::count(list, record.key.scope, [](const auto& r) { return r.key.scope; }));
    record.stats.hash = record.key.scope.value;
    list.push_back(record);
  }
  return list;
}

std::string matched(const std::string& base, const std::string& cand) {
  const auto a = records(base), b = records(cand);
  std::string letters;
  for (const diff::Match& match : diff::align(a, b).matches) {
    REQUIRE(a[match.base].key == b[match.cand].key);
    letters += static_cast<char>(a[match.base].key.scope.value);
  }
  return letters;
}

}  // namespace

TEST_CASE("align: equal runs match record by record", "[diff][align]") {
  CHECK(matched("abcabc", "abcabc") == "abcabc");
  CHECK(matched("", "abc").empty());
}

TEST_CASE("align: a record of one side only leaves the others matched", "[diff][align]") {
  const auto base = records("abcd"), cand = records("axbd");
  const Alignment alignment = diff::align(base, cand);
  CHECK(alignment.matches.size() == 3);
  CHECK(alignment.base_only == std::vector<uint32_t>{2});
  CHECK(alignment.cand_only == std::vector<uint32_t>{1});
}

TEST_CASE("align: matches keep the order both runs agree on, whichever comes first",
          "[diff][align]") {
  CHECK(matched("abcdef", "abdcef") == matched("abdcef", "abcdef"));
  CHECK(matched("xabc", "abc") == "abc");
  CHECK(matched("abc", "xyzabc") == "abc");
}

TEST_CASE("align: repeated keys match by their occurrence and say so", "[diff][align]") {
  const auto base = records("aab"), cand = records("aaab");
  const Alignment alignment = diff::align(base, cand);
  REQUIRE(alignment.matches.size() == 3);
  CHECK(alignment.matches[0].how == diff::MatchedBy::kStableKey);
  CHECK(alignment.matches[1].how == diff::MatchedBy::kOccurrence);
  CHECK(alignment.cand_only == std::vector<uint32_t>{2});
}

TEST_CASE("align: fused kernels match where all their operands do", "[diff][align]") {
  // Operands of two calls: kernel 1 has slots a and b, kernel 2 slot c.
  std::vector<ValueRecord> base(3), cand(3);
  for (auto* const run : {&base, &cand}) {
    for (uint32_t i = 0; i < 3; ++i) {
      ValueRecord& record = (*run)[i];
      record.key.op.value = i < 2 ? 1 : 2;
      record.key.slot.value = 10 + i;
      record.bytes = 64;
      record.stats.hash = i + (run == &cand ? 100 : 0);
      record.fused = true;
    }
  }
  format::Definitions names;
  const diff::ScopeMap scopes(names, {});
  CHECK(diff::align(base, cand, scopes).matches.size() == 3);
  SECTION("an operand that one run alone has") { cand[1].key.slot.value = 20; }
  SECTION("an operand of another size") { cand[1].bytes = 128; }
  SECTION("an operand of another type") { cand[1].dtype = format::DType::kF16; }
  const Alignment alignment = diff::align(base, cand, scopes);
  REQUIRE(alignment.matches.size() == 1);
  CHECK(base[alignment.matches[0].base].key.op.value == 2);
  CHECK(alignment.base_only == std::vector<uint32_t>{0, 1});
}

TEST_CASE("align: an operand of an operation is none of the module around it", "[diff][align]") {
  std::vector<ValueRecord> base(1), cand(1);
  base[0].kind = cand[0].kind = diff::Role::kInput;
  cand[0].key.op.value = 1;
  base[0].stats.hash = cand[0].stats.hash = 5;
  format::Definitions names;
  const diff::ScopeMap scopes(names, {});
  CHECK(diff::align(base, cand, scopes).matches.size() == 1);
  cand[0].stats.hash = 6;
  CHECK(diff::align(base, cand, scopes).matches.empty());
}

TEST_CASE("lineage: what a fused kernel writes is a new value", "[diff][align]") {
  diff::StepRecords step;
  step.values.resize(3);
  for (ValueRecord& record : step.values) {
    record.kind = diff::Role::kOutput;
    record.value.storage = 1;
  }
  CHECK(diff::producers_of(step) == std::vector<uint32_t>{diff::kNoMatch, 0, 0});
  step.values[1].fused = true;
  CHECK(diff::producers_of(step) == std::vector<uint32_t>{diff::kNoMatch, diff::kNoMatch, 1});
}

TEST_CASE("align: launches match per key up to the smaller count", "[diff][align]") {
  diff::StepRecords base, cand;
  format::Definitions names;
  const diff::ScopeMap same(names, {});
  diff::LaunchKeys keys;
  const uint32_t gemm = keys.number({.scope = {1}, .family = {2}});
  const uint32_t add = keys.number({.scope = {1}, .family = {3}});
  base.launches = {gemm, gemm, add, gemm};
  cand.launches = {gemm, gemm};
  CHECK(keys.in_common(base, cand, same) == 2);
  CHECK(keys.in_common(cand, base, same) == 2);
}
