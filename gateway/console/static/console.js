// What the console's pages do in a browser beyond showing: asking for new figures, charts, local times, keys, dialogs.
// Pages are complete without it. Nothing of a page becomes code: figures come as attributes, and are read as JSON.
"use strict";

const EVERY_MS = 2000;
const SPAN_S = 300;
const live = () => document.getElementById("live");
const main = document.getElementById("main");

// -- new figures ---------------------------------------------------------------------------------------------

let paused = false;

function refresh() {
  const busy = document.hidden || paused || document.querySelector("dialog[open]") || !getSelection().isCollapsed;
  if (!busy && live()?.hasAttribute("hx-get")) live().dispatchEvent(new Event("refresh"));
}

function pause() {
  const button = document.getElementById("updates");
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  button.textContent = paused ? "Paused" : "Live";
  refresh();
}

function lost(is) {
  document.getElementById("lost").hidden = !is;
}

document.addEventListener("htmx:after:swap", () => { lost(false); shown(); });
document.addEventListener("htmx:error", () => lost(true));
document.addEventListener("htmx:response:error", () => lost(true));

// -- local times ---------------------------------------------------------------------------------------------

const two = (number) => String(number).padStart(2, "0");

function local(date) {
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function times() {
  for (const each of document.querySelectorAll("time[datetime]")) {
    const date = new Date(each.dateTime);
    if (!isNaN(date)) each.textContent = local(date);
  }
}

// -- charts --------------------------------------------------------------------------------------------------

let plot = null;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function brief(value) {
  const [scale, unit] = value >= 1e9 ? [1e9, " G"] : value >= 1e6 ? [1e6, " M"] : value >= 1e4 ? [1e3, " k"] : [1, ""];
  return (value / scale).toLocaleString("en", { maximumFractionDigits: 1 }) + unit;
}

function options(place) {
  const clock = (second) => local(new Date(second * 1000)).slice(11);
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width: place.clientWidth, height: place.clientHeight, legend: { show: false }, cursor: { y: false, drag: { x: false } },
    scales: { x: { range: (self, low, high) => [high - SPAN_S, high] }, y: { range: (self, low, high) => [0, Math.max(high, 1) * 1.1] } },
    axes: [{ ...axis, values: (self, seconds) => seconds.map(clock), space: 90, size: 26 }, { ...axis, size: 58, values: (self, values) => values.map(brief) }],
    series: [{}, { stroke: colour("--accent"), width: 1.5, fill: colour("--accent-soft"), points: { show: false } }],
  };
}

function chart(anew = false) {
  const place = document.getElementById("chart");
  const source = place && document.getElementById(place.dataset.of);
  if (!source || !window.uPlot) return;
  const values = JSON.parse(source.dataset.values);
  const data = [JSON.parse(source.dataset.times).slice(-values.length || undefined), values];
  if (data[0].length !== values.length) data[0] = [];
  if (plot && (anew || !place.contains(plot.root))) { plot.destroy(); plot = null; }
  if (plot) plot.setData(data);
  else plot = new uPlot(options(place), data, place);
}

addEventListener("resize", () => {
  const place = document.getElementById("chart");
  if (plot && place) plot.setSize({ width: place.clientWidth, height: place.clientHeight });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart(true));

// -- dialogs, for browsers without `command` ------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[commandfor]");
  const dialog = button && document.getElementById(button.getAttribute("commandfor"));
  if (!dialog) return;
  if (button.dataset.fillId !== undefined) dialog.querySelector("[name=id]").value = button.dataset.fillId;
  if ("commandForElement" in HTMLButtonElement.prototype) return;
  if (button.getAttribute("command") === "close") dialog.close();
  else dialog.showModal();
});

// -- keys ----------------------------------------------------------------------------------------------------

let before = "";

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea") || document.querySelector("dialog[open]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const going = before === "g" && document.querySelector(`.bar nav a[data-key="${CSS.escape(event.key)}"]`);
  before = going ? "" : event.key;
  if (going) location.href = going.href;
  else if (event.key === "p") pause();
  else if (event.key === "?") document.getElementById("help").showModal();
  else if (event.key === "[") document.querySelector(".pager [rel=prev]")?.click();
  else if (event.key === "]") document.querySelector(".pager [rel=next]")?.click();
  else if (event.key === "/") {
    event.preventDefault();
    document.querySelector("[data-find]")?.focus();
  }
});

// -- the page ------------------------------------------------------------------------------------------------

function shown() {
  times();
  chart();
}

if (main && document.getElementById("updates")) {
  if (location.pathname !== "/" && location.pathname !== main.dataset.here.split("?")[0]) {
    history.replaceState(null, "", main.dataset.here);  // after an action: loading again repeats the view alone
  }
  document.getElementById("updates").addEventListener("click", pause);
  shown();
  setInterval(refresh, EVERY_MS);
}
