"""The table of silent training faults: what convtrace check should say, where the fault is known from, and its program.

Each program takes one flag: with it the fault is in, without it the same small program is right. A source is a thread
(repository#number), or TrainCheck and a bug of its published list (arXiv 2506.14813); "made up" is what no thread tells.
"""
import batches
import loops
import memory
import parameters
import precision
import ranks
import recompute
import repeated_gradients
import stories
from parts import Case

FAULTY = {
    "checkpoint-dropout": Case("not-repeatable", "PIDM#66, torchtitan#1323", recompute.checkpoint_dropout),
    "checkpoint-last-dropout": Case("not-repeatable", "OLMo-core#828", recompute.checkpoint_last_dropout),
    "checkpoint-scale": Case("not-repeatable", "TransformerEngine#1047", recompute.checkpoint_scale),
    "workspace-op": Case("not-repeatable", "fla#945, triton#10590", recompute.workspace_op),
    "workspace-op-and-dropout": Case("not-repeatable", "fla#945, triton#10590", recompute.workspace_op_and_dropout),
    "unwritten-op": Case("not-repeatable", "pytorch#190796, TransformerEngine#3249", recompute.unwritten_op),
    "evaluation-dropout": Case("not-repeatable", "TrainCheck transformers-33844", recompute.evaluation_dropout, hint=True),

    "cached-gradient": Case("stale-gradient", "pytorch#193061, of a whole gradient", recompute.cached_gradient),
    "hook-gradient": Case("stale-gradient", "made up", recompute.hook_gradient),
    "partial-gradient": Case("stale-gradient", "pytorch#193061", recompute.partial_gradient),
    "partial-gradient-large": Case("stale-gradient", "pytorch#193061", recompute.partial_gradient_large),
    "kept-bias": Case("stale-gradient", "made up", repeated_gradients.kept_bias),
    "unfilled-buffer": Case("stale-gradient", "made up", repeated_gradients.unfilled_buffer),
    "lost-range": Case("stale-gradient", "pytorch#193061, of 64 KiB", repeated_gradients.lost_range),
    "dropped-view": Case("stale-gradient", "pytorch#193061, of a layer with a norm", repeated_gradients.dropped_view),

    "shared-average": Case("shared-memory", "made up", memory.shared_average),
    "flat-gradients": Case("shared-memory", "made up", memory.flat_gradients),
    "reused-buffer": Case("reused-output", "made up", memory.reused_buffer),
    "checkpointed-norm": Case("recomputed-buffer", "made up", memory.checkpointed_norm),

    "detached-encoder": Case("no-gradient", "speechbrain#1396", parameters.detached_encoder),
    "no-grad-stem": Case("no-gradient", "TrainCheck mmpretrain-702, the other way round", parameters.no_grad_stem),
    "detached-bias": Case("no-gradient", "made up", parameters.detached_bias),
    "zero-gate": Case("no-gradient", "made up", parameters.zero_gate),
    "rounded-place": Case("no-gradient", "made up", parameters.rounded_place),

    "late-head": Case("no-motion", "HVPNeT#5, mace#1529", parameters.late_head),
    "copied-head": Case("no-motion", "accelerate#3256, of a part", parameters.copied_head),
    "lost-in-rounding": Case("no-motion", "pytorch/ao#1124, ml-by-hand#85", parameters.lost_in_rounding),
    "not-contiguous": Case("no-motion", "pytorch#118117", parameters.not_contiguous),
    "rebuilt-model": Case("optimizer-of-others", "accelerate#2665, accelerate#3256", parameters.rebuilt_model),
    "cast-model": Case("optimizer-of-others", "pytorch#149205, TrainCheck pytorch-104336", parameters.cast_model),
    "queue-over-weights": Case("moved-without-gradient", "made up", parameters.queue_over_weights),
    "alias-of-head": Case("moved-without-gradient", "made up", parameters.alias_of_head),

    "eval-forever": Case("mode", "texar-pytorch#310, ncsn#2", loops.eval_forever),
    "submodule-eval": Case("mode", "LCFCN#20", loops.submodule_eval),
    "train-in-validation": Case("mode", "MultiBench#26", loops.train_in_validation),

    "forgotten-train": Case("mode", "of a public report", stories.forgotten_train),
    "forgotten-head": Case("mode", "made up", stories.forgotten_head),

    "next-of-iter": Case("same-batch", "face.evoLVe#39, wandb/examples#444", batches.next_of_iter),
    "seeded-each-step": Case("same-batch", "TrainCheck stackoverflow-67180955, tacotron2#241", batches.seeded_each_step),
    "all-ignored": Case("no-labels", "trl#6668", batches.all_ignored),
    "cut-answers": Case("no-labels", "trl#6668, cosmos-rl#155", batches.cut_answers),
    "padded-to-limit": Case("padding", "made up", batches.padded_to_limit, hint=True),
    "factor-255": Case("input-scale", "stable-baselines#328", batches.factor_255),
    "not-normalized": Case("input-scale", "kits19-cnn#22, mclSTExp#8", batches.not_normalized),

    "zero-distance": Case("nan", "made up", batches.zero_distance),
    "bias-gradient": Case("nan", "pytorch#190796", precision.bias_gradient),
    "collapsing-scale": Case("loss-scale", "Chinese-LLaMA-Alpaca#534", precision.collapsing_scale),
    "saturating": Case("saturated", "TransformerEngine#1047, its cause", precision.saturating),
    "beyond-stability": Case("norm-growth", "made up", loops.beyond_stability),

    "blow-up": Case("blow-up", "made up", stories.blow_up),
    "blow-up-late": Case("blow-up", "made up", stories.blow_up_late),
    "negative-infinity": Case("nan", "made up", stories.negative_infinity),
    "exploded-first": Case("infinite-moment", "of a public report", stories.exploded_first),
    "exploded-with-decay": Case("infinite-moment", "of a public report", stories.exploded_with_decay),
    "exploded-rmsprop": Case("infinite-moment", "made up", stories.exploded_rmsprop),
    "exploded-in-part": Case("infinite-moment", "made up", stories.exploded_in_part),

    "warmup-of-zero": Case("learning-rate", "verl#3674, of all steps", loops.warmup_of_zero),
    "jump-of-rate": Case("learning-rate", "luxonis-train#432", loops.jump_of_rate, hint=True),
    "always-clipped": Case("clipping", "made up", loops.always_clipped, hint=True),
    "never-clipped": Case("clipping", "OpenSeq2Seq#192", loops.never_clipped, hint=True),
    "clip-after-step": Case("clip-after-step", "VGRNN#4, graphstorm#1366", loops.clip_after_step),
    "two-steps": Case("two-steps", "physicsnemo#1911, transformers#45656", loops.two_steps),
    "no-zero-grad": Case("gradients-add-up", "TrainCheck stackoverflow-60335387, tt-blacksmith#711", loops.no_zero_grad),
    "one-of-two": Case("gradients-add-up", "alpaca_farm#57, the other way round", loops.one_of_two),
    "undivided": Case("accumulation-scale", "nanoGPT#206, distillKitPlus#5", loops.undivided, hint=True),

    "gate-not-reduced": Case("replicas-parted", "torchtitan#2387, TrainCheck deepspeed-1801", ranks.gate_not_reduced, 2),
    "no-sync-misplaced": Case("replicas-parted", "TrainCheck x-jxmnop-ddp-out-of-sync, pytorch#69031",
                              ranks.no_sync_misplaced, 2),
    "same-shard": Case("same-data", "speculators#427, VisCy#408", ranks.same_shard, 2),
}

# The programs that run without --full, each of a different kind.
SAMPLE = ("checkpoint-dropout", "unfilled-buffer", "lost-range", "flat-gradients", "reused-buffer", "detached-encoder",
          "late-head", "rebuilt-model", "eval-forever", "next-of-iter", "forgotten-train",
          "exploded-with-decay", "blow-up", "bias-gradient", "no-zero-grad", "gate-not-reduced")
CLEAN_SAMPLE = ("growing_returns", "cosine_with_restarts", "look_then_warm_up", "frozen_losses", "penalized_dead_units", "two_tasks")
