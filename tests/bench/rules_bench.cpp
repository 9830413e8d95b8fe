// What it costs to judge a kernel by 100 rules when it is first seen: row rules.first_sight, JSON
// on stdout.
//
// usage: bench_rules [--quick]

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "format/settings/rule_book.h"
#include "format/settings/rules.h"
#include "tests/bench/rows.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace convtrace;
using settings::RuleBook;

/// Nine of ten patterns are globs, as people write them; one is an expression.
std::vector<settings::Rule> make_rules() {
  const test::TempDir folder;
  const std::string path = folder / "rules.toml";
  std::ofstream file(path);
  for (int i = 0; i < 100; ++i) {
    file << "[[rule]]\noutputs = [0]\nkernel = ";
    i % 10 == 0 ? file << "'re:vectorized_.*_kernel<" << i << ",'\n"
                : file << "'*gemm_*_" << i << "_*'\n";
  }
  file.close();
  settings::LoadedRules loaded = settings::load_rules(path);
  if (loaded.rules.size() != 100) std::abort();
  return std::move(loaded.rules);
}

/// The names of a kernel: demangled, mangled, family.
std::vector<std::string> make_names(int number) {
  const std::string text = std::to_string(number);
  return {"void at::native::vectorized_elementwise_kernel<" + text +
              ", at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, "
              "at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
          "_ZN2at6native29vectorized_elementwise_kernelILi" + text +
              "ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
          "at::native::vectorized_elementwise_kernel<" + text +
              ", at::native::CUDAFunctor_add<float>, std::array<char*, 3>>"};
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  constexpr int kKernels = 200;
  std::vector<std::vector<std::string>> kernels;
  for (int i = 0; i < kKernels; ++i) kernels.push_back(make_names(1000 + i));
  const std::vector<settings::Rule> rules = make_rules();
  std::vector<double> microseconds;
  for (int i = 0; i < (quick ? 31 : 101); ++i) {
    RuleBook book(rules);
    const double seconds = bench::seconds_of([&] {
      for (const auto& names : kernels) (void)book.of_kernel(names);
    });
    microseconds.push_back(seconds * 1e6 / kKernels);
  }
  bench::Rows rows;
  rows.print({"rules.first_sight", "us", bench::Goal::kAtMost, 20,
              "absolute; a kernel with names of 150, 100 and 110 letters, 100 rules"},
             microseconds);
  return 0;
}
