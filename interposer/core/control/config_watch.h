#pragma once
/// @file config_watch.h
/// Notices that the file of CONVTRACE_CONFIG has changed, and what of the change can apply now.
///
/// Place:    the writer thread polls; the engine applies.
/// Threads:  one.
/// Errors:   a file that is broken, or gone, keeps the old settings, and a line says so.

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/base/messages.h"
#include "format/settings/controls.h"
#include "format/settings/match_report.h"

namespace convtrace::engine {

struct ConfigChange {
  bool applies = false;         ///< false: only lines
  settings::Settings settings;  ///< with what applies to a run that is under way
  std::vector<settings::Rule> rules;
  std::vector<Notice> lines;  ///< for people
};

class ConfigWatch {
 public:
  /// @param environment  "NAME=value", as at the start: it wins over the file, which it names by an
  /// absolute path: the program may go to another folder.
  ConfigWatch(const settings::Settings& now, std::vector<std::string> environment);

  /// Looks at the file twice a second; one that has just been written to waits for the next look.
  [[nodiscard]] std::optional<ConfigChange> poll(uint64_t now_ns);

 private:
  struct Version {
    timespec changed{};
    off_t bytes = -1;  ///< -1: no file
    ino_t file = 0;
    bool operator==(const Version& other) const;
  };

  [[nodiscard]] Version look() const;
  [[nodiscard]] ConfigChange load();
  void take_over(const settings::Settings& wanted, ConfigChange& change);
  /// What the file says, whatever the environment says.
  [[nodiscard]] settings::Settings settings_in_file() const;
  void say_overruled(ConfigChange& change);

  settings::Settings now_;
  std::vector<std::string> environment_;
  std::string path_;            ///< empty: there is no file
  settings::Settings in_file_;  ///< as it was loaded last
  Version read_;                ///< that was loaded last
  Version seen_;
  uint64_t next_look_ns_ = 0;
};

}  // namespace convtrace::engine
