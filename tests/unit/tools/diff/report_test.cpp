// What convtrace-diff prints and writes: text, CSV, JUnit, HTML.

#include <cmath>
#include <filesystem>

#include "format/settings/rules.h"
#include "tests/support/process.h"
#include "tests/unit/tools/diff/command_scene.h"
#include "tools/diff/report/next_commands.h"
#include "tools/diff/report/report_parts.h"

namespace convtrace::test {

TEST_CASE("convtrace-diff: the first screen names place, value, tolerance and next command",
          "[diff][command][text]") {
  const Pair pair(test::training(), diverging());
  const std::string text = run({pair.base, pair.cand}).out;
  for (const char* part :
       {"DIVERGED at step 1, forward, fc2 (call 0): output:0",
        "root  inputs agree, the result does not; its weights agree behind step 0's update", "mean",
        "tolerance used", "would have passed", "values matched", "first bit difference",
        "[[rule]]\nscope = \"fc2\"\ncapture = \"snapshot\"\nEOF\n",
        "convtrace run --overwrite --output root-base.ctrace --steps 1 --ops fc2 --config "
        "convtrace-root.toml "
        "-- python train.py\n",
        "convtrace-diff root-base.ctrace root-cand.ctrace\n"}) {
    INFO(text);
    CHECK(contains(text, part));
  }
  CHECK_FALSE(contains(text, "\x1b["));
  CHECK(contains(run({pair.base, pair.cand}, {.color = true}).out, "\x1b[31;1mDIVERGED"));
}

TEST_CASE("convtrace-diff: a distance is exact, about or at least what is told",
          "[diff][command][text]") {
  const auto told = [](size_t elements, bool sketched, double factor) {
    Run base = test::training();
    for (Item& item : base.items) {
      if (item.step != 1 || item.scope != "fc2" || item.slot != "output:0") continue;
      item.values.resize(elements, 0.5F);
      item.sketched = sketched;
    }
    Run cand = base;
    Item& changed = cand.at(1, "fc2", "output:0");
    for (size_t i = 0; i < elements; ++i)
      changed.values[i] *= factor < 1 && i % 2 == 0 ? 1.0F : static_cast<float>(factor);
    const Pair pair(base, cand);
    const std::string page = pair.dir / "page.html";
    const std::string text = run({pair.base, pair.cand, "--exact", "off", "--html", page}).out;
    const Json json =
        Json::parse(run({pair.base, pair.cand, "--exact", "off", "--json", "-"}).out)["root"];
    const size_t at = text.find("they differ by ");
    REQUIRE(at != std::string::npos);
    const std::string said = text.substr(at, text.find(" %", at) - at);
    CHECK(contains(content(page), said));
    return std::pair(said.substr(15, said.find_first_of("0123456789") - 15),
                     json["difference_is"].get<std::string>());
  };
  using Told = std::pair<std::string, std::string>;
  CHECK(told(16, true, 0.5) == Told{"", "exact"});
  CHECK(told(64, true, -0.5) == Told{"about ", "estimate"});
  CHECK(told(4096, true, 1.02) == Told{"at least ", "at least"});
  CHECK(told(4096, false, -0.5) == Told{"about ", "estimate"});
}

TEST_CASE("convtrace-diff: inputs that no run recorded do not agree", "[diff][command][text]") {
  Run base = test::training(), cand = test::training();
  scale(cand.at(1, "fc2", "output:0"), 2);
  scale(cand.at(1, "", "loss"), 2);
  const auto keep = [&](const std::string& slot) {
    for (Run* r : {&base, &cand})
      std::erase_if(r->items, [&](const Item& item) { return item.slot != slot; });
    const Pair pair(base, cand);
    const Outcome outcome = run({pair.base, pair.cand, "--json", "-"});
    const Outcome text = run({pair.base, pair.cand});
    CHECK_FALSE(contains(text.out, "inputs agree"));
    return std::pair(text.out, Json::parse(outcome.out)["root"]["inputs_agree"]);
  };
  SECTION("of a module's output") {
    const auto [text, agree] = keep("output:0");
    CHECK(contains(text, "root  the result diverges; what it was made of was not compared\n"));
    CHECK(agree.is_null());
  }
  SECTION("of a loss") {
    const auto [text, agree] = keep("loss");
    CHECK(contains(text, "root  the loss differs (forward not compared)\n"));
    CHECK(agree.is_null());
  }
}

TEST_CASE("next commands: what they record, and what is to be put back", "[diff][next]") {
  diff::DiffResult result;
  diff::RootReport& root = result.root.emplace();
  root.record.scope = "h.3.attn.out";
  root.record.base.stats.count = root.record.cand.stats.count = 4;
  result.base_command.words = {"python", "a.py"};
  result.cand_command.words = {"python", "b.py"};
  const auto text = [&] {
    std::string all;
    for (const std::string& line : diff::next_commands(result)) all += line + '\n';
    return all;
  };
  CHECK_FALSE(contains(text(), "put back"));
  CHECK_FALSE(contains(text(), "--ops"));
  root.record.comparison.verdict = diff::Class::kShapeOrDtypeMismatch;
  CHECK(text().empty());  // such elements have no partners
  root.came_in = root.record;
  CHECK(contains(text(), " --steps 0 --ops h.3.attn --config"));
  root.record.comparison.verdict = diff::Class::kDiverged;
  root.came_in = root.record;
  CHECK(contains(text(), " --steps 0 --ops h.3.attn --config"));
  root.came_in.reset();
  root.record.phase = format::Phase::kOptimizer;
  CHECK(contains(text(), " --steps 0 --optimizer-state 1 --config"));
  result.cand_command.compiled = true;
  CHECK(contains(text(), " --optimizer-state 1 --compiled all --config"));
  result.cand_command = result.base_command;
  result.preflight = {{"switch.MKL_CBWR", "AVX2", std::nullopt}, {"host", "a", "b"}};
  CHECK_FALSE(contains(text(), "put back"));
  CHECK(contains(text(), "\nMKL_CBWR=AVX2 convtrace run --overwrite --output root-base.ctrace"));
  CHECK(contains(text(), "\nenv -u MKL_CBWR convtrace run --overwrite --output root-cand.ctrace"));
  result.preflight = {{"environment", "FUSED=#00000001 OLD=#00000003", "FUSED=#00000009"}};
  CHECK(contains(text(), "# first put back the baseline's environment (FUSED, OLD)\n"));
  result.preflight.clear();
  CHECK(contains(text(), "# first put back the baseline's files, packages and environment\n"));
  result.base_command.files = result.cand_command.files = {{"a.py", "00"}};
  CHECK(contains(text(), "\nconvtrace repeat -- python a.py\n"));
  CHECK_FALSE(contains(text(), "convtrace run"));
  CHECK(diff::next_title(result) == "see whether the program repeats:");
  result.facts = {{.kind = diff::FactKind::kCode, .name = "m.py: class A"},
                  {.kind = diff::FactKind::kCode, .name = "m.py: class B"}};
  result.preflight = {
      {"version.torch", "2.1", "2.2"}, {"compiled", "no", "yes"}, {"timm", "1", "2"}};
  CHECK(contains(text(),
                 "# first put back the baseline's m.py, torch, use of torch.compile and 1 more\n"));
  CHECK(contains(text(), "# then the candidate's again\n"));
  // The package that computes, nearest to the root, comes first.
  root.code.qualified_class = "flash_attn.modules.mha.MHA";
  result.facts.clear();
  result.preflight = {{"version.torch", "2.1", "2.2"}, {"package.flash-attn", "2.5.1", "2.6"}};
  CHECK(contains(text(), "# first put back the baseline's flash-attn 2.5.1, torch\n"));
  CHECK_FALSE(contains(text(), "poison"));
  diff::FindingCause unwritten;
  unwritten.finding.kind = format::FindingKind::kNeverWritten;
  result.cause = {.rule = "finding", .text = {}, .evidence = {}, .finding = unwritten};
  CHECK(contains(text(),
                 "\nconvtrace run --poison 1 --output root-poison.ctrace -- python a.py\n"
                 "convtrace findings root-poison.ctrace\n"));
  root.consumer.emplace().elements.emplace();  // both runs have stored what became of it
  CHECK(text().empty());
  root.consumer.reset();
  root.record.elements.emplace();  // or the value itself
  CHECK(text().empty());
}

TEST_CASE("short answer: cause and confidence", "[diff][report]") {
  using report::Confidence;
  diff::DiffResult result;
  result.verdict = diff::Verdict::kDiverged;
  result.root.emplace().record.phase = format::Phase::kForward;
  result.cause = {.rule = "setting", .text = "eps: 1 | 2", .evidence = {"a", "b"}, .finding = {}};
  const report::Brief by_rule = diff::brief_of(result);
  CHECK(by_rule.cause == "eps: 1 | 2");
  CHECK(std::vector(by_rule.evidence.begin(), by_rule.evidence.begin() + 2) ==
        std::vector<std::string>{"a", "b"});
  // What the value was made of was not compared, so that it may have come in.
  CHECK(by_rule.confidence == Confidence::kLikely);
  REQUIRE(by_rule.cannot_tell.size() == 1);
  CHECK(contains(by_rule.cannot_tell[0], "was not compared"));
  diff::FindingCause finding;
  finding.finding.kind = format::FindingKind::kNeverWritten;
  finding.finding.message = "read before it was written";
  result.cause = {.rule = "finding", .text = {}, .evidence = {}, .finding = finding};
  const report::Brief by_finding = diff::brief_of(result);
  CHECK(contains(by_finding.cause, "never-written"));
  CHECK(by_finding.evidence.at(0) == "read before it was written");
  diff::DiffResult unlike;
  unlike.verdict = diff::Verdict::kNotComparable;
  CHECK(diff::brief_of(unlike).confidence == Confidence::kNone);
}

TEST_CASE("next commands: a job that torchrun started is started by it", "[diff][next]") {
  format::TraceMeta meta;
  meta.world_size = 4;
  meta.command_line = {"/bin/python", "-u", "train.py", "--lr", "1"};
  meta.facts = {{"run.environment", "LOCAL_WORLD_SIZE=#4 RANK=#0 ROLE_RANK=#0 WORLD_SIZE=#4"}};
  const std::vector<std::string> job = {"/bin/python",
                                        "-m",
                                        "torch.distributed.run",
                                        "--standalone",
                                        "--nproc-per-node",
                                        "4",
                                        "train.py",
                                        "--lr",
                                        "1"};
  CHECK(diff::command_of(meta).words == job);
  CHECK_FALSE(diff::command_of(meta).compiled);
  format::TraceMeta compiled = meta;
  compiled.facts.emplace_back("compiled.fc.aten::addmm", "extern_kernels.addmm");
  CHECK(diff::command_of(compiled).compiled);
  diff::DiffResult result;
  result.root.emplace().record.base.stats.count = 4;
  result.ranks.resize(2);
  const auto text = [&] {
    std::string all;
    for (const std::string& line : diff::next_commands(result)) all += line + '\n';
    return all;
  };
  result.base_command = result.cand_command = diff::command_of(meta);
  CHECK(contains(text(),
                 "\nconvtrace run --overwrite --output root-base/r%r.ctrace --steps 0 --config "
                 "convtrace-root.toml -- /bin/python -m torch.distributed.run "
                 "--standalone --nproc-per-node 4 train.py --lr 1\n"));
  CHECK(contains(text(), "\nconvtrace-diff root-base root-cand\n"));
  // Ranks on other machines, or started by something else.
  for (const char* environment : {"LOCAL_WORLD_SIZE=#2 ROLE_RANK=#0 WORLD_SIZE=#4", "RANK=#0"}) {
    meta.facts = {{"run.environment", environment}};
    result.cand_command = diff::command_of(meta);
    CHECK(result.cand_command.words == meta.command_line);
    CHECK(contains(text(), "# then start both jobs as before"));
  }
}

TEST_CASE("next commands: a file that changed is checked before a run is recorded",
          "[diff][next]") {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "src/pkg");
  const auto write = [&dir](const char* text) {
    std::ofstream(dir / "src/pkg/it's.py") << text;
    std::ofstream(dir / "src/same.py") << "same";
  };
  const auto hash = [&dir](const char* file) {
    return test::run_process({"python3", "-c",
                              "import hashlib, sys; print(hashlib.blake2b(open(sys.argv[1], "
                              "'rb').read(), digest_size=8).hexdigest())",
                              dir / file})
        .out.substr(0, 16);
  };
  diff::DiffResult result;
  result.root.emplace().record.base.stats.count = 4;
  write("cand");
  result.cand_command.words = {"python", "src/train.py"};
  result.cand_command.directory = dir.path();
  result.cand_command.files = {{"pkg/it's.py", hash("src/pkg/it's.py")},
                               {"same.py", hash("src/same.py")},
                               {"gone.py", "0123456789abcdef"}};
  write("base");
  result.base_command = result.cand_command;
  result.base_command.files["pkg/it's.py"] = hash("src/pkg/it's.py");
  result.base_command.files["gone.py"] = "1123456789abcdef";
  result.facts = {{.kind = diff::FactKind::kCode, .name = "pkg/it's.py"}};
  // convtrace and convtrace-diff write their first option here instead.
  std::string block =
      "convtrace() { echo ${4##*/} >> log; }; convtrace-diff() { echo diff >> log; };\n";
  for (const std::string& line : diff::next_commands(result)) block += line + '\n';
  const auto paste = [&] {
    std::filesystem::remove(dir / "log");
    (void)test::run_process({"bash", "-c", block}, {{}, {}, dir.path()});
    std::ifstream log(dir / "log");
    return std::string(std::istreambuf_iterator<char>(log), {});
  };
  INFO(block);
  CHECK(paste() == "root-base.ctrace\ndiff\n");
  write("cand");
  CHECK(paste() == "root-cand.ctrace\ndiff\n");
}

