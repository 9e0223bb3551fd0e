"use strict";

const HEIGHT = 320, LEFT = 52, RIGHT = 14, TOP = 10, BOTTOM = 40;

/** A metric against time, a curve a scheme. */
class Chart {
  constructor(chart, zoom, hidden) {
    Object.assign(this, {chart, zoom, hidden});
    this.figure = make("figure");
    this.svg = draw("svg", {role: "img", "aria-label": chart.title});
    this.figure.append(make("figcaption", {}, chart.title), this.svg);
    this.end = Math.max(...chart.curves.map((curve) => curve.time.at(-1)));
    zoom.attach(this.svg, () => [this.svg.getBoundingClientRect().left + LEFT, this.width]);
    zoom.listeners.push(() => this.redraw());
    this.svg.addEventListener("pointermove", (event) => this.hover(event));
    this.svg.addEventListener("pointerleave", (event) => this.leave(event));
    new ResizeObserver(() => this.redraw()).observe(this.figure);
  }

  get width() {
    return Math.max(50, this.figure.clientWidth - LEFT - RIGHT);
  }

  /** Where a time is on the whole axis, from 0 to 1: linear, or from `linearUntil` on logarithmic. */
  share(time) {
    const linear = this.chart.linearUntil;
    if (linear === null) return time / this.end;
    const bent = (t) => (t <= linear ? 0.5 * t / linear : 0.5 + Math.log10(t / linear));
    return bent(time) / bent(this.end);
  }

  time(share) {
    const linear = this.chart.linearUntil;
    if (linear === null) return share * this.end;
    const bent = share * (0.5 + Math.log10(this.end / linear));
    return bent <= 0.5 ? 2 * bent * linear : linear * 10 ** (bent - 0.5);
  }

  x(time) {
    return LEFT + this.width * (this.share(time) - this.zoom.a) / (this.zoom.b - this.zoom.a);
  }

