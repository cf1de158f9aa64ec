// The review page. All text of others is set as text (textContent), never as markup; the page's policy enforces that.

const token = location.pathname.split("/")[1];
const MEANINGS = {
  exact: "everything is as it was",
  equivalent: "everything is the same for its users",
  compensating: "another action compensates for it",
  none: "it cannot be undone",
};
const STATES = {
  standing: ["executed", "redone", "undo_failed"],
  open: ["proposed", "approved"],
  doubt: ["in_doubt", "undo_in_doubt", "undo_failed"],
};
const STEP = 300;

const $ = (id) => document.getElementById(id);
const actions = new Map();
const rows = new Map();
const selected = new Set();
let groups = [], groupOf = new Map(), savepoints = [], notes = [];
let number = null, leftOut = 0, auditedAt = 0, most = STEP, opened = "", openedNumber = 0, polling = 0;

// --- Elements -------------------------------------------------------------------------------------------------------

function el(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const button = (text, onclick, kind = "") => el("button", { type: "button", class: kind, onclick }, text);
const stateOf = (state) => el("span", { class: `state ${state}` }, state.replaceAll("_", " "));
const guaranteeOf = (name) => el("span", { class: `guarantee g-${name}`, title: `After an undo: ${MEANINGS[name] ?? ""}` }, name);
const plural = (count, noun) => `${count.toLocaleString()} ${noun}${count === 1 ? "" : "s"}`;

function timeOf(seconds) {
  const time = new Date(seconds * 1000);
  const isToday = time.toDateString() === new Date().toDateString();
  const text = isToday ? time.toLocaleTimeString() : time.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  return el("time", { datetime: time.toISOString(), title: time.toISOString() }, text);
}

function say(text, ...more) {
  $("message").replaceChildren(text, ...more, ...(text ? [button("Close", () => say(""))] : []));
}

// --- Server ---------------------------------------------------------------------------------------------------------

async function ask(path, body) {
  const headers = { Authorization: `Bearer ${token}` };
  const request = body === undefined ? { headers } : {
    method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  const response = await fetch(`/api/${path}`, { ...request, credentials: "omit", cache: "no-store" });
  if (response.headers.get("content-type")?.startsWith("image/")) return response.blob();
  const told = await response.json();
  if (!response.ok) throw new Error(told.error ?? `status ${response.status}`);
  return told;
}

async function poll() {
  clearTimeout(polling);
  let pause = 1000;
  try {
    const told = await ask(`timeline?after=${number ?? 0}`);
    $("live").textContent = "live";
    $("live").className = "live on";
    if (told.number !== number) take(told);
  } catch (error) {
    $("live").textContent = error instanceof TypeError ? "the server has ended" : error.message;
    $("live").className = "live off";
    pause = 1500;
  }
  clearTimeout(polling);
  if (!document.hidden) polling = setTimeout(poll, pause);
}

function take(told) {
  if (told.is_whole) for (const map of [actions, rows]) map.clear();
  number = told.number;
  $("root").textContent = told.root;
  document.title = `${told.root.split("/").pop()} – Autoclave review`;
  for (const line of told.actions) {
    actions.set(line.action, line);
    rows.delete(line.action);
  }
  ({ groups, savepoints, notes } = told);
  leftOut = told.left_out;
  groupOf = new Map(groups.flatMap((group, index) => group.map((action) => [action, index + 1])));
  for (const action of selected) if (!actions.has(action)) selected.delete(action);
  const alarms = notes.filter((note) => note.kind === "alarm" || note.kind === "checkpoints_missing");
  $("alarms").replaceChildren(...alarms.map((note) => el("p", { class: "alert" }, `Alarm: ${note.subject} ${note.text}`)));
  const sessions = [...new Set([...actions.values(), ...notes].map((each) => each.session).filter(Boolean))].sort();
  const choice = $("filters").elements.session, chosen = choice.value;
  choice.replaceChildren(el("option", { value: "" }, "all sessions"), ...sessions.map((name) => el("option", { value: name }, name)));
  choice.value = sessions.includes(chosen) ? chosen : "";
  show();
  if (opened && actions.get(opened)?.number !== openedNumber) open(opened, false);
  if (Date.now() - auditedAt > 30_000) audit();
}

async function audit() {
  auditedAt = Date.now();
  const place = $("audit");
  try {
    const { findings, records } = await ask("audit");
    place.className = findings.length ? "audit damaged" : "audit whole";
    place.textContent = findings.length
      ? `journal damaged: ${findings.map((each) => `${each.damage} at record ${each.number}`).slice(0, 3).join(", ")}`
      : `journal: ${records.toLocaleString()} records, as they were written`;
  } catch (error) {
    place.className = "audit damaged";
    place.textContent = `journal: ${error.message}`;
  }
}

// --- List -----------------------------------------------------------------------------------------------------------

function fits(line) {
  const { text, state, session, guarantee } = $("filters").elements;
  const words = text.value.toLowerCase();
  return (!state.value || (STATES[state.value] ?? [state.value]).includes(line.state))
    && (!session.value || line.session === session.value)
    && (!guarantee.value || line.guarantee === guarantee.value)
    && (!words || `${line.action} ${line.summary} ${line.by} ${line.session} ${line.state}`.toLowerCase().includes(words));
}

function noteFits(note) {
  const { text, state, session, guarantee } = $("filters").elements;
  return note.kind === "denied" && (state.value === "denied" || !state.value) && !guarantee.value
    && (!session.value || note.session === session.value)
    && (!text.value || `${note.text} ${note.session}`.toLowerCase().includes(text.value.toLowerCase()));
}

function show() {
  const focused = document.activeElement?.closest?.("[data-action]")?.dataset.action;
  const isCheck = document.activeElement?.type === "checkbox";
  const found = [...actions.values()].filter(fits);
  const denied = notes.filter(noteFits);
  const isPlain = !$("filters").elements.text.value;
  const entries = [
    ...found.map((line) => ({ at: line.first, element: () => rowOf(line), line })),
    ...denied.map((note) => ({ at: note.number, element: () => noteOf(note) })),
    ...(isPlain ? savepoints.map((savepoint) => ({ at: savepoint.number, element: () => markOf(savepoint) })) : []),
  ].sort((one, other) => other.at - one.at);
  const elements = [];
  let group = 0;
  for (const entry of entries.slice(0, most)) {
    const own = entry.line ? groupOf.get(entry.line.action) ?? 0 : 0;
    if (own && own !== group) {
      group = own;
      if (groups[own - 1].length > 1) elements.push(groupMark(own));
    }
    elements.push(entry.element());
  }
  $("list").replaceChildren(...elements);
  $("list").hidden = !elements.length;
  $("empty").hidden = elements.length > 0;
  $("empty").textContent = actions.size ? "Nothing fits these filters." : "Nothing was done here yet. Actions appear as they are proposed.";
  $("more").hidden = entries.length <= most;
  $("more").textContent = `Show ${Math.min(STEP, entries.length - most)} more of ${(entries.length - most).toLocaleString()}`;
  const older = leftOut ? `; ${leftOut.toLocaleString()} older are not shown` : "";
  $("filters").querySelector("output").textContent = `${found.length.toLocaleString()} of ${plural(actions.size, "action")}${older}`;
  if (focused) document.querySelector(`[data-action="${focused}"] > ${isCheck ? "label > input" : "button"}`)?.focus();
  showSelection();
}

function rowOf(line) {
  let row = rows.get(line.action);
  if (!row) {
    const check = el("input", { type: "checkbox", "aria-label": `Select ${line.action}`, onchange: () => select(line.action, check.checked) });
    const about = [
      el("span", {}, timeOf(line.proposed_at)), el("span", { class: "mono" }, line.action),
      el("span", { class: "who", title: `session ${line.session}` }, line.session),
      el("span", { class: "who", title: `proposed by ${line.by}` }, `by ${line.by}`),
    ];
    row = el("li", { class: `row ${line.state}`, "data-action": line.action },
      el("label", {}, check),
      el("button", { type: "button", onclick: () => open(line.action) },
        stateOf(line.state), el("span", { class: "summary", title: line.summary }, line.summary), guaranteeOf(line.guarantee),
        el("span", { class: "facts" }, about)));
    rows.set(line.action, row);
  }
  row.querySelector("input").checked = selected.has(line.action);
  row.classList.toggle("open", opened === line.action);
  row.querySelector("button").setAttribute("aria-current", String(opened === line.action));
  return row;
}

function noteOf(note) {
  return el("li", { class: "note" }, stateOf("denied"), el("span", {}, note.text),
    el("span", { class: "facts" }, timeOf(note.at), el("span", { class: "who" }, `session ${note.session}`)));
}

function markOf(savepoint) {
  return el("li", { class: "mark savepoint" }, el("span", {}, "savepoint ", el("b", {}, savepoint.name)), timeOf(savepoint.at),
    button("Undo to here…", () => undo({ savepoint: savepoint.name })));
}

function groupMark(own) {
  const members = groups[own - 1];
  return el("li", { class: "mark" }, el("span", {}, el("b", {}, `Group ${own}`), ` · ${plural(members.length, "action")}`),
    button("Undo group…", () => undo({ actions: members })));
}

function select(action, isSelected) {
  if (isSelected) selected.add(action);
  else selected.delete(action);
  showSelection();
}

function showSelection() {
  const chosen = [...selected].map((action) => actions.get(action));
  $("selection").hidden = !chosen.length;
  $("selection").querySelector("span").textContent = `${chosen.length} selected`;
  for (const each of $("selection").querySelectorAll("button")) {
    const { verb } = each.dataset;
    each.disabled = verb !== "clear" && !chosen.every((line) => line.can.includes(verb));
  }
}

// --- Details --------------------------------------------------------------------------------------------------------

async function open(action, moves = true) {
  const line = actions.get(action);
  if (!line) return;
  const before = opened;
  [opened, openedNumber] = [action, line.number];
  for (const each of [before, action]) if (actions.has(each)) rowOf(actions.get(each));
  const place = $("detail"), wasAt = before === action ? place.scrollTop : 0;
  place.hidden = false;
  try {
    const told = await ask(`actions/${action}`);
    if (opened !== action) return;
    place.replaceChildren(...detailOf(actions.get(action), told));
  } catch (error) {
    place.replaceChildren(headOf(line), el("p", { class: "reason" }, error.message));
  }
  place.scrollTop = wasAt;
  if (!moves) return;
  if (matchMedia("(max-width: 900px)").matches) { place.focus(); place.scrollIntoView(); } else rows.get(action)?.scrollIntoView({ block: "nearest" });
}

function close() {
  const before = opened;
  opened = "";
  $("detail").hidden = true;
  if (actions.has(before)) rowOf(actions.get(before)).querySelector("button").focus();
}

function headOf(line) {
  return el("div", { class: "head" }, el("h2", {}, line.summary), button("Close", close));
}

function detailOf(line, told) {
  const about = [
    ["state", stateOf(line.state)], ["undo", [guaranteeOf(line.guarantee), ` ${MEANINGS[line.guarantee] ?? ""}`]],
    ["id", el("code", {}, line.action)], ["session", line.session], ["by", line.by],
    ["proposed", timeOf(line.proposed_at)], ["since", timeOf(line.at)],
    ...(groupOf.has(line.action) ? [["group", String(groupOf.get(line.action))]] : []),
  ];
  const verbs = { undo: "Undo…", redo: "Redo", commit: "Commit…", discard: "Discard", resolve: "Resolve…" };
  return [
    headOf(line),
    el("dl", { class: "about" }, about.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    el("div", { class: "verbs" }, line.can.map((verb) => button(verbs[verb], () => act(verb, [line.action]), verb === "undo" ? "main" : ""))),
    line.reason ? el("p", { class: "reason" }, line.reason) : null,
    told.changes.length || told.note ? el("h3", {}, line.state === "undone" ? "Changes of a redo" : "Changes") : null,
    told.note ? el("p", { class: "soft" }, told.note) : null,
    ...told.changes.map((change) => changeOf(line.action, change)),
    el("details", { open: !told.changes.length }, el("summary", {}, "Operation"), el("pre", { class: "box", tabindex: "0" }, told.operation)),
    el("details", {}, el("summary", {}, `Records (${told.records.length})`), told.records.map(recordOf)),
  ].filter(Boolean);
}

function recordOf(record) {
  return el("details", { class: "record" }, el("summary", {}, `${record.number}  ${record.kind}  `, timeOf(record.at)),
    el("pre", { class: "box", tabindex: "0" }, record.body));
}

function changeOf(action, change) {
  const counts = change.kind === "text"
    ? el("span", { class: "count" }, el("span", { class: "plus" }, `+${change.added}`), " ", el("span", { class: "minus" }, `−${change.removed}`)) : null;
  const parts = [
    change.note ? el("p", { class: "soft" }, change.note) : null,
    (change.facts ?? []).map(([name, old, now]) => el("p", {}, `${name}: ${old} → ${now}`)),
    { text: diffOf, words: wordsOf, image: imagesOf, rows: rowsOf, request: requestOf }[change.kind]?.(change, action),
  ];
  return el("article", { class: "change" }, el("header", {}, el("b", {}, change.verb), el("code", {}, change.path), counts), parts.flat());
}

function wordsOf(change) {
  const words = [change.before, change.after].filter(Boolean).join(" → ");
  return words ? el("p", {}, words) : null;
}

function scrolled(element) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Change" }, element);
}

function diffOf(change) {
  const kinds = { "+": "add", "-": "cut", "@": "gap", " ": "" };
  const lines = change.lines.map(([sign, old, now, text]) => (sign === "@"
    ? el("tr", { class: "gap" }, el("td", { colSpan: 4 }, "⋯"))
    : el("tr", { class: kinds[sign] }, el("td", { class: "n" }, old ?? ""), el("td", { class: "n" }, now ?? ""), el("td", { class: "s" }, sign), el("td", {}, text))));
  return lines.length ? scrolled(el("table", { class: "diff" }, el("tbody", {}, lines))) : el("p", { class: "soft" }, "The text is the same.");
}

function imagesOf(change, action) {
  const figure = (side, words, has) => {
    const image = el("img", { alt: `${change.path} ${side}` });
    if (has) {
      ask(`actions/${action}/images/${change.index}/${side}`).then((blob) => {
        image.src = URL.createObjectURL(blob);
        image.onload = () => URL.revokeObjectURL(image.src);
      }, (error) => image.replaceWith(error.message));
    }
    return el("figure", {}, el("figcaption", {}, `${side}: ${words || "nothing"}`), has ? image : null);
  };
  return el("div", { class: "sides" }, figure("before", change.before, change.has[0]), figure("after", change.after, change.has[1]));
}

function rowsOf(change) {
  const cell = (value, kind = "") => el("td", { class: kind }, value === null ? el("i", {}, "NULL") : value);
  const line = (kind, sign, key, values, marks = []) => el("tr", { class: kind }, el("td", {}, sign), cell(key), values.map((value, place) => cell(value, marks[place])));
  const lines = change.rows.flatMap(({ key, before, after }) => {
    if (!before) return [line("add", "created", key, after)];
    if (!after) return [line("cut", "deleted", key, before)];
    const differs = before.map((value, place) => value !== after[place]);
    return [line("", "before", key, before, differs.map((each) => (each ? "was" : ""))), line("", "after", key, after, differs.map((each) => (each ? "is" : "")))];
  });
  const head = el("tr", {}, ["", "key", ...change.columns].map((name) => el("th", { scope: "col" }, name || el("span", { class: "soft" }, "row"))));
  return [scrolled(el("table", { class: "rows" }, el("thead", {}, head), el("tbody", {}, lines))),
    change.left_out ? el("p", { class: "soft" }, `and ${plural(change.left_out, "row")} more`) : null];
}

function requestOf(change) {
  const headers = (given) => given.map(([name, value]) => `${name}: ${value}`).join("\n");
  const box = (text) => (text ? el("pre", { class: "box", tabindex: "0" }, text) : null);
  const { answer } = change;
  return el("div", { class: "pad" }, box([headers(change.headers), change.body].filter(Boolean).join("\n\n")),
    el("p", { class: "soft" }, answer ? `answer: status ${answer.status}` : "no answer was received"),
    answer ? box([headers(answer.headers), answer.body].filter(Boolean).join("\n\n")) : null);
}

// --- Deciding -------------------------------------------------------------------------------------------------------

function dialog(title, content, ends) {
  const place = $("dialog");
  place.replaceChildren(el("h2", { id: "dialog-title" }, title), ...content.filter(Boolean),
    el("div", { class: "ends" }, button(ends ? "Cancel" : "Close", () => place.close()), ends));
  if (!place.open) place.showModal();
}

const CHOICES = {
  refuse: "choose …",
  skip: "skip: leave it as it is now",
  force: "force: undo it; their version is kept for a redo",
  save_aside: "save aside: undo it; their version is kept under another name",
};
const PAST = { undo: "Undone", redo: "Redone", commit: "Committed", discard: "Discarded", resolve: "Resolved", revoke: "Revoked", savepoints: "Savepoint", stop: "Stopped" };

async function send(verb, body) {
  say("Working…");
  for (const each of $("dialog").querySelectorAll("button")) each.disabled = true;
  try {
    const told = await ask(verb, body);
    $("dialog").close();
    selected.clear();
    await poll();
    const again = verb === "undo" ? [button("Redo", () => send("redo", { actions: told.done.toReversed() }))] : [];
    const what = verb === "undo" || verb === "redo" || verb === "commit" || verb === "discard" ? plural(told.done.length, "action") : told.done[0];
    say(`${PAST[verb]}: ${what}.${told.error ? ` Then: ${told.error}` : ""}`, ...again);
    audit();
  } catch (error) {
    $("dialog").close();
    say(error.message);
    poll();
  }
}

function act(verb, chosen) {
  if (verb === "undo") return undo({ actions: chosen });
  if (verb === "commit") return commit(chosen);
  if (verb === "resolve") return resolve(actions.get(chosen[0]));
  return send(verb, { actions: chosen.toSorted((one, other) => actions.get(one).number - actions.get(other).number) });
}

function itemOf(action, why = "", kind = "") {
  const line = actions.get(action) ?? { summary: action, guarantee: "none" };
  return el("li", { class: kind }, el("span", { class: "summary" }, line.summary), guaranteeOf(line.guarantee), why ? el("span", { class: "why" }, why) : null);
}

async function undo(what) {
  say("Checking what an undo would do…");
  let told;
  try {
    told = await ask("preview", what);
  } catch (error) {
    say(error.message);
    return;
  }
  say("");
  if (!told.actions.length) {
    say("No action stands since then.");
    return;
  }
  const choices = {};
  const confirm = button(`Undo ${plural(told.actions.length, "action")}`, () => send("undo", { actions: told.actions, choices, ...(what.savepoint && { savepoint: what.savepoint }) }), "main");
  const update = () => { confirm.disabled = told.obstacles.length > 0 || told.conflicts.some(({ key }) => (choices[key] ?? "refuse") === "refuse"); };
  const obstacles = new Map(told.obstacles.map(({ action, reason }) => [action, reason]));
  const why = (action) => obstacles.get(action) || (told.dependents.includes(action) ? "came later and depends on it, so it is undone as well" : "");
  const chooser = (text, onchange) => {
    const choice = el("select", { onchange: () => { onchange(choice.value); update(); } }, Object.entries(CHOICES).map(([value, words]) => el("option", { value }, words)));
    return el("label", {}, el("span", {}, text), choice);
  };
  const conflicts = told.conflicts.map(({ action, name, key }) =>
    chooser(`${name} was changed by others since action ${action}`, (value) => { choices[key] = value; }));
  const ofAll = conflicts.length > 1 ? [chooser(`All ${conflicts.length} that were changed by others since`, (value) => {
    for (const [place, { key }] of told.conflicts.entries()) choices[key] = conflicts[place].querySelector("select").value = value;
  })] : [];
  update();
  dialog("Undo", [
    el("p", {}, "All of these are undone, or none. The weakest guarantee: ", guaranteeOf(told.guarantee), ` ${MEANINGS[told.guarantee]}.`),
    el("ul", { tabindex: "0", "aria-label": "Actions that are undone" }, told.actions.map((action) => itemOf(action, why(action), obstacles.has(action) ? "bad" : ""))),
    told.unchecked ? el("p", { class: "reason" }, `Whether others changed anything since could not be checked: ${told.unchecked}`) : null,
    ...ofAll, ...conflicts,
  ], confirm);
  (confirm.disabled ? $("dialog").querySelector("select, button") : confirm).focus();
}

function commit(chosen) {
  dialog("Commit", [
    el("p", {}, "These become permanent. What they replaced is deleted, and they cannot be undone any more."),
    el("ul", { tabindex: "0", "aria-label": "Actions that are committed" }, chosen.map((action) => itemOf(action))),
  ], button(`Commit ${plural(chosen.length, "action")}`, () => send("commit", { actions: chosen }), "danger"));
}

function resolve(line) {
  const state = el("select", {}, line.settles.map((name) => el("option", { value: name }, name.replaceAll("_", " "))));
  const reason = el("input", { maxlength: "200", placeholder: "the file is the old one", oninput: () => { set.disabled = !reason.value.trim(); } });
  const set = button("Set the state", () => send("resolve", { action: line.action, state: state.value, reason: reason.value.trim() }));
  set.disabled = true;
  dialog("Resolve", [
    el("p", {}, line.summary), line.reason ? el("p", { class: "reason" }, line.reason) : null,
    el("p", {}, "Its outcome is unknown. Check again reads the resource. Or look yourself, and set its state; that changes nothing else."),
    el("label", {}, el("span", {}, "State"), state), el("label", {}, el("span", {}, "What you checked; it is recorded"), reason),
  ], [set, button("Check again", () => send("resolve", { action: line.action }), "main")]);
}

async function showGrants() {
  const told = await ask("grants").catch((error) => say(error.message));
  if (!told) return;
  const items = told.grants.map((grant) => el("li", {}, el("span", { class: "summary" }, grant.text), button("Revoke", () => revoke(grant), "danger")));
  dialog("Grants", [
    el("p", { class: "soft" }, "What agents may do. Only ", el("code", {}, "autoclave act grant"), " adds a grant. A revocation applies from the next action on."),
    items.length ? el("ul", {}, items) : el("p", {}, "Nothing is granted, so every action is denied."),
    ...told.notes.map((note) => el("p", { class: "reason" }, note)),
  ]);
}

function revoke(grant) {
  const effect = grant.effect === "forbid" ? "This is a prohibition: without it, agents may do more." : "Agents may do less from the next action on.";
  dialog("Revoke a grant", [el("p", { class: "mono" }, grant.text), el("p", {}, effect)],
    button("Revoke", () => send("revoke", { grant: grant.id }), "danger"));
}

function addSavepoint() {
  const name = el("input", { maxlength: "200", value: `review ${new Date().toLocaleTimeString()}` });
  const form = el("form", { onsubmit: (event) => { event.preventDefault(); save(); } }, el("label", {}, el("span", {}, "Name"), name));
  const save = () => name.value.trim() && send("savepoints", { name: name.value.trim() });
  dialog("Savepoint", [el("p", {}, "All actions after it can be undone at once."), form], button("Record", save, "main"));
  name.select();
}

function stop() {
  dialog("Stop agents", [
    el("p", {}, "Everything further is denied, also to sessions that run now, until the denial is revoked under Grants. An action that is being executed is completed. Undo stays possible."),
  ], button("Stop agents", () => send("stop", {}), "danger"));
}

function help() {
  const keys = [["j k", "next and previous action"], ["Enter", "open it"], ["e", "go to its details"], ["x", "select it"], ["u", "undo it, or those selected"], ["r", "redo"],
    ["c", "commit"], ["/", "search"], ["g", "grants"], ["Esc", "close, or leave the search"], ["?", "this list"]];
  dialog("Keys and meanings", [
    el("table", {}, el("tbody", {}, keys.map(([key, text]) => el("tr", {}, el("td", {}, key.split(" ").map((each) => [el("kbd", {}, each), " "])), el("td", {}, text))))),
    el("h3", {}, "Guarantee: after an undo"),
    el("table", {}, el("tbody", {}, Object.entries(MEANINGS).map(([name, text]) => el("tr", {}, el("td", {}, guaranteeOf(name)), el("td", {}, text))))),
  ]);
}

// --- Keys and events ------------------------------------------------------------------------------------------------

function move(by) {
  const all = [...$("list").querySelectorAll(".row")];
  const here = all.indexOf(document.activeElement.closest(".row"));
  const from = here < 0 ? all.findIndex((row) => row.dataset.action === opened) : here;
  const next = all[from < 0 ? 0 : Math.min(Math.max(from + by, 0), all.length - 1)];
  next?.querySelector("button").focus();
  next?.scrollIntoView({ block: "nearest" });
}

function onChosen(verb) {
  const focused = document.activeElement.closest("[data-action]")?.dataset.action ?? opened;
  const chosen = selected.size ? [...selected] : focused ? [focused] : [];
  if (chosen.length && chosen.every((action) => actions.get(action)?.can.includes(verb))) act(verb, chosen);
  else if (chosen.length) say(`That cannot be done with ${plural(chosen.length, "action")} now: ${verb}.`);
}

const keys = {
  j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
  x: () => document.activeElement.closest(".row")?.querySelector("input").click(),
  e: () => $("detail").focus(), u: () => onChosen("undo"), r: () => onChosen("redo"), c: () => onChosen("commit"),
  "/": () => $("filters").elements.text.focus(), g: showGrants, "?": help,
  Escape: () => ($("message").textContent ? say("") : opened && close()),
};

document.addEventListener("keydown", (event) => {
  if ($("dialog").open || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input:not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key.startsWith("Arrow") && !event.target.closest(".list")) return;
  const action = keys[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filters").addEventListener("input", () => { most = STEP; show(); });
$("selection").addEventListener("click", ({ target }) => {
  const { verb } = target.dataset;
  if (verb === "clear") { selected.clear(); show(); } else if (verb) act(verb, [...selected]);
});
$("more").addEventListener("click", () => { most += STEP; show(); });
for (const [id, action] of Object.entries({ grants: showGrants, savepoint: addSavepoint, stop, help })) $(id).addEventListener("click", action);
document.addEventListener("visibilitychange", () => document.hidden || poll());
poll();
