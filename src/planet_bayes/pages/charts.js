// Figures for Plotly: every function takes the facts of one run and returns traces and a layout.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const MARKERS = ["circle", "square", "diamond", "triangle-up", "x"];
const OPTIONS = { responsive: true, displayModeBar: false };
const MAX_ACTIONS = 6;
// A browser does not tell how wide a sheet of paper is. This fits A4 and Letter.
const PRINT_WIDTH = 640;
const printing = () => window.matchMedia("print").matches;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const memberStyle = (index, width = 1.3) => ({ color: colour(`member-${(index % 5) + 1}`), dash: DASHES[(index + 1) % 5], width });
const memberName = (index) => `member ${index + 1}`;

// When the moment moves, a chart is drawn again ("redraw"), or moves its cursor, or stays.
function chart(target, figure, onMove = "redraw") {
  const place = typeof target === "string" ? element(target) : target;
  let printed = false;
  const draw = () => {
    const made = figure(page.step);
    Plotly.react(place, made.traces, made.layout, OPTIONS);
    if (printed && !printing()) Plotly.Plots.resize(place); // back to the width of the screen
    printed = printing();
  };
  page.all.push(draw);
  if (onMove === "cursor") page.panels.push((step) => Plotly.relayout(place, { "shapes[0].x0": step, "shapes[0].x1": step }));
  else if (onMove === "redraw") page.panels.push(draw);
  draw();
  return place;
}

function layout(extra = {}) {
  const ink = colour("ink");
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 12, family: "system-ui, sans-serif" },
    margin: { l: 52, r: 10, t: 8, b: 36 }, dragmode: false, hovermode: "closest", showlegend: false,
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", font: { size: 11 }, bgcolor: "rgba(0,0,0,0)" },
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("soft"), font: { color: ink } },
    ...(printing() ? { width: PRINT_WIDTH } : {}),
    ...extra,
  };
}

function axis(extra = {}) {
  const { title, ...rest } = extra;
  return {
    gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("soft"), fixedrange: true,
    automargin: true, ...(title ? { title: { text: title, standoff: 6 } } : {}), ...rest,
  };
}

// Rows of charts above each other with one time axis; heights are in pixels.
function rows(heights, titles, xaxis, gap = 26) {
  const total = heights.reduce((sum, one) => sum + one + gap, 0);
  const made = { height: total + 50, annotations: [], xaxis: axis({ ...xaxis, anchor: `y${heights.length === 1 ? "" : heights.length}` }) };
  let top = 1;
  heights.forEach((height, index) => {
    top -= gap / total;
    const name = index ? `yaxis${index + 1}` : "yaxis";
    made[name] = axis({ domain: [Math.max(0, top - height / total), top], nticks: 4, anchor: "x" });
    made.annotations.push({
      text: titles[index], x: 0, xref: "paper", xanchor: "left", y: top, yref: "paper", yanchor: "bottom",
      showarrow: false, font: { size: 12, color: colour("soft") },
    });
    top -= height / total;
  });
  return made;
}

const cursor = (step) => ({ type: "line", x0: step, x1: step, yref: "paper", y0: 0, y1: 1, line: { color: colour("ink"), width: 1, dash: "dot" } });

function band(x, low, high, fill, extra = {}) {
  const keep = x.map((_, index) => index).filter((index) => low[index] !== null && high[index] !== null);
  const back = [...keep].reverse();
  return {
    x: [...keep, ...back].map((index) => x[index]),
    y: [...keep.map((index) => high[index]), ...back.map((index) => low[index])],
    fill: "toself", fillcolor: fill, line: { width: 0, color: fill }, mode: "lines", hoverinfo: "skip", ...extra,
  };
}

// Whether there is a band around what is predicted. One member has no spread.
const hasBand = (run) => run.members > 1 || run.sure.calibrated;

function bandName(run) {
  return run.sure.calibrated ? `calibrated ${percent(run.sure.level)} band` : "members ± 2 std";
}

// The entries of all vectors, one after the other.
function entries(run) {
  return run.vectors.flatMap((vector) => vector.labels.map((label, index) => ({ vector, label, index })));
}

// The last step of an episode that is over.
const within = (run, step) => Math.min(step, run.steps - 1);

const column = (rowsOf, index) => rowsOf.map((one) => one[index]);

