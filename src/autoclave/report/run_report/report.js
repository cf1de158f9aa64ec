// Filter the sample rollouts by outcome. Without this script all of them show.
const bar = document.querySelector("#rollouts .filter");
const show = (outcome) => {
  for (const button of bar.querySelectorAll("button")) button.setAttribute("aria-pressed", button.value === outcome);
  for (const rollout of document.querySelectorAll(".rollout"))
    rollout.hidden = outcome !== "all" && rollout.dataset.outcome !== outcome;
  for (const group of document.querySelectorAll(".group"))
    group.hidden = !group.querySelector(".rollout:not([hidden])");
};
if (bar) {
  bar.hidden = false;
  bar.addEventListener("click", (event) => {
    const chosen = event.target.closest("button");
    if (chosen) show(chosen.value);
  });
}
