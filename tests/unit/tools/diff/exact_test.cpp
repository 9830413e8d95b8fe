// Where nothing differs nothing may; what one run alone has; what was not compared.

#include <algorithm>
#include <fstream>

#include "reader/trace_reader.h"
#include "tests/unit/tools/diff/command_scene.h"

namespace convtrace::test {
namespace {

/// The last bits of what fc1 gives and fc2 makes of it.
Run with_other_bit(Run run = training()) {
  for (Item* item :
       {&run.at(1, "fc1", "output:0"), &run.at(1, "fc1", "output:0", 1),
        &run.at(1, "fc2", "input:0"), &run.at(1, "fc2", "output:0"), &run.at(1, "", "output:0")}) {
    item->values[3] *= 1 + 0x1p-23F;
  }
  return run;
}

Json report(const Run& base, const Run& cand, std::vector<std::string> options = {}) {
  const Pair pair(base, cand);
  options.insert(options.begin(), {pair.base, pair.cand, "--json", "-"});
  return Json::parse(run(options).out);
}

Run with_fact(Run run, const char* name, const char* value) {
  run.meta.facts.emplace_back(name, value);
  return run;
}

}  // namespace

TEST_CASE("exact: two runs that differ in nothing on a CPU may differ in no bit", "[diff][exact]") {
  const Json json = report(training(), with_other_bit());
  CHECK(json["verdict"] == "diverged");
  CHECK(json["exact"] == true);
  CHECK(json["root"]["scope"] == "fc1");
  CHECK(json["root"]["worst_input"] == "identical");
  CHECK(contains(json["why_exact"], "both ran on the CPU alone"));
}

TEST_CASE("exact: a root no larger than rounding says why that counts, and how to find out more",
          "[diff][exact][text]") {
  const auto text = [](const Run& cand, std::vector<std::string> options = {}) {
    const Pair pair(training(), cand);
    options.insert(options.begin(), {pair.base, pair.cand});
    return run(options).out;
  };
  const char* hint = "no larger than rounding, which is not allowed here";
  const std::string small = text(with_other_bit());
  CHECK(contains(small, hint));
  CHECK(contains(small, "shown by: convtrace repeat"));
  CHECK(contains(text(with_other_bit(), {"--exact", "on"}), "not allowed here: --exact on"));
  Run large = training();
  scale(large.at(1, "fc2", "output:0"), 2);
  CHECK(!contains(text(large), hint));
}

TEST_CASE("exact: a hash alone that differs diverges, and who passed it on is no root",
          "[diff][exact]") {
  Run cand = training();
  cand.at(1, "fc2", "input:0").values[0] += 1;
  cand.at(1, "fc2", "input:0").storage = 0;
  cand.at(1, "fc2", "output:0").values[0] += 1;
  const Json json = report(training(), cand);
  CHECK(json["root"]["scope"] == "fc2");
  CHECK(json["root"]["slot"] == "input:0");
}

TEST_CASE("exact: what differs between the runs, or need not repeat, allows rounding",
          "[diff][exact]") {
  const Run base = training(), cand = with_other_bit();
  const auto rounding = [](const Json& json, const char* why) {
    INFO(json["why_exact"]);
    CHECK(json["verdict"] == "same");
    CHECK(json["agreement"] == "rounding");
    CHECK(json["exact"] == false);
    CHECK(contains(json["why_exact"], why));
  };
  rounding(report(base, cand, {"--exact", "off"}), "--exact off");
  rounding(report(base, with_fact(cand, "switch.num_threads", "2")), "switch.num_threads");
  rounding(report(base, with_fact(cand, "code.model.py", "00ff")), "in their code");
  Run other = cand;
  other.meta.command_line.emplace_back("--fast");
  rounding(report(base, other), "command line");
  const auto on_gpu = [](const Run& run) { return with_fact(run, "device.0.name", "H100"); };
  rounding(report(on_gpu(base), on_gpu(cand)), "need not repeat");
}

TEST_CASE("exact: deterministic switches, and settings of ours, leave it", "[diff][exact]") {
  const auto deterministic = [](const Run& run) {
    return with_fact(with_fact(run, "device.0.name", "H100"), "switch.deterministic_algorithms",
                     "True");
  };
  CHECK(report(deterministic(training()), deterministic(with_other_bit()))["exact"] == true);
  for (const char* loose : {"switch.deterministic_warn_only", "switch.cudnn_benchmark"}) {
    const auto json = report(with_fact(deterministic(training()), loose, "True"),
                             with_fact(deterministic(with_other_bit()), loose, "True"));
    CHECK(json["exact"] == false);
    CHECK(contains(json["why_exact"], "the baseline's command run again, as --noise"));
  }
  CHECK(report(training(),
               with_fact(with_other_bit(), "setting.CONVTRACE_MODE", "stats"))["exact"] == true);
  CHECK(report(with_fact(training(), "switch.num_threads", "1"), with_other_bit(),
               {"--exact", "on"})["exact"] == true);
}

TEST_CASE("exact: a repetition of the baseline says whether runs repeat", "[diff][exact]") {
  const auto on_gpu = [](const Run& run) { return with_fact(run, "device.0.name", "H100"); };
  const Pair pair(on_gpu(training()), on_gpu(with_other_bit()));
  on_gpu(training()).write(pair.dir / "again.ctrace");
  const auto told = [&](const std::string& noise) {
    return Json::parse(run({pair.base, pair.cand, "--json", "-", "--noise", noise}).out);
  };
  CHECK(told(pair.dir / "again.ctrace")["verdict"] == "diverged");
  CHECK(told(pair.cand)["verdict"] == "same");
  CHECK(contains(told(pair.cand)["why_exact"], "has other bits"));
}

TEST_CASE("exact: of several ranks one that differs is told, whichever it is", "[diff][exact]") {
  for (const uint32_t other : {0U, 1U}) {
    const TempDir dir;
    for (const char* name : {"base", "cand"}) {
      std::filesystem::create_directories(dir / name);
      for (uint32_t rank = 0; rank < 2; ++rank) {
        Run run = training();
        if (name[0] == 'c' && rank == other) run = with_fact(run, "switch.num_threads", "2");
        run.meta.rank = rank;
        run.meta.world_size = 2;
        run.write(dir / name + "/" + std::to_string(rank) + ".ctrace");
      }
    }
    const Json json = Json::parse(run({dir / "base", dir / "cand", "--json", "-"}).out);
    CHECK(json["exact"] == false);
    CHECK(contains(json["why_exact"], "switch.num_threads"));
  }
}

TEST_CASE("exact: a generator that nobody seeds is no bit of a repetition", "[diff][exact]") {
  const auto drawn = [](Run run, const char* state) {
    run.tell(0, "-", "rng.python", state);
    return with_fact(run, "device.0.name", "H100");
  };
  const Pair pair(drawn(training(), "1"), drawn(with_other_bit(), "2"));
  drawn(training(), "3").write(pair.dir / "again.ctrace");
  drawn(with_other_bit(), "1").write(pair.dir / "other.ctrace");
  const auto why = [&](const char* noise) {
    const Json json =
        Json::parse(run({pair.base, pair.cand, "--json", "-", "--noise", pair.dir / noise}).out);
    return json["why_exact"].get<std::string>();
  };
  CHECK(contains(why("again.ctrace"), "has all its bits"));
  CHECK(contains(why("other.ctrace"), "has other bits"));
}

TEST_CASE("exact: a repetition that lacks a part of the run says nothing", "[diff][exact]") {
  const auto why = [](const Run& base, const Run& noise, bool closed = true) {
    const Pair pair(base, base);
    noise.write(pair.dir / "again.ctrace", closed);
    const std::string path = pair.dir / "again.ctrace";
    return Json::parse(run({pair.base, pair.cand, "--json", "-", "--noise", path}).out)["why_exact"]
        .get<std::string>();
  };
  Run shorter = training(3), cut = training(3), unlike = training(3);
  shorter.end_before(2);
  cut.items.erase(cut.items.end() - 3, cut.items.end());
  unlike.end_before(2);
  unlike.at(1, "fc1", "output:0").values[0] += 1;
  CHECK(contains(why(training(3), shorter), "both ran on the CPU alone"));
  CHECK(contains(why(training(3), cut, false), "both ran on the CPU alone"));
  CHECK(contains(why(training(3), cut), "has other bits"));
  CHECK(contains(why(training(3), unlike), "has other bits"));
  const auto on_gpu = [](const Run& run) { return with_fact(run, "device.0.name", "H100"); };
  CHECK(contains(why(on_gpu(training(3)), on_gpu(shorter)), "there is no whole repetition"));
}

TEST_CASE("rounding: the text says where it begins, what explains it, what it may hide",
          "[diff][text]") {
  const Pair alike(training(), with_other_bit());
  const std::string text = run({alike.base, alike.cand, "--exact", "off"}).out;
  CHECK(contains(text, "ROUNDING: no value differs by more than rounding explains"));
  CHECK(contains(text, "begins at step 1, forward, fc1 (call 0)"));
  CHECK(contains(text, "nothing that was recorded of the runs explains it"));
  CHECK(contains(text, "a fault below "));
  CHECK(contains(text, "would look the same in f32"));
  const Pair threads(training(), with_fact(with_other_bit(), "switch.num_threads", "2"));
  CHECK(contains(run({threads.base, threads.cand}).out,
                 "the runs differ in what explains it: switch.num_threads"));
  const Pair packages(with_fact(training(), "package.flash_attn", "2.6"),
                      with_fact(with_other_bit(), "package.flash_attn", "2.7"));
  CHECK(
      contains(run({packages.base, packages.cand}).out, "what explains it: package.flash_attn\n"));
  Run options = with_other_bit();
  options.meta.command_line.emplace_back("--fast");
  const Pair commands(training(), options);
  CHECK(contains(run({commands.base, commands.cand}).out,
                 "the runs differ in what may explain it: command line\n"));
  const Pair versions(
      with_fact(training(), "version.torch", "2.6"),
      with_fact(with_fact(with_other_bit(), "version.torch", "2.13"), "switch.num_threads", "2"));
  CHECK(contains(run({versions.base, versions.cand}).out, "what explains it: version.torch\n"));
  const Pair same(training(), training());
  CHECK(contains(run({same.base, same.cand}).out,
                 "IDENTICAL: every compared value has the same bits"));
}

TEST_CASE("coverage: a run that lost records, or has fewer steps or ranks, is no agreement",
          "[diff][coverage]") {
  Run shorter = training(4);
  shorter.end_before(3);
  CHECK(report(training(4), shorter)["verdict"] == "incomplete");
  CHECK(report(shorter, training(4))["verdict"] == "incomplete");
  scale(shorter.at(1, "fc2", "output:0"), 2);
  CHECK(report(training(4), shorter)["verdict"] == "diverged");  // which wins
  Run found = training(4);
  found.end_before(3);
  found.add({.kind = Item::Kind::kFinding, .step = 1, .scope = "fc1"});
  CHECK(report(training(4), found)["verdict"] == "incomplete");  // over the finding
  CHECK(report(training(4), found, {"--allow-incomplete"})["verdict"] == "findings");
}

TEST_CASE("coverage: damage in a step whose sums are equal is no agreement", "[diff][coverage]") {
  const Pair pair(training(4), training(4));
  REQUIRE(run({pair.base, pair.cand}).code == 0);
  auto reader = reader::TraceReader::open(pair.cand);
  REQUIRE(reader.ok());
  const auto& records = reader.value()->container().records();
  const auto chunk = std::ranges::find(records, format::RecordKind::kEvents,
                                       [](const auto& record) { return record.header.kind; });
  REQUIRE(chunk != records.end());
  std::fstream file(pair.cand, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(chunk->offset + format::kSlotBytes));
  file.put('?').flush();
  CHECK(Json::parse(run({pair.base, pair.cand, "--json", "-"}).out)["verdict"] == "incomplete");
}

TEST_CASE("coverage: a program that ended with an error is no agreement", "[diff][coverage]") {
  const Run failed = with_fact(training(), "exit.status", "1");
  const Json json = report(failed, failed);
  CHECK(json["verdict"] == "incomplete");
  CHECK(json["agreement"] == "identical");
  CHECK(json["preflight"].empty());
  CHECK(report(failed, failed, {"--allow-incomplete"})["verdict"] == "same");
  const Run ended = with_fact(training(), "exit.status", "0");
  CHECK(report(ended, ended)["verdict"] == "same");
  CHECK(report(training(), ended)["verdict"] == "same");  // not known of one
  CHECK(report(ended, failed)["preflight"].empty());
  CHECK(report(ended, failed)["exact"] == true);
  const Run interrupted = with_fact(training(), "exit.status", "SIGINT");
  const Pair pair(failed, interrupted);
  const std::string text = run({pair.base, pair.cand}).out;
  CHECK(contains(text, "baseline: the program ended with status 1"));
  CHECK(contains(text, "candidate: the program ended with SIGINT"));
}

TEST_CASE("coverage: steps that the settings leave out are no gap", "[diff][coverage]") {
  Run some = training(4);
  some.end_before(2);
  some = with_fact(some, "setting.CONVTRACE_STEPS", "0-1");
  const Json json = report(training(4), some);
  CHECK(json["verdict"] == "same");
  CHECK(json["agreement"] == "identical");
  CHECK(json["incomplete"] == false);
}

TEST_CASE("one-sided: what one run alone has is listed by module and slot", "[diff][one-sided]") {
  Run cand = training();
  for (uint32_t step = 0; step < 2; ++step) {
    cand.add({.step = step, .scope = "fc1", .slot = "input:mask", .values = {1, 2}});
  }
  const Json json = report(training(), cand);
  CHECK(json["agreement"] == "identical");
  REQUIRE(json["one_sided"].size() == 1);
  CHECK(json["one_sided"][0]["in"] == "cand");
  CHECK(json["one_sided"][0]["scope"] == "fc1");
  CHECK(json["one_sided"][0]["slot"] == "input:mask");
  CHECK(json["one_sided"][0]["values"] == 2);
  CHECK(json["one_sided"][0]["first_step"] == 0);
  const Pair pair(training(), cand);
  CHECK(contains(run({pair.base, pair.cand}).out,
                 "one-sided   candidate: forward, fc1, input:mask (2 values from step 0 on)"));
  const Json without = report(training(), cand, {"--ignore", "input:mask"});
  CHECK(without["one_sided"].empty());
  CHECK(without["ignored"] == 2);
  CHECK(contains(run({pair.base, pair.cand, "--ignore", "input:mask"}).out,
                 "ignored     2 values differ, or are in one run alone, and are not counted"));
}

TEST_CASE("one-sided: what lies behind the end of a killed run is not listed",
          "[diff][one-sided]") {
  const TempDir dir;
  Run base = training(), killed = base;
  base.add({.step = 0, .scope = "fc1", .slot = "input:mask", .values = {1, 2}});
  base.write(dir / "base.ctrace");
  killed.items.resize(killed.items.size() - 5);
  for (const bool closed : {false, true}) {
    const std::string path = dir / (closed ? "closed.ctrace" : "killed.ctrace");
    killed.write(path, closed);
    const Json there = Json::parse(run({dir / "base.ctrace", path, "--json", "-"}).out);
    const Json back = Json::parse(run({path, dir / "base.ctrace", "--json", "-"}).out);
    CHECK(there["one_sided"].size() == back["one_sided"].size());
    if (closed) {
      CHECK(there["one_sided"].size() > 1);
      continue;
    }
    REQUIRE(there["one_sided"].size() == 1);
    CHECK(there["one_sided"][0]["slot"] == "input:mask");
  }
}

TEST_CASE("one-sided: what the layers of a model have in common is one line",
          "[diff][one-sided][text]") {
  Run cand = training();
  for (const char* scope : {"blocks.0.attn", "blocks.1.attn", "blocks.7.attn", "head"}) {
    cand.add({.step = 1, .scope = scope, .slot = "input:mask", .values = {1, 2}});
  }
  const Pair pair(training(), cand);
  const std::string text = run({pair.base, pair.cand}).out;
  CHECK(contains(
      text,
      "candidate: forward, blocks.*.attn, input:mask (3 values of 3 modules from step 1 on)"));
  CHECK(contains(text, "candidate: forward, head, input:mask (1 value from step 1 on)"));
  CHECK(report(training(), cand)["one_sided"].size() == 4);
}

TEST_CASE("ignore: what is named may differ in any way, and the report says so", "[diff][ignore]") {
  Run base = training(), cand = training();
  for (Run* r : {&base, &cand}) {
    Item& mask = r->add({.scope = "fc1", .slot = "input:attention_mask", .values = {1, 1, 0}});
    mask.dtype = format::DType::kI64;
  }
  cand.items.back().values = {1, 0, 0};
  CHECK(report(base, cand)["verdict"] == "diverged");
  const Json json = report(base, cand, {"--ignore", "re:attention_mask"});
  CHECK(json["verdict"] == "same");
  CHECK(json["ignored"] == 1);
  const Pair pair(base, cand);
  CHECK(contains(
      run({pair.base, pair.cand, "--ignore", "re:attention_mask"}).out,
      "ignored     1 value differs, or is in one run alone, and is not counted (--ignore)"));
  CHECK(run({pair.base, pair.cand, "--ignore", "re:("}).code == 2);

  Run changed = training();  // between its op and its module
  scale(changed.at(0, "fc1", "output:0"), 1 + 1e-7);
  CHECK(report(training(), changed, {"--exact", "off"})["root"]["class"] == "changed-between");
  CHECK(report(training(), changed, {"--exact", "off", "--ignore", "fc1"})["verdict"] == "same");
}

TEST_CASE("ignore: a run of which all that differs is waived is identical", "[diff][ignore]") {
  Run cand = training();
  scale(cand.at(1, "", "loss"), 2);
  const std::vector<std::string> waived = {"--ignore", "loss"};
  const Json json = report(training(), cand, waived);
  CHECK(json["verdict"] == "same");
  CHECK(json["agreement"] == "identical");
  CHECK(json["first_bit_difference"].is_null());
  const Pair pair(training(), cand);
  const std::string text = run({pair.base, pair.cand, "--ignore", "loss"}).out;
  CHECK(contains(
      text, "IDENTICAL: every compared value has the same bits, but for what --ignore names\n"));
  CHECK_FALSE(contains(text, "ROUNDING"));
  CHECK(report(training(), with_other_bit(cand),
               {"--ignore", "loss", "--exact", "off"})["agreement"] == "rounding");
}

TEST_CASE("ignore: a gradient that one run alone has is no root", "[diff][ignore]") {
  Run cand = training(4);
  cand.erase(2, "fc1", "grad:weight");
  CHECK(report(training(4), cand)["root"]["scope"] == "fc1");
  CHECK(report(training(4), cand, {"--ignore", "fc1"})["verdict"] == "same");
  cand.erase(2, "fc2", "grad:weight");
  CHECK(report(training(4), cand, {"--ignore", "fc1"})["root"]["scope"] == "fc2");
}

TEST_CASE("one-sided: a run that has no gradient at all, as of a compiled optimizer, lost none",
          "[diff]") {
  Run cand = training(4);
  for (const char* scope : {"fc1", "fc2"}) {
    for (uint32_t step = 0; step < 4; ++step) cand.erase(step, scope, "grad:weight");
  }
  const Json json = report(training(4), cand);
  CHECK(json["verdict"] == "same");
  CHECK(json["root"].is_null());
  // One that does not train has lost them.
  for (Item& item : cand.items) {
    if (item.slot == "param:weight")
      item.values = cand.at(0, item.scope.c_str(), "param:weight").values;
  }
  CHECK(report(training(4), cand)["root"]["only_in"] == "baseline");
}

TEST_CASE("ignore: clipping of gradients that are named is no root", "[diff][ignore]") {
  Run cand = training(3);
  Item whole = cand.at(1, "fc1", "grad:weight");
  whole.slot = "grad_unclipped:weight";
  scale(cand.at(1, "fc1", "grad:weight"), 0.5);
  const auto at = std::ranges::find_if(
      cand.items, [](const Item& item) { return item.step == 1 && item.slot == "grad:weight"; });
  cand.items.insert(at, whole);
  CHECK(report(training(3), cand)["verdict"] == "diverged");
  CHECK(report(training(3), cand,
               {"--ignore", "grad_unclipped:*", "--ignore", "grad:*"})["verdict"] == "same");
}

}  // namespace convtrace::test
