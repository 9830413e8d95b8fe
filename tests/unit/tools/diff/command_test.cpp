// convtrace-diff as a command: exit codes, what it compares, options, JSON.

#include <filesystem>

#include "tests/unit/tools/diff/command_scene.h"

namespace convtrace::test {

TEST_CASE("convtrace-diff: exit codes say same, diverged, not comparable, findings",
          "[diff][command]") {
  const Pair same(test::training(), test::training());
  CHECK(run({same.base, same.cand}).code == 0);
  CHECK(run({same.base, same.base}).code == 0);
  const Pair diverged(test::training(), diverging());
  CHECK(run({diverged.base, diverged.cand}).code == 1);
  Run launches = test::training();
  std::erase_if(launches.items, [](const Item& i) { return i.kind == Item::Kind::kValue; });
  const Pair uncomparable(launches, launches);
  CHECK(run({uncomparable.base, uncomparable.cand}).code == 3);
  Run buggy = test::training();
  buggy.add({.kind = Item::Kind::kFinding, .scope = "fc1"});
  const Pair findings(test::training(), buggy);
  CHECK(run({findings.base, findings.cand}).code == 4);
}

TEST_CASE("convtrace-diff: input that is no trace is exit 2 and one clear line",
          "[diff][command]") {
  const Pair pair(test::training(), test::training());
  const TempDir empty_folder;
  std::ofstream(pair.dir / "text.ctrace") << "this is not a trace, whatever its name says\n";
  std::ofstream(pair.dir / "empty.ctrace").flush();
  for (const std::string& bad : {pair.dir / "text.ctrace", pair.dir / "empty.ctrace",
                                 pair.dir / "missing.ctrace", empty_folder / "."}) {
    for (const auto& arguments : {std::vector{pair.base, bad}, std::vector{bad, pair.base}}) {
      const Outcome outcome = run(arguments);
      INFO(bad);
      CHECK(outcome.code == 2);
      CHECK(outcome.out.empty());
      CHECK(outcome.err.starts_with("convtrace-diff: CT-2101 "));
      CHECK(contains(outcome.err, bad));
      CHECK(std::ranges::count(outcome.err, '\n') == 1);
    }
  }
}

TEST_CASE("convtrace-diff: wrong usage is exit 2, help is exit 0", "[diff][command]") {
  CHECK(run({}).code == 2);
  CHECK(run({"one.ctrace"}).code == 2);
  CHECK(run({"a", "b", "--nonsense"}).code == 2);
  CHECK(run({"one.ctrace"}).err == "convtrace-diff: CT-2001 CAND is required (see --help)\n");
  for (const auto& words : {std::vector<std::string>{"a", "b", "--htlm", "x"}, {"a", "--htlm"}})
    CHECK(
        run(words).err ==
        "convtrace-diff: CT-2001 unknown option \"--htlm\"; the nearest is --html (see --help)\n");
  const Outcome help = run({"--help"});
  CHECK(help.code == 0);
  CHECK(contains(help.out, "Exit codes: 0 identical or rounding, 1 diverged"));
}

TEST_CASE("convtrace-diff: a report that cannot be written is exit 2 before any comparison",
          "[diff][command]") {
  const Pair pair(test::training(), test::training());
  const Outcome outcome = run({pair.base, pair.cand, "--json", pair.dir / "no/such/folder.json"});
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(run({pair.base, pair.cand, "--json", "-", "--csv", "-"}).code == 2);
}

TEST_CASE("convtrace-diff: a report is written neither over a trace nor over another report",
          "[diff][command]") {
  const Pair pair(test::training(), diverging());
  const std::string before = content(pair.cand);
  for (const char* option : {"--json", "--html", "--junit", "--csv"}) {
    const Outcome outcome = run({pair.base, pair.cand, option, pair.cand});
    INFO(option);
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, "CT-2105 "));
  }
  CHECK(run({pair.base, pair.base, "--noise", pair.cand, "--csv", pair.cand}).code == 2);
  CHECK(content(pair.cand) == before);
  const std::string report = pair.dir / "report";
  const Outcome twice = run({pair.base, pair.cand, "--json", report, "--csv", report});
  CHECK(twice.code == 2);
  CHECK(contains(twice.err, "CT-2107 "));
  CHECK_FALSE(std::filesystem::exists(report));
}