TEST_CASE("convtrace-diff: next records the operations of a module with code of its own",
          "[diff][command][text]") {
  const auto text_of = [](const char* type) {
    Run base = test::training(), cand = base;
    for (Run* run : {&base, &cand}) run->tell(0, "fc2", "class", type);
    test::scale(cand.at(0, "fc2", "output:0"), 2);
    const Pair pair(base, cand);
    return run({pair.base, pair.cand}).out;
  };
  CHECK(contains(text_of("m.Block"), "--steps 0 --ops fc2 --config"));
  CHECK(contains(text_of("torch.nn.modules.linear.Linear"), "--steps 0 --config"));
}

TEST_CASE("convtrace-diff: a run is started again where and with what it was",
          "[diff][command][text]") {
  Run base = test::training(), cand = diverging();
  const test::TempDir dir;
  base.meta.facts = {{"run.directory", dir / "my runs"},
                     {"run.executable", "/old/bin/python"},
                     {"run.pythonpath", "src:/old/lib"}};
  cand.meta.facts = {{"run.directory", std::filesystem::current_path()},
                     {"run.executable", "/new/bin/python"},
                     {"run.pythonpath", ""}};
  const Pair pair(base, cand);
  const std::string gone = run({pair.base, pair.cand}).out;
  CHECK(contains(gone,
                 "\nPYTHONPATH=src:/old/lib convtrace run --overwrite --output root-base.ctrace"));
  std::filesystem::create_directory(dir / "my runs");
  const std::string text = run({pair.base, pair.cand}).out;
  CHECK(contains(text, "\n(cd '" + (dir / "my runs") +
                           "' && PYTHONPATH=src:/old/lib convtrace run --overwrite --output "
                           "\"$OLDPWD\"/root-base.ctrace --steps 1 --ops fc2 --config "
                           "\"$OLDPWD\"/convtrace-root.toml -- /old/bin/python train.py)\n"));
  CHECK(contains(text,
                 "\nPYTHONPATH='' convtrace run --overwrite --output root-cand.ctrace --steps 1 "
                 "--ops fc2 --config "
                 "convtrace-root.toml -- /new/bin/python train.py\n"));
  CHECK_FALSE(contains(text, "run.directory"));
}

