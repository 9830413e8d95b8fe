// The HTML report in a real browser: what a person would do with it, done by a script in the page.

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "tests/unit/tools/browser.h"
#include "tests/unit/tools/diff/compared.h"
#include "tools/diff/page/heat_map.h"
#include "tools/diff/page/page_rows.h"
#include "tools/diff/page/report_html.h"

namespace {

using namespace convtrace;
using test::driven;
using test::has_chromium;
using test::kChromium;
using test::output_of;
using test::Run;

/// @return the page of the comparison.
std::string page_of(const Run& base, const Run& cand) {
  const test::TempDir dir;
  base.write(dir / "base.ctrace");
  cand.write(dir / "cand.ctrace");
  diff::DiffResult result;
  diff::PageRows rows;
  std::string error;
  REQUIRE(diff::run_diff({.base = dir / "base.ctrace", .cand = dir / "cand.ctrace"}, &rows, result,
                         error));
  std::ostringstream html;
  diff::write_html_report(result, rows, html);
  return html.str();
}

/// A value that diverged, by 50 times its limit.
diff::RecordReport half_apart() {
  diff::RecordReport record;
  record.comparison = {.verdict = diff::Class::kDiverged,
                       .field = diff::Field::kNorm,
                       .difference = 0.5,
                       .tolerance = 0.01};
  return record;
}

}  // namespace

TEST_CASE("page: bytes in base64", "[diff][html]") {
  CHECK(diff::base64("").empty());
  CHECK(diff::base64("f") == "Zg==");
  CHECK(diff::base64("fo") == "Zm8=");
  CHECK(diff::base64("foobar") == "Zm9vYmFy");
  CHECK(diff::base64("\xff\xfe") == "//4=");
}

TEST_CASE("page: source lines are text, those of each run marked", "[diff][html]") {
  Run base = test::training(), cand = test::training();
  for (Run* run : {&base, &cand}) {
    const std::string version = run == &base ? "1" : "2";
    run->tell(0, "fc2", "class", "model.MLP");
    run->meta.facts = {{"code.model.py.MLP", version},
                       {"source.model.py.MLP", "7\nclass MLP:\n  <script>alert(" + version + ")"},
                       {"version.python", "3.11.2"}};
  }
  test::scale(cand.at(1, "fc2", "output:0"), 1.5);
  const std::string page = page_of(base, cand);
  for (const char* text :
       {"<del>-  &lt;script&gt;alert(1)</del>", "<ins>+  &lt;script&gt;alert(2)</ins>",
        "Source of MLP, from line 7 on</summary>"}) {
    CAPTURE(text);
    CHECK(page.find(text) != std::string::npos);
  }
  CHECK(page.find("<script>alert") == std::string::npos);
}

TEST_CASE("page: names of a hostile trace are text, wherever they stand", "[diff][html]") {
  const std::string evil = "\x1b<script>alert(1)</script>";
  diff::DiffResult result;
  result.alias_patterns.push_back({.scope = evil, .op = evil, .slot = evil, .other = evil});
  result.facts.push_back({.name = evil, .base = evil, .scope = evil, .module_class = evil});
  result.incomplete.push_back(evil);
  result.root.emplace().setting = evil;
  result.root->code = {.module_class = evil, .forward = evil};
  std::ostringstream html;
  diff::write_html_report(result, {}, html);
  CHECK(html.str().find("<script>alert") == std::string::npos);
  CHECK(html.str().find('\x1b') == std::string::npos);
}