TEST_CASE("convtrace-diff: --json has every promised key", "[diff][command][json]") {
  const Pair pair(test::training(), diverging());
  const Outcome outcome = run({pair.base, pair.cand, "--json", "-"});
  CHECK(outcome.code == 1);
  CHECK(contains(outcome.err, "DIVERGED"));  // people's text makes room for data
  const Json json = Json::parse(outcome.out);
  CHECK(has_all(keys(json), {"verdict", "root", "first_bit_difference", "counts", "compared",
                             "preflight", "findings", "incomplete"}));
  const std::set<std::string> root_keys = {"rank",
                                           "step",
                                           "phase",
                                           "scope",
                                           "call",
                                           "slot",
                                           "op",
                                           "kernel",
                                           "class",
                                           "base",
                                           "cand",
                                           "difference",
                                           "tolerance_used",
                                           "tolerance_needed",
                                           "matched_before"};
  CHECK(has_all(keys(json["root"]), root_keys));
  CHECK(has_all(keys(json["first_bit_difference"]), root_keys));
  CHECK(keys(json["compared"]) == std::set<std::string>{"values", "launches"});
  CHECK(keys(json["findings"]) == std::set<std::string>{"base", "cand"});
  CHECK(json["verdict"] == "diverged");
  CHECK(json["root"]["step"] == 1);
  CHECK(json["root"]["phase"] == "forward");
  CHECK(json["root"]["scope"] == "fc2");
  CHECK(json["root"]["slot"] == "output:0");
  CHECK(json["root"]["class"] == "diverged");
  CHECK(json["root"]["op"].is_null());
  CHECK(json["root"]["difference"] > json["root"]["tolerance_used"]);
  CHECK(json["root"]["cand"]["l2"].get<double>() ==
        Approx(1.5 * json["root"]["base"]["l2"].get<double>()));
  CHECK(json["counts"]["diverged"] == 2);
  CHECK(json["incomplete"] == false);
}

TEST_CASE("convtrace-diff: without a divergence root and first bit difference are null",
          "[diff][command][json]") {
  const Pair pair(test::training(), test::training());
  const Json json = Json::parse(run({pair.base, pair.cand, "--json", "-"}).out);
  CHECK(json["verdict"] == "same");
  CHECK(json["root"].is_null());
  CHECK(json["first_bit_difference"].is_null());
}

TEST_CASE("convtrace-diff: an unclosed candidate is compared up to its end",
          "[diff][command][json]") {
  const TempDir dir;
  test::training(2).write(dir / "base.ctrace");
  Run killed = test::training(2);
  killed.items.resize(killed.items.size() - 5);
  killed.write(dir / "cand.ctrace", false);
  const Outcome outcome = run({dir / "base.ctrace", dir / "cand.ctrace", "--json", "-"});
  CHECK(outcome.code == 3);
  const Json json = Json::parse(outcome.out);
  CHECK(json["verdict"] == "incomplete");
  CHECK(json["agreement"] == "identical");
  CHECK(json["incomplete"] == true);
  CHECK(contains(outcome.err, "INCOMPLETE: what was compared is identical"));
  const Outcome allowed =
      run({dir / "base.ctrace", dir / "cand.ctrace", "--allow-incomplete", "--json", "-"});
  CHECK(allowed.code == 0);
  CHECK(Json::parse(allowed.out)["verdict"] == "same");
  CHECK(Json::parse(allowed.out)["incomplete"] == true);
  CHECK(json["preflight"][0]["name"] == "state");
  CHECK(json["preflight"][0]["cand"] == "unclosed");
  CHECK(json["counts"]["unmatched"] == 5);
}

