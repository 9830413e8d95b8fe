#include "tools/common/reference.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string_view>

#include "format/settings/nearest.h"
#include "tools/common/complaints.h"

namespace convtrace::tools {
namespace {

/// Text for troff: no line of it is a request, no letter an escape.
std::string troff(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\') {
      safe += "\\e";
    } else if (c == '-') {
      safe += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (safe.empty() || safe.back() == '\n')) safe += "\\&";
      safe += c;
    }
  }
  return safe;
}

/// Paragraphs; lines that begin with a space are not filled.
std::string prose(const std::string& text) {
  std::istringstream lines(text);
  std::string page;
  bool filled = true;
  for (std::string line; std::getline(lines, line);) {
    const bool fill = !line.starts_with(' ');
    if (fill != filled) page += fill ? ".fi\n" : ".nf\n";
    filled = fill;
    page += line.empty() ? ".PP\n" : troff(line) + '\n';
  }
  return page + (filled ? "" : ".fi\n");
}

void add_entry(std::string& page, const std::string& term, const std::string& text) {
  page += ".TP\n\\fB" + troff(term) + "\\fR\n" + troff(text) + '\n';
}

bool is_hidden(const CLI::Option& option) { return option.get_group().empty(); }

void add_options(std::string& page, const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (is_hidden(*option)) continue;
    std::string term = option->get_name(false, true);
    if (option->get_positional()) term = option->get_name(true, false);
    const std::string type = option->get_type_name();
    if (option->get_items_expected_max() > 0 && !type.empty() && !option->get_positional())
      term += ' ' + type;
    add_entry(page, term, option->get_description());
  }
}

/// The words that an option accepts, if they are listed: "off|launches", or "{parquet,npy}".
std::string choices_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  const size_t open = type.find('{');
  const char separator = open == std::string::npos ? '|' : ',';
  if (open != std::string::npos) type = type.substr(open + 1, type.find('}') - open - 1);
  std::string words;
  for (const char c : type) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    if (!letter && c != separator) return {};
    words += letter ? c : ' ';
  }
  return words.find(' ') == std::string::npos ? std::string() : words;
}

std::string option_words(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : app.get_options()) {
    if (is_hidden(*option)) continue;
    for (const std::string& name : option->get_lnames()) words += " --" + name;
  }
  return words;
}

void add_completion(std::string& script, const CLI::App& app, const std::string& pattern) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string choices = choices_of(*option);
    if (choices.empty()) continue;
    for (const std::string& name : option->get_lnames())
      script += "    " + pattern + ":--" + name + ") words='" + choices + "' ;;\n";
  }
  script += "    " + pattern + ":*) [[ $now == -* ]] && words='" + option_words(app) + "' ;;\n";
}

/// @return the first unknown option and the option of the command that is nearest to it; "" if all
/// options are known.
std::string unknown_option(const CLI::App& app) {
  const CLI::App* asked = &app;
  while (!asked->get_subcommands().empty()) asked = asked->get_subcommands().front();
  std::vector<std::string> names;
  for (const CLI::Option* option : asked->get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  for (const std::string& word : app.remaining(true)) {
    if (!word.starts_with("-") || word == "-" || word == "--") continue;
    const std::string option = word.substr(0, word.find('='));
    const std::string_view near = settings::nearest(option, views);
    return "unknown option " + settings::quoted(option) +
           (near.empty() ? "" : "; the nearest is " + std::string(near));
  }
  return "";
}

}  // namespace

std::string manual_page(const CLI::App& app, const std::vector<ManualSection>& sections) {
  std::string title = app.get_name();
  std::ranges::transform(title, title.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const auto commands = app.get_subcommands(nullptr);
  std::string about = app.get_description();  // "NAME: what it does"
  if (about.starts_with(app.get_name() + ": ")) about.erase(0, app.get_name().size() + 2);
  std::string page = ".TH " + title + " 1\n.SH NAME\n" + troff(app.get_name()) + " \\- " +
                     troff(about) + "\n.SH SYNOPSIS\n.B " + troff(app.get_name()) +
                     (commands.empty() ? "\n[options] BASE CAND" : "\ncommand [options]") +
                     "\n.SH OPTIONS\n";
  add_options(page, app);
  if (!commands.empty()) page += ".SH COMMANDS\n";
  for (const CLI::App* command : commands) {
    page += ".SS " + troff(command->get_name()) + '\n' + troff(command->get_description()) + '\n';
    add_options(page, *command);
    if (!command->get_footer().empty()) page += ".PP\n" + prose(command->get_footer());
  }
  for (const ManualSection& section : sections) {
    page += ".SH " + section.title + '\n';
    for (const auto& [term, text] : section.entries) add_entry(page, term, text);
  }
  std::string end = app.get_footer();  // of convtrace-diff with examples before it
  if (const size_t blank = end.find("\n\n"); blank != end.npos) {
    page += ".SH EXAMPLES\n" + prose(end.substr(end.find('\n') + 1, blank - end.find('\n')));
    end.erase(0, blank + 2);
  }
  return page + ".SH EXIT STATUS\n" + prose(end);
}

std::string bash_completion(const CLI::App& app) {
  const auto commands = app.get_subcommands(nullptr);
  std::string names;
  for (const CLI::App* command : commands) names += command->get_name() + ' ';
  std::string function = "_" + app.get_name();
  std::ranges::replace(function, '-', '_');
  std::string script = "# completion of " + app.get_name() + " for bash\n" + function + "() {\n" +
                       "  local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} "
                       "words=''\n";
  // Behind -- stands a program of the user's, with arguments of its own.
  script +=
      "  local i kind=-c\n  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    [[ ${COMP_WORDS[i]} == -- ]] || continue\n"
      "    [[ $before == -- && $now != */* ]] || kind=-f\n"
      "    COMPREPLY=($(compgen $kind -- \"$now\"))\n    return\n"
      "  done\n";
  // "--mode=stats" is three words here.
  script +=
      "  [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD-2]}\n"
      "  [[ $now == = ]] && now=''\n";
  script += "  case ${COMP_WORDS[1]}:$before in\n";
  for (const CLI::App* command : commands) add_completion(script, *command, command->get_name());
  if (commands.empty()) {
    add_completion(script, app, "*");
  } else {
    script += "    *) words='" + names + "--help --version' ;;\n";
  }
  script += "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$now\"))\n";
  script += "  [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- \"$now\"))\n}\n";
  return script + "complete -o filenames -F " + function + ' ' + app.get_name() + '\n';
}

std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  const std::string unknown = unknown_option(*app);
  return app->get_name() + ": " +
         numbered(MessageId::kUsage, unknown.empty() ? error.what() : unknown) + " (see --help)\n";
}

}  // namespace convtrace::tools