TEST_CASE("page: it is read with the keyboard, on a phone", "[diff][html][browser]") {
  Run cand = test::training(4);
  scale(cand.at(2, "fc2", "output:0"), 1.5);
  cand.add({.kind = test::Item::Kind::kFinding, .step = 3, .scope = "fc1"});
  const std::string html = page_of(test::training(4), cand);
  const tools::Json told = driven(html, R"(
    const key = (id, name) => document.getElementById(id).dispatchEvent(new KeyboardEvent('keydown', {key: name, cancelable: true}));
    const chosen = () => document.querySelector('#list [aria-selected=true]')?.textContent ?? '';
    told.values = +document.documentElement.dataset.ready;
    told.rows = document.querySelectorAll('#list .row').length;
    const tab = (name) => [...document.querySelectorAll('[role=tab]')].find((one) => one.textContent === name);
    told.tabs = [...document.querySelectorAll('[role=tab]')].map((one) => one.textContent);
    told.growth = document.querySelectorAll('#over path').length;
    document.querySelector('#over svg').dispatchEvent(new KeyboardEvent('keydown', {key: 'End', cancelable: true}));
    told.grown = document.querySelector('#over .told').textContent;
    tab('loss').click();
    told.lines = document.querySelectorAll('#over path').length;
    const point = document.querySelector('#over svg').getBoundingClientRect();
    document.querySelector('#over svg').dispatchEvent(new PointerEvent('pointermove', {clientX: point.left + 1, clientY: point.top + 50}));
    told.hovered = document.querySelector('#over .told').textContent;
    told.first = chosen();
    key('list', 'ArrowDown');
    told.second = chosen();
    key('list', 'End');
    told.last = chosen();
    document.getElementById('filter').value = 'fc2 output';
    document.getElementById('least').value = '4';
    document.getElementById('least').dispatchEvent(new Event('input'));
    told.found = document.getElementById('matches').textContent;
    told.match = chosen();
    told.plot = document.querySelector('#tensor svg').getAttribute('aria-label');
    told.band = document.querySelectorAll('#tensor .band').length;
    told.phase = document.getElementById('phase').selectedOptions[0].textContent;
    tab('against the limit').click();
    told.limits = document.querySelectorAll('#over line.limit').length;
    told.top = document.getElementById('cell').textContent;
    key('heat', 'ArrowDown');
    key('heat', 'ArrowRight');
    told.cell = document.getElementById('cell').textContent;
    key('heat', 'Enter');
    told.of_cell = chosen();
    const box = (title) => [...document.querySelectorAll('.side')].find((side) => side.textContent.startsWith(title)).querySelector('.box');
    told.made_of = box('made of').textContent;
    told.used_for = box('used for').textContent;
    box('made of').click();
    told.clicked = chosen();
    told.marks = document.querySelectorAll('#over line.mark').length;
    document.getElementById('phase').value = '3';
    document.getElementById('phase').dispatchEvent(new Event('input'));
    told.of_backward = document.getElementById('map-matches').textContent;
    told.copies = document.querySelectorAll('button.copy').length;
    const closed = () => document.querySelectorAll('details:not([open])').length;
    told.closed = closed();
    dispatchEvent(new Event('beforeprint'));
    told.closed_on_paper = closed();
    dispatchEvent(new Event('afterprint'));
    told.closed_again = closed();
    told.overflow = document.documentElement.scrollWidth - innerWidth;
  )");
  if (told.is_null()) {
    WARN("no chromium here: the page was not opened");
    return;
  }
  CHECK(told["values"] == 58);
  CHECK(told["rows"] > 10);
  CHECK(told["tabs"] == tools::Json({"how far apart", "against the limit", "loss", "gradients"}));
  CHECK(told["growth"] == 2);
  CHECK(told["grown"].get<std::string>().starts_with("step 3: the largest "));
  CHECK(told["lines"] >= 1);
  CHECK(told["hovered"].get<std::string>().starts_with("step 0: "));
  CHECK(told["copies"] == 1);
  CHECK(told["first"].get<std::string>().find("step 2  diverged") == 0);  // where they part
  CHECK(told["first"] != told["second"]);
  CHECK(told["last"].get<std::string>().find("step 3") == 0);
  CHECK(told["found"] == "1 of 58 values");
  CHECK(told["match"].get<std::string>().find("step 2  diverged") == 0);
  CHECK(told["plot"].get<std::string>().starts_with("l2 of fc2 output:0 forward, f32"));
  CHECK(told["phase"] == "forward");  // the root's
  CHECK(told["limits"] == 1);
  CHECK(told["top"] == "step 0, fc2: identical");  // the first to diverge
  CHECK(told["cell"].get<std::string>().find("step 1, ") == 0);
  CHECK(told["of_cell"].get<std::string>().find("step 1  identical") == 0);
  CHECK(told["made_of"] == "fc1op demo::gelu, output:0as input:0identical");
  CHECK(told["used_for"] == "root moduleoutput:0changed-between");
  CHECK(told["clicked"].get<std::string>().find("step 2  identical") == 0);
  CHECK(told["marks"] == 1);
  CHECK(told["closed"] >= 2);  // the finding, and its stack
  CHECK(told["closed_on_paper"] == 0);
  CHECK(told["closed_again"] == told["closed"]);
  CHECK(told["overflow"] <= 0);
}