TEST_CASE("convtrace-diff: a small divergence without --noise is near the limit of rounding",
          "[diff][command][text]") {
  Run cand = test::training();
  scale(cand.at(0, "", "loss"), 1 + 2e-6);
  const Pair pair(test::training(), cand);
  CHECK(contains(run({pair.base, pair.cand, "--exact", "off"}).out,
                 "near the limit of rounding: rerun with --noise"));
  const Outcome noisy = run({pair.base, pair.cand, "--noise", pair.cand, pair.base});
  CHECK(noisy.code == 0);
  CHECK_FALSE(contains(noisy.out, "near the limit"));
}

TEST_CASE("convtrace-diff: for a raw kernel it suggests a rule that convtrace accepts",
          "[diff][command][text]") {
  Run base = test::training(), cand = diverging();
  for (Run* r : {&base, &cand}) {
    for (Item& item : r->items) {
      if (item.scope == "fc2" && item.slot == "output:0") item.kernel = "a\"b\\\x1b[31m\n'x";
    }
  }
  const Pair pair(base, cand);
  const std::string text = run({pair.base, pair.cand}).out;
  const size_t begin = text.find("[[rule]]"), end = text.find("\nEOF", begin);
  REQUIRE(end != std::string::npos);
  const std::string path = pair.dir / "root.toml";
  std::ofstream(path) << text.substr(begin, end - begin);
  const settings::LoadedRules rules = settings::load_rules(path);
  CHECK(rules.problems == std::vector<std::string>{});
  REQUIRE(rules.rules.size() == 1);
  CHECK(rules.rules[0].kernel->matches("a\"b\\\x1b[31m\n'x"));
  CHECK(rules.rules[0].capture == format::Capture::kSnapshot);
}

