// The page of one episode.

const run = unpackAll(data);

function header() {
  element("title").textContent = `${run.task}: what the agent believes`;
  const goal = run.description ? `Task: ${run.description.charAt(0).toLowerCase()}${run.description.slice(1)}. ` : "";
  element("lead").textContent = `${goal}At every step the agent updates its belief from what it sees, imagines ${run.horizon} steps ahead with ${run.members === 1 ? "its model" : `each of its ${run.members} models`}, and acts on the plan it likes best. Drag the slider, or press ← → and space: everything below shows the same moment.`;
  const size = Math.abs(run.return);
  const plain = (value) => value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
  const list = [[plain(run.return), run.acted ? `return, ${run.title}` : `return of the ${run.title}`, true]];
  for (const [name, known] of Object.entries(run.baselines)) list.push([`${plain(known.mean)} ± ${plain(known.std)}`, `${name} actions, ${known.episodes} episodes`]);
  list.push([String(run.steps), "steps"]);
  if (hasBand(run)) list.push([`${run.sure.left.length} of ${run.sure.known}`, `steps left the ${run.sure.calibrated ? `calibrated ${percent(run.sure.level)}` : "members'"} band`]);
  facts(list);
  const remarks = [];
  if (!run.acted) remarks.push("The agent did not act in this episode. It follows what was recorded, and the page shows what it would plan at each step. What happened follows the recorded actions, not its plans.");
  if (!run.complete) remarks.push(`Only the first ${run.steps} steps are shown, and the return is of these.`);
  element("remark").hidden = remarks.length === 0;
  element("remark").textContent = remarks.join(" ");
}

function bar() {
  const { left, calibrated } = run.sure;
  page.mark(left, `▾ the realised return over the next ${run.horizon} steps left the ${calibrated ? "calibrated" : "members'"} band`);
  page.panels.push((step) => {
    const seconds = run.period ? ` · ${(step * run.period).toFixed(2)} s` : "";
    const marked = left.includes(step) ? " · ▾ band left" : "";
    const now = `step ${step} of ${run.steps - 1}${seconds}${marked}`;
    const done = `reward ${number(run.reward.at(step))} · action ${run.action.at(step + 1).slice(0, 3).map((one) => one.toFixed(2)).join(", ")}${run.actions > 3 ? " …" : ""}`;
    page.say(now, done);
    element("time").setAttribute("aria-valuetext", `${now}; ${done}`);
  });
}

// What is measured now, beside the mean of what the members reconstruct.
function valueTable(step) {
  const table = element("values");
  table.replaceChildren(row("th", [{ text: "now" }, "seen", "decoded", "± std"]));
  for (const { vector, label, index } of entries(run)) {
    const values = range(run.members).map((member) => vector.decoded.at(step, member, index));
    const mean = values.reduce((sum, one) => sum + one, 0) / values.length;
    const spread = Math.sqrt(values.reduce((sum, one) => sum + (one - mean) ** 2, 0) / Math.max(1, values.length - 1));
    table.append(row("td", [{ text: label }, ...[vector.real.at(step, index), values.includes(null) ? null : mean, values.includes(null) ? null : spread].map((one) => (one === null ? null : one.toFixed(2)))]));
  }
}

function views() {
  sawImages(run, element("saw-images"));
  strips(run, element("strips"));
  const sensed = run.vectors.length > 0;
  const pictured = run.images.length > 0;
  const saw = [];
  if (pictured) saw.push("The large picture is what the camera gave; the small ones are what each member decodes from its belief. They should look alike.");
  if (sensed) saw.push("Thick lines are measured, thin ones are what each member reconstructs from its belief; they should lie on each other.");
  element("saw-how").textContent = saw.join(" ");
  const expects = [];
  if (pictured) expects.push("Each row is the film that one member imagines if the plan is followed; the last row is what was then seen, hatched after the end of the episode.");
  if (sensed) expects.push("From the dotted line on, each thin line is what one member imagines if the plan is followed; the thick line is what really happened.");
  element("expects-how").textContent = expects.join(" ");
  if (sensed) {
    page.panels.push(valueTable);
    jumps(chart("traces", () => tracesFigure(run), "cursor"));
    chart("fan", (step) => fanFigure(run, step));
  }
  const cut = run.vectors.filter((vector) => vector.entries > vector.labels.length);
  if (cut.length) element("saw-how").append(` Only the first entries of ${cut.map(({ name }) => name).join(", ")} are shown.`);
  chart("ahead", (step) => aheadFigure(run, step));
}

// Plans.

const STATES = { kept: "kept", alive: "alive", dead: "dead (< 0.05)" };

