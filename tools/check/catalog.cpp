#include "tools/check/catalog.h"

#include <algorithm>

#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

constexpr CatalogRow kRows[] = {
    {"optimizer-of-others", "an optimizer that updates nothing that computes", nullptr},
    {"dropped-write", "memory that a compiled region was to write, and that is as it was",
     make_dropped_write},
    {"stale-region", "a kernel of a compiled region that gave the bits of the step before",
     make_stale_region},
    {"shared-memory", "memory that two parameters, gradients or states have in common",
     make_shared_memory},
    {"reused-output", "an op's output that was overwritten before it was read", make_reused_output,
     true, make_common_gradients},
    {"recomputed-buffer", "buffers that move again in a recomputation", make_recomputed_buffer},
    {"stale-gradient", "a gradient with the bits of an earlier step, as a whole or in part",
     make_stale_gradient, true, make_kept_gradient},
    {"gradients-add-up", "gradients that contain those of earlier steps", make_gradients_add_up,
     true, make_kept_sum},
    {"added-twice", "a gradient that counts twice", make_added_twice},
    {"not-repeatable", "equal inputs, another output", make_not_repeatable, true,
     make_dropout_mask},
    {"replicas-parted", "ranks whose equal weights parted", nullptr},
    {"same-data", "ranks that train on the same batches", nullptr},
    {"tied-parted", "a shared weight that became two", make_tied_parted},
    {"mode", "training in evaluation mode, or the reverse", make_mode, true,
     make_never_in_training},
    {"same-batch", "one batch in three training steps running", make_same_batch},
    {"no-labels", "a loss whose labels are all ignored", make_labels},
    {"input-scale", "data of another size than before", make_input_scale},
    {"learning-rate", "a learning rate that is 0 or jumps", make_learning_rate},
    {"clip-after-step", "clipping behind the update", make_clipping},
    {"two-steps", "two updates with one gradient", make_two_steps},
    {"moved-without-gradient", "a parameter that moves without a gradient",
     make_moved_without_gradient},
    {"no-gradient", "a parameter that never has a gradient", make_gradient_flow},
    {"no-motion", "a parameter that never moves", nullptr},
    {"infinite-moment", "a gradient whose square overflows in its optimizer", make_infinite_moment},
    {"blow-up", "a loss that grows until it is not finite", nullptr},
    {"loss-scale", "a loss scale that collapses", make_loss_scale},
    {"nan", "the first NaN or infinity", make_births},
    {"saturated", "values at the largest number of their type", make_range_of_type},
    {"underflow", "gradients of f16 below its range", nullptr},
    {"norm-growth", "steady growth towards an overflow", make_norm_growth},
    {"accumulation-scale", "losses of micro-batches that are not divided", make_accumulation_scale},
    {"hook-twice", "a hook that is installed twice", make_hook_twice},
    {"clipping", "clipping that acts always or never", nullptr},
    {"padding", "embeddings that look up mostly padding", nullptr},
    {"weight-decay", "weight decay of norms and biases", make_weight_decay, false},
};

}  // namespace

std::span<const CatalogRow> catalog() { return kRows; }

size_t catalog_position(std::string_view id) {
  return static_cast<size_t>(std::ranges::find(kRows, id, &CatalogRow::id) - std::begin(kRows));
}

}  // namespace convtrace::check
