// Filters, keys and the numbers of a token. Without this script everything shows, unfiltered.
const form = document.querySelector(".controls");
const groups = [...document.querySelectorAll(".group")];
const rollouts = [...document.querySelectorAll(".rollout")];
const search = form.elements.text;

function fits(element, select) {
  const values = element.dataset[select.name];
  return !select.value || values === undefined || values === select.value || values.split(" ").includes(select.value);
}

function apply() {
  const selects = [...form.querySelectorAll("select")];
  const wanted = search.value.toLowerCase();
  let shown = 0;
  for (const group of groups) {
    const inPrompt = wanted && group.querySelector(".prompt").textContent.toLowerCase().includes(wanted);
    const groupFits = selects.every((select) => fits(group, select));
    for (const rollout of group.querySelectorAll(".rollout")) {
      const hasText = !wanted || inPrompt || rollout.textContent.toLowerCase().includes(wanted);
      rollout.hidden = !(groupFits && hasText && selects.every((select) => fits(rollout, select)));
      shown += !rollout.hidden;
    }
    group.hidden = !group.querySelector(".rollout:not([hidden])");
  }
  for (const heading of document.querySelectorAll("#rollouts h3")) {
    const own = groups.filter((group) => group.dataset.step === heading.textContent);
    heading.hidden = own.every((group) => group.hidden);
  }
  form.querySelector("output").textContent = `${shown} of ${rollouts.length}`;
  document.querySelector(".nothing").hidden = shown > 0 || rollouts.length === 0;
}

function move(by) {
  const visible = rollouts.filter((rollout) => !rollout.hidden);
  const here = visible.indexOf(document.activeElement.closest(".rollout"));
  const next = visible[here < 0 ? 0 : Math.min(Math.max(here + by, 0), visible.length - 1)];
  if (!next) return;
  next.querySelector("summary").focus();
  next.scrollIntoView({ block: "nearest" });
}

const keys = {
  j: () => move(1),
  k: () => move(-1),
  o: () => {
    const rollout = document.activeElement.closest(".rollout");
    if (rollout) rollout.open = !rollout.open;
  },
  x: () => form.reset(),
  "/": () => search.focus(),
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.activeElement.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
  const action = keys[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

// What a token is, when it is pointed at.
document.addEventListener("pointerover", (event) => {
  const token = event.target.closest(".token-strip i");
  if (!token || token.title) return;
  const strip = token.closest(".token-strip");
  const place = [...strip.querySelectorAll("i")].indexOf(token);
  const index = place < Number(strip.dataset.head) ? place : place + Number(strip.dataset.leftOut);
  const [id, sampler, trainer] = strip.dataset.numbers.split(";")[place].split(" ");
  const lines = [`token ${index}, id ${id}`];
  const name = (value) => (value === "-" ? "not recorded" : `${value} (probability ${Math.exp(value).toPrecision(3)})`);
  lines.push(`sampler ${name(sampler)}`, `trainer ${name(trainer)}`);
  if (sampler !== "-" && trainer !== "-") lines.push(`mismatch ${(trainer - sampler).toPrecision(2)} nats`);
  token.title = lines.join("\n");
});

form.hidden = false;
form.addEventListener("input", apply);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(apply));
apply();
