"use strict";

/** The part [a, b] of [0, 1] that several figures show; wheel, drag, pinch and keys change it for all of them. */
class Zoom {
  constructor(smallest) {
    Object.assign(this, {a: 0, b: 1, smallest, listeners: []});
  }

  set(a, width) {
    width = Math.min(1, Math.max(this.smallest, width));
    this.a = Math.min(Math.max(0, a), 1 - width);
    this.b = this.a + width;
    this.listeners.forEach((listener) => listener());
  }

  /** Makes the part so many times as wide, around a share of it that stays where it is. */
  scale(factor, share = 0.5) {
    const width = Math.min(1, Math.max(this.smallest, (this.b - this.a) * factor));
    this.set(this.a + share * (this.b - this.a - width), width);
  }

  move(share) {
    this.set(this.a + share * (this.b - this.a), this.b - this.a);
  }

  reset() {
    this.set(0, 1);
  }

  /** Lets an element change the part; `area()` is [left, width] of its drawing, in pixels of the window. */
  attach(element, area) {
    const share = (event) => (event.clientX - area()[0]) / area()[1];
    const pointers = new Map();
    element.tabIndex = 0;
    element.addEventListener("wheel", (event) => {
      const isWanted = event.ctrlKey || event.metaKey || document.activeElement === element;
      const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!isWanted && !isSideways) return;
      event.preventDefault();
      if (isSideways) this.move(event.deltaX / area()[1]);
      else this.scale(Math.exp(event.deltaY * 0.002), share(event));
    }, {passive: false});
    element.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, share(event));
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId)) return;
      const before = [...pointers.values()];
      pointers.set(event.pointerId, share(event));
      const now = [...pointers.values()];
      if (now.length === 1) this.move(before[0] - now[0]);
      else this.pinch(before, now);
    });
    for (const kind of ["pointerup", "pointercancel"]) {
      element.addEventListener(kind, (event) => pointers.delete(event.pointerId));
    }
    element.addEventListener("dblclick", () => this.reset());
    element.addEventListener("keydown", (event) => this.key(event));
  }

  pinch(before, now) {
    const [distance, wasDistance] = [now, before].map((p) => Math.max(0.02, Math.abs(p[0] - p[1])));
    this.move((before[0] + before[1] - now[0] - now[1]) / 2);
    this.scale(wasDistance / distance, (now[0] + now[1]) / 2);
  }

  key(event) {
    const actions = {
      ArrowLeft: () => this.move(-0.1), ArrowRight: () => this.move(0.1), Home: () => this.reset(),
      "0": () => this.reset(), "+": () => this.scale(0.7), "=": () => this.scale(0.7), "-": () => this.scale(1 / 0.7),
    };
    if (!(event.key in actions) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  /** Buttons and a sentence on how the part is changed. */
  tools() {
    const tools = make("div", {class: "tools"});
    const actions = [["−", "show more time", () => this.scale(2)], ["+", "show less time", () => this.scale(0.5)],
      ["‹", "earlier", () => this.move(-0.25)], ["›", "later", () => this.move(0.25)],
      ["all", "show all", () => this.reset()]];
    for (const [text, label, action] of actions) {
      const button = make("button", {type: "button", "aria-label": label, title: label}, text);
      button.addEventListener("click", action);
      tools.append(button);
    }
    tools.append(make("span", {class: "note"}, "Drag to move; pinch, or click and turn the wheel, to zoom; keys ← → + − 0."));
    return tools;
  }
}

/** An element of HTML with attributes and text. */
function make(tag, attributes = {}, text = "") {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

/** An element of SVG with attributes and text. */
function draw(tag, attributes = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

/** Shows lines [left text, right text] beside the pointer; hides them if there is none. */
function showTip(event, lines) {
  const tip = document.getElementById("tip");
  tip.hidden = !lines.length;
  tip.replaceChildren(...lines.map(([left, right, colour]) => {
    const line = make("div"), name = make("span", {}, left);
    if (colour) name.style.color = colour;
    line.append(name, make("b", {}, right));
    return line;
  }));
  const {width, height} = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${event.clientY + height + 24 > innerHeight ? event.clientY - height - 12 : event.clientY + 14}px`;
}

/** A number with few digits. */
function short(value) {
  return value === 0 ? "0" : Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6 ? value.toExponential(2)
    : String(Number(value.toPrecision(4)));
}

/** Round numbers between two, about so many. */
function roundNumbers(low, high, count) {
  const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999);
  const numbers = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) numbers.push(Number((i * step).toPrecision(12)));
  return numbers;
}

/** Numbers 1, 2 and 5 times powers of ten between two; powers of ten only, if there are many. */
function roundPowers(low, high) {
  const factors = Math.log10(high / low) > 3 ? [1] : Math.log10(high / low) > 0.7 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  const numbers = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const factor of factors) numbers.push(Number((factor * 10 ** power).toPrecision(6)));
  }
  return numbers.filter((number) => number >= low * 0.999 && number <= high * 1.001);
}
