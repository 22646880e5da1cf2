// The moment that the page shows: slider, keys, play. Panels register what they do when it moves.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);

// Numbers are stored as the bytes of 32-bit floats. `at(i, j)` is a number or a row of numbers.
function unpack(stored) {
  const bytes = Uint8Array.from(atob(stored.float32), (letter) => letter.charCodeAt(0));
  const values = new Float32Array(bytes.buffer);
  const shape = stored.shape;
  function at(...index) {
    let start = 0;
    let size = values.length;
    index.forEach((one, axis) => {
      size /= shape[axis];
      start += one * size;
    });
    return index.length === shape.length ? known(values[start]) : Array.from(values.subarray(start, start + size), known);
  }
  return { shape, at, all: Array.from(values, known) };
}

const known = (value) => (Number.isFinite(value) ? value : null);

function unpackAll(part) {
  if (part === null || typeof part !== "object") return part;
  if (part.float32 !== undefined) return unpack(part);
  if (Array.isArray(part)) return part.map(unpackAll);
  return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, unpackAll(value)]));
}

const range = (count, first = 0) => Array.from({ length: count }, (_, index) => first + index);

function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(0);
  return size < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(digits)));
}

const percent = (share) => `${Number((100 * share).toPrecision(3))} %`;
const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function row(tag, cells, kind = "") {
  const made = make("tr", kind ? { class: kind } : {});
  for (const cell of cells) {
    const text = cell !== null && typeof cell === "object" && cell.text !== undefined;
    const inside = text ? cell.text : cell;
    made.append(make(tag, text ? { class: "text" } : {}, inside === null ? "–" : inside));
  }
  return made;
}

function facts(list) {
  element("tiles").replaceChildren(...list.map(([value, label, first]) => {
    return make("div", { class: first ? "fact first" : "fact" }, make("b", {}, value), make("span", {}, label));
  }));
}

// Time.

const page = { data, step: 0, steps: 1, rendered: -1, playing: null, period: 100, panels: [], all: [] };
window.page = page;

page.moveTo = function (step) {
  page.step = Math.min(Math.max(Math.round(step), 0), page.steps - 1);
  if (page.waiting) return;
  page.waiting = true;
  requestAnimationFrame(() => {
    page.waiting = false;
    element("time").value = page.step;
    for (const panel of page.panels) panel(page.step);
    page.rendered = page.step;
  });
};

page.play = function (on) {
  clearInterval(page.playing);
  page.playing = null;
  if (on) {
    if (page.step === page.steps - 1) page.moveTo(0);
    page.playing = setInterval(() => {
      if (page.step === page.steps - 1) page.play(false);
      else page.moveTo(page.step + 1);
    }, page.period);
  }
  element("play").textContent = page.playing === null ? "▶" : "❚❚";
};

// What is now, in two parts: beside each other on a phone, else below each other.
page.say = function (first, second) {
  element("now").replaceChildren(make("span", {}, first), make("span", {}, second));
};

// What the theme or the size of the page changes is drawn again.
page.redraw = function () {
  for (const draw of page.all) draw();
  page.moveTo(page.step);
};

function press(event) {
  const moves = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 };
  if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in moves) page.moveTo(page.step + moves[event.key] * (event.shiftKey ? 10 : 1));
  else if (event.key === "Home") page.moveTo(0);
  else if (event.key === "End") page.moveTo(page.steps - 1);
  else if (event.key === " " && !["BUTTON", "SUMMARY"].includes(event.target.tagName)) page.play(page.playing === null);
  else return;
  event.preventDefault();
}

// Marks above the slider; its thumb's centre moves from half its width to the width minus that.
page.mark = function (steps, title) {
  const thumb = 16;
  const draw = () => {
    const marks = element("marks");
    const width = marks.clientWidth || 300;
    marks.setAttribute("viewBox", `0 0 ${width} 8`);
    marks.replaceChildren(...steps.map((step) => {
      const x = thumb / 2 + (width - thumb) * step / Math.max(1, page.steps - 1);
      const mark = document.createElementNS("http://www.w3.org/2000/svg", "path");
      mark.setAttribute("d", `M${x - 3.5} 0h7l-3.5 7z`);
      mark.setAttribute("fill", "var(--alarm)");
      return mark;
    }));
    marks.parentElement.title = title;
  };
  page.all.push(draw);
  window.addEventListener("resize", draw);
};

page.start = function (steps, period) {
  page.steps = steps;
  page.period = Math.min(Math.max(1000 * (period || 0.1), 80), 300);
  element("time").max = steps - 1;
  element("time").addEventListener("input", (event) => page.moveTo(Number(event.target.value)));
  element("play").addEventListener("click", () => page.play(page.playing === null));
  document.addEventListener("keydown", press);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    window.matchMedia(query).addEventListener("change", page.redraw);
  }
  page.redraw();
};
