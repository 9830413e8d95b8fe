#include "interposer/core/control/process_facts.h"

#include <unistd.h>

#include <filesystem>

#include "tests/support/catch.h"

using namespace convtrace::engine;
using Arguments = std::vector<std::string>;

TEST_CASE("process_facts: values of secret options are masked in every spelling",
          "[engine][facts]") {
  CHECK(mask_secrets({"train.py", "--lr", "0.1", "--api-key", "abc", "--hf_token=xyz"}) ==
        Arguments{"train.py", "--lr", "0.1", "--api-key", "***", "--hf_token=***"});
  CHECK(mask_secrets({"x", "WANDB_API_KEY=1", "--Password:q", "--secret"}) ==
        Arguments{"x", "WANDB_API_KEY=***", "--Password:***", "--secret"});
}

TEST_CASE("process_facts: what only looks like a secret stays", "[engine][facts]") {
  CHECK(mask_secrets({"/keys/python", "data/tokens/a.txt", "tokenizer.json", "--seed", "7"}) ==
        Arguments{"/keys/python", "data/tokens/a.txt", "tokenizer.json", "--seed", "7"});
  CHECK(mask_secrets({"x", "--use-token", "--lr", "1"}) ==
        Arguments{"x", "--use-token", "--lr", "1"});
}

TEST_CASE("process_facts: only switches that change numerics are taken, sorted",
          "[engine][facts]") {
  const char* const environment[] = {"OMP_NUM_THREADS=2", "HOME=/home/u", "NCCL_ALGO=Ring",
                                     "BROKEN", nullptr};
  using Fact = std::pair<std::string, std::string>;
  CHECK(numerics_switches(environment) ==
        std::vector<Fact>{{"switch.NCCL_ALGO", "Ring"}, {"switch.OMP_NUM_THREADS", "2"}});
  const char* const of_cublas[] = {"CUBLAS_WORKSPACE_CONFIG=:16:8", "CUBLASLT_WORKSPACE_SIZE=1",
                                   nullptr};
  CHECK(numerics_switches(of_cublas) ==
        std::vector<Fact>{{"switch.CUBLASLT_WORKSPACE_SIZE", "1"},
                          {"switch.CUBLAS_WORKSPACE_CONFIG", ":16:8"}});
}

TEST_CASE("process_facts: of other variables hashes are taken, sorted", "[engine][facts]") {
  const char* const environment[] = {"FUSED=1", "HOME=/home/u", "NCCL_ALGO=Ring", "BROKEN",
                                     "PWD=/x",  "_=/bin/x",     "SLURM_JOB_ID=7", "API_TOKEN=x",
                                     "SLURM=1", nullptr};
  const std::string all = hashed_environment(environment);
  REQUIRE(all.size() == sizeof "FUSED=#12345678 HOME=#12345678 SLURM=#12345678" - 1);
  CHECK(all.starts_with("FUSED=#"));
  CHECK(all.find(" HOME=#") != all.npos);
  CHECK(all.substr(6, 9) == all.substr(all.size() - 9));  // of one value one hash
  const char* const other[] = {"FUSED=0", nullptr};
  CHECK(hashed_environment(other).substr(0, 15) != all.substr(0, 15));
  CHECK(process_meta(environment, true).fact("run.environment") == all);
}

TEST_CASE("process_facts: META names this process", "[engine][facts]") {
  const char* const environment[] = {nullptr};
  const convtrace::format::TraceMeta meta = process_meta(environment, false);
  CHECK(meta.pid == static_cast<uint32_t>(getpid()));
  REQUIRE_FALSE(meta.command_line.empty());
  CHECK(meta.command_line[0].find("engine_unit") != std::string::npos);
  CHECK_FALSE(meta.host.empty());
  REQUIRE(meta.facts.size() == 1);
  CHECK(meta.facts[0] ==
        std::pair<std::string, std::string>{"run.directory", std::filesystem::current_path()});
  CHECK_FALSE(meta.tool_version.empty());
}
