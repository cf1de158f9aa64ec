// Show one step of the timeline, and filter the sample rollouts by outcome. Without this script all of them show.
const choose = (bar, show) => {
  if (!bar) return;
  bar.hidden = false;
  bar.addEventListener("click", (event) => {
    const chosen = event.target.closest("button");
    if (!chosen) return;
    for (const button of bar.querySelectorAll("button")) button.setAttribute("aria-pressed", button === chosen);
    show(chosen.value);
  });
  show(bar.querySelector('[aria-pressed="true"]').value);
};
choose(document.querySelector("#timeline .filter"), (step) => {
  for (const picture of document.querySelectorAll(".gantt")) picture.hidden = picture.dataset.step !== step;
});
choose(document.querySelector("#rollouts .filter"), (outcome) => {
  for (const rollout of document.querySelectorAll(".rollout"))
    rollout.hidden = outcome !== "all" && rollout.dataset.outcome !== outcome;
  for (const group of document.querySelectorAll(".group"))
    group.hidden = !group.querySelector(".rollout:not([hidden])");
});
