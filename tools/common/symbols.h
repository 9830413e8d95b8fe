#pragma once
/// @file symbols.h
/// Finds function names and source lines for the frames of a trace, from the libraries on this
/// machine.
///
/// How:      a frame has a library's name and an offset in it; a fact of the trace has the
///           library's path and build id. addr2line of binutils reads the file, and the system's
///           debug files.
/// Safety:   another build of the library would give wrong names, so its build id must be the
///           recorded one. A library without a build id must not have changed since the trace
///           began.
/// Threads:  one.
/// Errors:   frames that cannot be named stay as recorded; obstacles() has the reasons.

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/meta.h"

namespace convtrace::tools {

class Symbols {
 public:
  explicit Symbols(const format::TraceMeta& meta);

  /// @param stack  frames as recorded, innermost first.
  /// @return the frames with names: "my_op(at::Tensor) at /src/ops.cpp:12 (ops.so+0x1234)". An
  /// inlined function is a frame of its own. Runs addr2line for frames that are new.
  [[nodiscard]] std::vector<std::string> frames(std::span<const std::string> stack);

  /// @return for each library whose functions have no names, a line with the reason.
  [[nodiscard]] std::vector<std::string> obstacles() const;

 private:
  /// Hexadecimal; empty if the library has none.
  struct Library {
    std::string build_id;
    std::string path;
    /// Why it cannot be read; "": it can; nullopt: not tried yet.
    std::optional<std::string> obstacle;
  };
  struct Frame;

  void name(const std::vector<Frame>& frames);
  [[nodiscard]] std::optional<Frame> parse(std::string_view text) const;
  [[nodiscard]] std::string obstacle(const Library& library) const;

  uint64_t start_ns_;  ///< start of the trace, in real time
  std::string addr2line_;
  std::map<std::string, Library, std::less<>> libraries_;
  std::map<std::string, std::vector<std::string>, std::less<>> known_;  ///< by recorded text
  std::set<std::string> unnamed_;  ///< libraries with frames that got no name
};

}  // namespace convtrace::tools
