// The page of several agents: one column for each, and one slider.

const whole = unpackAll(data);
const compared = whole.runs;
const longest = Math.max(...compared.map((run) => run.steps));

function header() {
  element("title").textContent = `${whole.task}: ${compared.length} agents from the same start`;
  const goal = compared[0].description ? `Task: ${compared[0].description.charAt(0).toLowerCase()}${compared[0].description.slice(1)}. ` : "";
  element("lead").textContent = `${goal}Each column is one agent in its own copy of the task. Drag the slider, or press ← → and space: all columns show the same step.`;
  const plain = (value) => value.toFixed(Math.abs(compared[0].return) >= 100 ? 0 : 1);
  const list = compared.map((run, index) => [`${plain(whole.returns[index].mean)} ± ${plain(whole.returns[index].std)}`, `${run.run}, ${counted(whole.returns[index].episodes, "start")}`, true]);
  for (const [name, known] of Object.entries(whole.baselines)) list.push([`${plain(known.mean)} ± ${plain(known.std)}`, `${name} actions, ${known.episodes} episodes`]);
  facts(list);
  page.panels.push((step) => {
    const earned = compared.map((run) => plain(run.total[Math.min(step, run.steps)]));
    page.say(`step ${step} of ${longest - 1}`, `return so far: ${earned.join(" | ")}`);
  });
  const left = [...new Set(compared.flatMap((run) => run.sure.left))];
  page.mark(left, "▾ the realised return of one of the agents left its band");
}

// One y range of all columns, so that they can be compared by eye.
function common(pick) {
  const values = compared.flatMap(pick).filter((one) => one !== null);
  // Not Math.min(...values): a call takes about 100 000 arguments at most.
  const low = values.reduce((one, other) => Math.min(one, other), Infinity);
  const high = values.reduce((one, other) => Math.max(one, other), -Infinity);
  const margin = 0.05 * (high - low || 1);
  return [low - margin, high + margin];
}

function summaryOf(run, now) {
  const step = within(run, now);
  const states = range(run.components).map((index) => componentState(run, step, index));
  const count = (name) => states.filter((one) => one === name).length;
  const kept = run.plans.heaviest[step];
  if (run.components === 1) return `There is one component; its imagined return is ${number(run.plans.value.at(step, kept), 4)}.`;
  return `Component ${kept + 1} is kept: weight ${run.plans.weight.at(step, kept).toFixed(2)}, imagined return ${number(run.plans.value.at(step, kept), 4)}. Others: ${count("alive")} alive, ${count("merged")} merged, ${count("dead")} dead.`;
}

function columnOf(run, index, ranges) {
  const pictures = make("div", { class: "images" });
  const over = make("p", { class: "how" });
  const fan = make("div", { class: "chart", id: `fan-${index}` });
  const plan = make("div", { class: "chart", id: `actions-${index}` });
  const confidence = make("div", { class: "chart", id: `confidence-${index}` });
  const kept = make("p", { class: "why", id: `why-${index}` });
  const band = run.sure.calibrated ? `the calibrated ${percent(run.sure.level)} band` : "the members' mean ± 2 std";
  element("columns").append(make("section", { id: `run-${index}` },
    make("h2", {}, run.run),
    make("p", { class: "how" }, `${run.method}: ${counted(run.members, "member")}, ${counted(run.components, "component")}, ${counted(run.trained, "training episode")}. Return of this start: ${number(run.return, 4)}.`),
    pictures, over,
    ...(run.vectors.length ? [make("h3", {}, "What it expects (thin) and what happens (thick)"), fan] : []),
    make("h3", {}, "The plans it keeps alive"), kept, plan,
    make("h3", {}, hasBand(run) ? `Predicted and realised return; grey is ${band}` : "Predicted and realised return"), confidence,
  ));
  sawImages(run, pictures);
  const few = { ...run, vectors: run.vectors.map((vector) => ({ ...vector, labels: vector.labels.slice(0, 4) })) };
  if (run.vectors.length) chart(fan, (step) => fanFigure(few, within(run, step)));
  chart(plan, (step) => plansFigure(run, within(run, step)));
  jumps(chart(confidence, () => {
    const made = sureFigure(run, ["return", "disagreement"], { range: ranges.returns });
    if (made.layout.yaxis2) made.layout.yaxis2.range = ranges.disagreement;
    made.layout.xaxis.range = [0, longest - 1];
    return made;
  }, "cursor"));
  page.panels.push((step) => {
    kept.textContent = summaryOf(run, step);
    over.textContent = step >= run.steps ? `This episode ended at step ${run.steps}.` : "";
  });
}

function race() {
  chart("race", () => ({
    traces: compared.map((run, index) => ({
      x: range(run.steps + 1), y: run.total, name: run.run, mode: "lines",
      line: { ...memberStyle(index, 2.4), dash: DASHES[index] },
    })),
    layout: layout({ height: 260, showlegend: true, shapes: [cursor(page.step)], xaxis: axis({ title: "step", range: [0, longest] }), yaxis: axis({ title: "return so far" }) }),
  }), "cursor");
}

function table() {
  const starts = range(whole.returns[0].values.length);
  element("returns").append(row("th", [{ text: "run" }, { text: "method" }, "mean ± std", "lowest", "highest", ...starts.map((start) => `start ${start}`)]));
  whole.returns.forEach((known, index) => {
    const figures = [known.low, known.high, ...known.values].map((one) => one.toFixed(1));
    element("returns").append(row("td", [{ text: compared[index].run }, { text: compared[index].method }, `${known.mean.toFixed(1)} ± ${known.std.toFixed(1)}`, ...figures]));
  });
  element("command").textContent = whole.command;
}

for (const run of compared) {
  let sum = 0;
  run.total = run.reward.all.map((one) => (sum += one));
}
header();
element("columns").style.setProperty("--columns", compared.length);
const ranges = {
  returns: common((run) => [...run.sure.real.all, ...run.sure.low.all, ...run.sure.high.all]),
  disagreement: common((run) => [0, ...run.sure.disagreement.all]),
};
compared.forEach((run, index) => columnOf(run, index, ranges));
race();
table();
page.start(longest, compared[0].period);
