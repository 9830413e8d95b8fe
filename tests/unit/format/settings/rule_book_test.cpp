#include "format/settings/rule_book.h"

#include <chrono>

#include "tests/support/catch.h"
#include "tests/unit/format/settings/temp_toml.h"

namespace convtrace::settings {
namespace {

const std::string kAdd[] = {"add(float*, int)", "_Z3addPfi", "add"};
const std::string kGemm[] = {"void gemm_nn<4>()", "_Z7gemm_nnILi4EEvv", "gemm_nn"};

std::vector<Rule> load(const std::string& text) {
  LoadedRules loaded = load_rules(TempToml(text).path());
  REQUIRE(loaded.problems.empty());
  return std::move(loaded.rules);
}

}  // namespace

TEST_CASE("rule_book: a kernel is known by each of its names", "[settings]") {
  RuleBook book(
      load("[[rule]]\nkernel='add(*'\n[[rule]]\nkernel='_Z3add*'\n"
           "[[rule]]\nkernel='gemm_nn'\n[[rule]]\nscope='*'\n"));
  const RuleBook::Matching rules = book.rules();
  CHECK(book.of_kernel(kAdd) == RuleBook::Matching{rules[0], rules[1]});
  CHECK(book.of_kernel(kGemm) == RuleBook::Matching{rules[2]});
}

TEST_CASE("rule_book: a rule of kernel and scope wants both", "[settings]") {
  RuleBook book(load("[[rule]]\nkernel='*'\nscope='h.*'\n[[rule]]\nkernel='*'\n"));
  const RuleBook::Matching rules = book.rules();
  CHECK(book.in_scope(*rules[0], 1, "h.0"));
  CHECK_FALSE(book.in_scope(*rules[0], 2, "head"));
  CHECK(book.in_scope(*rules[1], 2, "head"));
  CHECK(book.of_scope(1, "h.0") == RuleBook::Matching{rules[0]});
}

TEST_CASE("rule_book: at the end each rule says what it matched, or what it may have meant",
          "[settings]") {
  const TempToml file(
      "[[rule]]\nkernel='*gemm*'\n\n[[rule]]\nscope='h.0'\n[[rule]]\nkernel='gem'\n");
  RuleBook book(load_rules(file.path()).rules);
  for (int twice = 0; twice < 2; ++twice) {  // counted once
    (void)book.of_kernel(kGemm);
    (void)book.of_kernel(kAdd);
    (void)book.of_scope(7, "h.1");
  }
  book.used(*book.rules()[0]);
  const std::vector<Notice> lines = book.report();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].message == messages::kMatched);
  CHECK(lines[0].text == file.path() + ":1: matched 1 kernel, used 1 time");
  CHECK(lines[1].message == messages::kUnmatched);
  CHECK(lines[1].text == file.path() +
                             ":4: scope \"h.0\" matched nothing; nearest of those that occurred: "
                             "\"h.1\"");
  CHECK(lines[2].text.starts_with(file.path() + ":6: kernel \"gem\" matched nothing; nearest of"));
}

TEST_CASE("rule_book: one that matched and took nothing is a warning, unless it only declares",
          "[settings]") {
  RuleBook book(
      load("[[rule]]\nscope='h.0'\nsteps=900\ncapture='hash'\n[[rule]]\nscope='h.*'\n"
           "suppress=true\n[[rule]]\nkernel='add*'\noutputs=[0]\n"));
  (void)book.of_scope(1, "h.0");
  (void)book.of_kernel(kAdd);
  const std::vector<Notice> lines = book.report();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].message == messages::kRuleUnused);
  CHECK(lines[0].text.find(":1: matched 1 module and took no value: its steps did not come") !=
        std::string::npos);
  CHECK(lines[1].message == messages::kMatched);
  CHECK(lines[2].message == messages::kRuleUnused);
}

TEST_CASE("rule_book: other rules apply at once, and what was handed out stays", "[settings]") {
  RuleBook book(load("[[rule]]\nkernel='add*'\nscope='h.*'\n"));
  const Rule& old = *book.rules()[0];
  const RuleBook::Matching& of_add = book.of_kernel(kAdd);
  CHECK(book.in_scope(old, 1, "h.0"));
  book.replace(load("[[rule]]\nkernel='gemm*'\n"));
  CHECK(book.of_kernel(kAdd).empty());
  CHECK(book.of_kernel(kGemm).size() == 1);
  CHECK(of_add == RuleBook::Matching{&old});
  book.used(old);  // a value that was under way
  CHECK(book.report().size() == 1);
  book.replace({});
  CHECK(book.empty());
}

// Not a test of speed but of kind: matching at each launch would take a thousand times as long.
TEST_CASE("rule_book: what was matched before is looked up", "[settings]") {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += "[[rule]]\nkernel='*flash_fwd_kernel" + std::to_string(i) + "*hdim128*'\nscope='*x'\n";
  RuleBook book(load(text));
  const std::string long_name(2000, 'k');
  const std::string names[] = {long_name, long_name, long_name};
  const auto ns = [](auto&& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return (std::chrono::steady_clock::now() - begin).count();
  };
  const auto first = ns([&] { (void)book.of_kernel(names); });
  const auto later = ns([&] {
    for (int i = 0; i < 10; ++i) (void)book.of_kernel(names);
  });
  CAPTURE(first, later);
  CHECK(later < first);
}

TEST_CASE("rule_book: of the rule for typed kernels nothing is reported", "[settings]") {
  using enum Rule::AllKernels;
  RuleBook typed({rule_for_all_kernels(kTyped, format::Capture::kStats)});
  CHECK(typed.report().empty());
  RuleBook each({rule_for_all_kernels(kEach, format::Capture::kStats)});
  CHECK(each.report().size() == 1);
}

}  // namespace convtrace::settings
