#pragma once
/// @file temp_toml.h
/// A TOML file that lives as long as the object.

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

namespace convtrace::settings {

class TempToml {
 public:
  explicit TempToml(std::string_view text) {
    char name[] = "/tmp/convtrace-settings-XXXXXX.toml";
    close(mkstemps(name, 5));
    path_ = name;
    std::ofstream(path_) << text;
  }
  ~TempToml() { std::remove(path_.c_str()); }
  TempToml(const TempToml&) = delete;
  TempToml& operator=(const TempToml&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace convtrace::settings