TEST_CASE("convtrace-diff: hostile names reach no report as they are", "[diff][command]") {
  const std::string evil = "\x1b]0;owned\x07<script>alert(1)</script>\"'\n=cmd";
  Run base = test::training(), cand = diverging();
  for (Run* r : {&base, &cand}) {
    r->meta.command_line.push_back(r == &base ? evil : evil + "2");
    for (Item& item : r->items) {
      if (item.scope == "fc2") item.scope = item.op = item.kernel = evil;
    }
    r->items.front().scope = evil;
  }
  cand.items.insert(cand.items.begin(),
                    {.kind = Item::Kind::kFinding, .scope = evil, .op = evil, .message = evil});
  const Pair pair(base, cand);
  const auto file = [&](const char* name) { return pair.dir / name; };
  const Outcome outcome = run({pair.base, pair.cand, "--json", file("j"), "--csv", file("c"),
                               "--html", file("h"), "--junit", file("u")});
  CHECK(outcome.code == 1);
  require_escaped(outcome.out);
  for (const char* name : {"j", "c", "h", "u"}) require_escaped(content(file(name)));
  CHECK_FALSE(contains(content(file("h")), "<script>alert"));
  CHECK_FALSE(contains(content(file("u")), "<script"));
  CHECK(contains(outcome.out, "\\x1b]0;owned\\x07"));
}

