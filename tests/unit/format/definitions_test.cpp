#include "format/model/definitions.h"

#include <string>
#include <thread>

#include "tests/support/catch.h"

namespace convtrace::format {
namespace {

TEST_CASE("definitions: equal things get equal ids, others the next one", "[format]") {
  Definitions defs;
  const StringId a = defs.intern("a");
  const StringId empty = defs.intern("");
  CHECK(a.value == 1);
  CHECK(empty.value == 2);
  CHECK(defs.intern("a") == a);
  CHECK(defs.text(empty).empty());
  CHECK(defs.has(empty));
  CHECK_FALSE(defs.has(StringId{}));
  CHECK_FALSE(defs.has(StringId{3}));

  const KernelId kernel = defs.intern_kernel({a, empty});
  CHECK(kernel.value == 1);
  CHECK(defs.intern_kernel({a, empty}) == kernel);
  CHECK(defs.intern_kernel({empty, a}).value == 2);
  CHECK(defs.kernel(kernel).name == a);

  const StringId frames[] = {a, empty};
  const StackId stack = defs.intern_stack(frames);
  CHECK(defs.intern_stack(frames) == stack);
  CHECK(defs.intern_stack(std::span(frames).first(1)).value == 2);
  REQUIRE(defs.stack(stack).size() == 2);
  CHECK(defs.stack(stack)[1] == empty);
  CHECK(defs.counts() == Definitions::Counts{2, 2, 2});
}

TEST_CASE("definitions: texts stay where they are while the table grows", "[format]") {
  Definitions defs;
  const StringId first = defs.intern("x");
  const char* address = defs.text(first).data();
  for (int i = 0; i < 5000; ++i) (void)defs.intern(std::to_string(i));
  CHECK(defs.text(first).data() == address);
  CHECK(defs.text({5001}) == "4999");
}

TEST_CASE("definitions: long texts and deep stacks are cut at their limits", "[format][limits]") {
  Definitions defs;
  CHECK(defs.text(defs.intern(std::string(kMaxStringBytes, 'x'))).size() == kMaxStringBytes);
  const StringId cut = defs.intern(std::string(kMaxStringBytes + 1, 'x'));
  CHECK(cut.value == 1);
  const std::vector<StringId> frames(kMaxFrames + 1, cut);
  CHECK(defs.stack(defs.intern_stack(frames)).size() == kMaxFrames);
}

TEST_CASE("definitions: an id means one thing", "[format]") {
  Definitions defs;
  CHECK(defs.define(StringId{7}, "seven").ok());
  CHECK(defs.define(StringId{7}, "seven").ok());
  CHECK(defs.define(StringId{7}, "eight").code == StatusCode::kCorrupt);
  CHECK(defs.text({7}) == "seven");
  CHECK_FALSE(defs.has(StringId{6}));
  CHECK(defs.define(KernelId{1}, {{7}, {7}}).ok());
  CHECK(defs.define(KernelId{1}, {{7}, {6}}).code == StatusCode::kCorrupt);
  const StringId frame[] = {StringId{7}};
  CHECK(defs.define(StackId{1}, frame).ok());
  CHECK(defs.define(StackId{1}, {}).code == StatusCode::kCorrupt);
}

TEST_CASE("definitions: ids beyond the limit are refused", "[format][limits]") {
  Definitions defs;
  CHECK(defs.define(StringId{0}, "none").code == StatusCode::kLimitExceeded);
  CHECK(defs.define(StringId{kMaxDefinitions}, "last").ok());
  CHECK(defs.define(StringId{kMaxDefinitions + 1}, "beyond").code == StatusCode::kLimitExceeded);
  CHECK(defs.counts().strings == kMaxDefinitions);
  CHECK(defs.intern("full") == StringId{});
}

TEST_CASE("definitions: threads that intern the same texts agree", "[format][threads]") {
  Definitions defs;
  std::vector<std::vector<StringId>> ids(4);
  std::vector<std::thread> threads;
  for (auto& mine : ids) {
    threads.emplace_back([&defs, &mine] {
      for (int i = 0; i < 2000; ++i) mine.push_back(defs.intern(std::to_string(i % 500)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(defs.counts().strings == 500);
  for (const auto& mine : ids) CHECK(mine == ids[0]);
}

}  // namespace
}  // namespace convtrace::format
