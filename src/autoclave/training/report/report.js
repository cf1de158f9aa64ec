// Filter the sample rollouts by outcome. Without this script all of them show.
const bar = document.querySelector(".filter");
if (bar) {
  bar.hidden = false;
  bar.addEventListener("click", (event) => {
    const chosen = event.target.closest("button");
    if (!chosen) return;
    for (const button of bar.querySelectorAll("button")) button.setAttribute("aria-pressed", button === chosen);
    for (const rollout of document.querySelectorAll(".rollout"))
      rollout.hidden = chosen.value !== "all" && rollout.dataset.outcome !== chosen.value;
    for (const group of document.querySelectorAll(".group"))
      group.hidden = !group.querySelector(".rollout:not([hidden])");
  });
}