TEST_CASE("convtrace-diff: --csv has one row per compared or unmatched value",
          "[diff][command][csv]") {
  Run cand = diverging();
  cand.erase(0, "fc1", "grad_output:0");
  const Pair pair(test::training(), cand);
  const std::string csv = run({pair.base, pair.cand, "--csv", "-"}).out;
  std::istringstream lines(csv);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line);
  REQUIRE(rows.size() == 1 + 30);
  CHECK(contains(rows[0], ",matched_by,confidence,cand_scope,cand_slot,"));
  CHECK(contains(rows[1], ",stable key,1,\"fc1\",\"param:weight\","));
  const auto columns = std::ranges::count(rows[0], ',');
  for (const std::string& row : rows) CHECK(std::ranges::count(row, ',') == columns);
  CHECK(std::ranges::count_if(rows, [](const auto& r) { return contains(r, ",diverged,"); }) == 2);
  CHECK(std::ranges::count_if(rows, [](const auto& r) { return contains(r, ",unmatched,"); }) == 1);
}

TEST_CASE("convtrace-diff: --csv has the candidate's names and how sure the match is",
          "[diff][command][csv]") {
  Run cand = test::training();
  for (Item& item : cand.items) {
    if (item.scope == "fc2") item.scope = "head";
  }
  const Pair pair(test::training(), cand);
  const std::string csv = run({pair.base, pair.cand, "--csv", "-"}).out;
  CHECK(contains(csv, ",stable key in a module of another name,0.9,\"head\",\"output:0\","));
}

TEST_CASE("convtrace-diff: a switch that differs is told with what it does", "[diff][command]") {
  Run cand = test::training();
  cand.meta.facts = {{"version.torch", "2.13.0"},
                     {"switch.NCCL_ALGO", "Tree"},
                     {"switch.cudnn_benchmark", "True"},
                     {"switch.matmul_fp32_precision", "tf32"},
                     {"switch.torch_seed", "7"},
                     {"switch.CUBLAS_WORKSPACE_CONFIG", ":4096:8"},
                     {"setting.rules", "scope fc1, capture snapshot"}};
  const Pair pair(test::training(), cand);
  const Outcome outcome = run({pair.base, pair.cand, "--json", "-"});
  for (const char* words :
       {"NCCL adds", "fastest in a trial", "TF32 rounds", "random numbers",
        "other values were recorded", "cuBLAS repeats its results only with :4096:8"}) {
    INFO(words);
    CHECK(contains(outcome.err, words));
    CHECK(contains(outcome.out, words));
  }
  const Json report = Json::parse(outcome.out);
  for (const Json& entry : report["preflight"]) CHECK(entry["meaning"].is_string());
}

TEST_CASE("convtrace-diff: what agrees before the root is told, and whether to the last bit",
          "[diff][command]") {
  const Pair pair(test::training(), diverging());
  CHECK(contains(run({pair.base, pair.cand}).out,
                 "21 values matched; the 16 of earlier steps are the same bit by bit"));
  Run close = diverging();
  scale(close.at(0, "fc1", "output:0"), 1 + 1e-7);
  const Pair other(test::training(), close);
  CHECK_FALSE(contains(run({other.base, other.cand}).out, "bit by bit"));
  Run noisy = diverging();
  scale(noisy.at(0, "fc1", "grad:weight"), 2);
  const Pair third(test::training(), noisy);
  const std::string ignoring = run({third.base, third.cand, "--ignore", "fc1"}).out;
  INFO(ignoring);
  CHECK(contains(ignoring, "DIVERGED at step 1, forward, fc2"));
  CHECK_FALSE(contains(ignoring, "bit by bit"));
}