function why(step) {
  const { weight, value, heaviest, dead, merged } = run.plans;
  const kept = heaviest[step];
  const others = range(run.components).filter((one) => one !== kept);
  const better = others.filter((one) => !dead[step][one] && value.at(step, one) > value.at(step, kept)).length;
  const counts = [
    [others.filter((one) => merged[step][one] === kept).length, "merged with it"],
    [others.filter((one) => merged[step][one] >= 0 && merged[step][one] !== kept).length, "merged with each other"],
    [others.filter((one) => !dead[step][one] && merged[step][one] < 0).length, "apart from it"],
    [others.filter((one) => dead[step][one]).length, "dead"],
  ].filter(([count]) => count > 0).map(([count, text]) => `${count} ${text}`);
  const what = { mean: "the first action of its mean", sample: "an action sampled from the mixture", best: "the first action of the best candidate" }[run.execute];
  const verb = run.acted ? "is kept" : "would be kept";
  if (run.components === 1) return `There is one component. Executed: ${what}; its imagined return is ${number(value.at(step, kept))}.`;
  const rank = better === 0 ? "the best" : `${better} living ${better === 1 ? "one is" : "ones are"} higher`;
  return `Component ${kept + 1} ${verb} because it is the heaviest: weight ${weight.at(step, kept).toFixed(2)}, imagined return ${number(value.at(step, kept), 4)} (${rank}). Executed: ${what}. Others: ${counts.join(", ")}.`;
}

function componentTable(step) {
  const { weight, value, returns, merged } = run.plans;
  const table = element("components");
  table.replaceChildren(row("th", ["#", { text: "weight" }, { text: "state" }, "value", ...range(run.members).map((one) => `m. ${one + 1}`)]));
  for (const index of range(run.components)) {
    const state = componentState(run, step, index);
    const share = weight.at(step, index);
    const fill = make("i", { style: `width: ${(100 * share).toFixed(0)}%` });
    const meter = make("span", {}, make("span", { class: "meter" }, fill), share.toFixed(2));
    const named = state === "merged" ? `merged with ${merged[step][index] + 1}` : STATES[state];
    const cells = [String(index + 1), { text: meter }, { text: named }, number(value.at(step, index), 4), ...returns.at(step, index).map((one) => number(one))];
    table.append(row("td", cells, state));
  }
}

function plans() {
  page.panels.push((step) => {
    element("why").textContent = why(step);
    componentTable(step);
  });
  chart("actions", (step) => plansFigure(run, step));
}

function sure() {
  const { calibrated, surprise } = run.sure;
  const edge = calibrated ? `The grey band was calibrated on held-out episodes to hold ${percent(run.sure.level)} of what happens` : "The run is not calibrated, so the grey band is the members' mean ± 2 std, which is often too narrow (planet-bayes calibrate RUN makes it honest)";
  const grey = hasBand(run) ? `${edge}; triangles mark steps after which the realised return left it.` : "One member has no spread, so there is no band until the run is calibrated (planet-bayes calibrate RUN).";
  const signs = run.members > 1 ? "disagreement or surprise" : "surprise";
  element("sure-how").textContent = `${grey} High ${signs} (the KL of posterior and prior) means that the model is less sure; the last ${run.horizon} steps have no realised return.${surprise === null ? " This agent's filter has no posterior, so there is no surprise." : ""}`;
  jumps(chart("confidence", () => sureFigure(run), "cursor"));
}

// The latent space.

function mapFigure(step) {
  const view = run.latent[Number(element("view").value)];
  const chosen = element("colour").value;
  const path = range(run.steps).map((one) => view.path.at(one));
  const values = { time: range(run.steps), reward: range(run.steps).map((one) => run.reward.at(one)), disagreement: run.sure.disagreement.all }[chosen];
  const x = column(path, 0);
  const y = column(path, 1);
  const traces = [{ x, y, mode: "lines", line: { color: colour("line"), width: 1 }, hoverinfo: "skip" }];
  traces.push({
    x, y, mode: "markers", customdata: range(run.steps), hoverinfo: "none", name: "beliefs",
    marker: { size: 7, line: { width: 0.7, color: colour("soft") }, color: values, colorscale: "Cividis", reversescale: window.matchMedia("print").matches, showscale: true, colorbar: { title: { text: chosen, side: "right" }, thickness: 10, outlinewidth: 0 } },
  });
  const then = range(Math.min(run.steps - step, run.horizon + 1), step);
  traces.push({ x: then.map((one) => x[one]), y: then.map((one) => y[one]), mode: "lines", line: { color: colour("ink"), width: 4 }, opacity: 0.45, hoverinfo: "skip", name: "what then happened" });
  for (const index of range(run.components)) {
    if (componentState(run, step, index) === "dead") continue;
    const points = range(run.horizon + 1).map((one) => view.futures.at(step, index, one));
    traces.push({ x: column(points, 0), y: column(points, 1), mode: "lines", line: { ...componentStyle(run, step, index), color: colour(componentState(run, step, index) === "kept" ? "accent" : "soft") }, hoverinfo: "skip", name: `component ${index + 1}` });
  }
  traces.push({ x: [x[step]], y: [y[step]], mode: "markers", marker: { size: 17, color: "rgba(0,0,0,0)", line: { width: 3, color: colour("ink") } }, hoverinfo: "skip", name: "now" });
  const share = view.share.map((one) => `${(100 * one).toFixed(0)} % of the variance`);
  return { traces, layout: layout({ height: 380, xaxis: axis({ title: `axis 1 (${share[0]})`, zeroline: false }), yaxis: axis({ title: `axis 2 (${share[1]})`, zeroline: false }) }) };
}

