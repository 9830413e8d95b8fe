#include "tools/cli/doctor/memory_left.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tools/cli/doctor/check.h"

namespace convtrace::tools::doctor {
namespace {

/// A hierarchy of control groups in a folder.
class Groups {
 public:
  void set(const std::string& group, const std::string& most, const std::string& used) const {
    std::filesystem::create_directories(folder_ / group);
    std::ofstream(folder_ / (group + "/memory.max")) << most << '\n';
    std::ofstream(folder_ / (group + "/memory.current")) << used << '\n';
  }
  void be_in(const std::string& group) const {
    std::ofstream(folder_ / "self") << "4:memory:/elsewhere\n0::" << group << '\n';
  }
  [[nodiscard]] std::optional<uint64_t> left() const {
    return memory_left(folder_.path(), folder_ / "self");
  }
  [[nodiscard]] std::string level() const {
    const nlohmann::json nothing;
    const Subject subject{{}, {}, "", nothing, folder_.path(), folder_ / "self"};
    std::vector<Line> lines;
    check_limits(subject, lines);
    for (const Line& line : lines)
      if (line.text.find("memory left") != std::string::npos) return line.text;
    return "";
  }

 private:
  test::TempDir folder_;
};

}  // namespace

TEST_CASE("memory_left: the tightest group counts", "[cli]") {
  const Groups groups;
  CHECK(groups.left() == std::nullopt);
  groups.set("job", "2000", "500");
  groups.set("job/step", "max", "400");
  groups.set("other", "10", "0");
  groups.be_in("/job/step");
  CHECK(groups.left() == 1500);
  groups.set("job/step", "300", "400");
  CHECK(groups.left() == 0);
  groups.be_in("/not/mounted/here");  // as in a container
  CHECK(groups.left() == std::nullopt);
  groups.set(".", "700", "100");
  CHECK(groups.left() == 600);
}

TEST_CASE("doctor: a container that is nearly full", "[cli]") {
  const Groups groups;
  groups.be_in("/job");
  groups.set("job", "1073741824", "1000");
  CHECK(groups.level().empty());
  groups.set("job", "1073741824", "1000000000");
  CHECK(groups.level() == "this job or container has 70 MiB of memory left");
}

}  // namespace convtrace::tools::doctor
