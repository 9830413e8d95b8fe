#include "tools/report/help.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <sstream>
#include <string>

#include "tools/report/text_layout.h"

namespace convtrace::report {
namespace {

constexpr size_t kColumns = 80, kNarrowest = 40;
constexpr size_t kNames = 28, kCommands = 12;  ///< columns of the names of options, of commands

/// @return the type without what CLI11 adds for its checks: "off|launches:{off,launches}".
std::string type_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(0, std::min(type.find(":{"), type.find(":INT in")));
}

/// @return the accepted words of a type that does not list them itself, else "".
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find(":{"), close = type.rfind('}');
  if (open == type.npos || close == type.npos || type.find('|') < open) return "";
  std::string words;
  for (const char c : type.substr(open + 2, close - open - 2))
    words += c == ',' ? ", " : std::string(1, c);
  return ": " + words;
}

class Layout : public CLI::Formatter {
 public:
  explicit Layout(size_t columns) : columns_(columns) {}

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
    return text(app->get_description()) + make_usage(app, name) + "\n" + text(app->get_footer()) +
           make_positionals(app) + make_subcommands(app, mode) + make_groups(app, mode);
  }
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string names = make_option_name(option, positional);
    if (option->get_type_size() != 0 && !positional && !type_of(*option).empty())
      names += ' ' + type_of(*option);
    return entry(names, option->get_description() + choices_of(*option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_name(), command->get_description(), kCommands);
  }

 private:
  [[nodiscard]] std::string entry(const std::string& names, const std::string& about,
                                  size_t indent = kNames) const {
    std::string line = "  " + diff::padded(names, indent - 2);
    if (diff::width_of(names) >= indent - 2) line += '\n' + std::string(indent, ' ');
    return line + diff::wrapped(about, columns_, indent, indent) + '\n';
  }
  /// @return paragraphs, wrapped; lines that begin with a space stay as they are.
  [[nodiscard]] std::string text(const std::string& paragraphs) const {
    std::istringstream lines(paragraphs);
    std::string all;
    for (std::string line; std::getline(lines, line);)
      all += (line.starts_with(' ') ? line : diff::wrapped(line, columns_, 0, 0)) + '\n';
    return all;
  }

  size_t columns_;
};

}  // namespace

void lay_out_help(CLI::App& app) {
  const size_t columns = diff::own_terminal().columns;
  const auto layout =
      std::make_shared<Layout>(columns == 0 ? kColumns : std::max(columns, kNarrowest));
  app.formatter(layout);
  for (CLI::App* const command : app.get_subcommands(nullptr)) command->formatter(layout);
}

void add_examples(CLI::App& command, std::initializer_list<const char*> examples) {
  std::string text = examples.size() == 1 ? "Example:\n" : "Examples:\n";
  for (const char* const example : examples) text += std::string("  ") + example + '\n';
  command.footer(text + '\n' + command.get_footer());
}

}  // namespace convtrace::report