TEST_CASE("convtrace-diff: --junit fails the rank that diverged", "[diff][command][junit]") {
  const Pair pair(test::training(), diverging());
  const std::string xml = run({pair.base, pair.cand, "--junit", "-"}).out;
  CHECK(contains(xml, "tests=\"4\" failures=\"1\""));
  CHECK(contains(xml, "<failure message=\"rank 0, step 1, forward, fc2 (call 0): output:0"));
}

TEST_CASE("convtrace-diff: --html is one page with verdict, root and its neighbours",
          "[diff][command][html]") {
  const Pair pair(test::training(), diverging());
  const std::string path = pair.dir / "report.html";
  CHECK(run({pair.base, pair.cand, "--html", path}).code == 1);
  const std::string html = content(path);
  CHECK(contains(html, "<h1 class=\"diverged\">DIVERGED at step 1, forward, fc2"));
  CHECK(contains(html, "<tr class=\"root\"><th scope=\"row\">forward, fc2</th>"));
  CHECK_FALSE(contains(html, "http://"));
  CHECK_FALSE(contains(html, "https://"));
}

TEST_CASE("convtrace-diff: values stored in both runs are compared element by element",
          "[diff][command][json]") {
  Run base = test::training(), cand = test::training();
  for (Run* r : {&base, &cand}) {
    Item& item = r->at(1, "fc2", "output:0");
    item.capture = format::Capture::kSnapshot;
    item.shape = {4, 4};
  }
  std::vector<float>& values = cand.at(1, "fc2", "output:0").values;
  values[6] += 3;
  values[9] = std::nextafter(values[9], 9.0F);
  const Pair pair(base, cand);
  const Outcome outcome = run({pair.base, pair.cand, "--json", "-"});
  const Json elements = Json::parse(outcome.out)["root"]["elements"];
  CHECK(elements["compared"] == 16);
  CHECK(elements["differing"] == 2);
  CHECK(elements["max_abs"].get<double>() == Approx(3));
  CHECK(elements["cosine"].get<double>() < 1);
  CHECK(elements["within"]["0.01"] == 15);
  CHECK(elements["ulps"][0] == 14);
  CHECK(elements["ulps"][1] == 1);
  CHECK(elements["first"]["index"] == 6);
  CHECK(contains(outcome.err, "first at [1, 2]: "));
  CHECK(contains(outcome.err, "2 of 16 elements differ; max abs 3,"));
}

TEST_CASE("convtrace-diff: a terminal's width is kept, commands apart", "[diff][command][text]") {
  Run base = test::training(), cand = diverging();
  for (Run* r : {&base, &cand}) {
    r->meta.facts.emplace_back("switch.long",
                               std::string(r == &base ? "on " : "off ") +
                                   "and on and on and on and on and on and on and on");
  }
  const Pair pair(base, cand);
  for (const size_t columns : {72u, 80u, 200u}) {
    std::istringstream text(run({pair.base, pair.cand}, {.columns = columns}).out);
    for (std::string line; std::getline(text, line) && !line.starts_with("next  ");) {
      INFO(columns << ": " << line);
      CHECK(line.size() <= columns);
    }
  }
}

TEST_CASE("convtrace-diff: launches without values are told what to record", "[diff][command]") {
  Run bare = test::training();
  std::erase_if(bare.items, [](const Item& item) { return item.kind == Item::Kind::kValue; });
  const Pair pair(bare, bare);
  const Outcome outcome = run({pair.base, pair.cand});
  CHECK(outcome.code == 3);
  CHECK(contains(outcome.out, "  [[rule]]\n"));
  CHECK(contains(outcome.out, "CONVTRACE_MODE=stats"));
}

TEST_CASE("convtrace-diff: a report appears whole or not at all", "[diff][command]") {
  const Pair pair(test::training(), diverging());
  const std::string report = pair.dir / "report.json", link = pair.dir / "link.json";
  std::ofstream(report) << "an earlier one";
  std::filesystem::create_symlink(report, link);
  CHECK(run({pair.base, pair.dir / "absent.ctrace", "--json", report}).code == 2);
  CHECK(content(report) == "an earlier one");
  CHECK(run({pair.base, pair.cand, "--json", link}).code == 1);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(Json::parse(content(report))["verdict"] == "diverged");
  for (const auto& entry : std::filesystem::directory_iterator(pair.dir / "."))
    CHECK(entry.path().extension() != ".unfinished");
}