function peek(event) {
  const step = event.points[0].customdata;
  if (step === undefined) return;
  const target = element("peek");
  const address = run.images.length ? run.images[0].frames[step] : run.frames ? run.frames[step] : null;
  const values = entries(run).slice(0, 6).map(({ vector, label, index }) => `${label} ${number(vector.real.at(step, index))}`);
  const text = [`step ${step}`, `reward ${number(run.reward.at(step))}`, ...values].join("\n");
  target.replaceChildren(...(address ? [make("img", { src: address, alt: `step ${step}` })] : []), text);
  target.hidden = false;
  const inside = (place, size, limit) => `${Math.max(0, Math.min(place + 14, limit - size - 4))}px`;
  target.style.left = inside(event.event.clientX, target.offsetWidth, window.innerWidth);
  target.style.top = inside(event.event.clientY, target.offsetHeight, window.innerHeight);
}

function latent() {
  run.latent.forEach((view, index) => element("view").append(make("option", { value: index }, view.name)));
  if (run.members === 1) element("colour").querySelector("[value=disagreement]").remove();
  element("members-how").hidden = run.latent.length === 1;
  const place = chart("map", mapFigure);
  for (const id of ["view", "colour"]) element(id).addEventListener("change", () => page.redraw());
  place.on("plotly_hover", peek);
  place.on("plotly_unhover", () => { element("peek").hidden = true; });
  place.on("plotly_click", (event) => {
    if (event.points[0].customdata !== undefined) page.moveTo(event.points[0].customdata);
  });
}

function probe() {
  element("probe-how").textContent = run.probe.length === 0
    ? "Nothing is known here besides images, so nothing can be read."
    : "R² of a straight line from the belief to each quantity, on steps that the line was not fitted to: 1 is read exactly, 0 or less is not in the belief in a linear way, or moved too little in this one episode.";
  const table = element("readings");
  if (!run.probe.length) return;
  const still = run.steps < run.probe_steps ? "–" : "does not move";
  if (run.steps < run.probe_steps) element("probe-how").append(` This episode is too short to fit a line: that takes ${run.probe_steps} steps.`);
  table.append(row("th", [{ text: "quantity" }, { text: run.members === 1 ? "R²" : "mean R²" }, "lowest", "highest"]));
  for (const { name, r2 } of run.probe) {
    const known = r2.filter((one) => one !== null);
    const mean = known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : null;
    const fill = make("i", { style: `width: ${(100 * Math.max(0, mean || 0)).toFixed(0)}%` });
    const meter = make("span", {}, make("span", { class: "meter" }, fill), mean === null ? still : mean.toFixed(2));
    table.append(row("td", [{ text: name }, { text: meter }, ...(known.length ? [Math.min(...known), Math.max(...known)].map((one) => one.toFixed(2)) : ["–", "–"])]));
  }
}

function about() {
  element("command").textContent = run.command;
  for (const cells of run.settings) element("settings").append(row("td", cells.map((text) => ({ text }))));
  const curves = Object.entries(run.curve);
  element("curve-how").textContent = curves.length ? "The learning curve: the return of each training episode, and of evaluations without exploration noise." : "This folder has no learning curve: it is an exported agent, or the run has not begun to learn.";
  if (!curves.length) return;
  chart("curve", () => ({
    traces: curves.map(([name, pairs], index) => ({
      x: column(pairs, 0), y: column(pairs, 1), name: { train_return: "training", evaluation_return: "evaluation" }[name],
      mode: index ? "markers" : "lines+markers", line: { color: colour("soft"), width: 1.4 },
      marker: { symbol: MARKERS[2 * index], size: index ? 9 : 4, color: colour(index ? "accent" : "soft") },
    })),
    layout: layout({ height: 240, showlegend: true, xaxis: axis({ title: "episode" }), yaxis: axis({ title: "return" }) }),
  }), "stay");
}

for (const part of [header, bar, views, plans, sure, latent, probe, about]) part();
page.start(run.steps, run.period);
