// What excuses a difference of bits: a list. What computes nothing, or was only imported, is no
// excuse; being compiled is one.

#include <utility>

#include "tests/unit/tools/diff/command_scene.h"
#include "tools/diff/facts/excuses.h"

namespace convtrace::test {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

Run with_facts(Run run, const Facts& facts) {
  run.meta.facts.insert(run.meta.facts.end(), facts.begin(), facts.end());
  return run;
}

/// One bit of a gradient's tensor, and with it the parameter, is another.
Run with_flipped_bit() {
  Run run = training();
  for (Item* item : {&run.at(1, "fc1", "grad:weight"), &run.at(1, "fc1", "param:weight")})
    item->values[3] *= 1 + 0x1p-23F;
  return run;
}

/// @return the code with which the diff ends; `told` must be in its text.
int code_of(const Facts& base, const Facts& cand, const char* told) {
  const Pair pair(with_facts(training(), base), with_facts(with_flipped_bit(), cand));
  const Outcome outcome = run({pair.base, pair.cand});
  INFO(outcome.out);
  CHECK(contains(outcome.out, told));
  return outcome.code;
}

}  // namespace

TEST_CASE("excuses: a package that computes nothing, or was only imported, is none",
          "[diff][exact]") {
  const char* imported = "one run alone imported it, which computes nothing";
  const char* idle = "it computes nothing: it excuses no difference";
  CHECK(code_of({}, {{"package.jinja2", "3.1.6"}, {"package.MarkupSafe", "3.0.4"}}, idle) == 1);
  CHECK(code_of({{"package.typing-extensions", "4.1"}}, {{"package.typing-extensions", "4.2"}},
                idle) == 1);
  CHECK(code_of({}, {{"package.scipy", "1.17"}}, imported) == 1);
  CHECK(code_of({{"package.scipy", "1.17"}}, {}, imported) == 1);
  CHECK(code_of({}, {{"version.numpy", "2.4"}}, imported) == 1);
  CHECK(code_of({}, {{"custom_op_libraries", "torchvision"}}, "custom_op_libraries") == 1);
}

TEST_CASE("excuses: packages that may compute are told as what explains the difference",
          "[diff][exact]") {
  CHECK(code_of({{"package.scipy", "1.16"}}, {{"package.scipy", "1.17"}},
                "what explains it: package.scipy\n") == 0);
  // Beside what excuses nothing.
  CHECK(code_of({{"package.my_model", "1"}}, {{"package.my_model", "2"}, {"package.rich", "14"}},
                "what explains it: package.my_model\n") == 0);
  CHECK(code_of({}, {{"package.xformers", "0.0.30"}}, "what explains it: package.xformers\n") == 0);
}

TEST_CASE("excuses: being compiled is one, told before all packages", "[diff][exact]") {
  const Facts packages = {{"package.jinja2", "3.1.6"}, {"package.more_itertools", "10.3"}};
  Facts recorded = packages, hidden = packages;
  recorded.emplace_back("compiled.fc1.aten::addmm", "extern_kernels.addmm [x] region 0/0 forward");
  hidden.emplace_back("package.functorch", "2.13.0");
  for (const Facts& facts : {recorded, hidden}) {
    CHECK(code_of({}, facts, "what explains it: compiled\n") == 0);
    CHECK(code_of(facts, {}, "rounding was allowed: the runs differ in compiled;") == 0);
    CHECK(code_of({}, facts, "(baseline | candidate)\n  compiled: no | yes\n") == 0);
    CHECK(code_of(facts, facts, "both ran on the CPU alone") == 1);
  }
}

TEST_CASE("excuses: a switch of GPUs is none where only CPUs compute", "[diff][exact]") {
  const Facts trials = {{"switch.cudnn_benchmark", "True"}}, gpu = {{"device.0.name", "H100"}};
  Facts both = gpu;
  both.insert(both.end(), trials.begin(), trials.end());
  CHECK(code_of({}, trials, "fastest in a trial") == 1);
  CHECK(code_of(gpu, both, "what explains it: switch.cudnn_benchmark\n") == 0);
}

TEST_CASE("excuses: what shows a fault is none", "[diff][exact]") {
  for (const char* name :
       {"switch.fill_uninitialized_memory", "switch.CUDA_LAUNCH_BLOCKING",
        "switch.PYTORCH_CUDA_ALLOC_CONF", "path.cupti", "a fact that nobody knows"}) {
    INFO(name);
    CHECK(code_of({{name, "1"}}, {{name, "2"}}, name) == 1);
  }
}

TEST_CASE("excuses: every one has a reason", "[diff][exact]") {
  for (const char* name : {"switch.torch_seed", "switch.num_threads", "version.python",
                           "version.torch", "device.0.name", "host", "command line", "compiled",
                           "world size", "distributed.backend", "package.scipy"}) {
    const diff::Meaning meaning = diff::meaning_of({name, "1", "2"});
    INFO(name);
    CHECK(meaning.excuse != diff::Excuse::kNone);
    CHECK(!meaning.text.empty());
  }
}

}  // namespace convtrace::test