TEST_CASE("convtrace-diff: a cut last step without values does not make runs uncomparable",
          "[diff][command]") {
  const TempDir dir;
  test::training(2).write(dir / "base.ctrace");
  Run killed = test::training(2);
  killed.end_before(1);
  killed.add({.kind = Item::Kind::kLaunch, .step = 1, .scope = "fc1", .kernel = "gemm"});
  killed.write(dir / "cand.ctrace", false);
  CHECK(run({dir / "base.ctrace", dir / "cand.ctrace"}).code == 3);
  CHECK(run({dir / "base.ctrace", dir / "cand.ctrace", "--allow-incomplete"}).code == 0);
}

TEST_CASE("convtrace-diff: folders are compared rank by rank", "[diff][command][ranks]") {
  const TempDir base, cand;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    Run good = test::training(), bad = rank == 0 ? test::training() : diverging();
    good.meta.rank = bad.meta.rank = rank;
    good.meta.world_size = bad.meta.world_size = 4;
    if (rank == 2) bad.at(0, "", "loss").values[0] += 1;  // the earliest step wins
    const std::string name = "r" + std::to_string(3 - rank) + ".ctrace";
    good.write(base / name);
    if (rank != 1) bad.write(cand / name);
  }
  const Outcome outcome = run({base / ".", cand / ".", "--json", "-"});
  CHECK(outcome.code == 1);
  const Json json = Json::parse(outcome.out);
  CHECK(json["root"]["rank"] == 2);
  CHECK(json["root"]["step"] == 0);
  CHECK(json["root"]["slot"] == "loss");
  CHECK(json["incomplete"] == true);
  REQUIRE(json["preflight"].size() == 1);
  CHECK(json["preflight"][0]["name"] == "trace of rank 1");
  CHECK(json["preflight"][0]["cand"].is_null());
  REQUIRE(json["ranks"].size() == 3);
  CHECK(json["ranks"][0] == Json{{"rank", 0},
                                 {"verdict", "same"},
                                 {"values", 30},
                                 {"root", nullptr},
                                 {"received", false}});
  CHECK(json["ranks"][2]["rank"] == 3);
  CHECK(json["ranks"][2]["verdict"] == "diverged");
  CHECK(json["ranks"][2]["root"]["step"] == 1);
  CHECK(json["ranks"][2]["root"]["scope"] == "fc2");
  CHECK(contains(run({base / ".", cand / "."}).out,
                 "ranks       2 of 3 ranks diverged\n"
                 "ranks       rank 2, step 0, loss, root module (call 0), loss (diverged)\n"
                 "ranks       rank 3, step 1, forward, fc2 (call 0), output:0 (diverged)\n"));
  // A rank's command line does not start its job.
  CHECK(contains(run({base / ".", cand / "."}).out,
                 "\nexport CONVTRACE_STEPS=0 CONVTRACE_CONFIG=$PWD/convtrace-root.toml\n"
                 "# then start both jobs as before"));
}

TEST_CASE("convtrace-diff: a rank that neither folder has is no agreement",
          "[diff][command][ranks]") {
  const auto verdict = [](uint32_t world_size, const char* ranks) {
    const TempDir base, cand;
    for (const TempDir* folder : {&base, &cand}) {
      for (const uint32_t rank : {0U, 2U}) {
        Run run = test::training();
        run.meta.rank = rank;
        run.meta.world_size = world_size;
        run.meta.facts.emplace_back("setting.CONVTRACE_RANKS", ranks);
        run.write(*folder / (std::to_string(rank) + ".ctrace"));
      }
    }
    return run({base / ".", cand / "."});
  };
  const Outcome outcome = verdict(4, "all");
  CHECK(outcome.code == 3);
  CHECK(contains(outcome.out, "CT-2401 neither run has a trace of 2 ranks of 4"));
  CHECK(verdict(4, "0,2").code == 0);  // as asked
}

