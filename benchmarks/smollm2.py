"""A pretrained model learns: SmolLM2-135M on one-line functions, by all weights and by LoRA; and with shuffled rewards.

    python benchmarks/smollm2.py [--quick] [--steps N] [--seeds SEED ...] [--only NAME ...] [--out FOLDER] [--json FILE]

`full` is `recipes/smollm2-135m.yaml`; `lora` trains adapters in place of all weights. `shuffled` is `full` with rewards
permuted among the rollouts of each step: whatever still rises does not come from the verdicts of the judge. A run of
one seed takes hours on 2 cores; one that was interrupted goes on from its newest checkpoint with the same --out.
"""

from __future__ import annotations

from pathlib import Path

from controls import shuffled_rewards
from harness import finish, print_environment

from autoclave.models.policy import get_packaged_model
from runs import Arm, experiment_arguments, run_arms

RECIPE = Path(__file__).parent.parent / "recipes" / "smollm2-135m.yaml"
ARMS = (
    Arm("full", ()),
    Arm("lora", ("trainer.lora.rank=16", "optimizer.learning_rate=2e-4")),
    Arm("shuffled", (), schedule=shuffled_rewards),
)
QUICK = ("steps=2", "evaluation.every=0", "evaluation.final_samples=1", "problems.heldout_share=0.05")
TINY = (
    "steps=1",
    "evaluation.every=0",
    "evaluation.final_samples=1",
    "problems.heldout_share=0.02",
    "problems_per_step=2",
    "group_size=2",
    "sampler.max_new_tokens=2",
    "model.threads=1",
)


def main() -> None:
    options = experiment_arguments(__doc__ or "", ARMS, tiny="lora")
    print_environment()
    get_packaged_model("smollm2-135m")
    figures: dict[str, float | None] = {}
    for run in run_arms(ARMS, options, recipe=RECIPE, quick=QUICK, tiny=TINY):
        name = f"{run.arm}_seed_{run.seed}"
        for when in ("before", "after"):
            figures[f"{name}_{when}"] = run.summary[f"heldout_pass1_{when}"]
            low, high = run.summary[f"heldout_pass1_interval_{when}"]
            figures |= {f"{name}_{when}_low": low, f"{name}_{when}_high": high}
        figures[f"{name}_zero_variance_first"] = run.steps[0]["groups/zero_variance_share"]
        figures[f"{name}_seconds"] = run.summary["seconds_total"]
    finish("smollm2", figures, options.json)


if __name__ == "__main__":
    main()