TEST_CASE("page: data flow around a parameter's gradient", "[diff][html]") {
  Run cand = test::training(2);
  scale(cand.at(1, "fc2", "grad:weight"), 3);
  const auto result = test::compared(test::training(2), cand);
  REQUIRE(result.root);
  const diff::DataFlow& flow = result.root->flow;
  REQUIRE(flow.sources.size() == 1);
  CHECK(flow.sources[0].value.slot == "grad_output:0");
  CHECK(flow.sources[0].value.scope == "fc2");
  CHECK_FALSE(flow.sources[0].by_order);
  REQUIRE(flow.consumers.size() == 1);
  CHECK(flow.consumers[0].value.slot == "param:weight");
  CHECK(flow.consumers[0].value.phase == format::Phase::kOptimizer);
  CHECK(flow.more_sources + flow.more_consumers == 0);
}

TEST_CASE("page: a stored value has a histogram of both runs", "[diff][html]") {
  Run base;
  base.add({.slot = "output:0", .values = {-1, 0, 0, 2}, .capture = format::Capture::kSnapshot});
  Run cand = base;
  scale(cand.items[0], 2);
  const auto result = test::compared(base, cand);
  REQUIRE(result.root);
  REQUIRE(result.root->record.elements);
  const auto& histogram = result.root->record.elements->histogram;
  REQUIRE(histogram);
  const auto sum = [](const auto& bins) {
    return std::accumulate(bins.begin(), bins.end(), size_t{});
  };
  CHECK(sum(histogram->base) == 4);
  CHECK(sum(histogram->cand) == 4);
  CHECK(histogram->low == -2);
  CHECK(histogram->high == 4);
  CHECK(histogram->base[13] == 2);  // 0 is a third of the way
  CHECK(histogram->cand[13] == 2);
  CHECK(histogram->cand.front() == 1);
  CHECK(histogram->cand.back() == 1);
  CHECK(histogram->base.back() == 0);
  CHECK(page_of(base, cand).find("\"id\":\"histogram-0\"") != std::string::npos);
}

TEST_CASE("page: axe finds nothing serious", "[diff][html][browser]") {
  const std::string axe = test::axe_script();
  if (axe.empty()) {
    WARN("no chromium or no axe here: accessibility was not checked");
    return;
  }
  Run cand = test::training(4);
  cand.meta.facts = {{"version.torch", "2.14.0"}};
  scale(cand.at(2, "fc2", "output:0"), 1.5);
  cand.add({.kind = test::Item::Kind::kFinding, .step = 3, .scope = "fc1"});
  for (const std::string scheme : {"light", "dark"}) {
    INFO(scheme);
    std::string html = page_of(test::training(4), cand);
    const std::string dark = "@media(prefers-color-scheme:dark)";
    if (scheme == "dark") html.replace(html.find(dark), dark.size(), "@media(min-width:1px)");
    const tools::Json told = test::axe_of(html, axe);
    CHECK(told["passed"] > 15);
    for (const auto& found : told["found"]) FAIL_CHECK(found.get<std::string>());
  }
}

TEST_CASE("page: a map of many modules and steps is put together and taken apart",
          "[diff][html][browser]") {
  Run base, cand;
  for (uint32_t step = 0; step < 1000; ++step) {
    for (int i = 0; i < 1000; ++i) {
      const test::Item item{
          .step = step, .scope = "h." + std::to_string(i), .slot = "output:0", .values = {1, 2}};
      base.add(item);
      cand.add(item);
    }
  }
  scale(cand.at(700, "h.150", "output:0"), 2);
  const std::string html = page_of(base, cand);
  CHECK(html.size() < 3'000'000);
  const tools::Json told = driven(html, R"(
    const click = (id) => document.getElementById(id).click();
    const set = (id, value) => { document.getElementById(id).value = value; document.getElementById(id).dispatchEvent(new Event('input')); };
    told.loaded = performance.now() / 1000;
    told.cell = document.getElementById('cell').textContent;
    told.steps = document.getElementById('steps').textContent;
    click('in');
    told.zoomed = document.getElementById('steps').textContent;
    click('all');
    told.whole = document.getElementById('steps').textContent;
    click('bad');
    told.bad = document.getElementById('map-matches').textContent;
    click('bad');
    set('modules', 'h.15');
    told.found = document.getElementById('map-matches').textContent;
    told.left = document.getElementById('matches').textContent;
    const canvas = document.getElementById('heat');
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, 14).data;
    told.red = false;
    for (let i = 0; i < pixels.length; i += 4) told.red ||= pixels[i] === 0x66 && pixels[i + 1] === 0x25 && pixels[i + 2] === 0x06;
    set('modules', '');
    const key = (name) => canvas.dispatchEvent(new KeyboardEvent('keydown', {key: name, cancelable: true}));
    key('ArrowDown');
    told.list = document.getElementById('cell').textContent;
    key('ArrowDown');
    told.below = document.getElementById('cell').textContent;
    key('ArrowUp');
    key(' ');
    key('ArrowDown');  // it was closed: there is no row below
    told.closed = document.getElementById('cell').textContent;
  )");
  if (told.is_null()) {
    WARN("no chromium here: the page was not opened");
    return;
  }
  CHECK(told["cell"] == "step 0, h.150: identical");
  CHECK(told["steps"] == "steps 0 to 999");
  CHECK(told["zoomed"] == "steps 0 to 499");
  CHECK(told["whole"] == told["steps"]);
  CHECK(told["bad"] == "1 of 1,000 modules");
  CHECK(told["found"] == "11 of 1,000 modules");
  CHECK(told["left"].get<std::string>().find("974,999 more are not in this page") !=
        std::string::npos);
  CHECK(told["list"] == "step 0, h.*: identical");
  CHECK(told["below"] == "step 0, h.150: identical");
  CHECK(told["closed"] == told["list"]);
  CHECK(told["red"] == true);  // one step of 1000 is seen in a few hundred columns
  CHECK(told["loaded"] < 2);   // 0.4 s where nothing else runs
}