/// Two ranks of a step each, in which a collective sums what both made.
void write_summed(const TempDir& base, const TempDir& cand, bool rank_1_parts) {
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (const bool is_cand : {false, true}) {
      const bool parts = is_cand && rank_1_parts && rank == 1;
      const float other = is_cand ? 3.5F : 3;
      Run run;
      run.meta.rank = rank;
      run.meta.world_size = 2;
      // Rank 1 makes more values, so its first difference comes later in its order of execution.
      for (uint32_t i = 0; i < 1 + 3 * rank; ++i)
        run.add({.scope = "in", .slot = "output:0", .call = i, .values = {1, 2}});
      run.add({.phase = format::Phase::kBackward,
               .slot = "grad_output:0",
               .values = {parts ? 7.0F : 5.0F, 2}});
      run.add({.phase = format::Phase::kBackward,
               .slot = "received:0",
               .op = "all_reduce",
               .values = {other, 4}});
      run.add({.phase = format::Phase::kBackward,
               .scope = "in",
               .slot = "grad:weight",
               .values = {other, 4}});
      run.write((is_cand ? cand : base) / ("r" + std::to_string(rank) + ".ctrace"));
    }
  }
}

TEST_CASE("convtrace-diff: what a collective brought began on another rank",
          "[diff][command][ranks]") {
  const TempDir base, cand;
  write_summed(base, cand, true);
  const Json json = Json::parse(run({base / ".", cand / ".", "--json", "-"}).out);
  CHECK(json["root"]["rank"] == 1);
  CHECK(json["root"]["slot"] == "grad_output:0");
  CHECK(json["ranks"][0]["root"]["slot"] == "received:0");
  CHECK(json["ranks"][0]["received"] == true);
  CHECK(json["ranks"][1]["received"] == false);
  for (const Json& birth : json["births"]) CHECK(birth["rank"] == 1);
  CHECK(contains(run({base / ".", cand / "."}).out,
                 "op all_reduce, received:0 (diverged; a collective brought it)"));
}

TEST_CASE("convtrace-diff: where all that was sent agrees, the collective is the root",
          "[diff][command][ranks]") {
  const TempDir base, cand;
  write_summed(base, cand, false);
  const Json json = Json::parse(run({base / ".", cand / ".", "--json", "-"}).out);
  CHECK(json["root"]["slot"] == "received:0");
  CHECK(json["root"]["op"] == "all_reduce");
  CHECK(json["ranks"][0]["received"] == false);
}

TEST_CASE("convtrace-diff: traces of a folder have any names, and their ranks from META",
          "[diff][command][ranks]") {
  const TempDir base, cand;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Run good = test::training(), bad = rank == 1 ? diverging() : test::training();
    good.meta.rank = bad.meta.rank = rank;
    good.write(base / (rank == 0 ? "b.trace" : "no-ending"));
    bad.write(cand / (rank == 0 ? "z.bin" : "a.log"));
  }
  std::ofstream(base / "train.log") << "step 0 loss 1.5\n";
  std::ofstream(base / "empty") << "";
  const Outcome outcome = run({base / ".", cand / ".", "--json", "-"});
  CHECK(outcome.code == 1);
  const Json json = Json::parse(outcome.out);
  CHECK(json["incomplete"] == false);
  CHECK(json["ranks"].size() == 2);
  CHECK(json["root"]["rank"] == 1);
  std::ofstream(base / "rank2.ctrace") << "what no trace begins with";
  CHECK(Json::parse(run({base / ".", cand / ".", "--json", "-"}).out)["incomplete"] == true);
}

TEST_CASE("convtrace-diff: where a hash alone was recorded it does not claim agreement",
          "[diff][command][text]") {
  Run cand = test::training();
  Item& input = cand.at(1, "fc2", "input:0");
  input.values[0] += 1;
  input.storage = 0;  // of no producer that could say by how much it differs
  const Pair hashes(test::training(), cand);
  const std::string same = run({hashes.base, hashes.cand, "--exact", "off"}).out;
  CHECK(contains(same, "of 1 value only the hash is known, and it differs"));

  scale(cand.at(1, "fc2", "output:0"), 1.5);
  const Pair diverged(test::training(), cand);
  const std::string text = run({diverged.base, diverged.cand, "--exact", "off"}).out;
  CHECK(contains(text, "input:0 differed already when it came in"));
  CHECK_FALSE(contains(text, "inputs agree"));
}

