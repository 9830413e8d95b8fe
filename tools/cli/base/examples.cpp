#include "tools/cli/base/examples.h"

#include <initializer_list>

#include "tools/report/help.h"

namespace convtrace::tools {
namespace {

struct Examples {
  const char* command;
  std::initializer_list<const char*> lines;
};

}  // namespace

void lay_out_commands(CLI::App& app) {
  const Examples all[] = {
      {"run",
       {"convtrace run -o base.ctrace -- python train.py",
        "convtrace run --overhead 5% -- torchrun --nproc-per-node 4 train.py",
        "convtrace run -o new.ctrace --like base.ctrace -- python train.py"}},
      {"demo", {"convtrace demo", "convtrace demo -o /tmp/demo"}},
      {"path", {"LD_PRELOAD=$(convtrace path) python train.py"}},
      {"env",
       {"eval \"$(convtrace env --shell)\"; python train.py", "convtrace env --slurm",
        "convtrace env --k8s"}},
      {"info",
       {"convtrace info base.ctrace", "convtrace info --all base.ctrace",
        "convtrace info --json base.ctrace"}},
      {"show",
       {"convtrace show --norms base.ctrace", "convtrace show --nan base.ctrace",
        "convtrace show --records stats --steps 0-2 base.ctrace"}},
      {"findings",
       {"convtrace findings base.ctrace", "convtrace findings --strict base.ctrace",
        "convtrace findings --json base.ctrace"}},
      {"recover", {"convtrace recover -o whole.ctrace killed.ctrace"}},
      {"strip",
       {"convtrace strip -o to-send.ctrace base.ctrace",
        "convtrace strip --hashes -o to-send.ctrace base.ctrace"}},
      {"verify", {"convtrace verify base.ctrace"}},
      {"check",
       {"convtrace check base.ctrace", "convtrace check --html check.html base.ctrace",
        "convtrace check --only nan,blow-up base.ctrace"}},
      {"weights",
       {"convtrace weights trainer.ctrace engine.ctrace",
        "convtrace weights --step-b start trainer.ctrace resumed.ctrace",
        "convtrace weights --map names.toml trainer engine"}},
      {"origin",
       {"convtrace origin run", "convtrace origin --html origin.html run",
        "convtrace origin --brief run"}},
      {"repeat",
       {"convtrace repeat -- python train.py", "convtrace repeat -o runs -- python train.py",
        "convtrace repeat -n 3 -- python train.py"}},
      {"diff",
       {"convtrace diff base.ctrace new.ctrace",
        "convtrace diff base.ctrace new.ctrace --html diff.html", "convtrace-diff --help"}},
      {"expect",
       {"convtrace expect --init base.ctrace new.ctrace >expect.toml",
        "convtrace expect expect.toml base.ctrace new.ctrace",
        "convtrace expect expect.toml base.ctrace new.ctrace --brief"}},
      {"export",
       {"convtrace export --format parquet -o values base.ctrace",
        "convtrace export --format tensorboard -o board base.ctrace",
        "convtrace export --format npy -o tensors base.ctrace"}},
      {"doctor", {"convtrace doctor", "convtrace doctor -- python train.py"}},
      {"config", {"convtrace config --from-mindspore dump.json"}},
  };
  report::lay_out_help(app);
  for (const Examples& one : all) report::add_examples(*app.get_subcommand(one.command), one.lines);
  report::add_examples(
      app, {"convtrace run -o base.ctrace -- python train.py", "convtrace check base.ctrace",
            "convtrace diff base.ctrace new.ctrace"});
}

}  // namespace convtrace::tools