TEST_CASE("page: steps are put together until the map's text is short enough", "[diff][html]") {
  diff::HeatMap map;
  diff::RecordReport equal, one_sided;
  const diff::RecordReport apart = half_apart();
  one_sided.comparison.verdict = diff::Class::kUnmatched;
  one_sided.phase = format::Phase::kBackward;
  for (uint32_t step = 0; step < 100; ++step) map.add(1, step, step % 2 == 0 ? equal : apart);
  map.add(0, 50, one_sided);
  std::vector<uint32_t> order(100);
  std::iota(order.begin(), order.end(), 0);
  const tools::Json whole = map.json(order), halved = map.json(order, 30);
  CHECK(whole["steps_per_cell"] == 1);
  CHECK(whole["lines"][0] == tools::Json({0, 3, "-50jG1-49"}));
  CHECK(whole["lines"][1][2].get<std::string>().starts_with("aB1fJ1aB1fJ1"));
  CHECK(whole["growth"][0] == tools::Json({0, 0, 0}));
  CHECK(whole["growth"][1][0] == 0.5);
  CHECK(halved["steps_per_cell"] == 2);
  CHECK(halved["lines"][0][2] == "-25jG1-24");
  CHECK(halved["lines"][1][2] == "fJ50");
  std::ranges::reverse(order);  // steps that another rank has shown first
  CHECK(map.json(order)["lines"][0][2] == "-49jG1-50");
}

TEST_CASE("page: a value of one run alone hides no difference in the map", "[diff][html]") {
  diff::HeatMap map;
  diff::RecordReport one_sided, unknown;
  const diff::RecordReport apart = half_apart();
  one_sided.comparison.verdict = diff::Class::kUnmatched;
  unknown.base.capture = unknown.cand.capture = format::Capture::kHash;
  unknown.comparison = {.verdict = diff::Class::kDiverged, .field = diff::Field::kHash};
  map.add(0, 0, one_sided);
  map.add(0, 0, apart);
  map.add(0, 1, {});
  map.add(0, 1, unknown);
  map.add(0, 2, unknown);
  map.add(0, 2, apart);  // a difference that has a size is told before one that has none
  const uint32_t order[] = {0, 1, 2};
  const tools::Json json = map.json(order);
  CHECK(json["lines"][0][2] == "fJ1fH1fJ1");
  CHECK(json["growth"][1].is_null());  // equal values beside one whose difference has no size
}

