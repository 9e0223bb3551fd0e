"use strict";

const EDGE = 44, AXIS = 20;

/** Who did what when: a row a worker, and a tick above for each commit. */
class Timeline {
  constructor(run, all, zoom) {
    Object.assign(this, {run, all, zoom});
    const count = run.workers.length;
    this.rowHeight = Math.max(3, Math.min(16, 230 / count));
    this.height = 12 + count * this.rowHeight + AXIS;
    this.figure = make("figure");
    this.canvas = make("canvas", {role: "img", "aria-label": `timeline of ${run.name}: ${run.words}`});
    const caption = make("figcaption", {}, run.name);
    caption.append(make("small", {}, ` ${run.words}`));
    this.figure.append(caption, this.canvas);
    zoom.attach(this.canvas, () => [this.canvas.getBoundingClientRect().left + EDGE, this.width]);
    zoom.listeners.push(() => this.redraw());
    this.canvas.addEventListener("pointermove", (event) => showTip(event, this.linesAt(event)));
    this.canvas.addEventListener("pointerdown", (event) => showTip(event, this.linesAt(event)));
    this.canvas.addEventListener("pointerleave", (event) => showTip(event, []));
    new ResizeObserver(() => this.redraw()).observe(this.figure);
  }

  get width() {
    return Math.max(50, this.figure.clientWidth - EDGE - 6);
  }

  x(step) {
    return EDGE + this.width * (step / this.all.steps - this.zoom.a) / (this.zoom.b - this.zoom.a);
  }

  /** [top, height] of the bars of a row; messages beside computing are in its lower part. */
  bar(row, lane) {
    const top = 12 + row * this.rowHeight, height = this.rowHeight * 0.86;
    return lane === 0 ? [top, height] : [top + height * 0.55, height * 0.45];
  }

  redraw() {
    const ratio = devicePixelRatio || 1, {run} = this, right = EDGE + this.width;
    this.canvas.width = Math.round((right + 6) * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = `${this.height}px`;
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    const colours = stateColours(this.all), ink = style.getPropertyValue("--soft");
    this.drawBackground(pen, colours[this.all.states.findIndex(([name]) => name === "waiting")]);
    pen.save();
    pen.beginPath();
    pen.rect(EDGE, 0, this.width, this.height);
    pen.clip();
    for (let i = 0; i < run.row.length; i++) {
      const from = this.x(run.begin[i]), to = this.x(run.end[i]);
      if (to < EDGE || from > right) continue;
      const [top, height] = this.bar(run.row[i], run.lane[i]), length = to - from;
      pen.fillStyle = colours[run.state[i]];
      pen.fillRect(from, top, Math.max(0.5, length > 3 ? length - 0.6 : length), height);
    }
    pen.fillStyle = style.getPropertyValue("--ink");
    for (const commit of run.commits) pen.fillRect(this.x(commit) - 0.5, 2, 1, 8);
    pen.restore();
    this.drawLabels(pen, ink, right);
  }

  drawBackground(pen, waiting) {
    pen.fillStyle = waiting;
    const until = Math.min(EDGE + this.width, this.x(this.all.steps * this.run.seconds / this.all.seconds));
    for (let row = 0; row < this.run.workers.length; row++) {
      const [top, height] = this.bar(row, 0);
      pen.fillRect(EDGE, top, Math.max(0, until - EDGE), height);
    }
  }

  drawLabels(pen, ink, right) {
    const {run, zoom} = this, bottom = this.height - AXIS, every = Math.ceil(13 / this.rowHeight);
    pen.fillStyle = ink;
    pen.textAlign = "right";
    for (let row = 0; row < run.workers.length; row += every) {
      pen.fillText(String(run.workers[row]), EDGE - 5, 12 + row * this.rowHeight + Math.max(8, this.rowHeight / 2 + 4));
    }
    pen.textAlign = "center";
    const [first, last] = [zoom.a, zoom.b].map((share) => share * this.all.seconds);
    for (const time of roundNumbers(first, last, this.width / 80)) {
      const x = this.x(time / this.all.seconds * this.all.steps);
      pen.fillRect(x, bottom, 1, 4);
      pen.fillText(short(time) + (time === 0 ? " s" : ""), Math.min(x, right - 8), bottom + 15);
    }
  }

  /** What is under the pointer. */
  linesAt(event) {
    const {run, all} = this, box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top, row = Math.floor((y - 12) / this.rowHeight);
    if (x < EDGE || row < 0 || row >= run.workers.length) return [];
    const step = all.steps * (this.zoom.a + (this.zoom.b - this.zoom.a) * (x - EDGE) / this.width);
    const second = all.seconds / all.steps, lines = [];
    for (let i = 0; i < run.row.length; i++) {
      if (run.row[i] !== row || step < run.begin[i] || step > run.end[i]) continue;
      const times = `${short(run.begin[i] * second)} to ${short(run.end[i] * second)} s`;
      lines.push([`${all.states[run.state[i]][0]}, unit ${run.unit[i]}`, times]);
    }
    return [[`worker ${run.workers[row]}`, `${short(step * second)} s`], ...(lines.length ? lines : [["waiting", ""]])];
  }
}

function stateColours(all) {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  return all.states.map(([, light, dark]) => (isDark ? dark : light));
}

/** All timelines, on one axis of time. */
function startTimelines(place, all) {
  const zoom = new Zoom(1e-4), figures = make("div", {class: "figures"}), legend = make("div", {class: "legend"});
  const drawn = all.runs.map((run) => new Timeline(run, all, zoom));
  figures.append(...drawn.map((timeline) => timeline.figure));
  const paint = () => {
    const colours = stateColours(all);
    legend.replaceChildren(...all.states.map(([name], i) => {
      const entry = make("span"), patch = make("i");
      patch.style.background = colours[i];
      entry.append(patch, name);
      return entry;
    }));
    drawn.forEach((timeline) => timeline.redraw());
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  place.append(legend, zoom.tools(), figures);
  paint();
}
