#pragma once
/// @file root_section.h
/// The part of the HTML page about the root: the data flow around it, its numbers, and what
/// surrounds it.

#include "tools/common/json.h"
#include "tools/diff/verdict/result.h"
#include "tools/report/markup.h"

namespace convtrace::diff {

/// A list item: the commands to run next; nothing if there are none.
void write_commands(const DiffResult& result, Markup& out);

class RootSection {
 public:
  /// @param result  has a root; outlives this.
  RootSection(const DiffResult& result, Markup& out)
      : result_(result), root_(*result.root), out_(out) {}

  /// A list item: the code to look at; nothing if it is not known.
  void code() const;
  /// The size of the difference.
  void differences() const;
  /// The root between its sources and its consumers.
  void flow() const;
  /// Its numbers, the gradients of its step, and the values around it.
  void numbers();

  /// @return the histograms of the values that were written, by the ids of their figures.
  [[nodiscard]] const tools::Json& histograms() const { return histograms_; }

 private:
  void flow_side(const char* title, const std::vector<FlowStep>& steps, size_t more) const;
  void box(const RecordReport& record, Class verdict, const std::string& note, bool by_order) const;
  void values();
  void table(const RecordReport& record);
  void gradients() const;
  void around() const;

  const DiffResult& result_;
  const RootReport& root_;
  Markup& out_;
  tools::Json histograms_ = tools::Json::array();
};

}  // namespace convtrace::diff