TEST_CASE("page: the size of a difference in the map", "[diff][html]") {
  using diff::Class, diff::Field, diff::Heat;
  diff::RecordReport record;
  record.base.dtype = format::DType::kF32;
  const auto heat = [&](Class verdict, Field field, double difference, double tolerance) {
    record.comparison = {
        .verdict = verdict, .field = field, .difference = difference, .tolerance = tolerance};
    return diff::heat_of(record);
  };
  CHECK(heat(Class::kIdentical, Field::kNone, 0, 0) == Heat::kEqual);
  CHECK(heat(Class::kWithinNoise, Field::kRms, 1e-7, 1e-5) == Heat::kTo001);
  CHECK(heat(Class::kWithinNoise, Field::kRms, 1e-5, 1e-5) == Heat::kTo1);
  CHECK(heat(Class::kDiverged, Field::kRms, 1e-2, 1e-5) == Heat::kTo1000);
  CHECK(heat(Class::kDiverged, Field::kRms, 1e9, 1e-5) == Heat::kMore);
  CHECK(heat(Class::kDiverged, Field::kRms, 1e-6, 0) == Heat::kTo100);   // 17 times the roundoff
  CHECK(heat(Class::kDiverged, Field::kRms, 1e-9, 0) == Heat::kTo10);    // it differs nevertheless
  CHECK(heat(Class::kDiverged, Field::kHash, NAN, NAN) == Heat::kTo10);  // below what sums show
  CHECK(heat(Class::kBitDifference, Field::kHash, NAN, NAN) == Heat::kUnmeasured);
  record.base.capture = record.cand.capture = format::Capture::kHash;
  CHECK(heat(Class::kDiverged, Field::kHash, NAN, NAN) == Heat::kHashes);
  CHECK(heat(Class::kNanBorn, Field::kNonFinite, NAN, NAN) == Heat::kNoNumber);
  CHECK(heat(Class::kUnmatched, Field::kNone, 0, 0) == Heat::kOneSided);
}

TEST_CASE("page: pictures of it, for people to look at", "[diff][html][browser]") {
  if (!has_chromium()) {
    WARN("no chromium here: no pictures");
    return;
  }
  Run cand = test::training(12);
  cand.meta.facts = {{"version.torch", "2.14.0"}, {"switch.cudnn_benchmark", "True"}};
  for (uint32_t step = 5; step < 12; ++step) {
    scale(cand.at(step, "fc2", "output:0"), 1.5);
    scale(cand.at(step, "", "loss"), 1 + 0.1 * step);
    scale(cand.at(step, "fc2", "grad:weight"), 1.2);
  }
  const test::TempDir dir;
  std::ofstream(dir / "page.html") << page_of(test::training(12), cand);
  const std::string folder = CONVTRACE_TEST_ARTIFACTS;
  std::filesystem::create_directories(folder);
  const auto make = [&](const std::string& option, const std::string& name) {
    const std::string path = folder + "/" + name;
    std::filesystem::remove(path);
    (void)output_of(kChromium + ("--hide-scrollbars --user-data-dir=" + (dir / "profile")) + " " +
                    option + path + " file://" + (dir / "page.html") + " 2>/dev/null");
    INFO(path);
    CHECK(std::filesystem::exists(path));
    CHECK(std::filesystem::file_size(path) > 10'000);
  };
  make("--window-size=1280,2400 --screenshot=", "diff-report-desktop.png");
  make("--window-size=390,2400 --screenshot=", "diff-report-phone.png");
  make("--print-to-pdf=", "diff-report-printed.pdf");
}

TEST_CASE("page: 100,000 values stay below 3 MB and are scrolled at once",
          "[diff][html][browser]") {
  Run run;
  for (uint32_t step = 0; step < 100; ++step) {
    for (int i = 0; i < 1000; ++i) {
      run.add({.step = step, .scope = "h." + std::to_string(i), .slot = "output:0", .values = {1}});
    }
  }
  const std::string html = page_of(run, run);
  CHECK(html.size() < 3'000'000);
  const tools::Json told = driven(html, R"(
    const begun = performance.now();
    const list = document.getElementById('list');
    list.scrollTop = list.scrollHeight / 2;
    list.dispatchEvent(new KeyboardEvent('keydown', {key: 'End', cancelable: true}));
    document.getElementById('filter').value = 'h.77';
    document.getElementById('filter').dispatchEvent(new Event('input'));
    told.loaded = begun / 1000;
    told.seconds = (performance.now() - begun) / 1000;
    told.rows = document.querySelectorAll('#list .row').length;
    told.found = document.getElementById('matches').textContent;
  )");
  if (told.is_null()) {
    WARN("no chromium here: the page was not opened");
    return;
  }
  CHECK(told["rows"] < 100);
  CHECK(told["found"] ==
        "275 of 25,000 values; 75,000 more are not in this page (the first 25,000 that agree and "
        "that do not are): see --csv");
  CHECK(told["loaded"] < 5);   // 0.6 s where nothing else runs
  CHECK(told["seconds"] < 5);  // tens of milliseconds where nothing else runs
}