TEST_CASE("convtrace-diff: a changed value is told from producer to victim",
          "[diff][command][json]") {
  Run cand = test::training();
  cand.at(1, "fc2", "input:0").values.assign(16, 7);
  scale(cand.at(1, "fc2", "output:0"), 3);
  scale(cand.at(1, "", "output:0"), 3);
  const Pair pair(test::training(), cand);
  const Outcome outcome = run({pair.base, pair.cand, "--json", "-"});
  const Json root = Json::parse(outcome.out)["root"];
  CHECK(root["class"] == "changed-between");
  CHECK(root["scope"] == "fc1");
  CHECK(root["op"] == "demo::gelu");
  CHECK(root["changed_in"] == "cand");
  CHECK(root["consumer"]["scope"] == "fc2");
  CHECK(root["consumer"]["slot"] == "input:0");
  CHECK(root["effect"]["slot"] == "output:0");
  CHECK(root["difference"] == root["effect"]["difference"]);
  CHECK(contains(outcome.err, "changed in the candidate before fc2 used it"));
}

TEST_CASE("convtrace-diff: --tol decides what the values it names may differ by",
          "[diff][command]") {
  const Pair pair(test::training(), diverging());  // by the factor 1.5 in fc2 and the root module
  CHECK(run({pair.base, pair.cand, "--tol", "re:output=0.6"}).code == 0);
  CHECK(run({pair.base, pair.cand, "--tol", "fc2=0.6"}).code == 1);
  Run cand = test::training();
  scale(cand.at(0, "", "loss"), 1 + 8e-6);  // suspicious, no more
  const Pair close(test::training(), cand);
  CHECK(run({close.base, close.cand, "--exact", "off", "--tol", "loss=1e-5"}).code == 0);
  CHECK(run({close.base, close.cand, "--tol", "loss=1e-6"}).code == 1);
  CHECK(run({close.base, close.cand, "--tol", "loss=1e-6", "--tol", "*=1"}).code == 0);
  for (const char* bad : {"loss", "loss=", "loss=x", "re:(=1", "loss=-1", "=1"}) {
    INFO(bad);
    const Outcome outcome = run({close.base, close.cand, "--tol", bad});
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, "takes PATTERN=X"));
  }
}

TEST_CASE("convtrace-diff: --map says which names and ranks belong together", "[diff][command]") {
  Run cand = diverging();
  for (Item& item : cand.items) {
    if (item.scope == "fc2") item.scope = "head";
  }
  const Pair pair(test::training(), cand);
  const std::string map = pair.dir / "map.toml";
  std::ofstream(map) << "[modules]\nfc2 = 'head'\n";
  const std::string text = run({pair.base, pair.cand, "--map", map}).out;
  CHECK(contains(text, "stable key in a module of another name; in the candidate head"));
  for (const char* bad :
       {"[modules]\nfc2 = 3\n", "[ranks]\nx = 1\n", "[rank]\n0 = 1\n", "[ranks",
        "[fused]\na = 'b'\n", "[reduction]\nloss = 'most'\n", "[reduction]\n're:(' = 'sum'\n"}) {
    std::ofstream(map) << bad;
    INFO(bad);
    CHECK(run({pair.base, pair.cand, "--map", map}).code == 2);
  }

  const TempDir base, other;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Run good = test::training(), same = rank == 0 ? diverging() : test::training();
    good.meta.rank = rank;
    same.meta.rank = 5 - rank;
    if (rank == 0) good = diverging(), good.meta.rank = 0;
    good.write(base / (std::to_string(rank) + ".ctrace"));
    same.write(other / (std::to_string(rank) + ".ctrace"));
  }
  std::ofstream(map) << "[ranks]\n0 = 5\n1 = 4\n";
  CHECK(run({base / ".", other / "."}).code == 3);
  CHECK(run({base / ".", other / ".", "--map", map}).code == 0);
}