TEST_CASE("convtrace-diff: columns of the step table never touch", "[diff][command][text]") {
  Run base = test::training(), cand = diverging();
  for (uint32_t step : {0U, 1U}) {
    for (Run* r : {&base, &cand}) scale(r->at(step, "", "loss"), -1.23456789e-37);
  }
  scale(cand.at(0, "", "loss"), 1.5);
  const Pair pair(base, cand);
  const std::string text = run({pair.base, pair.cand}).out;
  const size_t head = text.find("    step  loss");
  REQUIRE(head != std::string::npos);
  std::istringstream lines(text.substr(head));
  std::string line;
  std::getline(lines, line);
  const size_t norm = line.find("gradient norm");
  const size_t first = line.find('|'), second = line.find('|', first + 1);
  INFO(text);
  for (int row = 0; row < 2; ++row) {
    std::getline(lines, line);
    CHECK(line.substr(norm - 2, 2) == "  ");
    CHECK(line[norm] != ' ');
    for (const size_t bar : {first, second}) CHECK(line.substr(bar - 1, 3) == " | ");
  }
}

TEST_CASE("convtrace-diff: nothing is stored again of a value of one element",
          "[diff][command][text]") {
  Run base = test::training(), cand = test::training();
  base.at(1, "", "loss").values = {1};
  cand.at(1, "", "loss").values = {2};
  const Pair pair(base, cand);
  const Outcome outcome = run({pair.base, pair.cand, "--json", "-"});
  CHECK(outcome.code == 1);
  CHECK(Json::parse(outcome.out)["root"]["slot"] == "loss");
  CHECK(Json::parse(outcome.out)["next"].empty());
  CHECK_FALSE(contains(outcome.err, "[[rule]]"));
  CHECK_FALSE(contains(outcome.err, "next  "));
}

TEST_CASE("convtrace-diff: what is advised fits the root", "[diff][command][text]") {
  const auto text = [](const Run& base, const Run& cand) {
    const Pair pair(base, cand);
    return run({pair.base, pair.cand}).out;
  };
  const char* forward = "the forward pass differs, on equal data";
  Run cand = test::training();
  for (const size_t nth : {0U, 1U})
    for (float& v : cand.at(0, "fc1", "param:weight", nth).values) v = -v;
  const std::string weights = text(test::training(), cand);
  CHECK(contains(weights, "weights differ before step 0"));
  CHECK(contains(weights, "step 0: the runs begin with other weights"));
  CHECK_FALSE(contains(weights, forward));

  Run base = test::training();
  cand = base;
  for (Run* r : {&base, &cand}) {
    r->add(
        {.phase = format::Phase::kData, .scope = "MSELoss", .slot = "input:1", .values = {1, 2}});
  }
  cand.items.back().values = {3, 1};
  const std::string labels = text(base, cand);
  CHECK(contains(labels, "DIVERGED at step 0, data, MSELoss (call 0): input:1"));
  CHECK(contains(
      labels,
      "step 0: what the root module gave out agrees, what module MSELoss was given does not"));
  CHECK_FALSE(contains(labels, forward));

  // What only one run has recorded is not said to agree.
  base = test::training();
  cand = base;
  scale(cand.at(0, "", "loss"), 2);
  CHECK(
      contains(text(base, cand),
               "step 0: the forward pass agrees, the loss does not: look at what makes the loss"));
  std::erase_if(cand.items, [](const test::Item& item) {
    return item.phase == format::Phase::kForward && item.slot.starts_with("output:");
  });
  CHECK(contains(text(base, cand), "step 0: the loss differs (forward not compared)"));

  base = test::training();
  base.add({.step = 1, .phase = format::Phase::kEvaluation, .slot = "output:0", .values = {1, 2}});
  cand = base;
  scale(cand.items.back(), 2);
  const std::string alone = text(base, cand);
  CHECK(contains(alone, "step 1: what is computed without gradients differs"));
  CHECK_FALSE(contains(alone, "on equal inputs"));
  for (const bool is_given : {true, false}) {
    base = test::training();
    for (const char* slot : {"input:0", "output:0"})
      base.add({.step = 1, .phase = format::Phase::kEvaluation, .slot = slot, .values = {1, 2}});
    cand = base;
    scale(cand.items[cand.items.size() - (is_given ? 2 : 1)], 2);
    const std::string evaluation = text(base, cand);
    CHECK(contains(evaluation, "step 1: evaluation was given other data") == is_given);
    CHECK(contains(evaluation, "on equal inputs: look at weights that no optimizer sets") ==
          !is_given);
  }

  base = test::training();
  cand = base;
  for (Run* r : {&base, &cand}) r->tell(0, "", "class", "model.Net");
  cand.at(1, "", "loss").values[0] *= 1 + 0x1p-22F;
  scale(cand.at(1, "", "loss"), 2);
  CHECK(contains(text(base, cand), "DIVERGED at step 1, loss, root module (Net) (call 0): loss"));
  for (Run* r : {&base, &cand}) r->tell(0, "-", "optimizer.0.0.lr", r == &base ? "1" : "2");
  const std::string setting = text(base, cand);
  CHECK(contains(setting, "DIVERGED at step 0, optimizer: lr\n"));
  CHECK_FALSE(contains(setting, "  module   "));
}

