#include <set>

#include "tests/integration/cuda_run.h"

namespace convtrace::test {
namespace {

const std::map<std::string, int> kLaunches = {
    {"_Z4iotaPfj", 1}, {"_Z4fillPffj", 2}, {"_Z3addPKfS0_Pfj", 5}, {"_Z6squarePfj", 5}};

TEST_CASE("cuda: every launch is in the trace, however the program found the driver") {
  const std::string how = GENERATE("linked", "dlsym", "proc-address");
  CAPTURE(how);
  CudaRun run;
  const ProcessResult result = run.run({"cuda_steps", how});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(result.err.empty());
  CHECK(run.launches() == kLaunches);
  for (const Json& launch : run.records("launch")) {
    CHECK(launch.at("sampled") == false);
    CHECK(launch.at("why") == "no rule asks for it");
    CHECK(launch.at("grid") == Json::array({4, 1, 1}));
    CHECK(launch.at("block") == Json::array({256, 1, 1}));
  }
}

TEST_CASE("cuda: only kernels that are included and not excluded are recorded") {
  CudaRun run;
  run.with("CONVTRACE_INCLUDE=add*;fill(float*, float, unsigned int);_Z6squarePfj;warp*")
      .with("CONVTRACE_EXCLUDE=square*");
  const ProcessResult result = run.run({"cuda_steps", "linked"});
  REQUIRE(result.exit_code == 0);
  CHECK(run.launches() == std::map<std::string, int>{{"_Z4fillPffj", 2}, {"_Z3addPKfS0_Pfj", 5}});
  CHECK(count_lines(result.err) == 1);
  CHECK(result.err.find("CONVTRACE_INCLUDE \"warp*\" matched nothing") != std::string::npos);
  // Each pattern says what it matched; only what matched nothing is said aloud.
  REQUIRE(run.records("diagnostic").size() == 5);
}

TEST_CASE("cuda: operands name the generation of the memory that they point to") {
  CudaRun run;
  REQUIRE(run.run({"cuda_steps", "linked"}).exit_code == 0);
  const auto allocs = run.records("alloc");
  const auto frees = run.records("free");
  REQUIRE(allocs.size() == 4);
  REQUIRE(frees.size() == 4);
  for (const Json& alloc : allocs) CHECK(alloc.at("bytes") == 4096);
  CHECK(allocs[3].at("address") == allocs[1].at("address"));  // d lies where b was
  CHECK(allocs[3].at("generation") != allocs[1].at("generation"));

  const auto generation_of = [&](size_t i) { return allocs[i].at("generation"); };
  for (const Json& launch : run.records("launch")) {
    const Json& operands = launch.at("operands");
    if (launch.at("kernel") == "_Z3addPKfS0_Pfj") {
      REQUIRE(operands.size() == 3);
      for (size_t i = 0; i < 3; ++i) {
        CHECK(operands[i].at("param") == i);
        CHECK(operands[i].at("generation") == generation_of(i));
        CHECK(operands[i].at("confidence") == "pointer-base");
      }
    } else {
      CHECK(operands.size() == 1);
    }
  }
  const auto launches = run.records("launch");
  CHECK(launches.back().at("operands")[0].at("generation") == generation_of(3));
}

TEST_CASE("cuda: events are in the order of the program's calls") {
  CudaRun run;
  REQUIRE(run.run({"cuda_steps", "dlsym"}).exit_code == 0);
  const auto frees = run.records("free");
  const auto launches = run.records("launch");
  REQUIRE(frees.size() == 4);
  REQUIRE(launches.size() == 13);
  CHECK(frees[0].at("seq") > launches[11].at("seq"));
  CHECK(frees[0].at("seq") < launches[12].at("seq"));
  CHECK(frees[1].at("seq") > launches[12].at("seq"));
}

TEST_CASE("cuda: a rule brings the statistics of what its kernel wrote") {
  const std::string how = GENERATE("linked", "dlsym", "proc-address");
  CAPTURE(how);
  CudaRun run;
  run.with_rules(R"([[rule]]
kernel = "square*"
capture = "stats"
outputs = [0]
dtype = "f32")");
  const ProcessResult result = run.run({"cuda_steps", how, pause_ms()});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(result.err.empty());
  CHECK(run.launches() == kLaunches);  // ours are not among them
  for (const Json& launch : run.records("launch"))
    CHECK(launch.at("sampled") == (launch.at("kernel") == "_Z6squarePfj"));

  double sum = 0;
  for (int i = 0; i < 1024; ++i) sum += (i + 2.0) * (i + 2.0);
  const auto values = run.records("stats");
  REQUIRE(values.size() == 5);
  for (const Json& value : values) {
    CHECK(value.at("kernel") == "_Z6squarePfj");
    CHECK(value.at("slot") == "arg:0");
    CHECK(value.at("device") == "cuda:0");
    CHECK(value.at("dtype") == "f32");
    CHECK(value.at("count") == 1024);
    CHECK(value.at("finite") == 1024);
    CHECK(value.at("min") == 4);
    CHECK(value.at("max") == 1025 * 1025);
    CHECK(value.at("sum") == sum);
    CHECK(value.at("mean") == sum / 1024);
    CHECK(value.at("hash") == values[0].at("hash"));
  }
}

TEST_CASE("cuda: a rule stores the bytes of what its kernel wrote, equal ones once") {
  CudaRun run;
  run.with("CONVTRACE_SNAPSHOT_MEMORY=8M").with_rules(R"([[rule]]
kernel = "square*"
capture = "snapshot"
outputs = [0]
dtype = "f32")");
  const ProcessResult result = run.run({"cuda_steps", "linked", pause_ms()});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  const auto values = run.records("stats");
  REQUIRE(values.size() == 5);
  for (const Json& value : values) CHECK(value.at("capture") == "snapshot");
  CHECK(run.records("loss").empty());
  const std::string tool = std::string(BUILD_FOLDER) + "/bin/convtrace";
  const Json info = Json::parse(run_process({tool, "info", "--json", run.trace()}).out);
  CHECK(info.at("sizes").at("values").at("records") == 1);
  CHECK(info.at("sizes").at("values").at("raw_bytes") == 4096);
  CHECK(run_process({tool, "verify", run.trace()}).exit_code == 0);
}

TEST_CASE("cuda: of all kernels come the values that they write, found without a rule") {
  CudaRun run;
  run.with("CONVTRACE_ALL_KERNELS=1").with("CONVTRACE_EXCLUDE=fill*");
  const ProcessResult result = run.run({"cuda_steps", "linked", pause_ms()});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(result.err.empty());
  std::map<std::string, std::set<std::string>> slots;
  for (const Json& value : run.records("stats")) {
    slots[value.at("kernel")].insert(value.at("slot"));
    CHECK(value.at("bytes") == 4096);
    CHECK(value.at("extent") == "block");
    CHECK(value.at("looks") == value.at("changes"));
  }
  CHECK(slots == std::map<std::string, std::set<std::string>>{{"_Z4iotaPfj", {"arg:0"}},
                                                              {"_Z3addPKfS0_Pfj", {"arg:2"}},
                                                              {"_Z6squarePfj", {"arg:0"}}});
  CHECK(run.records("loss").empty());
}

TEST_CASE("cuda: each launch's values are those right behind it") {
  CudaRun run;
  // And no value is lost to a context that is prepared while the CUDA runtime makes it.
  run.with("FAKECUDA_RUNTIME_CONTEXT=1");
  run.with_rules(R"([[rule]]
kernel = "add*"
outputs = [2]
dtype = "f32"
[[rule]]
kernel = "square*"
outputs = [0]
dtype = "f32")");
  REQUIRE(run.run({"cuda_steps", "linked", pause_ms(), "primary"}).exit_code == 0);
  const auto values = run.records("stats");
  REQUIRE(values.size() == 10);
  // The kernels take turns on one buffer: iota + 2, then its square.
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(values[i].at("max") == (i % 2 == 0 ? 1025 : 1025 * 1025));
    CHECK(values[i].at("address") == values[0].at("address"));
  }
}

TEST_CASE("cuda: with no room for our memory on the GPU a line says so, and the program runs") {
  CudaRun run;
  run.with("FAKECUDA_MEMORY=100000").with_rules(R"([[rule]]
kernel = "square*"
outputs = [0]
dtype = "f32")");
  const ProcessResult result = run.run({"cuda_steps", "linked", pause_ms()});
  CHECK(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(count_lines(result.err) == 2);  // and, at the end, how much is not recorded
  CHECK(result.err.find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
  CHECK(run.launches() == kLaunches);
  CHECK(run.records("stats").empty());
  uint64_t lost = 0;
  for (const Json& loss : run.records("loss")) lost += loss.at("count").get<uint64_t>();
  CHECK(lost == 5);
}

TEST_CASE("cuda: without CUPTI the program runs, one line says so, launches are still recorded") {
  const auto [driver, says] = GENERATE(table<const char*, const char*>(
      {{"13000", " libcupti.so.13 or libcupti.so.12 is not found"},
       {"12040", " libcupti.so.12 is not found"}}));  // the names of those that fit the driver
  CAPTURE(driver);
  CudaRun run(Fakes::kNoCupti);
  run.with(std::string("FAKECUDA_DRIVER_VERSION=") + driver);
  const ProcessResult result = run.run({"cuda_steps", "proc-address"});
  CHECK(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(count_lines(result.err) == 1);
  INFO(result.err);
  CHECK(result.err.find(std::string("cupti: CT-1401") + says) != std::string::npos);
  CHECK(run.launches() == kLaunches);
  CHECK(run.records("alloc").empty());
  CHECK(run.records("diagnostic").size() == 1);
}

TEST_CASE("cuda: a driver before 12.4 is said once, and launches are recorded without operands") {
  CudaRun run(Fakes::kOldDriver);
  const ProcessResult result = run.run({"cuda_steps", "dlsym"});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(count_lines(result.err) == 1);
  CHECK(result.err.find("CT-1406") != std::string::npos);
  CHECK(run.launches() == kLaunches);
  for (const Json& launch : run.records("launch")) {
    CHECK(launch.at("operands").empty());
    CHECK(launch.at("kernel") != "(unnamed)");  // as the program asked for it
  }
}

TEST_CASE("cuda: CUPTI of CUDA 12 does as well, without the callbacks that it does not know") {
  CudaRun run(Fakes::kCupti12);
  run.with("FAKECUDA_CUPTI_NEWEST_CBID=665");
  const ProcessResult result = run.run({"cuda_steps", "linked"});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(run.launches() == kLaunches);
  CHECK(run.records("alloc").size() == 4);
  CHECK(run.records("free").size() == 4);
}

TEST_CASE("cuda: a CUPTI that another tool holds is left to it, by name") {
  CudaRun run;
  run.with("FAKECUDA_CUPTI_HOLDER=CUPTI for Nsight Systems");
  const ProcessResult result = run.run({"cuda_steps", "linked"});
  CHECK(result.exit_code == 0);
  CHECK(result.out == "all right\n");
  CHECK(count_lines(result.err) == 1);
  CHECK(result.err.find("CT-1402 CUPTI is taken by CUPTI for Nsight Systems") != std::string::npos);
  CHECK(run.launches() == kLaunches);
}

TEST_CASE("cuda: a CUPTI that refuses is said once") {
  CudaRun run;
  run.with("FAKECUDA_CUPTI_RESULT=999");
  const ProcessResult result = run.run({"cuda_steps", "linked"});
  CHECK(result.exit_code == 0);
  CHECK(count_lines(result.err) == 1);
  CHECK(run.launches() == kLaunches);
}

TEST_CASE("cuda: a program whose GPU fails ends as it does untraced") {
  const std::string knob =
      GENERATE("FAKECUDA_MEMORY=10000", "FAKECUDA_STICKY_AT_LAUNCH=7", "FAKECUDA_INIT_RESULT=100");
  CAPTURE(knob);
  CudaRun run;
  run.with(knob);
  const ProcessResult plain = run.run_untraced({"cuda_steps", "dlsym"});
  const ProcessResult traced = run.run({"cuda_steps", "dlsym"});
  CHECK(plain.exit_code == 1);
  CHECK(traced.exit_code == plain.exit_code);
  CHECK(traced.out == plain.out);
}

TEST_CASE("cuda: the launch that lost the context is the last but one thing the trace shows") {
  CudaRun run;
  run.with("FAKECUDA_STICKY_AT_LAUNCH=7").with("FAKECUDA_SEED=");  // the call itself tells of it
  CHECK(run.run({"cuda_steps", "dlsym"}).exit_code == 1);
  const auto launches = run.records("launch");
  REQUIRE(launches.size() == 7);
  CHECK(launches.back().at("why") == "the launch failed");
  REQUIRE(run.records("diagnostic").size() == 1);
  CHECK(run.records("diagnostic")[0].dump().find("CUDA_ERROR_ILLEGAL_ADDRESS") !=
        std::string::npos);
}

}  // namespace
}  // namespace convtrace::test