TEST_CASE("convtrace-diff: --layouts whole, and what it says of unlike layouts",
          "[diff][command][ranks]") {
  const TempDir base, cand;
  test::training().write(base / "0.ctrace");
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Run run = test::training();
    run.meta.rank = rank;
    run.meta.world_size = 2;
    for (Item& item : run.items) {
      if (item.slot != "param:weight") continue;
      const auto half = static_cast<ptrdiff_t>(item.values.size() / 2);
      item.values = rank == 0 ? std::vector(item.values.begin(), item.values.begin() + half)
                              : std::vector(item.values.begin() + half, item.values.end());
      item.shape = {item.values.size()};
    }
    run.write(cand / (std::to_string(rank) + ".ctrace"));
  }
  const Outcome whole = run({base / ".", cand / "."});
  CHECK(whole.code == 0);
  CHECK(
      contains(whole.out, "put together from 1 rank of the baseline and 2 ranks of the candidate"));
  const Outcome ranks = run({base / ".", cand / ".", "--layouts", "ranks"});
  CHECK(ranks.code == 1);
  const Outcome json = run({base / ".", cand / ".", "--json", "-"});
  const auto report = tools::Json::parse(json.out);
  CHECK(report["layouts"]["cand_ranks"] == 2);
  CHECK(report["layouts"]["not_compared"].empty());
  CHECK(report["agreement"] == "rounding");
  CHECK(run({base / ".", cand / ".", "--layouts", "half"}).code == 2);
}

TEST_CASE("convtrace-diff: a rank that stops being a replica is named, a shard is not",
          "[diff][command][ranks]") {
  const TempDir base, cand;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    Run good = test::training(5);
    if (rank == 3) scale(good.at(0, "fc1", "grad:weight"), 2);  // never was one
    Run bad = good;
    if (rank == 1) {
      for (uint32_t step = 2; step < 5; ++step) scale(bad.at(step, "fc2", "grad:weight"), 2);
    }
    if (rank == 2) scale(bad.at(3, "fc1", "param:weight"), 2);
    good.meta.rank = bad.meta.rank = rank;
    good.write(base / (std::to_string(rank) + ".ctrace"));
    bad.write(cand / (std::to_string(rank) + ".ctrace"));
  }
  const Outcome outcome = run({base / ".", cand / ".", "--json", "-"});
  const Json replicas = Json::parse(outcome.out)["replicas"];
  REQUIRE(replicas.size() == 2);
  CHECK(replicas[0] ==
        Json{{"run", "cand"}, {"rank", 1}, {"other", 0}, {"step", 2}, {"in_gradients", true}});
  CHECK(replicas[1] ==
        Json{{"run", "cand"}, {"rank", 2}, {"other", 0}, {"step", 3}, {"in_gradients", false}});
  CHECK(contains(outcome.err, "rank 1 had the weights of rank 0 and parts from it in step 2"));
  CHECK(Json::parse(run({base / ".", base / ".", "--json", "-"}).out)["replicas"].empty());
  SECTION("--ranks compares fewer of them with each other, and all with the other run") {
    const Outcome some = run({base / ".", cand / ".", "--ranks", "0,2-3", "--json", "-"});
    Json whole = Json::parse(outcome.out), narrowed = Json::parse(some.out);
    CHECK(some.code == outcome.code);
    CHECK(narrowed["replicas"] == Json::array({replicas[1]}));
    CHECK(narrowed["ranks_by_sums"] == 1);
    CHECK(narrowed["root"]["rank"] == 1);
    CHECK(contains(some.err, "1 rank not compared with others of the run"));
    for (Json* report : {&whole, &narrowed}) {
      report->erase("replicas");
      report->erase("ranks_by_sums");
    }
    CHECK(whole == narrowed);
  }
  CHECK(run({base / ".", cand / ".", "--ranks", "1-x"}).code == 2);
}

}  // namespace convtrace::test
