"use strict";
// Lays the frames out again for zoom, search and window width. Names are only ever read and set as text.
(function () {
  const svg = document.documentElement.tagName === "svg" ? document.documentElement : document.currentScript.closest("svg");
  const number = (name) => Number(svg.dataset[name]);
  const [total, side, charPx] = ["total", "side", "char"].map(number);
  const unit = svg.dataset.unit, icicle = svg.dataset.icicle === "1";
  const isDocument = document.documentElement === svg, scrollbarPx = 18;
  const XHTML = "http://www.w3.org/1999/xhtml", SVG = "http://www.w3.org/2000/svg";
  const frames = Array.from(document.getElementById("frames").children, (g, index) => ({
    g, index, title: g.firstElementChild.textContent, rect: g.children[1], text: g.children[2],
    name: g.firstElementChild.textContent.replace(/ \([^()]*%(?:;[^()]*)?\)$/, ""),
    offset: Number(g.dataset.o), weight: Number(g.dataset.w), own: Number(g.dataset.s),
    depth: Number(g.dataset.d), hidden: Number(g.dataset.h || 0),
  }));
  const details = document.getElementById("details");
  let width = svg.viewBox.baseVal.width, zoomed = frames[0], focused = frames[0], pattern = "";

  // the tree: parents stand before children, and a child lies within its parent's weight
  const open = [];
  for (const frame of frames) {
    while (open.length > frame.depth) open.pop();
    frame.parent = open[frame.depth - 1] || null;
    frame.children = [];
    if (frame.parent) frame.parent.children.push(frame);
    open[frame.depth] = frame;
  }

  function amount(value) {
    if (unit !== "ns") return value.toLocaleString("en-US") + " " + unit;
    for (const [scale, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]])
      if (value >= scale) return (value / scale).toFixed(2) + " " + name;
    return value + " ns";
  }
  const percent = (part, whole) => (whole ? (part * 100) / whole : 0).toFixed(2) + " %";

  function fitting(name, px) {
    const room = Math.floor((px - 6) / charPx);
    if (name.length <= room) return name;
    if (room < 3) return "";
    if (name.includes("::") || name.includes("/")) return "\u2026" + name.slice(name.length - room + 1);
    return name.slice(0, room - 1) + "\u2026";
  }

  function isAbove(frame, other) {
    return frame.depth < other.depth && frame.offset <= other.offset && frame.offset + frame.weight >= other.offset + other.weight;
  }

  function layout() {
    const inner = width - 2 * side, from = zoomed.offset, scale = inner / zoomed.weight;
    for (const frame of frames) {
      const parent = isAbove(frame, zoomed);
      const inside = frame === zoomed || isAbove(zoomed, frame);
      const px = parent ? inner : frame.weight * scale;
      const seen = parent || (inside && px >= 0.1);
      frame.g.classList.toggle("off", !seen);
      frame.g.classList.toggle("parent", parent);
      if (!seen) continue;
      const x = parent ? side : side + (frame.offset - from) * scale;
      frame.rect.setAttribute("x", x.toFixed(2));
      frame.rect.setAttribute("width", (px > 3 ? px - 0.5 : px).toFixed(2)); // a gap between siblings
      frame.text.setAttribute("x", (x + 3).toFixed(2));
      const label = fitting(frame.name, px);
      if (frame.text.textContent !== label) frame.text.textContent = label;
    }
  }

  function tell(frame) {
    let told = frame.name + ": " + amount(frame.weight) + ", " + percent(frame.weight, total) + " of all";
    if (zoomed !== frames[0]) told += ", " + percent(frame.weight, zoomed.weight) + " of the zoomed frame";
    told += "; itself " + amount(frame.own);
    if (frame.hidden) told += "; " + percent(frame.hidden, frame.weight) + " in frames too narrow to draw";
    details.textContent = told;
  }

  function zoom(frame, keepState) {
    zoomed = frame;
    layout();
    tell(frame);
    reset.disabled = frame === frames[0];
    if (!keepState) saveState();
  }

  function focus(frame) {
    focused.g.setAttribute("tabindex", "-1");
    focused = frame;
    frame.g.setAttribute("tabindex", "0");
    frame.g.focus({ preventScroll: false });
    tell(frame);
  }

  function search(text, keepState) {
    pattern = text;
    let test = null;
    field.setCustomValidity("");
    if (text) {
      try {
        const expression = new RegExp(text);
        test = (name) => expression.test(name);
      } catch (error) {
        found.textContent = "not a regular expression: " + error.message;
        field.setCustomValidity("not a regular expression");
        return;
      }
    }
    let matched = 0, count = 0, end = -1;
    for (const frame of frames) {
      const hit = test !== null && frame.depth > 0 && test(frame.name);
      frame.g.classList.toggle("hit", hit);
      if (!hit) continue;
      count += 1;
      if (frame.offset >= end) {
        // frames above it in its own stack count once
        matched += frame.weight;
        end = frame.offset + frame.weight;
      }
    }
    found.textContent = test ? percent(matched, total) + " matched (" + amount(matched) + ", " + count + " frames)" : "";
    if (!keepState) saveState();
  }

  function saveState() {
    const state = new URLSearchParams();
    if (zoomed !== frames[0]) state.set("zoom", String(zoomed.index));
    if (pattern) state.set("search", pattern);
    const text = state.toString();
    history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
  }

  function loadState() {
    const state = new URLSearchParams(location.hash.slice(1));
    const text = state.get("search") || "";
    field.value = text;
    search(text, true);
    zoom(frames[Number(state.get("zoom"))] || frames[0], true);
  }

  // controls, which a still picture does not have
  const html = (name) => document.createElementNS(XHTML, name);
  const place = document.getElementById("controls");
  const box = document.createElementNS(SVG, "foreignObject");
  box.setAttribute("height", "30");
  box.setAttribute("y", String(Number(place.dataset.y) - 18));
  box.setAttribute("x", place.dataset.x);
  const form = html("form"), field = html("input"), reset = html("button"), found = html("output");
  field.type = "search";
  field.placeholder = "search (regular expression)";
  field.setAttribute("aria-label", "search frames");
  reset.type = "button";
  reset.textContent = "reset zoom";
  form.append(field, reset, found);
  box.append(form);
  place.append(box);
  form.addEventListener("submit", (event) => { event.preventDefault(); search(field.value); });
  field.addEventListener("input", () => search(field.value));
  reset.addEventListener("click", () => zoom(frames[0]));

  for (const frame of frames) {
    frame.g.setAttribute("tabindex", "-1");
    frame.g.setAttribute("role", "button");
    frame.g.addEventListener("click", () => { focus(frame); zoom(frame); });
    frame.g.addEventListener("mouseenter", () => tell(frame));
  }
  frames[0].g.setAttribute("tabindex", "0");

  function step(frame, key) {
    const outward = icicle ? "ArrowUp" : "ArrowDown", inward = icicle ? "ArrowDown" : "ArrowUp";
    const drawn = (list) => list.filter((one) => !one.g.classList.contains("off"));
    if (key === outward) return frame.parent;
    if (key === inward) return drawn(frame.children).sort((one, other) => other.weight - one.weight)[0];
    const siblings = frame.parent ? drawn(frame.parent.children) : [frame];
    const at = siblings.indexOf(frame) + (key === "ArrowLeft" ? -1 : 1);
    return siblings[at];
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target === field;
    if ((event.key === "f" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !typing)) {
      event.preventDefault();
      field.focus();
      field.select();
    } else if (event.key === "Escape") {
      field.value = "";
      search("", true);
      zoom(frames[0]);
      if (typing) focus(zoomed);
    } else if (!typing && event.key.startsWith("Arrow")) {
      const next = step(focused, event.key);
      if (next) { event.preventDefault(); focus(next); }
    } else if (!typing && (event.key === "Enter" || event.key === " ") && event.target !== reset) {
      event.preventDefault();
      zoom(focused);
    } else if (!typing && event.key === "c" && !event.ctrlKey && !event.metaKey && navigator.clipboard) {
      navigator.clipboard.writeText(focused.name);
    }
  });

  function resize() {
    const room = Math.max(600, Math.floor(window.innerWidth) - scrollbarPx);
    if (isDocument && room !== width) {
      width = room;
      svg.setAttribute("width", width);
      svg.setAttribute("viewBox", "0 0 " + width + " " + svg.viewBox.baseVal.height);
      for (const band of document.querySelectorAll("rect.warn")) band.setAttribute("width", width - 2 * side);
    }
    box.setAttribute("width", String(Math.max(300, width - Number(place.dataset.x) - side)));
    layout();
  }
  // the head stays in sight; the root of a graph that is taller than the window too
  const head = document.getElementById("head");
  if (isDocument) {
    window.addEventListener("scroll", () => head.setAttribute("transform", "translate(0," + window.scrollY + ")"));
    if (!icicle) window.scrollTo(0, svg.viewBox.baseVal.height);
  }
  window.addEventListener("resize", resize);
  window.addEventListener("hashchange", loadState);
  resize();
  loadState();
  svg.dataset.ready = "1";
})();