TEST_CASE("convtrace-diff: findings about one memory are told as one",
          "[diff][command][findings]") {
  Run cand = test::training();
  const auto add = [&](uint32_t step, format::FindingKind kind, const char* op, uint64_t storage) {
    cand.add({.kind = Item::Kind::kFinding,
              .step = step,
              .scope = "fc1",
              .op = op,
              .storage = storage,
              .finding = kind,
              .message = "m"});
  };
  add(0, format::FindingKind::kStaleRead, "", 7);
  add(0, format::FindingKind::kFreedUnderOutput, "demo::f", 7);
  add(1, format::FindingKind::kFreedUnderOutput, "demo::f", 8);
  add(1, format::FindingKind::kFreedUnderOutput, "demo::g", 9);
  const Pair pair(test::training(), cand);
  const std::string path = pair.dir / "report.html";
  const Outcome outcome = run({pair.base, pair.cand, "--json", "-", "--html", path});
  CHECK(outcome.code == 4);
  CHECK(contains(outcome.err,
                 "  freed-under-output (error) in the candidate, step 0, fc1, op demo::f\n"));
  CHECK(contains(outcome.err,
                 "  of the same memory or by the same code:\n"
                 "    stale-read (error) in step 0, forward, fc1\n"
                 "    freed-under-output (error) in step 1, forward, fc1, op demo::f\n"
                 "  freed-under-output (error) in the candidate, step 1, fc1, op demo::g\n"));
  CHECK_FALSE(contains(outcome.err, "stale-read (error) in the candidate"));
  CHECK(contains(content(path), "<li>stale-read (error) in step 0, forward, fc1</li>"));
  const Json list = Json::parse(outcome.out)["findings"]["cand"];
  REQUIRE(list.size() == 4);
  for (const size_t i : {0u, 1u, 2u}) CHECK(list[i]["story"] == 0);
  CHECK(list[3]["story"] == 1);
}

TEST_CASE("convtrace-diff: a stale read is no cause where the error that explains it is known",
          "[diff][command][findings]") {
  Run cand = diverging();
  for (const auto kind :
       {format::FindingKind::kFreedUnderOutput, format::FindingKind::kStaleRead}) {
    cand.items.insert(cand.items.begin() + 1, {.kind = Item::Kind::kFinding,
                                               .scope = "fc2",
                                               .op = "demo::f",
                                               .storage = 70,
                                               .finding = kind});
  }
  const Pair pair(test::training(), cand);
  const Outcome outcome = run({pair.base, pair.cand, "--json", "-"});
  CHECK(Json::parse(outcome.out)["cause"]["kind"] == "freed-under-output");
  CHECK(contains(outcome.err,
                 "  of the same memory or by the same code:\n    stale-read (error) in step 0"));
}

TEST_CASE("convtrace-diff: a place that exceeds its limit in many steps is listed once", "[diff]") {
  diff::DiffResult result;
  for (const uint32_t step : {2U, 3U, 4U})
    for (const char* slot : {"output:0", "output:1"}) {
      diff::RecordReport birth;
      birth.step = step;
      birth.scope = "fc1";
      birth.slot = slot;
      result.births.push_back(birth);
    }
  const std::vector<std::string> lines = diff::birth_lines(result);
  REQUIRE(lines.size() == 2);
  CHECK(contains(lines[0], "step 2"));
  CHECK(contains(lines[1], "step 2"));
  CHECK(contains(lines[1], "output:1"));
}

}  // namespace convtrace::test