function tracesFigure(run) {
  const shown = entries(run);
  const x = range(run.steps + 1);
  const traces = [];
  shown.forEach(({ vector, index }, place) => {
    const where = { yaxis: place ? `y${place + 1}` : "y", showlegend: place === 0 };
    for (const member of range(run.members)) {
      const y = range(run.steps).map((step) => vector.decoded.at(step, member, index));
      traces.push({ x, y, mode: "lines", line: memberStyle(member), name: memberName(member), ...where });
    }
    traces.push({ x, y: x.map((step) => vector.real.at(step, index)), mode: "lines", line: { color: colour("ink"), width: 2 }, name: "measured", ...where });
  });
  const height = shown.length > 6 ? 56 : 88;
  const made = rows(shown.map(() => height), shown.map(({ label }) => label), { title: "step", range: [0, run.steps] });
  return { traces, layout: layout({ ...made, showlegend: true, shapes: [cursor(page.step)], margin: { l: 46, r: 10, t: 8, b: 36 } }) };
}

function fanFigure(run, step, past = 10) {
  const shown = entries(run);
  const first = Math.max(0, step - past);
  const ahead = range(run.horizon + 1, step);
  const traces = [];
  shown.forEach(({ vector, index }, place) => {
    const where = { yaxis: place ? `y${place + 1}` : "y", showlegend: place === 0 };
    for (const member of range(run.members)) {
      const y = [vector.decoded.at(step, member, index), ...range(run.horizon).map((one) => vector.imagined.at(step, member, one, index))];
      traces.push({ x: ahead, y, mode: "lines", line: memberStyle(member, 1.6), name: memberName(member), ...where });
    }
    const real = range(Math.min(run.steps, step + run.horizon) - first + 1, first);
    traces.push({ x: real, y: real.map((one) => vector.real.at(one, index)), mode: "lines", line: { color: colour("ink"), width: 2.4 }, name: "what really happened", ...where });
  });
  const height = shown.length > 6 ? 56 : 88;
  const made = rows(shown.map(() => height), shown.map(({ label }) => label), { title: "step", range: [first, step + run.horizon] });
  return { traces, layout: layout({ ...made, showlegend: true, shapes: [cursor(step)], margin: { l: 46, r: 10, t: 8, b: 36 } }) };
}

// The return up to each step ahead of the moment.
function aheadFigure(run, step, extra = {}) {
  const x = range(run.horizon, 1);
  const sure = run.sure;
  const traces = hasBand(run) ? [band(x, sure.low.at(step), sure.high.at(step), colour("band"), { name: bandName(run), showlegend: true })] : [];
  for (const member of range(run.members)) {
    traces.push({ x, y: sure.members.at(step, member), mode: "lines", line: memberStyle(member), name: memberName(member), showlegend: false });
  }
  traces.push({ x, y: sure.mean.at(step), mode: "lines", line: { color: colour("soft"), width: 2, dash: "dash" }, name: "predicted" });
  traces.push({ x, y: sure.real.at(step), mode: "lines+markers", line: { color: colour("ink"), width: 2.4 }, marker: { size: 5, color: colour("ink") }, name: "realised" });
  return {
    traces,
    layout: layout({ height: 210, showlegend: true, xaxis: axis({ title: "steps ahead", range: [0.8, run.horizon + 0.2] }), yaxis: axis({ title: "return", ...extra }) }),
  };
}

// What a component is at a moment, and how it is drawn: never by colour alone.
function componentState(run, step, index) {
  const { heaviest, dead, merged } = run.plans;
  if (heaviest[step] === index) return "kept";
  if (dead[step][index]) return "dead";
  return merged[step][index] >= 0 ? "merged" : "alive";
}

function componentStyle(run, step, index) {
  const shade = colour(`member-${(index % 5) + 1}`);
  return {
    kept: { color: colour("ink"), width: 3, dash: "solid" },
    alive: { color: shade, width: 2, dash: "longdash" },
    merged: { color: shade, width: 1.2, dash: "dash" },
    dead: { color: colour("soft"), width: 1, dash: "dot" },
  }[componentState(run, step, index)];
}