  y(value) {
    const scale = this.chart.logarithmic ? Math.log : (v) => v, [low, high] = this.range.map(scale);
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (scale(value) - low) / (high - low));
  }

  get curves() {
    return this.chart.curves.filter((curve) => !this.hidden.has(curve.name));
  }

  isShown(value) {
    return value !== null && (!this.chart.logarithmic || value > 0);
  }

  setRange() {
    const values = this.chart.curves.flatMap((curve) => [...curve.low, ...curve.high]).filter((v) => this.isShown(v));
    if (this.isShown(this.chart.target)) values.push(this.chart.target);
    let low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!values.length) [low, high] = [0.1, 1];
    if (this.chart.from !== null) [low, high] = [this.chart.from, 1];
    if (low === high) [low, high] = this.chart.logarithmic ? [low / 2, high * 2] : [low - 1, high + 1];
    this.range = this.chart.logarithmic ? [low / 1.1, high * 1.1] : [low, high];
  }

  redraw() {
    this.setRange();
    const id = `clip-${this.chart.metric.replace(/\W/g, "-")}`, area = draw("g", {"clip-path": `url(#${id})`});
    const clip = draw("clipPath", {id});
    clip.append(draw("rect", {x: LEFT, y: TOP - 4, width: this.width, height: HEIGHT - TOP - BOTTOM + 8}));
    this.svg.setAttribute("viewBox", `0 0 ${this.width + LEFT + RIGHT} ${HEIGHT}`);
    this.svg.setAttribute("height", HEIGHT);
    this.svg.replaceChildren(clip, ...this.axes(), area);
    for (const curve of this.curves) area.append(...this.curve(curve));
    if (this.isShown(this.chart.target)) area.append(...this.targetLine());
    this.cross = draw("line", {y1: TOP, y2: HEIGHT - BOTTOM, stroke: "var(--soft)", visibility: "hidden"});
    this.svg.append(this.cross);
  }

  axes() {
    const bottom = HEIGHT - BOTTOM, right = LEFT + this.width, elements = [];
    const text = (x, y, anchor, content) => draw("text", {x, y, "text-anchor": anchor}, content);
    const values = this.chart.logarithmic ? roundPowers(...this.range) : roundNumbers(...this.range, 6);
    for (const value of values) {
      const y = this.y(value);
      elements.push(draw("line", {x1: LEFT, x2: right, y1: y, y2: y, stroke: "var(--line)", "stroke-width": 0.7}));
      elements.push(text(LEFT - 6, y + 4, "end", short(value)));
    }
    let free = -Infinity;
    for (const time of this.ticks()) {
      const x = this.x(time);
      if (x < LEFT - 1 || x > right + 1 || x < free) continue;
      free = x + 44;
      elements.push(draw("line", {x1: x, x2: x, y1: bottom, y2: bottom + 4, stroke: "var(--soft)"}));
      elements.push(text(x, bottom + 17, "middle", short(time)));
    }
    elements.push(draw("line", {x1: LEFT, x2: right, y1: bottom, y2: bottom, stroke: "var(--soft)"}));
    const linear = this.chart.linearUntil;
    const label = linear === null ? this.chart.clock : `${this.chart.clock}, linear up to ${short(linear)}`;
    elements.push(text(LEFT + this.width / 2, HEIGHT - 6, "middle", label));
    return elements;
  }

  ticks() {
    const first = this.time(this.zoom.a), last = this.time(this.zoom.b), linear = this.chart.linearUntil;
    if (linear === null || last < 8 * first || last <= linear) return roundNumbers(first, last, this.width / 90);
    return [0, ...roundPowers(Math.max(first, linear), last)];
  }

  targetLine() {
    const y = this.y(this.chart.target), x = LEFT + this.width;
    return [
      draw("line", {x1: LEFT, x2: x, y1: y, y2: y, stroke: "var(--soft)", "stroke-dasharray": "2 3"}),
      draw("text", {x: x - 2, y: y - 4, "text-anchor": "end"}, "target"),
    ];
  }

  curve(curve) {
    const stroke = colourOf(curve), elements = [];
    const points = (values, order) => order.filter((i) => this.isShown(values[i]))
      .map((i) => `${this.x(curve.time[i]).toFixed(1)},${this.y(values[i]).toFixed(1)}`);
    const forward = curve.time.map((_, i) => i), backward = [...forward].reverse();
    if (curve.band) {
      const around = [...points(curve.low, forward), ...points(curve.high, backward)].join(" ");
      elements.push(draw("polygon", {points: around, fill: stroke, "fill-opacity": 0.13}));
    }
    elements.push(draw("polyline", {points: points(curve.mean, forward).join(" "), fill: "none", stroke,
      "stroke-width": 1.9, "stroke-dasharray": curve.dashes.join(" "), "stroke-linejoin": "round", class: "curve"}));
    if (curve.halted && this.isShown(curve.mean.at(-1))) {
      const x = this.x(curve.time.at(-1)), y = this.y(curve.mean.at(-1));
      elements.push(draw("path", {d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10`, stroke, "stroke-width": 3}));
    }
    return elements;
  }

  hover(event) {
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    if (x < LEFT || x > LEFT + this.width) return this.leave(event);
    const time = this.time(this.zoom.a + (this.zoom.b - this.zoom.a) * (x - LEFT) / this.width);
    for (const end of ["x1", "x2"]) this.cross.setAttribute(end, x);
    this.cross.setAttribute("visibility", "visible");
    const lines = this.curves.slice(0, 16).map((curve) => [curve.name, textAt(curve, time), colourOf(curve)]);
    showTip(event, [[`${short(time)} s`, this.chart.metric], ...lines]);
  }

  leave(event) {
    this.cross.setAttribute("visibility", "hidden");
    showTip(event, []);
  }
}

function colourOf(curve) {
  return curve.colour === "#000000" ? "var(--ink)" : curve.colour;
}

/** The mean at a time, and whether the curve has ended by then. */
function textAt(curve, time) {
  const after = curve.time.findIndex((t) => t >= time);
  if (after < 0) return `${short(curve.mean.at(-1) ?? NaN)} (${curve.halted ? "halted" : "ended"})`;
  if (after === 0) return short(curve.mean[0] ?? NaN);
  const [t0, t1, v0, v1] = [curve.time[after - 1], curve.time[after], curve.mean[after - 1], curve.mean[after]];
  return v0 === null || v1 === null ? "–" : short(v0 + (v1 - v0) * (time - t0) / (t1 - t0));
}

/** All charts, with one legend whose buttons hide and show schemes. */
function startCharts(place, charts) {
  const zoom = new Zoom(1e-3), hidden = new Set(), figures = make("div", {class: "figures"});
  const drawn = charts.map((chart) => new Chart(chart, zoom, hidden)), legend = make("div", {class: "legend"});
  figures.append(...drawn.map((chart) => chart.figure));
  for (const curve of charts[0].curves) {
    const button = make("button", {type: "button", "aria-pressed": "true"}), line = draw("svg", {viewBox: "0 0 34 12"});
    line.append(draw("line", {x1: 0, x2: 34, y1: 6, y2: 6, stroke: colourOf(curve), "stroke-width": 2.5,
      "stroke-dasharray": curve.dashes.join(" ")}));
    button.append(line, make("span", {}, curve.name + (curve.halted ? " ✕" : "")));
    button.addEventListener("click", () => {
      if (!hidden.delete(curve.name)) hidden.add(curve.name);
      button.setAttribute("aria-pressed", String(!hidden.has(curve.name)));
      drawn.forEach((chart) => chart.redraw());
    });
    legend.append(button);
  }
  place.append(legend, zoom.tools(), figures);
  drawn.forEach((chart) => chart.redraw());
}