function plansFigure(run, step) {
  const x = range(run.horizon, 1);
  const shown = Math.min(run.actions, MAX_ACTIONS);
  const traces = [];
  const order = range(run.components).sort((one, two) => (run.plans.heaviest[step] === one) - (run.plans.heaviest[step] === two));
  for (const place of range(shown)) {
    const yaxis = place ? `y${place + 1}` : "y";
    for (const index of order) {
      const state = componentState(run, step, index);
      const mean = x.map((one) => run.plans.mean.at(step, index, one - 1, place));
      const std = x.map((one) => run.plans.std.at(step, index, one - 1, place));
      const clip = (value) => Math.min(1, Math.max(-1, value));
      if (state !== "dead") {
        const low = mean.map((one, at) => clip(one - std[at]));
        const high = mean.map((one, at) => clip(one + std[at]));
        traces.push(band(x, low, high, colour("band"), { yaxis, opacity: state === "kept" ? 0.9 : 0.5, showlegend: false }));
      }
      // The numbers of merged components would lie on each other.
      const text = x.map((one) => (state !== "merged" && (one === run.horizon || one === 1) ? String(index + 1) : ""));
      traces.push({
        x, y: mean.map(clip), yaxis, text, mode: "lines+text", textposition: "middle right", line: componentStyle(run, step, index),
        name: `component ${index + 1}`, hovertemplate: `component ${index + 1} (${state}): %{y:.2f}<extra></extra>`,
      });
    }
  }
  const titles = range(shown).map((place) => (run.actions === 1 ? "action" : `action ${place + 1}`));
  const made = rows(range(shown).map(() => (shown === 1 ? 170 : 84)), titles, { title: "steps ahead", range: [0.6, run.horizon + 0.8] }, 20);
  for (const place of range(shown)) Object.assign(made[place ? `yaxis${place + 1}` : "yaxis"], { range: [-1.08, 1.08] });
  return { traces, layout: layout(made) };
}

// Everything that says how sure the agent was, over the whole episode.
function sureFigure(run, parts = ["return", "disagreement", "surprise", "samples", "components", "seconds"], extra = {}) {
  const x = range(run.steps);
  const { sure } = run;
  const left = { surprise: sure.surprise === null, disagreement: run.members === 1 };
  const chosen = parts.filter((name) => !left[name]);
  const mode = run.steps === 1 ? "markers" : "lines"; // one point has no line
  const line = (y, more = {}) => ({ x, y, mode, line: { color: colour("ink"), width: 1.6 }, showlegend: false, ...more });
  const last = (values) => x.map((step) => values.at(step, run.horizon - 1));
  const at = (steps, values) => ({ x: steps, y: steps.map((step) => values[step]) });
  const alarm = { mode: "markers", marker: { symbol: "triangle-down", size: 9, color: colour("alarm") } };
  const content = {
    return: () => {
      const real = last(sure.real);
      return [
        ...(hasBand(run) ? [band(x, last(sure.low), last(sure.high), colour("band"), { name: bandName(run) })] : []),
        { x, y: last(sure.mean), mode, line: { color: colour("accent"), width: 1.6, dash: "dash" }, name: "predicted" },
        { x, y: real, mode, line: { color: colour("ink"), width: 2 }, name: "realised" },
        { ...at(sure.left, real), ...alarm, name: "band left", showlegend: hasBand(run) },
      ];
    },
    disagreement: () => [line(sure.disagreement.all)],
    surprise: () => [line(sure.surprise.all), { ...at(sure.alarm, sure.surprise.all), ...alarm, name: "alarm", showlegend: sure.alarm.length > 0 }],
    samples: () => [line(sure.samples.all)],
    components: () => [
      line(sure.components.all, { name: "effective", line: { color: colour("accent"), width: 1.6, dash: "dash" } }),
      line(sure.distinct.all, { name: "distinct", line: { color: colour("ink"), width: 1.6, shape: "hv" } }),
    ],
    seconds: () => {
      const made = [line(sure.seconds.all.map((one) => 1000 * one))];
      if (run.period) made.push({ x: [0, run.steps - 1], y: [1000 * run.period, 1000 * run.period], mode: "lines", line: { color: colour("alarm"), width: 1.4, dash: "dash" }, name: "control period", showlegend: false });
      return made;
    },
  };
  const titles = {
    return: `return over the next ${run.horizon} steps`,
    disagreement: "members' disagreement (std)",
    surprise: "surprise (nats, log scale)",
    samples: "effective number of candidates",
    components: "components: effective (dashed), distinct",
    seconds: run.period ? "time to decide, ms (dashed: period)" : "time to decide, ms",
  };
  const made = rows(chosen.map((name) => (name === "return" ? 170 : 66)), chosen.map((name) => titles[name]), { title: "step", range: [0, run.steps - 1] });
  const traces = chosen.flatMap((name, place) => content[name]().map((trace) => ({ ...trace, yaxis: place ? `y${place + 1}` : "y" })));
  chosen.forEach((name, place) => {
    const where = place ? `yaxis${place + 1}` : "yaxis";
    if (name === "surprise") Object.assign(made[where], { type: "log", dtick: 1 });
    else if (name !== "return") Object.assign(made[where], { rangemode: "tozero" });
    else Object.assign(made[where], extra);
  });
  return { traces, layout: layout({ ...made, showlegend: true, shapes: [cursor(page.step)], margin: { l: 46, r: 10, t: 8, b: 36 } }) };
}

function jumps(place) {
  place.on("plotly_click", (event) => page.moveTo(event.points[0].x));
}
